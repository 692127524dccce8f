"""Facts about the host: kernel events, processes, memory, mounts, identity."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSpan:
    """What a kernel log covers: "no Xid" is only true inside it."""

    node: str | None
    first_at: datetime | None
    last_at: datetime | None
    lines: int
    from_boot: bool = False
    """True where the first line is the kernel's own first line."""
    until: datetime | None = None
    """When the log was read on the node: quiet up to here. None: known only to its last line."""
    source: str = ""
    """Form of its stamps: `dmesg`, `dmesg -T`, `journal`, `syslog`, ..."""
    bytes_left_out: int = 0
    """Of a log too big to be read whole: what holds no word that a reader knows."""
    filtered: bool = False
    """True where every line is of the kind that people search for: others may be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """The kernel's OOM killer took a process."""

    node: str | None
    at: datetime | None
    pid: int | None
    process: str | None
    cgroup: bool | None = None
    """True: a memory cgroup was full; False: the host was."""
    cgroup_path: str | None = None
    job_id: str | None = None
    """From the cgroup's path (`job_48213`)."""
    rss_bytes: int | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HungTask:
    """`task X:PID blocked for more than N seconds`."""

    node: str | None
    at: datetime | None
    process: str
    pid: int
    seconds: int | None = None
    stack: tuple[str, ...] = ()
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageEvent:
    """A kernel line of a file system or block device that does not answer, or answers again."""

    node: str | None
    at: datetime | None
    kind: str
    """nfs, lustre, gpfs, beegfs, nvme, block, ext4, xfs, fuse, overlay, other."""
    recovered: bool = False
    server: str | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieError:
    """AER or link trouble of a PCI device."""

    node: str | None
    at: datetime | None
    pci: str | None
    severity: str
    """corrected, nonfatal, fatal."""
    count: int = 1
    """Lines like it that followed within 5 s."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTrouble:
    """Panic, oops, lockup, machine check, thermal event, a kernel that was just booted."""

    node: str | None
    at: datetime | None
    kind: str
    """panic, oops, soft_lockup, rcu_stall, mce, thermal, boot, other."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segfault:
    """`name[pid]: segfault at ... in library[...]`."""

    node: str | None
    at: datetime | None
    process: str
    pid: int
    library: str | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """Who and when a node is: host name, boot, clock."""

    node: str | None
    hostname: str | None = None
    boot_id: str | None = None
    now: datetime | None = None
    now_error_s: float = 0.0
    """`now` is that much too early, more or less: half a second where only seconds were told."""
    uptime_s: float | None = None
    boot_at: datetime | None = None
    kernel: str | None = None
    arch: str | None = None
    kernel_cmdline: str | None = None
    utc_offset_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the firmware says that this machine is (DMI): its maker, product and asset tag."""

    node: str | None
    words: str
    """`Amazon EC2 p5.48xlarge`, as sysfs or the kernel's first lines print it."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """One process of the job in one sample, from /proc or ps."""

    node: str | None
    pid: int
    sample: str = ""
    at: datetime | None = None
    ppid: int | None = None
    name: str = ""
    cmdline: str = ""
    state: str | None = None
    """R, S, D, T, Z, ..."""
    wchan: str | None = None
    cpu_s: float | None = None
    """User + system time so far."""
    started_at: datetime | None = None
    rss_bytes: int | None = None
    threads: int | None = None
    read_bytes: int | None = None
    """rchar of /proc/PID/io: what it asked for, page cache included."""
    written_bytes: int | None = None
    """wchar of /proc/PID/io."""
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    inherited_rank: bool = False
    """True where the rank stands in the environment because the parent is that rank."""
    env: tuple[tuple[str, str], ...] = ()
    kernel_stack: tuple[str, ...] = ()
    open_files: tuple[str, ...] = ()
    blocked_threads: tuple[tuple[int, str], ...] = ()
    """(tid, wchan) of threads in state D."""
    memlock_bytes: int | None = None
    """Soft limit of locked memory; -1 unlimited."""
    rank_source: str = ""
    """Name of the variable that tells the rank: RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK, ..."""
    job_id: str | None = None
    """From the cgroup's path (`job_48213`)."""
    own_mounts: bool = False
    """Its mounts are not the node's: a container, or a private /tmp. What lies there ends with it.
    """
    found_by: str = ""
    """How it is known to be the job's: `listpids`, `cgroup`, `environment`, or `gpu`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDelta:
    """What a process did between the samples a and b; None where there was only one sample."""

    node: str | None
    pid: int
    name: str = ""
    cmdline: str = ""
    role: str = "other"
    """rank, worker (descends from a rank: loader, checkpoint writer), other."""
    rank: int | None = None
    """Its own rank, or the rank that it works for."""
    seconds: float | None = None
    cpu_rate: float | None = None
    """Cores."""
    cpu_s: float | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    rss_bytes: int | None = None
    rss_growth_bytes: int | None = None
    state: str | None = None
    stuck: bool = False
    """In D at the same place in both samples."""
    wchan: str | None = None
    kernel_stack: tuple[str, ...] = ()
    open_files: tuple[str, ...] = ()
    blocked_threads: tuple[tuple[int, str], ...] = ()
    gone: bool = False
    """In sample a and no more in b."""
    job_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """/proc/meminfo in one sample, bytes."""

    node: str | None
    sample: str
    total_bytes: int | None = None
    available_bytes: int | None = None
    free_bytes: int | None = None
    cached_bytes: int | None = None
    shmem_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """/proc/pressure: share of time in per cent that some or all tasks stalled."""

    node: str | None
    sample: str
    resource: str
    """memory, io, cpu."""
    some_avg10: float | None = None
    full_avg10: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupMemory:
    """A memory cgroup of the job. Bytes; None for `max`."""

    node: str | None
    sample: str
    path: str
    current_bytes: int | None = None
    limit_bytes: int | None = None
    peak_bytes: int | None = None
    oom_kills: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mount point and whether it answered a stat within the deadline."""

    node: str | None
    path: str
    fstype: str = ""
    source: str = ""
    answered: bool | None = None
    """None: not asked."""
    waited_s: float | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LustreTarget:
    """One server target (OST, MDT, MGS) of a Lustre client and how the client stands with it."""

    node: str | None
    target: str
    """`fs1-OST0004`."""
    state: str
    """FULL and IDLE work; DISCONN, CONNECTING, EVICTED, REPLAY*, RECOVER do not answer now."""
    server: str = ""
    """Address of the server that it last spoke to."""
    inflight: int | None = None
    """Requests under way: somebody waits for them."""
    inactive: bool = False
    """An administrator switched it off: expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filesystem:
    """Space of a file system, bytes (`df`)."""

    node: str | None
    path: str
    size_bytes: int
    used_bytes: int
    inodes_used_pct: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFrame:
    """One frame, innermost first in a stack."""

    function: str
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """One thread's stack (py-spy, faulthandler, worker server), innermost frame first."""

    node: str | None
    pid: int | None
    rank: int | None
    thread: str
    main: bool
    active: bool | None
    """py-spy's word: active (has or waits for the GIL, on CPU) or idle."""
    frames: tuple[StackFrame, ...] = ()
    source: str = "py-spy"
