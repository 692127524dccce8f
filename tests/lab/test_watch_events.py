"""What `sluggish watch` tells as it happens, and what is no alarm: ends, restarts, lost links."""

import json
import time

from . import cluster, live, sims, sysfs
from .cluster import Lab
from .watching import LEFT, QUICK, STOP, UNTIL_TOLD, sampled, sleeping, watching


def test_events_are_told_as_they_happen_and_the_end_of_the_job_is_no_alarm(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    try:
        with sleeping(lab, UNTIL_TOLD) as job, watching(lab, "--job", job) as watched:
            watched.until("watched")
            cluster.wait_for(lambda: sampled(lab) == 2, 20, "no sampler on the nodes")
            time.sleep(1.5)  # the sampler's dmesg follows from now on
            sims.kernel(lab, LEFT[0], XID)
            event = watched.until("xid", 15, LEFT[0])
            assert event["says"].startswith("Xid 79 on GPU 0000:1b:00.0")
            sims.kernel(lab, LEFT[1], OOM)
            assert "python" in watched.until("oom", 15, LEFT[1])["says"]
            sysfs.port_down(lab, LEFT[1], "mlx5_1")
            assert watched.until("port down", 15, LEFT[1])["says"].startswith("mlx5_1/1")
            sysfs.port_up(lab, LEFT[1], "mlx5_1")
            watched.until("port up", 15, LEFT[1])
            stop.touch()
            assert watched.until("ended", 20)["says"] == "COMPLETED"
            assert watched.code() == 0
        assert not {"node lost", "alert", "quiet", "rank gone"} & set(watched.kinds)
        cluster.wait_for(lambda: sampled(lab) == 0, 20, "a sampler stayed behind")
    finally:
        stop.unlink(missing_ok=True)
        for node in LEFT:
            sims.clear_kernel(lab, node)
        sysfs.port_up(lab, LEFT[1], "mlx5_1")


XID = "NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
OOM = (
    "Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:5001 pgtables:1kB oom_score_adj:0"
)


def test_by_srun_the_session_dies_with_the_job_and_that_is_no_alarm(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    argv = ["--transport", "srun"]
    with (
        sleeping(lab, UNTIL_TOLD) as job,
        watching(lab, "--job", job, *argv, user="alice") as watched,
    ):
        watched.until("watched")
        cluster.wait_for(lambda: sampled(lab) == 2, 30, "no sampler on the nodes")
        stop.touch()
        assert watched.until("ended", 40)["says"] == "COMPLETED"
        assert watched.code() == 0
    stop.unlink()
    assert not {"node lost", "alert"} & set(watched.kinds)


def test_a_job_that_failed_is_looked_at_when_it_ends(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    with sleeping(lab, f"{UNTIL_TOLD}; exit 3") as job, watching(lab, "--job", job) as watched:
        watched.until("watched")
        stop.touch()
        assert watched.until("ended", 40)["says"] == "FAILED"
        cause = watched.until("diagnosis", 60)["diagnosis"]["verdict"]["cause"]
        assert watched.code() == {"app_crash": 16, "not_running": 19, "unknown": 20}[cause]
    stop.unlink()


def test_a_job_that_slurm_does_not_know_is_said_in_a_line(lab: Lab) -> None:
    with watching(lab, "--job", "4711") as watched:
        assert watched.code() == 30
        assert watched.until("unknown", 5)["says"]
    with watching(lab, "--job", "x") as watched:
        assert watched.code() == 2


def test_a_watch_that_was_killed_goes_on_where_it_was(lab: Lab) -> None:
    stop, kept = lab.path("login", STOP), "/root/.local/state/sluggish/watch"
    stop.unlink(missing_ok=True)
    with sleeping(lab, UNTIL_TOLD) as job:
        file = lab.path("login", f"{kept}/watch-{job}.json")
        with watching(lab, "--job", job) as watched:
            watched.until("watched")
            cluster.wait_for(file.exists, 60, "the watch keeps no state")
            cluster.end(watched.process)  # SIGKILL
        assert json.loads(file.read_text())["job"] == job
        cluster.wait_for(lambda: sampled(lab) == 0, 30, "a sampler stayed behind")
        with watching(lab, "--job", job) as watched:
            watched.until("watched")
            stop.touch()
            assert watched.until("ended", 30)["says"] == "COMPLETED"
            assert watched.code() == 0
        assert not file.exists()
    stop.unlink()


def test_a_person_reads_lines_where_there_is_no_terminal(lab: Lab) -> None:
    stop = lab.path("login", STOP)
    stop.unlink(missing_ok=True)
    with sleeping(lab, UNTIL_TOLD) as job:
        process = live.sluggish(lab, ["watch", "--job", job, *QUICK], None)
        try:
            assert process.stdout
            assert b": watched: wrap on 2 nodes by ssh" in process.stdout.readline()
            stop.touch()
            out, _ = process.communicate(timeout=60)
        finally:
            cluster.end(process)
    stop.unlink()
    assert b": ended: COMPLETED" in out
    assert b"\x1b" not in out
