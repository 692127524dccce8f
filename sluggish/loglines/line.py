"""Line: one line of a job log with its launcher prefix, colours and carriage returns taken off."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What every reader of log lines is given."""

    text: str
    """Cleaned: no escapes, no launcher prefix (`[rank3]: `, `3: `, `(RayWorker pid=7) `)."""
    raw: str
    """As it stood, for quotes."""
    order: int
    """Position in its log; the only order that lines without a time have."""
    at: datetime | None = None
    """UTC, from a stamp of the line itself or of its prefix."""
    rank: int | None = None
    """Global rank, only where the prefix is a global rank."""
    local_rank: int | None = None
    task: int | None = None
    """Task id of `srun --label`."""
    node: str | None = None
    pid: int | None = None
