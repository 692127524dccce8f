"""A watch that runs in the lab, with its times pressed together, and jobs for it to follow."""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import cluster, live, sims
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
def gpus_work(lab: Lab, nodes: tuple[str, str]) -> Iterator[None]:
    """Meanwhile the GPUs of all four ranks are busy, and their power moves."""
    stop = threading.Event()
    levels = (640, 940, 820, 1010, 700)

    def work() -> None:
        turn = 0
        while not stop.wait(0.4):
            turn += 1
            for node in nodes:
                state = {}
                for local in range(live.A_NODE):
                    state |= {
                        f"{local}.utilization.gpu": "98",
                        f"{local}.power.draw": str(levels[(turn + local) % len(levels)]),
                        f"{local}.memory.used": "180000",
                    }
                sims.gpus(lab, node, state)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


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


def state(lab: Lab, job: str, user: str | None = None) -> dict[str, Any]:
    """What a watch on the login node has written down of this job; {} before it has."""
    home = f"/home/{user}" if user else "/root"
    kept = lab.path("login", f"{home}/.local/state/sluggish/watch/watch-{job}.json")
    return json.loads(kept.read_text()) if kept.exists() else {}


def learn(lab: Lab, job: str, user: str | None = None) -> None:
    """Waits until the watch has seen the job move for long enough to know what quiet is."""
    cluster.wait_for(
        lambda: state(lab, job, user).get("moved_at") is not None, 60, "it learns nothing"
    )


def sampled(lab: Lab) -> int:
    """Nodes on which a sampler runs."""
    counts = [lab.exec(node, ["pgrep", "-fc", "nvidia-smi --query-gpu=index,"]) for node in LEFT]
    return sum(int(done.stdout or 0) > 0 for done in counts)
