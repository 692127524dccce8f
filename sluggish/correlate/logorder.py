"""Before or after: events of the job's log by their time, or by their place in the one log."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Place
from sluggish.facts.log import LogSpan, Progress

SAME_MOMENT = timedelta(seconds=2)
"""Stamps of two processes this near say nothing about their order."""


class Event(Protocol):
    """Anything that stands in a log."""

    @property
    def at(self) -> datetime | None: ...
    @property
    def order(self) -> int: ...


def before(one: Event, other: Event, spans: Sequence[LogSpan]) -> bool | None:
    """Whether `one` came before `other`; None where neither clocks nor the log's order tell.

    Order in the text counts only within one log; file order is not time order, so times go first.
    """
    if one.at is not None and other.at is not None:
        if abs(one.at - other.at) > SAME_MOMENT:
            return one.at < other.at
        return one.order < other.order if len(spans) == 1 else None
    if len(spans) == 1:
        return one.order < other.order
    return None


def before_timeouts(
    one: Event, timeouts: Iterable[WatchdogTimeout], spans: Sequence[LogSpan]
) -> bool | None:
    """Whether it came before the first watchdog timeout. True where no rank timed out at all."""
    answers = [before(one, timeout, spans) for timeout in timeouts]
    if False in answers:
        return False
    return None if None in answers else True


def went_on(one: Event, steps: Iterable[Progress], spans: Sequence[LogSpan]) -> bool:
    """Whether training steps were printed well after it: then it did not stop the job."""
    later = sum(1 for step in steps if step.kind == "step" and before(one, step, spans) is True)
    return later >= 3


def rank_of(
    places: Iterable[Place], node: str | None, pid: int | None, local_rank: int | None
) -> int | None:
    """The global rank of a pid or a local rank on a node; None where it is not known."""
    for place in places:
        if node is None or place.node is None or place.node.split(".")[0] != node.split(".")[0]:
            continue
        if pid is not None and place.pid == pid:
            return place.rank
        if pid is None and local_rank is not None and place.local_rank == local_rank:
            return place.rank
    return None


def first(events: Iterable[Event]) -> Event | None:
    """The earliest by time; those without a time go by their order, after those that have one."""
    return min(events, key=key, default=None)


def key(event: Event) -> tuple[bool, float, int]:
    """Sorts by time, then by place in the log."""
    at = event.at
    return (at is None, at.timestamp() if at is not None else 0.0, event.order)
