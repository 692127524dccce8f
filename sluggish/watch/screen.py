"""A row a job for the live screen: what is known of it in a few words. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sluggish.text import counted
from sluggish.watch import shape, signs
from sluggish.watch.judge import need
from sluggish.watch.state import Job, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job as words; `calm` is False where somebody should look at it."""

    job: str
    nodes: str
    shape: str
    since: str
    life: str
    alert: str
    calm: bool


HEADER = ("job", "nodes", "GPUs", "quiet", "grew", "alert")


def row(job: Job, nodes: int, at: float, rules: Rules) -> Row:
    """The job now. What was not seen is a dash, never a good word."""
    seen = sum(at - node.at <= rules.stale_s for node in job.nodes.values())
    quiet = None if job.quiet_since is None else at - job.quiet_since
    left = None if quiet is None else need(job, rules) - quiet
    alert = "-"
    if job.alerted:
        alert = "told"
    elif left is not None and quiet is not None and quiet >= rules.notice_s:
        # past its time: something still grows, or a job that has not moved yet starts up
        alert = f"in {_short(left)}" if left > 0 else "held back"
    return Row(
        job=job.job,
        nodes=f"{seen}/{nodes}",
        shape=_shapes(job),
        since="-" if quiet is None else _short(quiet),
        life=", ".join(signs.of_life(job, at, rules)) or "-",
        alert=alert,
        calm=not job.noticed and not job.hard and seen == nodes,
    )


def fitting(rows: Sequence[Row], most: int) -> tuple[list[Row], str]:
    """The rows that have room, those to look at first; and a word of the others."""
    ordered = sorted(rows, key=lambda row: row.calm)
    most = max(1, most)
    shown, rest = ordered[:most], ordered[most:]
    if not rest:
        return shown, ""
    loud = sum(not row.calm for row in rest)
    more = counted(len(rest), "more job", "more jobs")
    return shown, f"{more}, {loud} of them to look at" if loud else f"{more}, all calm"


def _shapes(job: Job) -> str:
    """`15 spin, 1 parked`."""
    found = Counter(
        track.shape
        for node in job.nodes.values()
        for track in node.own().values()
        if track.shape != shape.UNUSED
    )
    return ", ".join(f"{count} {word}" for word, count in found.most_common()) or "-"


def _short(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
