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
                time.sleep(8)  # it learns what moving looks like
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
