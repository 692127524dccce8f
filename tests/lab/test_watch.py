"""`sluggish watch` beside real jobs, with its times pressed together."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from . import cluster, live, sims, sysfs
from .cluster import Lab

LEFT = ("node01", "node02")
QUICK = ["--interval", "1", "--notice", "8", "--alert", "10"]


class Watched:
    """A watch that runs, and the events that it has printed."""

    def __init__(self, lab: Lab, argv: list[str], user: str | None = None) -> None:
        self.process = live.sluggish(lab, ["watch", *argv, *QUICK, "--json"], user)
        self.events: list[dict[str, Any]] = []
        self._lines: queue.Queue[bytes] = queue.Queue()
        self.errors: list[bytes] = []
        for stream, take in (
            (self.process.stdout, self._lines.put),
            (self.process.stderr, self.errors.append),
        ):
            threading.Thread(target=self._read, args=(stream, take), daemon=True).start()

    @staticmethod
    def _read(stream: Any, take: Any) -> None:
        for line in iter(stream.readline, b""):
            take(line)

    def until(self, kind: str, seconds: float = 60, node: str | None = None) -> dict[str, Any]:
        """The next event of this kind; the ones before it stand in `events`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                told = b"".join(self.errors[-20:]).decode()
                raise AssertionError(f"no {kind} among {self.events}\n{told}") from None
            event = json.loads(line)
            self.events.append(event)
            if event["kind"] == kind and node in (None, event.get("node")):
                return event

    def code(self, seconds: float = 30) -> int:
        return self.process.wait(seconds)

    @property
    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]


@contextmanager
def watching(lab: Lab, *argv: str, user: str | None = None) -> Iterator[Watched]:
    watched = Watched(lab, list(argv), user)
    try:
        yield watched
    finally:
        cluster.end(watched.process)


@contextmanager
def gpus_work(job: live.Job) -> Iterator[None]:
    """Meanwhile the GPUs of all four ranks are busy, and their power moves."""
    stop = threading.Event()
    levels = (640, 940, 820, 1010, 700)

    def work() -> None:
        turn = 0
        while not stop.wait(0.4):
            turn += 1
            for node in job.nodes:
                state = {}
                for local in range(live.A_NODE):
                    state |= {
                        f"{local}.utilization.gpu": "98",
                        f"{local}.power.draw": str(levels[(turn + local) % len(levels)]),
                        f"{local}.memory.used": "180000",
                    }
                sims.gpus(job.lab, node, state)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.usefixtures("torch_in_lab")
def test_a_hang_is_noticed_and_diagnosed_while_it_lasts(lab: Lab, tmp_path: Path) -> None:
    told = lab.path("login", "/tmp/told.json")
    told.unlink(missing_ok=True)
    with live.running(lab, "odd", 2, LEFT) as job:
        run = ["--job", job.id, "--transport", "ssh", "--exec", "tee /tmp/told.json"]
        with watching(lab, *run) as watched:
            watched.until("watched")
            with gpus_work(job):
                time.sleep(14)  # it learns what moving looks like
            assert not {"quiet", "alert"} & set(watched.kinds)
            job.fault()
            live.wait_quiet(job)
            live.gpus_wait(job, job.culprit)
            alert = watched.until("alert", 45)
            found = watched.until("diagnosis", 60)
            assert watched.code() == 12
    assert {"quiet", "alert"} <= set(watched.kinds)
    assert "log" in alert["signs"]
    verdict = found["diagnosis"]["verdict"]
    assert (verdict["cause"], verdict["culprits"][0]["rank"]) == ("rank_desync", 2)
    document = json.loads(told.read_text())
    assert (document["job"], document["exit_code"]) == (job.id, 12)
    assert document["verdict"]["culprits"][0]["node"] == job.node(2)
    kept = json.loads(lab.exec("login", ["sluggish", "history", "--json"], check=True).stdout)
    for kind in ("alerts", "looks"):
        assert job.id in {one["job"] for one in kept[kind]}


@contextmanager
def sleeping(lab: Lab, script: str, *more: str) -> Iterator[str]:
    """A job of alice on two nodes that does next to nothing."""
    argv = ["sbatch", "--parsable", "-N2", "-w", ",".join(LEFT), "-o", "/home/alice/w.out", *more]
    job = lab.exec("login", [*argv, "--wrap", script], "alice", check=True).stdout.strip()
    running = ["squeue", "-h", "-j", job, "-o", "%T"]
    try:
        cluster.wait_for(
            lambda: lab.exec("ctl", running).stdout.strip() == "RUNNING", 30, "the job does not run"
        )
        yield job
    finally:
        lab.exec("ctl", ["scancel", job])
        cluster.wait_for(lambda: not lab.exec("ctl", running).stdout, 30, "the job does not end")


STOP = "/home/alice/stop"
UNTIL_TOLD = f"srun sh -c 'until [ -e {STOP} ]; do sleep 0.2; done'"


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


def sampled(lab: Lab) -> int:
    """Nodes on which a sampler runs."""
    counts = [lab.exec(node, ["pgrep", "-fc", "nvidia-smi --query-gpu=index,"]) for node in LEFT]
    return sum(int(done.stdout or 0) > 0 for done in counts)


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
