"""Facts about GPUs: the kernel's Xid lines, nvidia-smi, samples over the window."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One `NVRM: Xid` line of a kernel log (form: NVIDIA open kernel modules, `kernel_rc.c`)."""

    node: str | None
    at: datetime | None
    pci: str
    """Normalised `0000:65:00.0`: domain, bus, device, function as nvidia-smi prints it."""
    code: int
    pid: int | None = None
    """A pid of the host's namespace; for 119/120 whoever made the call."""
    process: str | None = None
    words: str = ""
    """Text after the pid and name."""
    caused_by: int | None = None
    """N of `caused by previous Xid N`: a consequence link that the driver prints."""
    recovery: int | None = None
    """Only on 154: number of the action changed to (0 none, 1 reset, 2 reboot, ...)."""
    reset_hint: bool | None = None
    """`RST: Yes|No` of 94/95 on drivers without 154."""
    unit: str | None = None
    """Only on 144-150: unit name, e.g. `NETIR`."""
    fatal: bool | None = None
    """Only on 144-150: Fatal or Nonfatal as printed."""
    link: int | None = None
    intrinfo: int | None = None
    status: int | None = None
    link_words: tuple[int, ...] = ()
    """The hex words of 74 and 144-150."""
    count: int = 1
    """Lines like it that followed within 5 s and were folded into it."""
    order: int = 0
    """Position in its log: the order of lines that carry no time."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Xids of one node until 3 minutes of silence, and which of them started it."""

    node: str | None
    xids: tuple[Xid, ...]
    """In order of time."""
    root: Xid | None
    """None where no code of the burst can be a cause."""
    why: str = ""
    """How the root was found."""
    named_cause: int | None = None
    """Code that the driver names as the cause, where that Xid's own line is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SXid:
    """One NVSwitch error line."""

    node: str | None
    at: datetime | None
    pci: str
    code: int
    fatal: bool | None = None
    link: int | None = None
    words: str = ""
    count: int = 1
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTrouble:
    """GPU trouble in the kernel log that never says Xid."""

    node: str | None
    at: datetime | None
    pci: str | None
    kind: str
    """fallen_off, init_failed, reset_required, gpu_lost, uvm_fatal, api_mismatch, nvlink."""
    count: int = 1
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that nvidia-smi lists on a GPU."""

    pid: int
    name: str | None = None
    kind: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as nvidia-smi describes it; None where it printed N/A or has no such field."""

    node: str | None
    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    serial: str | None = None
    name: str | None = None
    driver: str | None = None
    recovery_action: str | None = None
    ecc_mode: bool | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_volatile_correctable: int | None = None
    ecc_aggregate_correctable: int | None = None
    sram_threshold_exceeded: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    unrepairable_memory: bool | None = None
    """Blackwell and newer: channel repair is exhausted."""
    repair_pending: bool | None = None
    """Blackwell and newer: a channel or TPC repair waits for a reset."""
    power_w: float | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    utilisation_pct: float | None = None
    memory_utilisation_pct: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()
    """Active clock-event reasons, lower case with underscores, e.g. `hw_thermal_slowdown`."""
    pcie_generation: int | None = None
    pcie_max_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    pcie_replays: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_trouble: tuple[str, ...] = ()
    """Health flags of the NVLink fabric that say trouble, e.g. `route_unhealthy`."""
    cluster_uuid: str | None = None
    """NVLink domain; None outside of one (nvidia-smi prints zeros)."""
    clique: int | None = None
    """Partition of the domain inside which GPUs reach one another."""
    mig: bool | None = None
    errors: tuple[str, ...] = ()
    """Fields in which nvidia-smi printed an error such as `GPU requires reset`."""
    processes: tuple[GpuProcess, ...] = ()
    processes_listed: bool = False
    """True where nvidia-smi printed a process list, also an empty one."""
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCount:
    """How many GPUs one source lists on a node: nvidia-smi's table, or the PCI bus."""

    node: str | None
    source: str
    """`nvidia-smi`, `pci`."""
    count: int
    """GPUs that answer: one that shows `rev ff` on the bus is not counted."""
    pci: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    """Addresses that are still listed but read as all ones (`rev ff`)."""
    whole: bool = False
    """True where the text itself proves that nothing of the listing was lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLinks:
    """The NVLinks of one GPU, as `nvidia-smi nvlink` or `topo -m` prints them."""

    node: str | None
    index: int | None
    uuid: str | None = None
    active: int | None = None
    """Links with a rate; of `topo -m` the links to all peers together. None: not printed."""
    inactive: tuple[int, ...] = ()
    recovered: tuple[tuple[int, int], ...] = ()
    """(link, recoveries since the driver was loaded), those with none left out."""
    failed: tuple[tuple[int, int], ...] = ()
    """(link, recoveries that failed), those with none left out."""
    counted: bool = False
    """True where error counters were printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuApps:
    """The processes on one GPU, from a list that tells nothing else of it."""

    node: str | None
    index: int | None = None
    uuid: str | None = None
    pci: str | None = None
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImexDomain:
    """What the IMEX daemon of a node says of its domain, and the channels that the node has."""

    node: str | None
    state: str | None
    """UP, DEGRADED, DOWN, ...; None where the daemon did not answer."""
    mates: tuple[tuple[str, str], ...] = ()
    """(address, READY, UNAVAILABLE, ...) of the domain's nodes, itself among them."""
    not_connected: int = 0
    """Ways between two of them that are not connected."""
    channels: int | None = None
    """Without one a program cannot share memory over the domain. None: not looked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGpus:
    """GPUs of another maker, which no rule reads: a gap, never missing GPUs."""

    node: str | None
    maker: str
    count: int | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciAcs:
    """Access Control Services of one PCI device, as `lspci -vvv` prints its ACSCtl line."""

    node: str | None
    pci: str | None
    """None where only the line itself was given."""
    bridge: bool | None
    redirects: bool
    """True: requests between its ports are sent up to the root complex."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one instant of the window. Power in watts, utilisation in per cent."""

    node: str | None
    at: datetime | None
    index: int | None
    pci: str | None = None
    uuid: str | None = None
    utilisation_pct: float | None = None
    memory_utilisation_pct: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    memory_used_mib: int | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SmiFailure:
    """nvidia-smi printed an error instead of, or beside, its table."""

    node: str | None
    at: datetime | None
    kind: str
    """timeout, no_driver, version_mismatch, gpu_lost, reset_required, no_devices, denied,
    unknown_error, stderr."""
    pci: str | None = None
    line: str = ""
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuShape:
    """What one GPU did over the window, relative to its own power limit. Derived, see shape.py."""

    node: str | None
    index: int | None
    state: str
    """spin, parked, moving, empty (idle, no process), ghost (100 % without a process), unknown."""
    pci: str | None = None
    uuid: str | None = None
    samples: int = 0
    seconds: float = 0.0
    """Length of the window that the samples span."""
    utilisation_pct: float | None = None
    """Median over the window."""
    power_w: float | None = None
    """Median over the window."""
    power_limit_w: float | None = None
    limit_source: str = ""
    """`nvidia-smi`, or `catalogue` where only the model's default is known."""
    power_spread_w: float | None = None
    why: str = ""
    """Why the state is unknown."""

    @property
    def power_share(self) -> float | None:
        """Power as a share of the limit."""
        if self.power_w is None or not self.power_limit_w:
            return None
        return self.power_w / self.power_limit_w


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """The shapes of all GPUs of the job together. Says that a job hangs, never why."""

    shape: str
    """moving, spin (all spin), split (most spin, some parked), parked, mixed, unknown."""
    gpus: int
    """GPUs whose state is known."""
    counts: tuple[tuple[str, int], ...] = ()
    """(state, GPUs), closed list of GpuShape."""
    odd: tuple[GpuShape, ...] = ()
    """On a split: the GPUs that are parked or empty while the others spin."""
    seconds: float = 0.0
    """Shortest window of the GPUs that count."""
    blind_nodes: tuple[str, ...] = ()
    """Nodes of the job without a known GPU state."""
