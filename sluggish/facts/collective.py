"""Facts about collectives: one form for flight recorder, RAS, watchdog and fingerprint lines."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group. Identity is name and members: several groups may share one name."""

    name: str
    ranks: tuple[int, ...]
    """Global ranks, interned; empty where the source does not tell."""
    desc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One operation of one rank."""

    seq: int
    op: str
    """Lower case, without the backend's prefix: `_reduce_scatter_base`, `send 1->2`."""
    in_sizes: tuple[tuple[int, ...], ...] = ()
    out_sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    state: str = "scheduled"
    """scheduled, started, completed. Scheduled does not mean "not on the GPU"."""
    enqueued_at: datetime | None = None
    frame: str | None = None
    """Innermost frame of the user's own code, `file:line in function`."""
    order: int = 0
    """record_id: program order over all groups of the process."""
    peer: int | None = None
    """Global rank of the other end of a point-to-point operation."""
    numel: int | None = None
    """Where only a number of elements is known (watchdog lines)."""
    nth: int | None = None
    """Point-to-point: how many operations of this text the rank had posted, this one included.
    None where the ring has wrapped and the count is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHead:
    """How far one rank is in one group: a few tail entries, never the whole ring."""

    rank: int
    group: Group
    last_enqueued: int | None = None
    """Highest sequence number posted; None unknown; -1 never."""
    last_completed: int | None = None
    pending: tuple[Collective, ...] = ()
    """Posted and not finished, in program order."""
    recent: tuple[Collective, ...] = ()
    """A few finished ones before them: for arrival times and to see what came last."""
    counts: tuple[tuple[str, int], ...] = ()
    """Per-operation counts, RAS only."""
    source: str = "flight recorder"
    posted: tuple[tuple[str, int], ...] = ()
    """Point-to-point texts (`send 1->2`, group ranks) and how often each was posted."""
    arrivals: tuple[int, ...] = ()
    """Flat triples (seq, enqueued ns, seen completed ns or 0) of a few finished collectives."""
    path: str = ""
    """The dump it comes from: two dumps of one rank are told apart by it."""
    p2p: bool = False
    """The ring holds sends or receives of this group: its positions then mix two counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRecord:
    """A recorder saw this rank. One without is `unobserved`, never a culprit by that alone."""

    rank: int
    node: str | None = None
    pid: int | None = None
    source: str = "flight recorder"
    version: str = ""
    backend: str = ""
    library: str = ""
    """comm_lib_version, e.g. `2.27.7`."""
    entries: int = 0
    wrapped: bool = False
    timing: bool = False
    taken_at: datetime | None = None
    last_created_at: datetime | None = None
    path: str = ""
    only_active: bool = False
    """The dump left finished operations out."""
    first_created_at: datetime | None = None
    """Of the oldest entry in the ring: the rank's first operation unless the ring has wrapped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogTimeout:
    """A rank reports that a collective timed out: usually a victim."""

    node: str | None
    rank: int | None
    """Global rank where the line tells it."""
    group_rank: int | None
    group: str | None
    at: datetime | None
    seq: int | None
    op: str | None
    numel_in: int | None = None
    numel_out: int | None = None
    timeout_ms: int | None = None
    ran_ms: int | None = None
    pid: int | None = None
    order: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Two ranks run different collectives (TORCH_DISTRIBUTED_DEBUG=DETAIL, NCCL's own check)."""

    node: str | None
    rank: int | None
    """Who ran `op`; `other_rank` is the peer that differs. A vote over lines names the odd one."""
    other_rank: int | None
    seq: int | None
    op: str | None
    other_op: str | None
    aspects: str = ""
    at: datetime | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePosition:
    """How far a rank's queue of one group was, by its own watchdog's line."""

    node: str | None
    rank: int | None
    group_rank: int | None
    group: str | None
    last_enqueued: int | None
    last_completed: int | None
    """-1: nothing has completed."""
    at: datetime | None = None
    order: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaggingRanks:
    """Ranks that a desync report or a monitored barrier names as not arrived."""

    node: str | None
    ranks: tuple[int, ...]
    kind: str
    """never_joined, not_joined, not_finished, monitored_barrier, jax_barrier (tasks)."""
    reporter: int | None = None
    expected: int | None = None
    """How many should have come, where the line tells."""
    seq: int | None = None
    op: str | None = None
    at: datetime | None = None
    order: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPath:
    """Where a rank says that it writes or has written its flight-recorder dump."""

    node: str | None
    rank: int | None
    path: str
    written: bool = False
    at: datetime | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasReport:
    """One answer of NCCL's RAS. It has no counters of send, recv and all-to-all."""

    node: str | None
    sample: str = ""
    version: str = ""
    at: datetime | None = None
    communicators: int = 0
    processes: int | None = None
    complete: bool = True
    """False: cut short; it proves nothing about what it does not show."""
    initialising: bool = False
    timeouts: int = 0
    dead: tuple[tuple[str, int], ...] = ()
    """(host, pid) that RAS has given up."""
    unresponsive: tuple[tuple[str, int], ...] = ()
    """(host, pid) that did not answer this time (stopped, stuck)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RasRank:
    """One rank of one communicator in a RAS answer. `rank` counts within the communicator."""

    node: str | None
    comm: str
    """Communicator hash, hex digits without 0x."""
    rank: int
    size: int
    sample: str = ""
    host: str | None = None
    pid: int | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    counts: tuple[tuple[str, int], ...] = ()
    """Launches by operation, in RAS's spelling: AllReduce, ReduceScatter, ..."""
    state: str = ""
    """running, init, finalize, abort, nocomm, missing, unresponsive, dead, error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCounts:
    """Text form: how many ranks of a communicator have launched up to which operation."""

    node: str | None
    comm: str
    size: int | None
    op: str
    """AllReduce ...; empty where the version counts all operations together."""
    rows: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(operation number, how many ranks, those of them that are listed)."""
    sample: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRoot:
    """Who is waited for and waits for nobody, and what it is doing itself."""

    rank: int
    group: Group | None = None
    seq: int | None = None
    operation: str | None = None
    """Its own collective, e.g. `all_reduce [1]`; None: in no collective."""
    doing: str | None = None
    """`another collective`, `other sizes`, `no collective`, `not started`, `dead`, ..."""
    source_line: str | None = None
    waiters: int = 0
    """Ranks that wait for it, directly or through others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The answer of the wait-for graph. `state` is a closed list, see docs/glossary.md.

    none, mismatch, host_stuck, device_stuck, cycle, all_joined, unobserved, tie.
    """

    state: str
    group: Group | None = None
    """The group where it hangs (the root's)."""
    seq: int | None = None
    operation: str | None = None
    """What the waiters sit in: the place of the most of them, for which others may wait."""
    inside: int = 0
    """How many of the waiters are in `operation` itself; 0 where the source does not tell."""
    mismatch: str | None = None
    """`operation`, `sizes` or `dtypes`, where state is mismatch or tie."""
    roots: tuple[WaitRoot, ...] = ()
    waiters: tuple[int, ...] = ()
    unobserved: tuple[int, ...] = ()
    """Members without a record: never culprits by that alone."""
    observed: int = 0
    world_size: int | None = None
    sources: tuple[str, ...] = ()
    since: datetime | None = None
    """When the oldest pending operation of the waiters was enqueued."""
    confidence_notes: tuple[str, ...] = field(default=())
    """What lowers the trust: wrapped ring, dumps far apart, missing ranks, logs only."""
    sides: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Where ranks differ: each operation with its ranks, most ranks first."""
