"""Stories of GPUs, NVLink, InfiniBand and whole nodes that fail.

Kernel lines: forms of open-gpu-kernel-modules (kernel_rc.c, gpu.c), mlx5 and AER of the kernel.
"""

from __future__ import annotations

from ..clock import epoch
from ..program import ddp, fsdp, run, stop
from ..render import joblog
from ..render.kernel import xid
from ..world import Rank, World, boot_before, build
from .common import (
    LOADER_STACK,
    RAIL,
    Expected,
    comms_of,
    culprit,
    everybody,
    loader_workers,
    moving,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip

_NEVER = ["rank_desync", "data_stall", "progressing", "app_crash"]


def train(
    world: World,
    *,
    ago: float,
    before_s: float = 0.0,
    entries: int = 128,
    warm: int = 14,
    frozen: tuple[int, ...] = (),
    dead: tuple[int, ...] = (),
    broken: tuple[int, ...] = (),
) -> float:
    """FSDP until the fault at `ago` seconds before the look; returns the fault's time."""
    g = everybody(world)
    comms_of(world, [g])
    t = world.taken_at - ago
    ops = [op for _ in range(warm + 6) for op in fsdp(g)]
    stall(
        world, {r.rank: ops for r in world.ranks}, (g,), ago=ago,
        warm_s=warm * world.step_s - before_s, freezes=dict.fromkeys(frozen, t),
        dies=dict.fromkeys(dead, t), broken=dict.fromkeys((*frozen, *broken), t), **ring(entries),
    )  # fmt: skip
    for r in dead:
        world.ranks[r].dumps = False
    return t


def _lost(world: World, rank: Rank) -> None:
    gpu = rank.gpu
    gpu.activity, gpu.listed = "lost", False
    rank.wchan, rank.dumps, rank.stack = "os_acquire_rwlock_write", False, []


def xid79() -> tuple[World, Expected]:
    world = build(
        "xid79", seed=9, model="H100", nodes=["gn-21", "gn-22"], job_id="150213",
        job_name="moe-8x7b", taken_at=epoch("2026-09-14T16:41:12Z"), age_s=31 * 3600,
        timeout_s=1800, step_at_stall=57120, steps_total=90000, env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    t = train(world, ago=467, frozen=(13,), entries=64)
    rank = world.ranks[13]
    node, pci = rank.node, rank.gpu.pci
    _lost(world, rank)
    port = f"0000:{int(pci[5:7], 16) - 1:02x}:00.0"
    world.kernel(node, t - 0.21, f"pcieport {port}: DPC: containment event, status:0x1f01 "
                 "source:0x0000")  # fmt: skip
    world.kernel(node, t, xid(pci, 79, "GPU has fallen off the bus.", name="<unknown>"))
    world.kernel(node, t + 0.001, f"NVRM: GPU {pci}: GPU has fallen off the bus.")
    world.kernel(node, t + 0.004, f"NVRM: GPU {pci}: GPU serial number is {rank.gpu.serial}.")
    world.kernel(node, t + 0.4, xid(pci, 154, "GPU recovery action changed from 0x0 (None) to 0x2 "
                                    "(Node Reboot Required)"))  # fmt: skip
    for k in range(5):
        world.kernel(node, t + 21 + 15 * k, "NVRM: rpcSendMessage failed with status 0x0000000f "
                     "for fn 78!")  # fmt: skip
    tell_start(world)
    return world, Expected(
        cause="gpu_fault", subtype="off_bus", culprits=[culprit(rank)], drains=[node.name],
        told="GPU 5 of the second node drops off the bus in the middle of an FSDP step; rank 13's "
        "main thread hangs in the driver, leaves no dump, the other 15 wait for it.",
        must_not=_NEVER,
    )  # fmt: skip


def contained_ecc() -> tuple[World, Expected]:
    world = build(
        "contained_ecc", seed=2, model="H200", nodes=["hopper-b07", "hopper-b09"],
        job_id="733101", job_name="sft", taken_at=epoch("2026-11-03T02:17:44Z"), age_s=4 * 3600,
        timeout_s=1800, step_at_stall=7350, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    t = train(world, ago=341, dead=(6,))
    rank = world.ranks[6]
    node, gpu = rank.node, rank.gpu
    pid, name = rank.pid, "pt_main_thread"
    gpu.volatile_uncorrectable, gpu.remap_uncorrectable, gpu.remap_pending = 1, 1, True
    world.kernel(node, t - 0.9, xid(gpu.pci, 48, "An uncorrectable double bit error (DBE) has been "
                 "detected on GPU in the framebuffer at physAddr 0x1c8e3a40 partition 4, "
                 "subpartition 2.", pid=pid, name=name))  # fmt: skip
    world.kernel(node, t - 0.88, xid(gpu.pci, 63, "Row Remapper: New row (0x000000001c8e3a40) "
                 "marked for remapping, reset gpu to activate.", pid=pid, name=name))  # fmt: skip
    world.kernel(node, t - 0.87, xid(gpu.pci, 94, "Contained: SM (0x1). RST: No, D-RST: No",
                                     pid=pid, name=name))  # fmt: skip
    world.kernel(node, t + 1.9, xid(gpu.pci, 45, "Ch 00000008 caused by previous Xid 94",
                                    pid=pid, name=name))  # fmt: skip
    tell_start(world, nccl=False)
    joblog.traceback(world, t - 0.5, rank, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 402, "main", "train_epoch(state)"),
        ("/opt/train/train.py", 250, "train_step", "loss = loss.item()"),
    ], "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")  # fmt: skip
    joblog.srun_exit(world, t + 0.6, rank, 1)
    return world, Expected(
        cause="gpu_fault", subtype="ecc", culprits=[culprit(rank)], drains=[],
        told="A double bit error in GPU 6's memory is contained: the process on it dies of it, "
        "the row is marked for remapping. srun runs without --kill-on-bad-exit, so the other 15 "
        "wait. The remap has not failed: no drain.",
        must_not=[n for n in _NEVER if n != "app_crash"],
    )  # fmt: skip


def nvlink_burst() -> tuple[World, Expected]:
    world = build(
        "nvlink_burst", seed=2, model="B200", nodes=["bw-101", "bw-102"], job_id="9902",
        job_name="pretrain-b", taken_at=epoch("2026-10-28T13:03:20Z"), age_s=9 * 3600,
        timeout_s=1800, step_at_stall=16940, env={"NCCL_DEBUG": "INFO"}, log_style="titan",
        driver="570.172.08", cuda="12.8", nccl="2.25.1",
    )  # fmt: skip
    t = train(world, ago=516, broken=(11,))
    rank = world.ranks[11]
    node = rank.node
    node.log_form = "dmesg"
    rng = world.rng
    for gpu in node.gpus:
        for k in range(8):
            words = f"0x{0x40988E2:08x} 0x00000008 0x{rng.getrandbits(8):08x} 0x0 0x0 0x0"
            world.kernel(
                node, t - 0.09 + k * 0.21 + gpu.index * 0.011,
                xid(gpu.pci, 145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link -1 (" + words + ")",
                    pid=gpu.pid, name="pt_main_thread"),
            )  # fmt: skip
    words = "0x004505c6" + " 0x00000000" * 5
    world.kernel(
        node, t,
        xid(rank.gpu.pci, 149, f"NETIR_LINK_EVT  Fatal   XC0 i0 Link 07 ({words})"),
    )  # fmt: skip
    world.kernel(node, t + 0.7, xid(rank.gpu.pci, 154, "GPU recovery action changed from 0x0 "
                 "(None) to 0x1 (GPU Reset Required)"))  # fmt: skip
    rank.gpu.recovery = "Reset"
    tell_start(world)
    return world, Expected(
        cause="gpu_fault", subtype="nvlink", culprits=[culprit(rank)], drains=[node.name],
        told="Link 7 of GPU 3 of the second node dies of bad signal integrity (149); all eight "
        "GPUs of the domain report 145 around it. Every rank has posted, nobody finishes.",
        must_not=_NEVER,
    )  # fmt: skip


def gsp_119() -> tuple[World, Expected]:
    world = build(
        "gsp_119", seed=2, model="H100", nodes=["p5-n17", "p5-n18"], job_id="512",
        job_name="dpo", taken_at=epoch("2026-07-30T20:44:10Z"), age_s=8100, timeout_s=3600,
        step_at_stall=3380,
    )  # fmt: skip
    t = train(world, ago=845, frozen=(2,))
    rank = world.ranks[2]
    node, gpu = rank.node, rank.gpu
    rank.wchan, rank.dumps, rank.stack = "rwsem_down_write_slowpath", False, []
    node.smi = "stuck"
    for k, s in enumerate((0.0, 46.0, 92.0)):
        world.kernel(node, t + s, xid(gpu.pci, 119, f"Timeout after 45s of waiting for RPC "
                     f"response from GPU{gpu.index} GSP! Expected function 76 (GSP_RM_CONTROL) "
                     f"sequence {1207 + k} (0x20802a02 0x8).", pid=rank.pid,
                     name="pt_main_thread"))  # fmt: skip
    world.kernel(node, t + 93, xid(gpu.pci, 154, "GPU recovery action changed from 0x0 (None) to "
                                   "0x1 (GPU Reset Required)"))  # fmt: skip
    world.kernel(node, t + 250, f"INFO: task pt_main_thread:{rank.pid} blocked for more than 122 "
                 "seconds.")  # fmt: skip
    tell_start(world, nccl=False)
    return world, Expected(
        cause="gpu_fault", subtype="gsp", culprits=[culprit(rank)], drains=[node.name],
        also=[("gpu_fault", "driver_stuck"), ("gpu_fault", "xid")],
        told="The GSP firmware of GPU 2 stops answering; the rank hangs in the driver and "
        "nvidia-smi never returns on that node.",
        must_not=_NEVER,
    )  # fmt: skip


def _fabric_world(name: str, nodes: list[str], **more: object) -> World:
    fields = {
        "seed": 2, "model": "H100", "nodes": nodes, "job_name": "llama-70b", "age_s": 26 * 3600,
        "timeout_s": 1800, "step_at_stall": 47760, "steps_total": 100_000,
        "env": {"NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
    } | more  # fmt: skip
    return build(name, **fields)  # type: ignore[arg-type]


def ib_port_down() -> tuple[World, Expected]:
    world = _fabric_world(
        "ib_port_down", [f"gpu-{n:02d}" for n in (31, 32, 33, 34)], job_id="88404",
        taken_at=epoch("2026-11-11T05:20:00Z"), nccl="2.25.1", cuda="12.8", seed=5,
    )  # fmt: skip
    t = train(world, ago=431, broken=(21,), entries=24, warm=3)
    node = world.nodes[2]
    bad = node.ports[5]
    bad.state, bad.phys = "DOWN", "Polling"
    bad.lifetime |= {"link_downed": 3, "symbol_error": 8123, "link_error_recovery": 2}
    world.kernel(node, t, f"mlx5_core {bad.pci} mlx5_5: Port: 1 Link DOWN")
    tell_start(world, nccl=False)
    quiet = {r.rank for r in world.ranks if r.local in (0, 5)}
    joblog.nccl_init(world, world.comms, ranks=quiet)
    here = world.ranks[21]
    joblog.async_event(world, t + 0.4, node, "mlx5_5:1 Got async error event: port error")
    for k, r in enumerate((13, 29, 21)):
        rank = world.ranks[r]
        peer = node if rank.node is not node else world.nodes[3]
        joblog.completion_error(world, t + 38.2 + k * 0.9, rank, peer, "mlx5_5", 40211 + 37 * k)
    return world, Expected(
        cause="ib_fault", subtype="port_down", drains=[node.name],
        culprits=[culprit(here, RAIL, hca="mlx5_5")],
        told="The link between mlx5_5 of the third node and its leaf switch goes down and stays "
        "in Polling; after the retries NCCL reports status 12 on both neighbours in the ring.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def subnet_manager_gone() -> tuple[World, Expected]:
    world = _fabric_world(
        "subnet_manager_gone", ["ibn1", "ibn2", "ibn3"], job_id="8211", nccl="2.25.1",
        cuda="12.8", taken_at=epoch("2026-06-04T21:08:00Z"),
    )  # fmt: skip
    t = train(world, ago=604, broken=tuple(r.rank for r in world.ranks), entries=48)
    for node in world.nodes:
        for p in node.ports:
            if p.layer == "InfiniBand":
                p.state, p.lid, p.sm_lid = "INIT", 65535, 0
                p.lifetime["link_downed"] = 1
        for k in range(6):
            world.kernel(node, t + 71 + 16 * k, f"ibp{24 + node.number}s0: multicast join failed "
                         "for ff12:401b:ffff:0000:0000:0000:ffff:ffff, status -110")  # fmt: skip
    tell_start(world)
    for k, r in enumerate((0, 5, 8, 12, 17, 22)):
        rank = world.ranks[r]
        peer = world.nodes[(rank.node.number + 1) % 3]
        hca = f"mlx5_{rank.local}"
        joblog.async_event(world, t + 0.2 + k * 0.03, rank.node,
                           f"{hca}:1 Got async error event: port error")  # fmt: skip
        joblog.completion_error(world, t + 36 + k * 1.3, rank, peer, hca, 39877 + k)
    return world, Expected(
        cause="ib_fault", subtype="subnet_manager", culprits=[], drains=[],
        also=[("ib_fault", "shared_fabric")],
        told="The switches restarted while no subnet manager ran: every IB port of every node "
        "has its link but stays in Initializing, without a lid.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def leaf_ports_down() -> tuple[World, Expected]:
    names = [f"su3-gpu{n:03d}" for n in range(1, 25)]
    world = _fabric_world(
        "leaf_ports_down", names, job_id="300412", taken_at=epoch("2026-11-18T12:33:30Z"),
        per_leaf=20, gpus=4, nccl="2.25.1", cuda="12.8",
    )  # fmt: skip
    t = train(world, ago=388, broken=tuple(r.rank for r in world.ranks), entries=24, warm=3)
    for node in world.nodes[:20]:
        p = node.ports[3]
        p.state, p.phys = "DOWN", "Polling"
        p.lifetime["link_downed"] = 1
        world.kernel(node, t + 0.002 * node.number, f"mlx5_core {p.pci} mlx5_3: Port: 1 Link DOWN")
    tell_start(world, nccl=False)
    joblog.nccl_init(world, world.comms, ranks={r.rank for r in world.ranks if r.local == 3})
    for k, node in enumerate(world.nodes[:20]):
        rank = world.ranks[node.number * 4 + 3]
        joblog.async_event(world, t + 0.3 + k * 0.004, node,
                           "mlx5_3:1 Got async error event: port error")  # fmt: skip
        peer = world.nodes[(node.number + 1) % 24]
        joblog.completion_error(world, t + 37.5 + k * 0.3, rank, peer, "mlx5_3", 41000 + k)
    return world, Expected(
        cause="ib_fault", subtype="shared_fabric", culprits=[], drains=[],
        also=[("ib_fault", "port_down")],
        told="The leaf switch of rail 3 dies: mlx5_3 goes to Polling within 40 ms on the twenty "
        "nodes under it, the other four nodes hang on another leaf.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
        extra={"shared": {"hca": "mlx5_3", "nodes": names[:20]}},
    )  # fmt: skip


def silent_node() -> tuple[World, Expected]:
    world = build(
        "silent_node", seed=2, model="H200", nodes=["ac-r1n1", "ac-r1n2", "ac-r1n3"],
        job_id="440018", job_name="rlhf", taken_at=epoch("2026-08-02T03:51:00Z"),
        age_s=11 * 3600, timeout_s=1800, step_at_stall=20770, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    t = train(world, ago=402, dead=tuple(range(8, 16)), entries=64)
    node = world.nodes[1]
    node.error, node.slurm_state = "unreachable", "ALLOCATED+NOT_RESPONDING"
    tell_start(world, nccl=False)
    joblog.nccl_init(world, ranks={0, 8, 16})
    for k, r in enumerate((0, 16, 20)):
        joblog.completion_error(world, t + 35 + k, world.ranks[r], node,
                                f"mlx5_{world.ranks[r].local}", 50123 + k)  # fmt: skip
    return world, Expected(
        cause="node_down", subtype="not_responding", drains=[],
        culprits=[whole(node)],
        told="The second node stops: no ssh, slurmctld gets no answer, its eight processes are "
        "gone from RAS, peers see status 12 towards it.",
        must_not=[*_NEVER, "gpu_fault"],
    )  # fmt: skip


def node_rebooted() -> tuple[World, Expected]:
    world = build(
        "node_rebooted", seed=2, model="H100", nodes=["x3001", "x3002"], job_id="77120",
        job_name="embed", taken_at=epoch("2026-10-06T09:30:00Z"), age_s=5 * 3600,
        timeout_s=3600, step_at_stall=9210,
    )  # fmt: skip
    t = train(world, ago=610, dead=tuple(range(8, 16)))
    node = world.nodes[1]
    boot = t + 175
    shift = boot - node.boot_at
    node.kernel_lines = [(w + shift, s) for w, s in node.kernel_lines if w < node.boot_at + 60]
    node.boot_at, node.slurmd_at = boot, boot + 71
    node.boot_id = node.boot_id[::-1].replace("-", "")[:32]
    b = node.boot_id
    node.boot_id = f"{b[:8]}-{b[8:12]}-4{b[13:16]}-a{b[17:20]}-{b[20:32]}"
    tell_start(world, nccl=False)
    return world, Expected(
        cause="node_down", subtype="rebooted", drains=[],
        culprits=[whole(node)],
        told="The second node rebooted in the middle of the job; slurmd came back fast enough "
        "for Slurm to leave the job RUNNING, its processes are gone.",
        must_not=[*_NEVER, "gpu_fault"],
    )  # fmt: skip


def slow_gpu() -> tuple[World, Expected]:
    world = build(
        "slow_gpu", seed=2, model="H100", nodes=["tr-05", "tr-06"], job_id="21800",
        job_name="ddp-vit", taken_at=epoch("2026-07-15T15:15:00Z"), age_s=3 * 3600, step_s=0.8,
        step_at_stall=14800, steps_total=40000, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    rank = world.ranks[10]
    world.step_s = 0.8
    g = everybody(world)
    comms_of(world, [g])
    warm = 40
    usual = [op for _ in range(warm * 2) for op in ddp(g)]
    slow = [op for _ in range(warm * 2) for op in ddp(g, step_s=2.3)]
    run(world, {r.rank: slow if r is rank else usual for r in world.ranks}, (g,),
        starts_at=world.taken_at - warm * 2.35, **ring(), timing=True)  # fmt: skip
    world.env |= {"TORCH_NCCL_ENABLE_TIMING": "1", "TORCH_FR_BUFFER_SIZE": "128"}
    gpu = rank.gpu
    gpu.activity, gpu.sm_mhz, gpu.throttle = "slow", 690, 0x8 | 0x40
    gpu.power_w, gpu.temperature_c = 243.0, 65
    for r in world.ranks:
        if r is not rank:
            r.gpu.activity, r.gpu.power_w = "work", 262.0
    joblog.start(world)
    change = world.taken_at - 1500
    last_fast = world.step_at_stall - int(1470 / 2.36)
    joblog.progress(_at_step(world, last_fast), change)
    world.step_s, world.step_at_stall = 2.36, 14800
    joblog.progress(world, world.taken_at - 31, count=60)
    return world, Expected(
        cause="straggler", subtype="slow_gpu", culprits=[culprit(rank)], drains=[],
        told="DDP. A fan fails over GPU 2 of the second node: hardware thermal slowdown to a "
        "third of the clock; every step waits for rank 10 and takes 2.4 s instead of 0.8 s.",
        must_not=["rank_desync", "data_stall", "app_crash", "ib_fault"], phase="steady",
    )  # fmt: skip


def _at_step(world: World, step: int) -> World:
    world.step_at_stall = step
    return world


def healthy_stale() -> tuple[World, Expected]:
    world = build(
        "healthy_stale", seed=2, model="H100", nodes=["gpu-41", "gpu-42"], job_id="48901",
        job_name="llm-13b", taken_at=epoch("2026-11-27T19:00:00Z"), age_s=20 * 3600,
        step_at_stall=37800, steps_total=90000, env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    moving(world)
    node = world.nodes[0]
    week = world.taken_at - 7.3 * 86400
    for n in world.nodes:
        boot_before(n, week - 2 * 86400)
    old = node.gpus[2]
    old.remap_uncorrectable, old.aggregate_uncorrectable = 1, 1
    world.kernel(node, week, xid(old.pci, 48, "An uncorrectable double bit error (DBE) has been "
                 "detected on GPU in the framebuffer at physAddr 0x2a4c1e00 partition 9, "
                 "subpartition 1.", pid=190233, name="python3"))  # fmt: skip
    row = "Row Remapper: New row (0x000000002a4c1e00) marked for remapping, reset gpu to activate."
    world.kernel(node, week + 0.02, xid(old.pci, 63, row, pid=190233, name="python3"))
    world.kernel(node, week + 0.03, xid(old.pci, 94, "Contained: CE User Channel (0x9). RST: No, "
                                        "D-RST: No", pid=190233, name="python3"))  # fmt: skip
    other = world.nodes[1].gpus[6]
    world.kernel(world.nodes[1], week + 86400, xid(other.pci, 31, "Ch 00000008, intr 00000000. "
                 "MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1a_20000000. Fault is "
                 "of type FAULT_PDE ACCESS_TYPE_VIRT_READ", pid=7011, name="python3"))  # fmt: skip
    for n in world.nodes:
        mgmt = n.ports[-1]
        mgmt.layer, mgmt.hca_type = "InfiniBand", "MT4123"
        mgmt.state, mgmt.phys = "DOWN", "Disabled"
        n.ports[1].lifetime |= {"symbol_error": 41, "link_downed": 2}
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="Nothing is wrong today: a contained ECC error and an application's Xid 31 of last "
        "week, long since remapped; one unused HCA a node is disabled on purpose; old counters.",
    )  # fmt: skip


def remap_pending() -> tuple[World, Expected]:
    """A pending remap is housekeeping; the job stands for another reason."""
    world = build(
        "remap_pending", seed=2, model="H200", nodes=["nv-201", "nv-202"], job_id="5150",
        job_name="vla", taken_at=epoch("2026-09-21T08:00:00Z"), age_s=7 * 3600, timeout_s=3600,
        step_at_stall=12880,
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm, rank = 14, world.ranks[12]
    usual = [op for _ in range(warm + 4) for op in fsdp(g)]
    odd = [op for _ in range(warm) for op in fsdp(g)] + [stop("loader")]
    rank.stack = list(LOADER_STACK)
    loader_workers(
        rank,
        state="D",
        wchan="rpc_wait_bit_killable",
        stack="[<0>] rpc_wait_bit_killable+0x1a/0x90 [sunrpc]\n[<0>] "
        "nfs_wait_on_request+0x3a/0x50 [nfs]\n[<0>] nfs_file_read+0x6d/0xa0 [nfs]",
    )
    stall(world, {r.rank: odd if r is rank else usual for r in world.ranks}, (g,), ago=905,
          warm_s=warm * world.step_s, **ring())  # fmt: skip
    gpu = world.nodes[0].gpus[2]
    gpu.remap_pending, gpu.remap_uncorrectable, gpu.aggregate_uncorrectable = True, 1, 1
    before = world.job_started - 2 * 86400
    boot_before(world.nodes[0], before - 86400)
    world.kernel(world.nodes[0], before, xid(gpu.pci, 63, "Row Remapper: New row "
                 "(0x0000000033e1a800) marked for remapping, reset gpu to activate.",
                 name="<unknown>"))  # fmt: skip
    node = rank.node
    next(m for m in node.mounts if m.path == "/home").answers = False
    world.kernel(node, world.taken_at - 840, "nfs: server 10.9.0.5 not responding, still trying")
    world.kernel(node, world.taken_at - 700, f"INFO: task pt_data_worker:{rank.pid + 400} blocked "
                 "for more than 122 seconds.")  # fmt: skip
    tell_start(world, nccl=False)
    return world, Expected(
        cause="data_stall", subtype="storage", culprits=[culprit(rank)], drains=[],
        also=[("data_stall", "loader_wait")],
        told="Rank 12's loader hangs on the NFS mount of its node; GPU 2 of the other node has "
        "waited for its row remap for two days, which is housekeeping.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "progressing"],
        extra={"housekeeping": {"node": "nv-201", "gpu_index": 2}},
    )  # fmt: skip


STORIES = (
    xid79, contained_ecc, nvlink_burst, gsp_119, ib_port_down, subnet_manager_gone,
    leaf_ports_down, silent_node, node_rebooted, slow_gpu, healthy_stale, remap_pending,
)  # fmt: skip
