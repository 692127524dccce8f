"""When the job stopped: the onset by its source, and what counts as silence."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sluggish.correlate.timeline import look, onset, step_pace
from sluggish.evidence.model import Bundle
from sluggish.facts.collective import Wait, WatchdogTimeout
from sluggish.facts.derived import Look
from sluggish.facts.log import Progress, SlurmMessage
from sluggish.facts.store import Facts
from sluggish.job import Job

T = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
LOOK = Look(
    at=T + timedelta(minutes=10), nodes=("n1",), world_size=8, job_started_at=None, loose=False
)


def at(seconds: float) -> datetime:
    return T + timedelta(seconds=seconds)


def facts(*those: object) -> Facts:
    found = Facts()
    for fact in those:
        found.add(fact)
    return found


def step(seconds: float) -> Progress:
    return Progress(node=None, rank=0, at=at(seconds), step=int(seconds))


def timeout(seconds: float, ran_ms: int) -> WatchdogTimeout:
    return WatchdogTimeout(
        node=None, rank=1, group_rank=None, group=None, at=at(seconds), seq=5, op="ALLREDUCE",
        ran_ms=ran_ms,
    )  # fmt: skip


def test_of_a_job_that_ends_the_nodes_are_those_that_were_asked():
    """Slurm lists a node no more once it is free; what was seen there still counts."""
    asked = Bundle(nodes=("n1", "n2"))
    ending = Job(id="7", state="COMPLETING", nodes=("n2",))
    assert look(asked, facts(ending)).nodes == ("n1", "n2")
    assert look(asked, facts(replace(ending, state="RUNNING"))).nodes == ("n2",)


@pytest.mark.parametrize("count", [3, 39, 40, 41, 200])
def test_the_pace_is_the_usual_gap_for_any_number_of_steps(count: int):
    assert step_pace([at(19 * n) for n in range(count)]) == timedelta(seconds=19)


def test_one_step_has_no_pace():
    assert step_pace([at(0)]) == timedelta(0)


def test_a_late_watchdog_report_still_dates_the_start_of_the_wait():
    found = onset(facts(timeout(590, 60_000), timeout(595, 595_000)), LOOK, None)
    assert found is not None
    assert found.latest == at(0)
    assert found.source == "watchdog"
    assert found.teardown_at == at(590)


def test_steps_that_come_as_usual_are_no_stall():
    assert onset(facts(*(step(19 * n) for n in range(30))), LOOK, None) is None


def test_slow_steps_are_no_stall_before_five_of_their_own_times():
    slow = facts(step(0), step(200), step(400))
    assert onset(slow, LOOK, None) is None
    later = replace(LOOK, at=at(400 + 1001))
    found = onset(slow, later, None)
    assert found is not None
    assert (found.earliest, found.latest) == (at(400), at(600))


def test_a_cancelled_job_stopped_before_it_was_cancelled():
    cancel = SlurmMessage(node=None, at=at(45), kind="cancelled")
    found = onset(facts(step(0), step(30), cancel), replace(LOOK, at=at(50)), None)
    assert found is not None
    assert (found.earliest, found.latest, found.teardown_at) == (at(30), at(45), at(45))


def test_a_collective_pending_for_minutes_is_the_onset_and_one_of_seconds_is_not():
    wait = Wait(state="mismatch", since=at(0))
    found = onset(facts(), LOOK, wait)
    assert found is not None
    assert found.source == "oldest pending collective"
    assert onset(facts(), replace(LOOK, at=at(30)), wait) is None
