"""What the rules about ends and exceptions share."""

from datetime import datetime

from sluggish.correlate.logorder import before
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Place
from sluggish.facts.log import LogSpan, ProcessExit, PythonError
from sluggish.findings import Spot, View


def spot_of(view: View, error: PythonError) -> Spot:
    """The place of an exception, filled up from the rank's place."""
    place = next((p for p in view.all(Place) if p.rank == error.rank), None)
    return Spot(
        rank=error.rank,
        node=error.node or (place.node if place else None) or node_of_end(view, error),
        pid=error.pid or (place.pid if place else None),
        doing=f"raised {short_type(error)}",
        source_line=error.frame,
    )


def node_of_end(view: View, error: PythonError) -> str | None:
    """srun names the node when the task ends."""
    ends = {e.node for e in view.all(ProcessExit) if _same(error, e)}
    return ends.pop() if len(ends) == 1 else None


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


def proved(view: View, head: PythonError) -> bool:
    """Whether the end is seen, not assumed: others waited in vain, or a launcher saw it end."""
    spans = view.all(LogSpan)
    if any(before(head, timeout, spans) is True for timeout in view.all(WatchdogTimeout)):
        return True
    return any(_same(head, end) for end in view.all(ProcessExit))


def _same(head: PythonError, end: ProcessExit) -> bool:
    if end.exit_code in (None, 0) or end.signal is not None:
        return False
    if head.pid is not None and end.pid is not None:
        return head.pid == end.pid
    return head.rank is not None and head.rank in (end.rank, end.task)
