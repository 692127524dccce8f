"""Facts about InfiniBand and RoCE: ports, counters, kernel and NCCL lines."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of one HCA. None where the source does not print the field."""

    node: str | None
    hca: str
    port: int
    state: str
    """active, down, initializing, armed, active_defer, unknown."""
    phys_state: str | None = None
    """linkup, polling, disabled, sleep, training, link_error_recovery, phy_test, ..."""
    rate_gbps: float | None = None
    """Meaningless while the port is down."""
    width: str | None = None
    """`4X`, `2X`."""
    link_layer: str | None = None
    """infiniband, ethernet, None unknown."""
    lid: int | None = None
    sm_lid: int | None = None
    hca_type: str | None = None
    firmware: str | None = None
    board: str | None = None
    pci: str | None = None
    netdev: str | None = None
    virtual: bool | None = None
    """True on an SR-IOV virtual function."""
    functions_in_slot: int | None = None
    """PCI functions of the slot: 4 marks the HCAs that manage NVSwitch."""
    pkey: int | None = None
    gids: tuple[str, ...] = ()
    gid_types: tuple[tuple[int, str], ...] = ()
    """(index, `RoCE v2`) of the filled entries of the GID table."""
    driver: str | None = None
    """Kernel driver of the device: mlx5_core, efa, bnxt_re."""
    pcie_speed: str | None = None
    pcie_max_speed: str | None = None
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    source: str = ""
    """Probe that saw it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevices:
    """The HCAs that one tool lists on a node. None at all is a fault where its peers have some."""

    node: str | None
    source: str
    names: tuple[str, ...]
    """Natural order; empty: the tool ran to its end and saw no device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounters:
    """Counters of one port in one sample; names as in sysfs. Saturating ones never wrap."""

    node: str | None
    hca: str
    port: int
    sample: str
    at: datetime | None
    counters: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A switch or block of Slurm's topology, with all nodes below it."""

    name: str
    level: int
    """0 for a leaf."""
    nodes: tuple[str, ...]
    block: bool = False
    """A block of the block plugin: an NVLink domain, no switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricEvent:
    """A kernel line about an HCA, its port or its netdev."""

    node: str | None
    at: datetime | None
    kind: str
    """link_down, link_up, fatal, health, firmware, module, thermal, pcie, other."""
    hca: str | None = None
    pci: str | None = None
    netdev: str | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclHcas:
    """NCCL's `NET/IB : Using` line of one process: the HCAs that it will use."""

    node: str | None
    pid: int | None
    rank: int | None
    hcas: tuple[str, ...]
    """`mlx5_0:1`, in NCCL's order."""
    layers: tuple[str, ...] = ()
    """`IB`, `RoCE`, one per HCA."""
    oob_interface: str | None = None
    oob_address: str | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclNetwork:
    """NCCL's `Using network X` line, or `NET/IB : No device found.` (network None)."""

    node: str | None
    pid: int | None
    rank: int | None
    network: str | None
    interface: str | None = None
    provider: str | None = None
    """Libfabric's provider as the OFI plugin names it: efa, cxi, tcp."""
    nics: int | None = None
    """How many devices the OFI plugin found."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFlavour:
    """Which kind of network the job's traffic takes on a node. Derived, see correlate/flavour.py.

    Each kind shows its faults elsewhere, so each has its own list of what must have been seen.
    """

    node: str
    kind: str
    """infiniband, roce, efa, slingshot, vf, sockets, none (no device at all), unknown."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclAddress:
    """An address by which peers know a process: its bootstrap, socket or out-of-band line."""

    node: str | None
    pid: int | None
    rank: int | None
    interface: str
    address: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclPath:
    """How a process reaches other nodes: straight from GPU memory, or through host memory."""

    node: str | None
    pid: int | None
    direct: bool
    """True: `/GDRDMA`."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCompletion:
    """A completion error: printed by a victim about its peer. Fields are None where not printed."""

    node: str | None
    at: datetime | None
    pid: int | None
    rank: int | None
    device: int | None
    peer: str | None
    """Address or host name as printed, without port."""
    status: int
    vendor_error: int | None = None
    opcode: int | None = None
    request: str | None = None
    hca: str | None = None
    local_gid: str | None = None
    remote_gid: str | None = None
    network: str = "IB"
    """EFA: an error of its provider that means what this status means on InfiniBand."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclAsyncEvent:
    """An asynchronous event: the printing host is the one whose port or device moved."""

    node: str | None
    at: datetime | None
    pid: int | None
    rank: int | None
    kind: str
    """event, fatal, gid_change, speed_change."""
    event: str | None = None
    hca: str | None = None
    port: int | None = None
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclTrouble:
    """Any other NCCL WARN about the network, setup or peers."""

    node: str | None
    at: datetime | None
    pid: int | None
    rank: int | None
    kind: str
    """peer_closed, modify_qp, reg_mr, no_route, socket, bootstrap, open_device, shm, p2p,
    mixed_hcas, imex, nvls, sharp, size_mismatch, ofi, other."""
    detail: str = ""
    line: str = ""
