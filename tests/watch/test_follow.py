"""Many jobs at once on recorded streams, links that break, states, the screen."""

import os
import pty
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sluggish.cli.watch_screen import Screen
from sluggish.job import Neighbour
from sluggish.reach import prometheus
from sluggish.reach.model import Answer
from sluggish.reach.prometheus import Value
from sluggish.reach.stream import Link, Streams
from sluggish.watch import dcgm, screen, store
from sluggish.watch.follow import Follow
from sluggish.watch.followed import linked
from sluggish.watch.sample import Sample, parse
from sluggish.watch.state import Event, Job, Rules, encode

RULES = Rules()
WORK = (640, 940, 820, 1010, 700)


def line(number: int, moving: bool, gpus: int = 8) -> str:
    """One sample of a node, as its sampler prints it."""
    rows = ";".join(
        f"{i}, {98 if moving else 100}, 30, {WORK[(number + i) % 5] if moving else 195 + i}.00, "
        "1100.00, 1920, 1920, 180000"
        for i in range(gpus)
    )
    grown = number if moving else 0
    signs = f"{number * 500}|{grown * 10**8}|{grown * 10**9}||{grown} 0|0"
    return f"s|{number * 5}.00|;{rows}|8|8|0|{signs}\n"


def test_twenty_jobs_on_a_hundred_nodes_and_one_of_them_hangs() -> None:
    samples, hang_at = 200, 120
    events: list[Event] = []
    jobs = [f"{n}" for n in range(20)]
    follow = Follow(None, lambda: 0.0, RULES, events.append)  # type: ignore[arg-type]
    for job in jobs:
        nodes = tuple(f"gpu-{job}-{n}" for n in range(5))
        follow.begin(job, raw_id=job, started_at=0.0, nodes=nodes, uid=None, logs=(),
                     transport=None)  # fmt: skip
    sizes: list[int] = []
    began = time.process_time()
    for number in range(samples):
        for job in jobs:
            moving = job != "7" or number < hang_at
            text = line(number, moving)
            for node in follow.jobs[job].nodes:
                found = parse(text, node, 1000.0 + number * RULES.every_s)
                assert isinstance(found, Sample)
                follow.feed([found], [])
        if number in (60, samples - 1):
            sizes.append(sum(len(encode(one.state)) for one in follow.jobs.values()))
    spent = time.process_time() - began
    assert [(e.kind, e.job) for e in events] == [("quiet", "7"), ("alert", "7")]
    assert sizes[1] < 1.1 * sizes[0]
    # a round of all hundred nodes comes every 5 s
    assert spent / samples < 0.5


def test_a_stream_that_breaks_is_begun_again_and_lines_are_put_together() -> None:
    came: list[str] = []

    class Breaks:
        name, at_once, quiet_s = "breaks", None, None
        ran = 0

        def run(self, node: str, script: bytes, deadline_s: float, sink: Any, here: Any) -> Answer:
            self.ran += 1
            here()
            sink(b"s|1.00|a")
            sink(b"b\nhalf a li")
            return Answer(node=node, failure="died", says="broken")

        def close(self) -> None:
            pass

    way = Breaks()
    streams = Streams(time.monotonic, pause_s=0.05)
    streams.follow("1", "n", b"", way, 10)
    until = time.monotonic() + 10
    while way.ran < 3 and time.monotonic() < until:
        for item in streams.take(0.2):
            came.append(getattr(item, "text", getattr(item, "kind", "")))
    streams.close()
    assert came[:5] == ["up", "s|1.00|ab", "down", "up", "s|1.00|ab"]


def test_a_node_is_lost_only_if_slurm_says_afterwards_that_the_job_runs() -> None:
    events: list[Event] = []
    follow = Follow(None, lambda: 100.0, RULES, events.append)  # type: ignore[arg-type]
    follow.begin("7", raw_id="7", started_at=0.0, nodes=("a", "b"), uid=None, logs=(),
                 transport=None)  # fmt: skip
    followed = follow.jobs["7"]
    for tries in (1, 2):
        down = Link(stream="7", node="b", at=50.0, kind="down", failure="unreachable",
                    says="no route", tries=tries)  # fmt: skip
        linked(followed, down, 50.0)
    follow.slurm(None, 90.0)
    follow.slurm({"7": row_of("COMPLETING")}, 95.0)
    assert [e.kind for e in events] == ["slurm silent", "slurm back"]
    follow.slurm({"7": row_of("RUNNING")}, 100.0)
    assert [(e.kind, e.node) for e in events[2:]] == [("node lost", "b")]
    denied = Link(stream="7", node="a", at=50.0, kind="down", failure="auth denied", tries=3)
    linked(followed, denied, 105.0)
    follow.slurm({"7": row_of("RUNNING")}, 110.0)
    assert [(e.kind, e.node) for e in events[3:]] == [("blind", "a")]


def row_of(state: str) -> Neighbour:
    return Neighbour(id="7", raw_id="7", uid=1, user="a", state=state, nodes=("a", "b"))


# -- Prometheus ------------------------------------------------------------------------------------


def values(util: float, xid: float = 0.0, at: float = 10.0) -> prometheus.Answer:
    labels = {"Hostname": "gpu-07.cluster", "gpu": "3"}
    told = {"DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_POWER_USAGE": 195.0,
            "DCGM_FI_PROF_NVLINK_TX_BYTES": 5.0, dcgm.XID: xid}  # fmt: skip
    found = tuple(Value(labels={**labels, "__name__": n}, value=v) for n, v in told.items())
    return prometheus.Answer(values=found, scraped=(Value(labels=labels, value=at),))


def test_a_scrape_is_one_sample_and_an_old_xid_no_news() -> None:
    site = dcgm.Site()
    (sample,), xids = dcgm.samples(values(100, xid=79), site, 11.0)
    assert (sample.node, sample.gpus[0].index, sample.gpus[0].util) == ("gpu-07", 3, 100)
    assert xids == []
    assert dcgm.samples(values(100, xid=79), site, 12.0) == ([], [])
    (sample,), xids = dcgm.samples(values(100, xid=48, at=20.0), site, 21.0)
    assert sample.traffic_bytes == 50
    assert [(x.node, x.gpu, x.code) for x in xids] == [("gpu-07", 3, 48)]


def test_three_hundred_jobs_of_one_prometheus() -> None:
    events: list[Event] = []
    follow = Follow(None, lambda: 0.0, RULES, events.append)  # type: ignore[arg-type]
    for job in range(300):
        follow.begin(f"{job}", raw_id=f"{job}", started_at=0.0, nodes=(f"n{job}",), uid=None,
                     logs=(), transport=None)  # fmt: skip
    site = dcgm.Site()
    began, rounds = time.process_time(), 30
    for number in range(rounds):
        power = float(WORK[number % 5])
        answer = site_of(300, power, 10.0 + 5 * number)
        follow.feed(*dcgm.samples(answer, site, 1000.0 + 5 * number))
    spent = time.process_time() - began
    assert {one.state.shape for one in follow.jobs.values()} == {"moving"}
    assert events == []
    assert spent / rounds < 2.5, "a round of 5 s has to be read in half of it"


def site_of(nodes: int, power: float, at: float) -> prometheus.Answer:
    found: list[Value] = []
    scraped: list[Value] = []
    told = {"DCGM_FI_DEV_GPU_UTIL": 98.0, "DCGM_FI_DEV_POWER_USAGE": power,
            "DCGM_FI_DEV_FB_USED": 90_000.0, "DCGM_FI_DEV_POWER_MGMT_LIMIT": 1100.0}  # fmt: skip
    for node in range(nodes):
        for gpu in range(8):
            labels = {"Hostname": f"n{node}", "gpu": f"{gpu}"}
            found += [Value(labels={**labels, "__name__": n}, value=v) for n, v in told.items()]
            scraped.append(Value(labels=labels, value=at))
    return prometheus.Answer(values=tuple(found), scraped=tuple(scraped))


def test_no_prometheus_is_one_line() -> None:
    assert prometheus.ask("http://127.0.0.1:1", 2).problem.startswith("127.0.0.1: ")


# -- state and screen ------------------------------------------------------------------------------


def test_old_states_are_removed_and_others_files_stay(tmp_path: Path) -> None:
    store.save(tmp_path, Job(job="1"))
    store.save(tmp_path, Job(job="2"))
    (tmp_path / "other").touch()
    for name in ("watch-1.json", "other"):
        os.utime(tmp_path / name, (1, 1))
    store.tidy(tmp_path, time.time())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "watch-2.json"]


def test_a_terminal_shows_a_row_a_job_and_nothing_of_it_is_raw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    row = screen.row(Job(job="7\x1b[31m", noticed=True, quiet_since=0.0), 2, 200.0, RULES)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        monkeypatch.setenv("TERM", "xterm")
        shown = Screen(wanted=True)
        shown.rows([row], 10.0)
        shown.say("12:00:00Z  job 7: quiet")
        shown.pause()
        data = b""
        while b"job 7: quiet" not in data:
            data += os.read(ours, 1 << 16)
        text = data.decode()
    os.close(ours)
    assert "! 7" in text
    assert "0/2" in text
    assert "[31m" not in text.replace("\x1b[1;31m", "")
