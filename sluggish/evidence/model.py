"""Evidence and Bundle: what is kept of a look at a job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

SCHEMA = 1
"""Number of the bundle format, see docs/bundle-format.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """A node's clock at the time of the look. All times are UTC."""

    node: str
    offset_s: float | None = None
    """Node clock minus the collector's clock; None where it was not measured."""
    error_s: float | None = None
    """Half the round trip: the offset is known to ± this."""
    drift_s: float | None = None
    """What the wall clock gained on the uptime while we looked; not 0 where it was set."""
    now: datetime | None = None
    """The node's own wall clock when `uptime_s` was read."""
    uptime_s: float | None = None
    boot_id: str | None = None
    utc_offset_s: int = 0
    """The node's local zone, seconds east of UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one probe printed on one node, once."""

    node: str | None
    """None where a loose file does not tell its node."""
    probe: str
    """Id of the probe that can parse it, e.g. `kernel_log`."""
    path: str
    """Where it lies, relative to the bundle or as given: for quotes and gaps."""
    sample: str = ""
    """`a` and `b` are the two samples of one look; deltas are taken between them."""
    rank: int | None = None
    """Only for evidence of one rank whose content does not tell it (a dump's file name)."""
    command: str | None = None
    rights: str | None = None
    """`root`, `user` or `sudo`; None where unknown."""
    started_at: datetime | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """`unreachable`, `timeout`, `denied`, `not found`, `stuck`, `truncated`; None if it ran."""
    stderr: str = ""
    loose: bool = False
    """Somebody mailed it: no clock, no exit code, no proof of completeness."""
    size: int = 0
    open: Callable[[], bytes] = field(default=bytes, repr=False, compare=False)
    """Reads the content whole; big logs are read through `window`."""
    file: str | None = None
    """A real file with this content; None when it lies in memory, out of an archive."""
    mtime: datetime | None = None
    window: Callable[[int, int], bytes] | None = field(default=None, repr=False, compare=False)
    """Reads `length` bytes from `offset`: how a log larger than memory is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """A file that was given but is not evidence, and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Everything that one look brought home: manifest, clocks, evidence."""

    schema: int = SCHEMA
    tool_version: str = ""
    job_id: str | None = None
    taken_at: datetime | None = None
    """The collector's `now`; None for loose files that do not tell."""
    nodes: tuple[str, ...] = ()
    """Nodes that were asked, whether they answered or not."""
    clocks: tuple[Clock, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    unread: tuple[Unread, ...] = ()
    path: str = ""
    loose: bool = False
