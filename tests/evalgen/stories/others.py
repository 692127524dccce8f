"""Further incidents, one for what the main list leaves out."""

from __future__ import annotations

from ..clock import epoch
from ..program import compute, ddp, fsdp, run, stop
from ..render import joblog
from ..render.kernel import xid
from ..world import World, build
from .common import (
    GPU,
    LOADER_STACK,
    RAIL,
    Expected,
    comms_of,
    culprit,
    everybody,
    loader_workers,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip
from .hardware import train
from .host import all_gone


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {
        "seed": 2, "model": "H100", "age_s": 8 * 3600, "timeout_s": 3600, "job_name": "run",
        "step_at_stall": 15020, "steps_total": 60000,
    }  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def gpu_vanished() -> tuple[World, Expected]:
    world = _world(
        "gpu_vanished",
        nodes=["sx-11", "sx-12"],
        job_id="118",
        taken_at=epoch("2026-05-05T15:55:00Z"),
    )
    t = train(world, ago=702, frozen=(7,))
    rank = world.ranks[7]
    gpu = rank.gpu
    gpu.activity, gpu.listed, gpu.on_bus = "lost", False, False
    rank.wchan, rank.dumps, rank.stack = "os_acquire_rwlock_write", False, []
    port = f"0000:{int(gpu.pci[5:7], 16) - 1:02x}:01.0"
    world.kernel(rank.node, t - 0.3, f"pcieport {port}: pciehp: Slot(17): Link Down")
    world.kernel(rank.node, t - 0.2, f"pcieport {port}: pciehp: Slot(17): Card not present")
    for line in (
        f"NVRM: The NVIDIA GPU {gpu.pci}",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    ):
        world.kernel(rank.node, t, line)
        t += 0.000002
    tell_start(world, nccl=False)
    return world, Expected(
        cause="gpu_fault", subtype="off_bus", also=[("gpu_fault", "missing")],
        culprits=[culprit(rank)], drains=[rank.node.name],
        told="The slot of GPU 7 loses power; the driver tells it in three lines without an Xid.",
        must_not=["rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def remap_failed() -> tuple[World, Expected]:
    world = _world(
        "remap_failed", model="H200", nodes=["ut-1", "ut-2"], job_id="2203",
        taken_at=epoch("2026-04-22T04:40:00Z"),
    )  # fmt: skip
    t = train(world, ago=333, dead=(12,))
    rank = world.ranks[12]
    gpu, name = rank.gpu, "pt_main_thread"
    gpu.volatile_uncorrectable, gpu.remap_uncorrectable, gpu.remap_failed = 1, 8, True
    world.kernel(rank.node, t - 0.4, xid(gpu.pci, 48, "An uncorrectable double bit error (DBE) has "
                 "been detected on GPU in the framebuffer at physAddr 0x51aa1c00 partition 7, "
                 "subpartition 0.", pid=rank.pid, name=name))  # fmt: skip
    world.kernel(rank.node, t - 0.39, xid(gpu.pci, 64, "Row Remapper: Failed to remap row "
                 "(0x0000000051aa1c00).", pid=rank.pid, name=name))  # fmt: skip
    world.kernel(rank.node, t - 0.38, xid(gpu.pci, 94, "Contained: SM (0x1). RST: No, D-RST: No",
                                          pid=rank.pid, name=name))  # fmt: skip
    tell_start(world, nccl=False)
    joblog.traceback(world, t, rank, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 250, "train_step", "loss = loss.item()"),
    ], "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")  # fmt: skip
    joblog.srun_exit(world, t + 0.7, rank, 1)
    return world, Expected(
        cause="gpu_fault", subtype="row_remap", also=[("gpu_fault", "ecc")],
        culprits=[culprit(rank)], drains=[rank.node.name],
        told="The bank of GPU 4 has no spare row left: the remap fails, the error is contained, "
        "its process dies.",
        must_not=["rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def app_xid() -> tuple[World, Expected]:
    world = _world(
        "app_xid", nodes=["kr-01", "kr-02"], job_id="9091", env={"NCCL_DEBUG": "INFO"},
        taken_at=epoch("2026-07-01T10:10:00Z"),
    )  # fmt: skip
    t = train(world, ago=366, dead=(3,))
    rank = world.ranks[3]
    pid, pci, name = rank.pid, rank.gpu.pci, "pt_main_thread"
    for k in range(3):
        where = f"(GPC 1, TPC {k}, SM 1): Out Of Range Address"
        words = f"Graphics SM Warp Exception on {where}"
        world.kernel(rank.node, t - 0.6 + k * 0.001, xid(pci, 13, words, pid=pid, name=name))
    world.kernel(rank.node, t - 0.59, xid(pci, 43, "Ch 00000008", pid=pid, name=name))
    tell_start(world)
    joblog.traceback(world, t, rank, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/kernels.py", 77, "gather_scatter", "out = _ext.gather(x, idx)"),
    ], "torch.AcceleratorError: CUDA error: an illegal memory access was encountered")  # fmt: skip
    joblog.srun_exit(world, t + 0.6, rank, 1)
    return world, Expected(
        cause="app_crash", subtype="app_xid", also=[("app_crash", "exception")],
        culprits=[culprit(rank)], drains=[],
        told="A hand-written kernel reads out of range on rank 3: Xid 13 and 43 blame the "
        "program, the process dies, the GPU is sound.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def hca_dead() -> tuple[World, Expected]:
    world = _world(
        "hca_dead", nodes=["ow-3", "ow-4", "ow-5"], job_id="7341", nccl="2.25.1", cuda="12.8",
        taken_at=epoch("2026-03-19T23:59:40Z"), env={"NCCL_DEBUG": "INFO",
                                                     "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
    )  # fmt: skip
    t = train(world, ago=520, broken=(10,))
    node = world.nodes[1]
    bad = node.ports[2]
    bad.state, bad.phys = "DOWN", "Disabled"
    head = f"mlx5_core {bad.pci}:"
    world.kernel(node, t, f"{head} poll_health:825:(pid 0): device's health compromised - reached "
                 "miss count")  # fmt: skip
    world.kernel(node, t + 0.01, f"{head} print_health_info:428:(pid 0): synd 0x1: firmware "
                 "internal error")  # fmt: skip
    world.kernel(node, t + 61, f"{head} wait_func:1195:(pid 88123): DESTROY_EQ(0x302) timeout. "
                 "Will cause a leak of a command resource")  # fmt: skip
    tell_start(world)
    for k, r in enumerate((2, 18)):
        joblog.completion_error(world, t + 37 + k, world.ranks[r], node, "mlx5_2", 40000 + k)
    joblog.async_event(world, t + 0.3, node,
                       "mlx5_2:1 async fatal event: local catastrophic error")  # fmt: skip
    return world, Expected(
        cause="ib_fault", subtype="hca_fatal", also=[("ib_fault", "port_down")],
        culprits=[culprit(world.ranks[10], RAIL, hca="mlx5_2")], drains=[node.name],
        told="The firmware of mlx5_2 on the second node dies.",
        must_not=["gpu_fault", "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def slow_link() -> tuple[World, Expected]:
    world = _world(
        "slow_link", nodes=["eu-a1", "eu-a2", "eu-a3"], job_id="1330", step_s=1.1,
        taken_at=epoch("2026-06-12T18:30:00Z"), env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    ops = [op for _ in range(60) for op in ddp(g, step_s=0.6)]
    run(world, {r.rank: ops for r in world.ranks}, (g,), starts_at=world.taken_at - 40,
        wire_s=0.09, **ring())  # fmt: skip
    node = world.nodes[2]
    bad = node.ports[6]
    bad.rate_gbps, bad.rate_words = 100, "100 Gb/sec (1X NDR)"
    bad.lifetime |= {"symbol_error": 9102, "link_downed": 4, "link_error_recovery": 4}
    bad.moved |= {"symbol_error": 31, "local_link_integrity_errors": 2}
    for r in world.ranks:
        r.gpu.power_w = 402.0
    tell_start(world, nccl=False)
    return world, Expected(
        cause="straggler", subtype="slow_link",
        also=[("ib_fault", "link_degraded")],
        culprits=[culprit(world.ranks[22], RAIL, hca="mlx5_6")], drains=[],
        told="mlx5_6 of the third node came up with one lane of four after a flap: the job "
        "moves, at the speed of that link.",
        must_not=["gpu_fault", "rank_desync", "data_stall", "app_crash", "unknown"],
        extra={"may_drain": [node.name]},
    )  # fmt: skip


def driver_mismatch() -> tuple[World, Expected]:
    world = _world(
        "driver_mismatch", nodes=["vm-1", "vm-2"], job_id="451", age_s=150, state="FAILED",
        taken_at=epoch("2026-02-20T09:00:00Z"), reason="NonZeroExitCode", exit_code="1:0",
    )  # fmt: skip
    odd = world.nodes[1]
    text = (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95"
    )
    odd.smi = text + "\n"
    joblog.start(world)
    t = world.job_started + 22
    for r in world.ranks[8:]:
        joblog.traceback(world, t + r.local * 0.02, r, [
            ("/opt/train/train.py", 431, "<module>", "main()"),
            ("/opt/train/train.py", 366, "main", "torch.cuda.set_device(local_rank)"),
        ], "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda "
           "functions before calling NumCudaDevices() that might have already set an error? Error "
           "803: system has unsupported display driver / cuda driver combination")  # fmt: skip
        joblog.srun_exit(world, t + 1 + r.local * 0.02, r, 1)
    world.kernel(odd, t - 400, "NVRM: API mismatch: the client 'nvidia-smi' (pid 33112)\nNVRM: has "
                 "the version 580.95.05, but this kernel module has\nNVRM: the version "
                 "570.172.08.  Please make sure that this")  # fmt: skip
    joblog.cancelled(world, t + 3)
    all_gone(world, t + 6)
    return world, Expected(
        cause="config", subtype="version_mismatch", drains=[],
        culprits=[whole(odd)],
        also=[("app_crash", "exception"), ("gpu_fault", "driver_stuck")],
        told="The driver's libraries were updated on the second node under the old kernel module.",
        must_not=["ib_fault", "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def left_early() -> tuple[World, Expected]:
    world = _world(
        "left_early", nodes=["jp-1", "jp-2"], job_id="80", taken_at=epoch("2026-08-08T08:08:00Z")
    )
    t = train(world, ago=411, dead=(15,))
    rank = world.ranks[15]
    tell_start(world, nccl=False)
    joblog.info(world, t - 1, "early stopping: no improvement on this rank's shard, leaving",
                rank=15)  # fmt: skip
    joblog.srun_exit(world, t + 2, rank, 3)
    return world, Expected(
        cause="app_crash", subtype="exit", culprits=[culprit(rank, GPU)], drains=[],
        told="Rank 15 decides by itself to stop early and exits with 3; the other 15 train on.",
        also=[("rank_desync", "missing_rank")],
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def time_limit() -> tuple[World, Expected]:
    world = _world(
        "time_limit", nodes=["q5", "q6"], job_id="314", state="TIMEOUT", reason="TimeLimit",
        taken_at=epoch("2026-10-10T10:10:10Z"), time_limit="08:00:00", exit_code="0:0",
        age_s=8 * 3600 + 1200,
    )  # fmt: skip
    t = world.job_started + 8 * 3600 + 12
    joblog.start(world)
    joblog.progress(world, t - 3)
    joblog.cancelled(world, t, why=" DUE TO TIME LIMIT")
    all_gone(world, t + 4)
    return world, Expected(
        cause="not_running", subtype="time_limit", told="The job ran, well, into its time limit.",
        must_not=["gpu_fault", "ib_fault", "app_crash", "rank_desync", "progressing"],
    )  # fmt: skip


def loader_lock() -> tuple[World, Expected]:
    """The loader waits for nothing that the host shows: a Python lock."""
    world = _world(
        "loader_lock", nodes=["br-1", "br-2"], job_id="62", taken_at=epoch("2026-09-01T12:00:00Z"),
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    rank = world.ranks[8]
    usual = [op for _ in range(18) for op in fsdp(g)]
    odd = [op for _ in range(14) for op in fsdp(g)] + [compute(0.1), stop("loader")]
    rank.stack = list(LOADER_STACK)
    for r in world.ranks:
        loader_workers(r, state="S", wchan="futex_wait_queue" if r is rank else "do_poll")
    stall(world, {r.rank: odd if r is rank else usual for r in world.ranks}, (g,), ago=830,
          warm_s=14 * world.step_s, **ring())  # fmt: skip
    tell_start(world, nccl=False)
    return world, Expected(
        cause="data_stall", subtype="loader_wait", culprits=[culprit(rank)], drains=[],
        also=[("rank_desync", "missing_rank")],
        told="The workers of rank 8's loader deadlock on a lock that was held at the fork: the "
        "main thread waits in the queue, no disk is slow.",
        must_not=["gpu_fault", "ib_fault", "progressing"],
    )  # fmt: skip


STORIES = (
    gpu_vanished, remap_failed, app_xid, hca_dead, slow_link, driver_mismatch, left_early,
    time_limit, loader_lock,
)  # fmt: skip
