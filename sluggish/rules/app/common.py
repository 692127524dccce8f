"""What the rules about ends and exceptions share."""

from datetime import datetime

from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.log import LogSpan, PythonError
from sluggish.findings import Spot, View


def spot_of(view: View, error: PythonError) -> Spot:
    """The place of an exception, filled up from the rank's place."""
    place = next((p for p in view.all(Place) if p.rank == error.rank), None)
    return Spot(
        rank=error.rank,
        node=error.node or (place.node if place else None),
        pid=error.pid or (place.pid if place else None),
        doing=f"raised {short_type(error)}",
        source_line=error.frame,
    )


def short_type(error: PythonError) -> str:
    """`torch.cuda.OutOfMemoryError` as `OutOfMemoryError`."""
    return error.type.rsplit(".", 1)[-1]


def who(error: PythonError) -> str:
    return f"rank {error.rank}" if error.rank is not None else "job"


def says(error: PythonError, ranks: int = 1) -> str:
    """`ValueError: bad shape at train.py:118 in main`, with how many ranks raised it."""
    message = error.message.strip().split("\n")[0][:120]
    where = f" at {error.frame}" if error.frame else ""
    many = f" on {ranks} ranks" if ranks > 1 else ""
    return f"{short_type(error)}{': ' + message if message else ''}{where}{many}"


def not_read_whole(view: View) -> str:
    """What an all-clear of the log does not cover."""
    partly = [span for span in view.all(LogSpan) if span.bytes_read < span.bytes_total]
    return "; the log was read in part" if partly else ""


def history(view: View, at: datetime | None) -> bool:
    """Whether an event is from before the job started."""
    look = view.one(Look)
    return bool(at and look and look.job_started_at and at < look.job_started_at)


WINDOW = (Look, Onset, Place, LogSpan)
