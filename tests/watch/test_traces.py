"""Made-up jobs through the watch: a short form of what `scripts/bench/watch` measures.

The seeds are other ones than those on which the thresholds were set (0 to 199) or repaired.
"""

import pytest

from . import odd, play, traces

SEED = 5000


@pytest.mark.parametrize("kind", traces.KINDS)
def test_a_healthy_job_raises_no_alarm(kind: str) -> None:
    told = play.healthy(kind, SEED, 4 * 3600)
    assert told.seconds > 3 * 3600
    assert told.alerts == []


@pytest.mark.parametrize("kind", odd.KINDS)
def test_a_job_of_odd_habits_raises_no_alarm(kind: str) -> None:
    told = play.healthy(kind, SEED, 2 * 3600)
    assert told.seconds > 3600
    assert told.alerts == []


@pytest.mark.parametrize("kind", [*traces.HANGS, *odd.HANGS])
def test_a_hang_is_noticed_in_three_minutes_and_alarmed_before_the_watchdog(kind: str) -> None:
    runs = [play.hanging(kind, SEED + number) for number in range(2)]
    assert [run.alerts for run in runs] == [[], []]
    assert all(run.notice_s is not None and run.notice_s <= 240 for run in runs)
    assert all(run.alert_s is not None and run.alert_s < run.watchdog_s for run in runs)
    assert min(run.notice_s or 0 for run in runs) <= 180


def test_the_generator_makes_hangs_that_a_watch_without_signs_would_not_alarm() -> None:
    """The alarm needs what the generator's healthy jobs have and its hanging ones lack."""
    world = traces.World(SEED)
    phase = traces.checkpoint(world)
    assert phase.write > 0
    assert traces.hang(world, "rank elsewhere").write == 0
