"""Facts that correlate derives from others: when, where, in which phase."""

from dataclasses import dataclass
from datetime import datetime

from sluggish.causes import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """When the job was looked at, and which nodes and ranks should have been seen."""

    at: datetime | None
    nodes: tuple[str, ...]
    world_size: int | None
    job_started_at: datetime | None
    loose: bool
    gpus_per_node: int | None = None
    live: bool = True
    """`at` is the moment of the look and not only the end of what was mailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """How far a node's clock stood from the collector's when it was looked at."""

    node: str
    offset_s: float
    """Above zero: the node's is ahead."""
    error_s: float = 0.0
    """Known to more or less this: half the round trip."""
    drift_s: float = 0.0
    """What it gained on the uptime while it was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Onset:
    """When progress stopped: an interval with its source, on the collector's clock."""

    earliest: datetime
    latest: datetime
    source: str
    teardown_at: datetime | None = None
    """First kill, cancel or watchdog abort: everything later is a consequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a rank lives."""

    rank: int
    node: str | None = None
    local_rank: int | None = None
    pid: int | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    gpu_pci: str | None = None
    hca: str | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnGpus:
    """The GPUs of a node that the job holds; where this is not known there is no such fact."""

    node: str
    pci: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What kind of machines these are: it decides which repair is possible, never the cause."""

    cloud: str | None = None
    """Name of the provider whose instances the nodes are, `a cloud` where only that is known."""
    why: str = ""
    rack_domain: bool = False
    """One NVLink domain spans the rack (GB200, GB300): no node of it is reset alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFact:
    """The phase of the job at the look, and what told it."""

    phase: Phase
    since: datetime | None = None
    source: str = ""
