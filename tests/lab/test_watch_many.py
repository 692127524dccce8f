"""`sluggish watch` of many jobs: a partition's, arrays, heterogeneous and requeued ones."""

from collections.abc import Iterator
from contextlib import contextmanager

from . import cluster
from .cluster import Lab
from .watching import STOP, watching

UNTIL = f"until [ -e {STOP}.$SLURM_JOB_ID ] || [ -e {STOP} ]; do sleep 0.2; done"


@contextmanager
def submitted(lab: Lab, *argv: str) -> Iterator[str]:
    """A job of alice that runs until it is told to end; not waited for."""
    run = ["sbatch", "--parsable", "-o", "/dev/null", *argv]
    job = lab.exec("login", run, "alice", check=True).stdout.strip()
    try:
        yield job
    finally:
        lab.exec("ctl", ["scancel", job])
        shown = ["squeue", "-h", "-j", job]
        cluster.wait_for(lambda: not lab.exec("ctl", shown).stdout, 30, "the job does not end")


def plain(script: str = UNTIL) -> list[str]:
    return ["--wrap", f"srun sh -c '{script}'"]


def raw(lab: Lab, task: str) -> str:
    """Slurm's own number of an array's task."""
    rows = lab.exec("ctl", ["squeue", "-h", "-t", "all", "-o", "%i %A"]).stdout.splitlines()
    return dict(row.split() for row in rows)[task]


def test_jobs_of_a_partition_come_and_go_and_a_requeued_one_comes_back(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    try:
        with watching(lab, "--partition", "gpu") as watched:
            assert watched.until("waits")["says"].startswith("no job in partition gpu runs")
            with submitted(lab, "-N1", "--requeue", *plain()) as first:
                assert watched.until("watched")["job"] == first
                with submitted(lab, "-N2", *plain()) as second:
                    told = watched.until("watched")
                    assert (told["job"], "on 2 nodes" in told["says"]) == (second, True)
                    lab.path("login", f"{STOP}.{second}").touch()
                    ended = watched.until("ended")
                    assert (ended["job"], ended["says"]) == (second, "COMPLETED")
                lab.exec("ctl", ["scontrol", "requeue", first], check=True)
                assert watched.until("requeued")["job"] == first
                # it may begin after two minutes, by Slurm's own rule
                begin = ["scontrol", "update", f"JobId={first}", "StartTime=now"]
                lab.exec("ctl", begin, check=True)
                assert watched.until("watched")["job"] == first
                stop.touch()
                ended = watched.until("ended")
                assert (ended["job"], ended["says"]) == (first, "COMPLETED")
            assert watched.process.poll() is None
            assert not {"alert", "node lost", "diagnosis", "unknown"} & set(watched.kinds)
    finally:
        for mark in stop.parent.glob(f"{stop.name}*"):
            mark.unlink()


def test_an_array_is_followed_task_by_task_to_its_end(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    try:
        with (
            submitted(lab, "-N1", "--array=1-3%2", *plain()) as job,
            watching(lab, "--job", job) as watched,
        ):
            first = {watched.until("watched")["job"] for _ in range(2)}
            assert first == {f"{job}_1", f"{job}_2"}
            lab.path("login", f"{STOP}.{raw(lab, f'{job}_2')}").touch()
            assert watched.until("watched")["job"] == f"{job}_3"
            stop.touch()
            while watched.kinds.count("ended") < 3:
                watched.until("ended")
            assert watched.code() == 0
        ended = {(e["job"], e["says"]) for e in watched.events if e["kind"] == "ended"}
        assert ended == {(f"{job}_{task}", "COMPLETED") for task in (1, 2, 3)}
    finally:
        for mark in stop.parent.glob(f"{stop.name}*"):
            mark.unlink()


def test_the_parts_of_a_heterogeneous_job_are_one_job(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    script = ["--wrap", f"srun --het-group=0,1 sh -c '{UNTIL}'"]
    try:
        with (
            submitted(lab, "-N1", "-w", "node01", *script, ":", "-N1", "-w", "node02") as job,
            watching(lab, "--user", "alice") as found,
            watching(lab, "--job", job) as watched,
        ):
            # a scheduler of its own starts it, twice a minute
            for one in (watched, found):
                told = one.until("watched", 90)
                assert (told["job"], "on 2 nodes" in told["says"]) == (job, True)
            stop.touch()
            assert watched.until("ended")["says"] == "COMPLETED"
            assert watched.code() == 0
            assert found.until("ended")["job"] == job
            assert found.kinds.count("watched") == 1
    finally:
        stop.unlink(missing_ok=True)
