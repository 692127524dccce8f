"""Origin: what a parser may know of the text it is given."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Handed to every `parse`: where the text comes from and how its clock reads."""

    node: str | None = None
    """None: the file does not tell; a parser may find it in the text."""
    rank: int | None = None
    sample: str = ""
    path: str = ""
    command: str | None = None
    taken_at: datetime | None = None
    """When the text was printed, UTC, on the node's clock."""
    boot_at: datetime | None = None
    """`now - uptime` of the same snapshot: turns kernel seconds into wall time."""
    utc_offset_s: int = 0
    """Local zone of the node, seconds east of UTC: for stamps without a zone."""
    stderr: str = ""
    exit_code: int | None = None
    mtime: datetime | None = None
    size: int = 0
    """Bytes of the whole source, where the text is an excerpt of it."""
    ended: tuple[datetime, ...] = ()
    """When the runs before the one that is looked at ended: a log may hold them all."""
    excerpt: bool = False
    """True where only head, tail and matched lines of a big log were read."""


class InPart(ValueError):
    """The text was understood, and its facts are true; it cannot say what else there is."""
