"""What the rules about progress share."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from sluggish.facts.derived import Look
from sluggish.facts.host import RankProcess
from sluggish.facts.log import Progress
from sluggish.findings import View

SOURCE = "job log"
LONGEST_LOOK_S = 60.0
"""Between two samples whose times are not told: a rate is then at least what this gives."""


def span(seconds: float) -> str:
    """`0.4 s`, `45 s`, `12 min`, `3 h 02 min`."""
    if 0 < seconds < 2:
        return f"{seconds:.2g} s"
    whole = max(int(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def live_now(view: View) -> datetime | None:
    """When the job was looked at; None for mailed files that do not tell: their end is no "now"."""
    look = view.one(Look)
    return look.at if look and look.live else None


def pace(steps: Sequence[Progress]) -> timedelta | None:
    """Usual time between two printed steps: of the log's stamps, else of its own step times."""
    times = sorted({s.at for s in steps if s.at is not None})[-60:]
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]
    if gaps:
        return timedelta(seconds=median(gaps))
    own = [s.step_time_s for s in steps[-60:] if s.step_time_s]
    return timedelta(seconds=median(own)) if own else None


def open_mark(marks: Sequence[Progress], start: str, end: str) -> tuple[Progress | None, float]:
    """A beginning without an end, after the last step; and how long earlier ones took at most."""
    opened: Progress | None = None
    longest = 0.0
    for mark in marks:
        if mark.kind == start:
            opened = opened or mark
        elif mark.kind == end or (mark.kind == "step" and opened is not None):
            if opened is not None and opened.at and mark.at:
                longest = max(longest, (mark.at - opened.at).total_seconds())
            opened = None
    return opened, longest


def written_per_s(view: View) -> float | None:
    """Bytes a second that the job's processes wrote between the two samples; None unknown."""
    first = {(p.node, p.pid): p for p in view.all(RankProcess) if p.sample == "a"}
    best: float | None = None
    for after in (p for p in view.all(RankProcess) if p.sample == "b"):
        before = first.get((after.node, after.pid))
        if before is None or after.written_bytes is None or before.written_bytes is None:
            continue
        seconds = (after.at - before.at).total_seconds() if after.at and before.at else 0.0
        grown = after.written_bytes - before.written_bytes
        best = max(best or 0.0, grown / (seconds if seconds > 0 else LONGEST_LOOK_S))
    return best
