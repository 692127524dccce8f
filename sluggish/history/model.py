"""What the ledger holds: looks at jobs, and alerts of the watcher. Times are UTC."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A culprit of a verdict: a place, which is not yet a fault of that place."""

    node: str | None = None
    rank: int | None = None
    gpu_index: int | None = None
    gpu_pci: str | None = None
    hca: str | None = None
    """The port's HCA, e.g. `mlx5_5`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One live look at a job and its verdict."""

    id: int = 0
    """Rises with every record written: the order, whatever clocks did."""
    job: str
    started: datetime | None = None
    """Start of this run of the job: a requeued job keeps its id. None where it was not seen."""
    at: datetime
    """When it was looked at; with `job` it tells one look from another."""
    name: str | None = None
    user: str | None = None
    cause: str
    subtype: str | None = None
    confidence: str | None = None
    """`high`, `medium`, `low`; None where no cause was proved."""
    shared: bool = False
    """The fault is of something that many nodes share: it convicts none."""
    gpu_hours: float | None = None
    """Held and not used from the onset to the look, or to the job's end if that was before."""
    nodes: str
    """Folded, e.g. `gpu[03-16]`."""
    culprits: tuple[Named, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """The watcher's word that a job stopped, before anything was judged."""

    job: str
    started: datetime | None = None
    at: datetime
    nodes: str
    """Folded."""
    says: str
    """What was noticed, one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What was read of it, in the order of writing."""

    entries: tuple[Entry, ...] = ()
    parts: dict[str, tuple[int, ...]]
    """Of each node that a verdict ever named: the ids of the entries in which it took part."""
    alerts: tuple[Alert, ...] = ()
    notes: tuple[str, ...] = ()
    """What the reader of this ledger should know, e.g. that its storage is shared."""
