"""The lines that appear while a look still runs: what they say, and what they never say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.gpu import Xid
from sluggish.facts.host import Mount, OomKill, RankProcess
from sluggish.facts.log import LogSign, ProcessExit, Progress, PythonError, SlurmMessage
from sluggish.job import Job, NodeState, Step
from sluggish.report import live

NOW = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
JOB = Job(
    id="48213", name="llm", user="alice", state="RUNNING", nodes=("n1", "n2"),
    started_at=NOW - 14 * HOUR, time_limit_s=16 * 3600,
)  # fmt: skip


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def step(minutes: float | None, number: int = 7, order: int = 0) -> Progress:
    at = None if minutes is None else ago(minutes)
    return Progress(node=None, rank=None, at=at, step=number, order=order)


def test_the_job_its_nodes_how_long_it_runs_and_what_time_is_left() -> None:
    (line,) = live.of_job(JOB, NOW)
    assert line == "job 48213 llm of alice RUNNING on 2 nodes n[1-2] for 14h00m (2h00m left)"
    over = replace(JOB, time_limit_s=13 * 3600)
    assert "(past its time limit)" in next(live.of_job(over, NOW))
    ended = replace(JOB, state="FAILED", ended_at=NOW - 2 * HOUR)
    (line,) = live.of_job(ended, NOW)
    assert line.endswith("FAILED on 2 nodes n[1-2] for 12h00m")  # none is left of an ended one
    waiting = Job(id="9", state="PENDING")
    assert list(live.of_job(waiting, NOW)) == ["job 9 PENDING"]


def test_steps_that_failed_are_told_and_others_are_not() -> None:
    steps = (
        Step(id="48213.0", state="RUNNING"),
        Step(id="48213.1", state="OUT_OF_MEMORY", exit_code="0:125"),
        Step(id="48213.2", state="COMPLETED", exit_code="0:0"),
        Step(id="48213.3", exit_code="1:0"),
    )
    _, *told = live.of_job(replace(JOB, steps=steps), NOW)
    assert told == [
        "step 48213.1 OUT_OF_MEMORY, exit code 0:125",
        "step 48213.3 ended, exit code 1:0",
    ]


def test_nodes_that_slurm_holds_for_bad_or_that_booted_under_the_job_are_folded() -> None:
    down = [
        NodeState(node=n, state="DOWN", flags=("NOT_RESPONDING",), reason="Not responding")
        for n in ("n1", "n2", "n3")
    ]
    booted = NodeState(node="n5", state="MIXED", boot_at=NOW - HOUR)
    fine = NodeState(node="n4", state="MIXED", boot_at=NOW - 90 * HOUR)
    told = list(live.of_nodes([*down, fine, booted], JOB.started_at))
    assert told[0] == "n[1-3] DOWN NOT_RESPONDING (Not responding)"
    assert told[1].startswith("n5 booted ")
    assert told[1].endswith(", after the job began")
    assert len(told) == 2


def test_the_run_that_was_lost_before_this_one() -> None:
    lost = Job(
        id="48213", source="sacct", state="NODE_FAIL", nodes=("n7", "n8"),
        started_at=NOW - 20 * HOUR, ended_at=NOW - 15 * HOUR,
    )  # fmt: skip
    down = NodeState(node="n8", state="DOWN")
    other = NodeState(node="n1", state="DOWN")
    (line,) = live.of_lost(JOB, (lost,), [down, other])
    assert line == "its run before, on n[7-8], ended NODE_FAIL at 12:22:10Z: n8 is down"
    (line,) = live.of_lost(JOB, (lost,), [])
    assert line.endswith("ended NODE_FAIL at 12:22:10Z")
    assert list(live.of_lost(JOB, (), [down])) == []


def test_other_jobs_on_the_nodes_are_counted_beyond_four() -> None:
    many = [str(number) for number in range(6)]
    told = list(live.of_others({"n1": many, "n2": many, "n3": ["77"], "n4": []}))
    assert told == ["n[1-2] also run job 0, 1, 2, 3 and 2 more", "n3 also run job 77"]


def test_the_log_s_last_step_its_age_and_when_the_watchdog_will_abort() -> None:
    told = list(live.of_log([step(9, 6), step(4, 7)], NOW, None))
    assert told == [
        "log: last progress step 7, 4 min ago",
        "log: the watchdog aborts in about 6 min, if its timeout is the default of 10 min",
    ]
    assert list(live.of_log([step(0.5)], NOW, None)) == ["log: last progress step 7, 30 s ago"]
    # longer ago than the watchdog waits: nothing is foretold
    assert len(list(live.of_log([step(11)], NOW, None))) == 1


def test_a_watchdog_that_has_fired_is_said_and_its_printer_is_no_culprit() -> None:
    fired = WatchdogTimeout(
        node="n1", rank=3, group_rank=3, group="0", seq=1, op="ALLREDUCE", at=ago(2)
    )
    told = list(live.of_log([step(12), fired], NOW, None))
    assert told[-1].startswith("log: the collectives' watchdog has already fired (")
    assert told[-1].endswith("who prints it is no culprit")
    assert not any("aborts in" in line for line in told)


def test_a_log_without_progress_lines_tells_when_it_was_last_written() -> None:
    assert next(live.of_log([], NOW, ago(3))) == (
        "log: no progress line in its tail; last written 3 min ago"
    )
    assert list(live.of_log([], NOW, None)) == []


@pytest.mark.parametrize(
    ("fact", "says"),
    [
        (PythonError(node=None, rank=3, at=None, type="KeyError", message="'x'"),
         "rank 3: KeyError: 'x'"),
        (SlurmMessage(node=None, at=None, kind="oom", line="oom_kill\x1b[2J event"),
         "Slurm: oom_kill event"),
        (ProcessExit(node=None, rank=1, at=None, signal=9), "rank 1: a process ended by signal 9"),
        (LogSign(node=None, rank=None, at=None, kind="disk_full", line="No space left"),
         "disk full: No space left"),
    ],
)  # fmt: skip
def test_the_first_trouble_of_the_log_is_told_alone_and_harmless(fact: object, says: str) -> None:
    later = PythonError(node=None, rank=0, at=NOW, type="LaterError", message="", order=9)
    told = list(live.of_log([later, fact], NOW, None))
    assert [line for line in told if "trouble" in line] == [f"log: first trouble: {says}"]


def test_what_one_node_answers_is_told_where_it_is_decisive_and_new() -> None:
    xid = Xid(node="n1", pci="0000:44:00.0", code=79, at=ago(2))
    old = Xid(node="n1", pci="0000:44:00.0", code=79, at=NOW - 5 * HOUR)
    mount = Mount(node="n1", path="/data", fstype="nfs", answered=False)
    rank = RankProcess(node="n1", pid=7, state="T", env=(("RANK", "3"),))
    killed = OomKill(node="n1", at=ago(1), process="python", pid=4711)
    told = list(live.decisive([xid, xid, old, mount, killed, rank], NOW))
    assert told[0].startswith("Xid 79 on GPU 0000:44:00.0 at ")
    assert told[0].endswith(" (2 times)")
    assert "mount /data does not answer" in told
    assert any(line.startswith("OOM killer took python") for line in told)
    assert len(told) >= 3
    assert not any("(3 times)" in line for line in told)


def test_the_counts_fold_who_could_not_be_asked_by_why() -> None:
    assert live.counts(16, 12, ["refused", "auth hangs", "refused"]) == (
        "12 of 16 nodes answered, 2 refused, 1 auth hangs, 1 waiting"
    )
    assert live.counts(2, 2, []) == "2 of 2 nodes answered"
