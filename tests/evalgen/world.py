"""The state of the world: nodes, GPUs, ports, ranks, the job. Faults write into it, renderers read.

Times are seconds since the epoch on the true clock; a node's own clock is `true + offset`.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from .flight_recorder import Call, Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A GPU model: watts by what the board does, seen in public captures."""

    product: str
    arch: str
    limit_w: int
    idle_w: float
    context_w: float
    spin_w: float
    work_w: float
    memory_mib: int
    device_id: str
    max_sm_mhz: int
    idle_sm_mhz: int
    rate_gbps: int
    rate_words: str
    hca_type: str
    firmware: str
    buses: tuple[str, ...]
    nic_buses: tuple[str, ...]


MODELS = {
    "B300": Model(
        product="NVIDIA B300 SXM6 AC", arch="Blackwell", limit_w=1100, idle_w=141.0,
        context_w=172.0, spin_w=190.0, work_w=905.0, memory_mib=275040, device_id="318210DE",
        max_sm_mhz=2032, idle_sm_mhz=120, rate_gbps=800, rate_words="800 Gb/sec (4X XDR)",
        hca_type="MT4131", firmware="40.47.1026",
        buses=("0a", "18", "3b", "44", "87", "90", "b9", "c3"),
        nic_buses=("0d", "1b", "3e", "47", "8a", "93", "bc", "c6"),
    ),
    "B200": Model(
        product="NVIDIA B200", arch="Blackwell", limit_w=1000, idle_w=139.0, context_w=165.0,
        spin_w=192.0, work_w=800.0, memory_mib=183359, device_id="290110DE", max_sm_mhz=1965,
        idle_sm_mhz=120, rate_gbps=400, rate_words="400 Gb/sec (4X NDR)", hca_type="MT4129",
        firmware="28.43.2026", buses=("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        nic_buses=("18", "40", "4f", "5e", "9a", "c0", "ce", "dc"),
    ),
    "GB200": Model(
        product="NVIDIA GB200", arch="Blackwell", limit_w=1200, idle_w=150.0, context_w=176.0,
        spin_w=205.0, work_w=940.0, memory_mib=189471, device_id="294110DE", max_sm_mhz=2062,
        idle_sm_mhz=120, rate_gbps=400, rate_words="400 Gb/sec (4X NDR)", hca_type="MT4129",
        firmware="28.43.2026", buses=("01", "21", "41", "61"), nic_buses=("03", "23", "43", "63"),
    ),
    "H200": Model(
        product="NVIDIA H200", arch="Hopper", limit_w=700, idle_w=77.7, context_w=119.0,
        spin_w=148.0, work_w=627.0, memory_mib=143771, device_id="233510DE", max_sm_mhz=1980,
        idle_sm_mhz=345, rate_gbps=400, rate_words="400 Gb/sec (4X NDR)", hca_type="MT4129",
        firmware="28.39.3560", buses=("0f", "2d", "44", "5b", "89", "a8", "c0", "d8"),
        nic_buses=("12", "30", "47", "5e", "8c", "ab", "c3", "db"),
    ),
    "H100": Model(
        product="NVIDIA H100 80GB HBM3", arch="Hopper", limit_w=700, idle_w=70.2,
        context_w=132.0, spin_w=152.0, work_w=628.0, memory_mib=81559, device_id="233010DE",
        max_sm_mhz=1980, idle_sm_mhz=345, rate_gbps=400, rate_words="400 Gb/sec (4X NDR)",
        hca_type="MT4129", firmware="28.39.3004",
        buses=("1b", "43", "52", "61", "9d", "c3", "d1", "df"),
        nic_buses=("18", "40", "4f", "5e", "9a", "c0", "ce", "dc"),
    ),
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Gpu:
    index: int
    uuid: str
    pci: str
    """`0000:1b:00.0`"""
    serial: str
    activity: str = "idle"
    """idle, context (not computing), spin (inside a collective), work, slow, lost."""
    on_bus: bool = True
    listed: bool = True
    """Whether nvidia-smi still lists it."""
    recovery: str = "None"
    fabric: tuple[str, str] = ("Completed", "Success")
    volatile_uncorrectable: int = 0
    aggregate_uncorrectable: int = 0
    aggregate_correctable: int = 0
    remap_correctable: int = 0
    remap_uncorrectable: int = 0
    remap_pending: bool = False
    remap_failed: bool = False
    throttle: int = 0
    sm_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int = 38
    memory_mib: int = 4
    pid: int | None = None


@dataclass(slots=True, kw_only=True)
class Port:
    hca: str
    pci: str
    guid: int
    lid: int
    netdev: str
    state: str = "ACTIVE"
    """DOWN, INIT, ARMED, ACTIVE."""
    phys: str = "LinkUp"
    """LinkUp, Polling, Disabled."""
    layer: str = "InfiniBand"
    rate_gbps: int = 400
    rate_words: str = "400 Gb/sec (4X NDR)"
    hca_type: str = "MT4129"
    firmware: str = "28.39.3004"
    sm_lid: int = 1
    pkey: str = "0xffff"
    gids: list[tuple[int, str, str]] = field(default_factory=list)
    """(index, address, type) of the filled entries, where there are others than the first."""
    driver: str = "mlx5_core"
    rail: int | None = None
    """The GPU whose traffic it carries; None: management."""
    leaf: str = ""
    moved: dict[str, int] = field(default_factory=dict)
    """Counters that grow between the two samples, beside traffic."""
    lifetime: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class MountPoint:
    path: str
    fstype: str
    source: str
    options: str = "rw,relatime"
    answers: bool = True
    lost: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Lustre: target -> (state, requests under way) of those that are not connected."""


@dataclass(slots=True, kw_only=True)
class Node:
    name: str
    addr: str
    number: int
    gpus: list[Gpu]
    ports: list[Port]
    offset_s: float
    clock_error_s: float
    zone_s: int
    boot_at: float
    boot_id: str
    kernel: str
    mounts: list[MountPoint]
    log_form: str = "short-unix"
    """short-unix, dmesg, dmesg-T, short-iso."""
    kernel_lines: list[tuple[float, str]] = field(default_factory=list)
    log_from: float | None = None
    memory_gib: int = 2015
    available_gib: tuple[float, float] = (1480.0, 1480.0)
    pressure: float = 0.0
    cpu_pressure: float = 0.0
    """Per cent of the last 10 s in which some task waited for memory, for CPU."""
    cmdline: str = ""
    """What the kernel was started with beside the usual."""
    strangers: list[tuple[int, str, float]] = field(default_factory=list)
    """(pid, name, cores) of processes that are not the job's."""
    cgroup_limit_gib: float | None = None
    cgroup_gib: tuple[float, float] = (310.0, 310.0)
    oom_kills: int = 0
    shm_gib: float = 1007.0
    shm_used_gib: float = 1.0
    memlock: str = "unlimited"
    driver: str = "580.95.05"
    rack: bool = False
    """Its NVLink reaches over the rack: the node has IMEX."""
    imex_channels: int = 1
    error: str | None = None
    """The whole node left nothing: unreachable, timeout, denied."""
    slurm_state: str = "ALLOCATED"
    slurm_reason: str = ""
    smi: str = ""
    """"" answers; `stuck` never returns; else the text that comes instead."""
    slurmd_at: float | None = None
    env: dict[str, str] = field(default_factory=dict)
    """What its image or profile sets in every rank beside the job's own environment."""


@dataclass(slots=True, kw_only=True)
class Rank:
    rank: int
    node: Node
    local: int
    pid: int
    alive: bool = True
    state: str = "R"
    wchan: str = "0"
    cpu_cores: float = 1.3
    """CPU seconds a second over the window."""
    rss_gib: float = 18.4
    rss_growth: float = 0.0
    """GiB a second."""
    read_rate: int = 4096
    write_rate: int = 1024
    doing: str = "spin"
    stack: list[tuple[str, str, int]] = field(default_factory=list)
    """Main thread, innermost first: (function, file, line)."""
    workers: list[dict[str, Any]] = field(default_factory=list)
    blocked: list[tuple[int, str]] = field(default_factory=list)
    """Threads in state D: (tid offset, wchan)."""
    open_file: str | None = None
    asks: tuple[str, int, float] | None = None
    """(address, port, seconds) of a service that it asked and that has not answered since."""
    dumps: bool = True
    recorder: Recorder | None = None
    pending: list[Call] = field(default_factory=list)
    launched: dict[tuple[str, str], int] = field(default_factory=dict)
    """(group, operation) -> how often it was handed to NCCL."""
    hcas: list[str] | None = None
    """What NCCL chose, where it differs from the node's compute HCAs."""

    @property
    def gpu(self) -> Gpu:
        return self.node.gpus[self.local]


@dataclass(slots=True, kw_only=True)
class World:
    name: str
    rng: random.Random
    model: Model
    nodes: list[Node]
    ranks: list[Rank]
    job_id: str
    job_name: str
    user: str
    taken_at: float
    job_started: float
    state: str = "RUNNING"
    reason: str = "None"
    ended: float | None = None
    exit_code: str = "0:0"
    restarts: int = 0
    nccl: str = "2.27.7"
    torch: str = "2.9.1"
    cuda: str = "13.0"
    time_limit: str = "2-00:00:00"
    timeout_s: int = 600
    step_s: float = 1.9
    step_at_stall: int = 4213
    steps_total: int = 9600
    stalled_at: float | None = None
    log: list[tuple[float, str]] = field(default_factory=list)
    """The job's output: (true time, text with its line end)."""
    env: dict[str, str] = field(default_factory=dict)
    ras: bool = True
    log_style: str = "logging"
    noise: tuple[str, ...] = ()
    """What befalls the text of the log on its way: see render/noise.py."""
    arch: str = "x86_64"
    fabric: str = "IB"
    """IB, RoCE, EFA, CXI: what NCCL says of its network."""
    manager: str = ""
    """What sminfo is told, `MASTER` or `silent`, where somebody ran the fabric's tools."""
    launch: str = "srun"
    window_s: float = 10.0
    missing: dict[tuple[str, str], str] = field(default_factory=dict)
    """(node or "job", probe) -> why it left nothing."""
    without: set[str] = field(default_factory=set)
    """Probes that were not there at all: no dumps, no stacks."""
    stack_ranks: tuple[int, ...] | None = None
    sacct_rows: list[str] = field(default_factory=list)
    node_lines: list[str] = field(default_factory=list)
    nodes_wanted: int = 0
    """Of a job that has none yet."""
    comms: list[Any] = field(default_factory=list)
    """Communicators as NCCL made them, for RAS and the init lines."""

    @property
    def zone_s(self) -> int:
        return self.nodes[0].zone_s if self.nodes else 0

    def kernel(self, node: Node, t: float, text: str) -> None:
        """The kernel of a node prints a line at true time t."""
        node.kernel_lines.append((t, text))

    def say(self, t: float, text: str) -> None:
        """A line comes out of the job at true time t."""
        self.log.append((t, text if text.endswith(("\n", "\r")) else text + "\n"))

    def node(self, name: str) -> Node:
        return next(n for n in self.nodes if n.name == name)


def build(
    name: str,
    *,
    seed: int,
    model: str = "B300",
    nodes: list[str],
    job_id: str,
    job_name: str,
    user: str = "alice",
    taken_at: float,
    age_s: float,
    zone_s: int = 0,
    gpus: int = 8,
    per_leaf: int = 32,
    driver: str = "580.95.05",
    **job: Any,
) -> World:
    """A healthy cluster with one running job over all its nodes."""
    rng = random.Random(f"{name}/{seed}")
    kind = MODELS[model]
    made = [_node(rng, kind, n, k, taken_at, zone_s, gpus, per_leaf) for k, n in enumerate(nodes)]
    ranks = []
    for k, node in enumerate(made):
        base = rng.randrange(21_000, 3_900_000)
        for local in range(gpus):
            pid = base + local * 2 + rng.randrange(2)
            rank = Rank(rank=k * gpus + local, node=node, local=local, pid=pid)
            ranks.append(rank)
            gpu = node.gpus[local]
            gpu.pid, gpu.activity = pid, "work"
            gpu.memory_mib = int(kind.memory_mib * 0.71) + rng.randrange(-900, 900)
    world = World(
        name=name, rng=rng, model=kind, nodes=made, ranks=ranks, job_id=job_id,
        job_name=job_name, user=user, taken_at=taken_at, job_started=taken_at - age_s, **job,
    )  # fmt: skip
    for node in made:
        node.driver = driver
    _boot_lines(world)
    return world


def _node(
    rng: random.Random,
    kind: Model,
    name: str,
    number: int,
    taken_at: float,
    zone_s: int,
    gpus: int,
    per_leaf: int,
) -> Node:
    boot = taken_at - rng.uniform(9, 60) * 86400
    uid = lambda: str(uuid.UUID(int=rng.getrandbits(128), version=4))  # noqa: E731
    cards = [
        Gpu(
            index=i, uuid=f"GPU-{uid()}", pci=f"0000:{kind.buses[i]}:00.0",
            serial=str(rng.randrange(1_650_000_000_000, 1_659_999_999_999)),
            temperature_c=rng.randrange(33, 44),
            aggregate_correctable=rng.choice((0, 0, 0, 3, 17)),
        )
        for i in range(gpus)
    ]  # fmt: skip
    guid = 0xB83F_D203_0000_0000 | rng.getrandbits(32)
    ports = [
        Port(
            hca=f"mlx5_{i}", pci=f"0000:{kind.nic_buses[i]}:00.0", guid=guid + 16 * i,
            lid=40 + number * 16 + i, netdev=f"ibp{int(kind.nic_buses[i], 16)}s0", rail=i,
            rate_gbps=kind.rate_gbps, rate_words=kind.rate_words, hca_type=kind.hca_type,
            firmware=kind.firmware, leaf=f"leaf{number // per_leaf:02d}-rail{i}",
            lifetime={"symbol_error": rng.choice((0, 0, 0, 2)), "link_downed": rng.choice((0, 1))},
        )
        for i in range(gpus)
    ]  # fmt: skip
    ports.append(
        Port(
            hca=f"mlx5_{gpus}", pci="0000:29:00.0", guid=guid + 0x4000, lid=0, netdev="ens41f0np0",
            layer="Ethernet", rate_gbps=200, rate_words="200 Gb/sec (4X HDR)", hca_type="MT41692",
            firmware="32.42.1000", sm_lid=0,
        )
    )  # fmt: skip
    return Node(
        name=name, addr=f"10.{20 + number // 200}.{number % 200 // 8 + 4}.{number % 8 * 9 + 17}",
        number=number, gpus=cards, ports=ports, offset_s=rng.uniform(-0.02, 0.02),
        clock_error_s=round(rng.uniform(0.002, 0.02), 4), zone_s=zone_s, boot_at=boot,
        boot_id=uid(), kernel="6.8.0-1041-nvidia",
        mounts=[
            MountPoint(path="/", fstype="ext4", source="/dev/nvme0n1p2"),
            MountPoint(path="/local", fstype="xfs", source="/dev/md0"),
            MountPoint(path="/home", fstype="nfs4", source="10.9.0.5:/export/home",
                       options="rw,relatime,vers=4.2,hard,proto=tcp"),
            MountPoint(path="/lustre", fstype="lustre", source="10.9.8.1@o2ib:10.9.8.2@o2ib:/fs1",
                       options="rw,flock,lazystatfs"),
        ],
    )  # fmt: skip


def _boot_lines(world: World) -> None:
    """What a healthy node's kernel says at boot and in the weeks after: noise."""
    for node in world.nodes:
        t, rng = node.boot_at, world.rng
        say = lambda s, text, n=node, b=t: world.kernel(n, b + s, text)  # noqa: E731
        say(
            0.0,
            f"Linux version {node.kernel} (buildd@lcy02-amd64-095) (x86_64-linux-gnu-gcc-13) "
            "#44-Ubuntu SMP PREEMPT_DYNAMIC",
        )
        say(
            0.0,
            f"Command line: BOOT_IMAGE=/vmlinuz-{node.kernel} root=UUID=6ac0 ro iommu=pt "
            "console=ttyS0,115200n8",
        )
        for k, p in enumerate(node.ports):
            say(9.1 + k * 0.8, f"mlx5_core {p.pci}: firmware version: {p.firmware}")
            say(9.2 + k * 0.8, f"mlx5_core {p.pci}: Port module event: module 0, Cable plugged")
        say(19.4, "nvidia: loading out-of-tree module taints kernel.")
        say(
            19.9,
            "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  "
            f"{node.driver}  Release Build  (dvs-builder@U22-I3-B08-02-5)",
        )
        say(25.3, "nvidia-uvm: Loaded the UVM driver, major device number 505.")
        for day in range(1, int((world.taken_at - t) / 86400), 3):
            say(
                day * 86400 + rng.uniform(0, 80000),
                f"perf: interrupt took too long ({rng.randrange(2501, 4999)} > 2500), "
                "lowering kernel.perf_event_max_sample_rate to 50000",
            )
        say(
            world.taken_at - 5 * 86400 - t + rng.uniform(0, 60000),
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, "
            "skipping further processing",
        )
        say(
            world.job_started - t - 41.5,
            "IPv6: ADDRCONF(NETDEV_CHANGE): ens41f0np0: link becomes ready",
        )


def boot_before(node: Node, t: float) -> None:
    """Have the node booted at t at the latest, the lines of its boot with it."""
    if node.boot_at <= t:
        return
    first, node.boot_at = node.boot_at, t
    node.kernel_lines = [
        (w - first + t, s) if w < first + 60 else (w, s) for w, s in node.kernel_lines
    ]
