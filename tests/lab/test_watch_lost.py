"""`sluggish watch` while nodes and Slurm go away and come back, and jobs come and go."""

from . import cluster
from .cluster import Lab
from .watching import LEFT, STOP, UNTIL_TOLD, sampled, sleeping, watching


def test_a_lost_node_and_a_slurm_that_restarts_do_not_end_the_watch(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    try:
        # Slurm itself would end a job whose node does not answer
        with sleeping(lab, UNTIL_TOLD, "-k") as job, watching(lab, "--job", job) as watched:
            watched.until("watched")
            cluster.wait_for(lambda: sampled(lab) == 2, 20, "no sampler on the nodes")
            lab.cut(LEFT[1])
            watched.until("node lost", 60, LEFT[1])
            lab.mend(LEFT[1])
            watched.until("node back", 60, LEFT[1])
            lab.sh("ctl", "pkill -9 -x slurmctld; sleep 5")
            watched.until("slurm silent", 30)
            lab.sh("ctl", "setsid slurmctld -D >/dev/null 2>&1 </dev/null &")
            watched.until("slurm back", 40)
            stop.touch()
            assert watched.until("ended", 30)["says"] == "COMPLETED"
            assert watched.code() == 0
        assert not {"alert", "quiet"} & set(watched.kinds)
    finally:
        stop.unlink(missing_ok=True)
        lab.mend(LEFT[1])


def test_the_jobs_of_a_user_are_found_as_they_begin(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    with sleeping(lab, UNTIL_TOLD) as first, watching(lab, "--user", "alice") as watched:
        assert watched.until("watched")["job"] == first
        with sleeping(lab, UNTIL_TOLD, "--overcommit") as second:
            assert watched.until("watched", 60)["job"] == second
            stop.touch()
            ended = {watched.until("ended", 60)["job"] for _ in range(2)}
            assert ended == {first, second}
        assert watched.process.poll() is None
    stop.unlink()
    with watching(lab, "--user", "no-such-user") as watched:
        assert watched.code() == 2
