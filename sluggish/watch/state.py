"""What is known of a watched job: learned levels, signs of life, the stretch in which it is quiet.

Everything here is bounded by the number of GPUs and nodes, and is saved as it is: a watcher that
starts again goes on where it was.
"""

import msgspec

from sluggish.watch.shape import Track

VERSION = 1
WATCHDOG_S = 600.0
"""PyTorch's default timeout of an NCCL collective (torch/distributed/constants.py)."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Lengths of time; a test presses them together."""

    every_s: float = 5.0
    window_s: float = 60.0
    """What a shape is told from."""
    notice_s: float = 120.0
    """Quiet for so long: said, no alarm yet."""
    alert_s: float = 300.0
    """The earliest alert without a hard sign."""
    start_s: float = 1800.0
    """The same for a job that has not moved yet: import, compilation, set-up."""
    sign_s: float = 60.0
    """A sign of life is fresh for so long at least."""
    gone_s: float = 75.0
    """A rank is gone for so long before it is told: a job's end and a restart take theirs away."""
    lead_s: float = 90.0
    """Before the watchdog: the evidence has to be taken while the processes live."""
    times: float = 3.0
    """Of the longest dip that was seen to end by itself."""

    @property
    def length(self) -> int:
        return max(4, round(self.window_s / self.every_s))

    @property
    def stale_s(self) -> float:
        """A node whose last sample is older is not seen."""
        return 4 * self.every_s + 5


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that grows while a job lives: the log, io, traffic, the host's computing."""

    total: float | None = None
    """The last reading."""
    at: float | None = None
    since: float | None = None
    """First seen."""
    grew_at: float | None = None
    gap_s: float = 0.0
    """The longest pause while the job moved."""
    broken: bool = False
    """The job was quiet since it last grew: that pause teaches nothing."""
    rate: float = 0.0
    """Learned, per second, while it moved."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One node of the job as it was last seen."""

    at: float = 0.0
    gpu_at: float | None = None
    """When its GPUs were last seen; None: never."""
    tracks: dict[int, Track] = {}
    mine: tuple[int, ...] = ()
    """The job's GPUs of this node, where its ranks told; else all with memory in use."""
    io: Sign = Sign()
    traffic: Sign = Sign()
    cpu: Sign = Sign()
    down: tuple[str, ...] | None = None
    ranks: int = 0
    """The most that were seen."""
    alive: int = 0
    """Of them, now."""
    short_at: float | None = None
    """Since when some of them are missing."""
    told_short: bool = False

    def own(self) -> dict[int, Track]:
        """Its GPUs that are the job's.

        Where no more are listed than the job has, all of them are: in a cgroup of the job the
        driver counts from 0, and Slurm's numbers are those of the whole node.
        """
        if not self.mine or len(self.tracks) <= len(self.mine):
            return self.tracks
        return {n: track for n, track in self.tracks.items() if n in self.mine}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One watched job."""

    job: str
    started_at: float | None = None
    version: int = VERSION
    nodes: dict[str, Node] = {}
    log: Sign = Sign()
    watchdog_s: float = WATCHDOG_S
    shape: str = "unknown"
    begun_at: float | None = None
    """When its ranks were started again within the job."""
    moving_since: float | None = None
    moved_at: float | None = None
    """When it last moved for longer than a change of shape takes; None: not since its start."""
    quiet_since: float | None = None
    noticed: bool = False
    alerted: bool = False
    told: bool = False
    """Whoever is to be told of this alert was told; an alert without that is made again."""
    dips: tuple[float, ...] = ()
    """Lengths of the last quiet stretches that ended by themselves."""
    dip_at: tuple[float, ...] = ()
    """When they began."""
    hard: tuple[str, ...] = ()
    """Events that stop a job, since it last moved."""
    hard_at: float | None = None
    blind_from: float | None = None
    blind_until: float | None = None
    """The last time in which none of its nodes was seen."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell. `alert` asks for a look; the others are said and no more."""

    kind: str
    at: float
    job: str = ""
    node: str | None = None
    says: str = ""
    signs: tuple[str, ...] = ()
    """What stands still besides the GPUs."""
    since: float | None = None


def encode(job: Job) -> bytes:
    """As it is written to the state file."""
    return msgspec.json.encode(job)


def decode(data: bytes) -> Job | None:
    """None where this is no state of ours: it is learned anew."""
    try:
        job = msgspec.json.decode(data, type=Job)
    except msgspec.MsgspecError:
        return None
    return job if job.version == VERSION else None
