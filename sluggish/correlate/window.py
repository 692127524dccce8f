"""Windows around the onset: what may be a cause, what is a consequence, what is history."""

from datetime import datetime, timedelta
from enum import StrEnum

from sluggish.facts.derived import Look, Onset

BEFORE_ONSET = timedelta(minutes=15)
"""An event this long before the stall may still be its cause (one NVSwitch fault took 15 min)."""
SLACK = timedelta(seconds=15)
"""The onset is seen late by as much as a log line or a power sample is."""


class When(StrEnum):
    """Where an event lies relative to the stall."""

    HISTORY = "history"  # before the job started
    EARLIER = "earlier"  # in the job's time, but long before the stall
    CAUSE = "cause"  # in the cause window
    AFTERMATH = "aftermath"  # after the onset, before the first kill
    TEARDOWN = "teardown"  # after the first kill or watchdog abort
    UNKNOWN = "unknown"  # no time, or no onset known


def when(at: datetime | None, look: Look | None, onset: Onset | None) -> When:
    """Place an event. Without a time, or without an onset and a job start, it stays unknown."""
    if at is None:
        return When.UNKNOWN
    if look and look.job_started_at and at < look.job_started_at - SLACK:
        return When.HISTORY
    if onset is None:
        return When.UNKNOWN
    if at < onset.earliest - BEFORE_ONSET:
        return When.EARLIER
    if at <= onset.latest + SLACK:
        return When.CAUSE
    if onset.teardown_at is not None and at >= onset.teardown_at:
        return When.TEARDOWN
    return When.AFTERMATH
