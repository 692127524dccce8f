"""Stories of hosts short of something, and of jobs that end, wait, or do not get to their end."""

from __future__ import annotations

from ..clock import epoch, slurm
from ..program import barrier, ddp, fsdp, run, stop, sync
from ..render import joblog
from ..world import World, build
from .common import (
    GPU,
    Expected,
    comms_of,
    culprit,
    everybody,
    main_stacks,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip
from .host import all_gone

_SOUND = ["gpu_fault", "ib_fault", "node_down"]


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {"seed": 2, "model": "H100", "age_s": 7 * 3600, "timeout_s": 3600,
                               "step_at_stall": 12980, "job_name": "sft"}  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def memory_growth() -> tuple[World, Expected]:
    world = _world("memory_growth", nodes=["mg-1", "mg-2"], job_id="5005",
                   taken_at=epoch("2026-03-12T15:16:00Z"), env={"NCCL_DEBUG": "INFO"})  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    rank = world.ranks[11]
    usual = [op for _ in range(18) for op in fsdp(g)]
    odd = [op for _ in range(14) for op in fsdp(g)] + [stop("reclaims")]
    stall(world, {r.rank: odd if r is rank else usual for r in world.ranks}, (g,), ago=240,
          warm_s=14 * world.step_s, **ring())  # fmt: skip
    node = rank.node
    rank.rss_gib, rank.rss_growth, rank.cpu_cores = 1710.0, 0.31, 0.9
    rank.state, rank.wchan = "D", "shrink_lruvec"
    rank.stack = [
        ("collate", "/opt/train/data.py", 151),
        ("train_epoch", "/opt/train/train.py", 279),
        ("main", "/opt/train/train.py", 402),
        ("<module>", "/opt/train/train.py", 431),
    ]
    node.available_gib, node.pressure = (14.2, 10.1), 71.0
    node.cgroup_gib = (1988.0, 1992.0)
    tell_start(world)
    return world, Expected(
        cause="memory", subtype="growth", culprits=[culprit(rank)],
        told="A list in rank 11's collate function grows for ever; the host has 10 of 2,015 GiB "
        "left, the kernel reclaims page by page and no process gets on. Nothing is killed yet.",
        must_not=[*_SOUND, "rank_desync", "progressing"],
    )  # fmt: skip


def slow_host() -> tuple[World, Expected]:
    world = _world("slow_host", nodes=["sh-1", "sh-2", "sh-3", "sh-4"], job_id="616", gpus=4,
                   step_s=2.6, steps_total=30000,
                   taken_at=epoch("2026-01-28T10:59:00Z"))  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    node = world.nodes[3]
    usual = [op for _ in range(40) for op in ddp(g)]
    slow = [op for _ in range(40) for op in ddp(g, step_s=2.6)]
    run(world, {r.rank: slow if r.node is node else usual for r in world.ranks}, (g,),
        starts_at=world.taken_at - 30 * 2.65, **ring())  # fmt: skip
    world.env["TORCH_FR_BUFFER_SIZE"] = "128"
    main_stacks(world)
    node.cpu_pressure = 82.0
    node.strangers = [(4410, "clamscan", 88.0)]
    for r in world.ranks:
        r.gpu.activity, r.gpu.power_w = "work", 301.0
    tell_start(world, nccl=False)
    return world, Expected(
        cause="straggler", subtype="slow_host", culprits=[whole(node)], phase="steady",
        told="A virus scanner takes 88 of the 128 cores of the fourth node: its four ranks launch "
        "their kernels late, and every step takes 2.6 s instead of 0.8 s.",
        must_not=[*_SOUND, "rank_desync", "data_stall", "app_crash"],
    )  # fmt: skip


def shutdown_hang() -> tuple[World, Expected]:
    world = _world("shutdown_hang", nodes=["sd-1", "sd-2"], job_id="99021", step_at_stall=9600,
                   taken_at=epoch("2026-07-19T01:40:00Z"), env={"NCCL_DEBUG": "INFO"})  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    t = world.taken_at - 2400
    ops = [op for _ in range(14) for op in fsdp(g)] + [stop("destroys its process group")]
    run(world, {r.rank: ops for r in world.ranks}, (g,), starts_at=t - 14 * world.step_s, **ring())
    c10d = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    for r in world.ranks:
        r.stack = [("destroy_process_group", c10d, 2201), ("main", "/opt/train/train.py", 420),
                   ("<module>", "/opt/train/train.py", 431)]  # fmt: skip
    world.stalled_at = t
    tell_start(world)
    joblog.info(world, t + 1, "saving checkpoint /lustre/alice/ckpt/final")
    joblog.info(world, t + 48, "saved checkpoint /lustre/alice/ckpt/final in 47.0 s")
    joblog.info(world, t + 49, "training finished")
    return world, Expected(
        cause="unknown", subtype="shutdown_hang", phase="shutdown",
        told="Training is done and saved; all 16 processes hang in destroy_process_group for 39 "
        "minutes.",
        must_not=[*_SOUND, "rank_desync", "data_stall", "app_crash", "progressing"],
    )  # fmt: skip


def requeued() -> tuple[World, Expected]:
    world = _world("requeued", nodes=["rq-1", "rq-2"], job_id="31337", state="PENDING",
                   reason="BeginTime", restarts=1, taken_at=epoch("2026-02-22T22:22:00Z"),
                   age_s=4000)  # fmt: skip
    all_gone(world, 0.0)
    world.ended = None
    start, end = slurm(world.job_started), slurm(world.taken_at - 70)
    j, nodes = world.job_id, "rq-[1-2]"
    world.sacct_rows = [
        f"{j}|{j}|REQUEUED|{nodes}|{start}|{end}|0:0|None",
        f"{j}.batch|{j}.batch|CANCELLED|rq-1|{start}|{end}|0:15|",
        f"{j}.0|{j}.0|CANCELLED|{nodes}|{start}|{end}|0:15|",
        f"{j}|{j}|PENDING|None assigned|Unknown|Unknown|0:0|BeginTime",
    ]
    world.without |= {"rank_procs", "slurm_node"}
    world.nodes_wanted = len(world.nodes)
    world.nodes, world.ranks = [], []
    return world, Expected(
        cause="not_running", subtype="requeued",
        told="Somebody requeued the job a minute ago; it waits for its begin time.",
        must_not=[*_SOUND, "app_crash", "rank_desync", "progressing"],
    )  # fmt: skip


def cancelled() -> tuple[World, Expected]:
    world = _world("cancelled", nodes=["cx-1", "cx-2"], job_id="2450", state="CANCELLED",
                   taken_at=epoch("2026-12-02T12:02:00Z"), exit_code="0:0")  # fmt: skip
    joblog.start(world)
    t = world.taken_at - 400
    joblog.progress(world, t - 2)
    joblog.cancelled(world, t)
    all_gone(world, t + 3)
    start, end, j, nodes = slurm(world.job_started), slurm(t + 3), world.job_id, "cx-[1-2]"
    world.sacct_rows = [
        f"{j}|{j}|CANCELLED by 5001|{nodes}|{start}|{end}|0:0|None",
        f"{j}.batch|{j}.batch|CANCELLED|cx-1|{start}|{end}|0:15|",
        f"{j}.0|{j}.0|CANCELLED|{nodes}|{start}|{end}|0:15|",
    ]
    return world, Expected(
        cause="not_running", subtype="cancelled",
        told="The owner cancelled a job that ran well.",
        must_not=[*_SOUND, "app_crash", "rank_desync", "progressing"],
    )  # fmt: skip


def late_rank() -> tuple[World, Expected]:
    world = _world("late_rank", nodes=["la-1", "la-2"], job_id="1771", step_s=1.9,
                   taken_at=epoch("2026-05-20T09:09:00Z"), steps_total=30000)  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    rank = world.ranks[6]
    usual = [op for _ in range(40) for op in ddp(g)]
    slow = [op for _ in range(40) for op in ddp(g, step_s=1.9)]
    run(world, {r.rank: slow if r is rank else usual for r in world.ranks}, (g,),
        starts_at=world.taken_at - 30 * 1.95, **ring(), timing=True)  # fmt: skip
    world.env |= {"TORCH_NCCL_ENABLE_TIMING": "1", "TORCH_FR_BUFFER_SIZE": "128"}
    main_stacks(world)
    for r in world.ranks:
        r.gpu.activity, r.gpu.power_w = "work", 388.0
    tell_start(world, nccl=False)
    return world, Expected(
        cause="straggler", subtype="late_rank", culprits=[culprit(rank)], phase="steady",
        told="Rank 6 gets the longest samples of every batch: its GPU is as fast as the others and "
        "has more to do; it comes last to every all-reduce.",
        must_not=[*_SOUND, "rank_desync", "data_stall", "app_crash"],
    )  # fmt: skip


def checkpoint_stuck() -> tuple[World, Expected]:
    world = _world("checkpoint_stuck", nodes=["ck-1", "ck-2"], job_id="8642", step_at_stall=10000,
                   taken_at=epoch("2026-11-15T20:30:00Z"))  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    steps = [op for _ in range(14) for op in fsdp(g)]
    usual, odd = [*steps, barrier(g), sync()], [*steps, stop("torch.save")]
    stall(world, {r.rank: usual if r.rank else odd for r in world.ranks}, (g,), ago=1500,
          warm_s=14 * world.step_s, **ring())  # fmt: skip
    zero = world.ranks[0]
    zero.state, zero.wchan, zero.cpu_cores = "D", "cl_sync_io_wait", 0.0
    zero.write_rate = zero.read_rate = 0
    zero.open_file = "/lustre/alice/ckpt/step_10000/model.pt.tmp"
    zero.stack = [
        ("_save", "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", 1242),
        ("save", "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", 967),
        ("write", "/opt/train/checkpoint.py", 71), ("save_epoch", "/opt/train/checkpoint.py", 90),
        ("train_epoch", "/opt/train/train.py", 301), ("main", "/opt/train/train.py", 402),
        ("<module>", "/opt/train/train.py", 431),
    ]  # fmt: skip
    tell_start(world, nccl=False)
    assert world.stalled_at is not None
    joblog.info(world, world.stalled_at + 0.2, "saving checkpoint /lustre/alice/ckpt/step_10000")
    return world, Expected(
        cause="data_stall", subtype="checkpoint", also=[("data_stall", "storage")],
        culprits=[culprit(zero)], phase="checkpoint",
        told="An object server of Lustre hangs while rank 0 writes the checkpoint: not a byte for "
        "25 minutes, the other 15 wait in the barrier.",
        must_not=[*_SOUND, "rank_desync", "app_crash", "progressing"],
    )  # fmt: skip


def step_oom() -> tuple[World, Expected]:
    world = _world("step_oom", nodes=["so-1", "so-2"], job_id="46", state="OUT_OF_MEMORY",
                   exit_code="0:125", reason="OutOfMemory",
                   taken_at=epoch("2026-08-14T14:14:00Z"))  # fmt: skip
    joblog.start(world)
    t = world.taken_at - 500
    joblog.progress(world, t - 2)
    node = world.nodes[1]
    step = f"{world.job_id}.0"
    world.say(t, f"slurmstepd: error: Detected 1 oom_kill event in StepId={step}. Some of the "
              "step tasks have been OOM Killed.")  # fmt: skip
    world.say(t + 0.2, f"srun: error: {node.name}: task 12: Out Of Memory")
    joblog.cancelled(world, t + 2)
    all_gone(world, t + 6)
    for n in world.nodes:
        world.missing[n.name, "kernel_log"] = "denied"
    return world, Expected(
        cause="memory", subtype="cgroup_oom", culprits=[culprit(world.ranks[12], GPU)],
        told="Rank 12 grew past the job's memory limit; kernel logs are for root only, Slurm and "
        "srun have it.",
        must_not=[*_SOUND, "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def failed_mute() -> tuple[World, Expected]:
    world = _world("failed_mute", nodes=["fm-1", "fm-2"], job_id="13", state="FAILED", age_s=4000,
                   reason="NonZeroExitCode", exit_code="1:0", step_at_stall=1500,
                   taken_at=epoch("2026-10-13T13:13:00Z"))  # fmt: skip
    joblog.start(world)
    t = world.taken_at - 600
    joblog.progress(world, t - 4)
    all_gone(world, t)
    return world, Expected(
        cause="not_running", subtype="failed",
        told="A wrapper swallowed the program's last words: the batch script ended with 1, the log "
        "ends in the middle of training.",
        also=[("app_crash", "exit")], must_not=[*_SOUND, "rank_desync", "progressing"],
    )  # fmt: skip


STORIES = (
    failed_mute, memory_growth, slow_host, shutdown_hang, requeued, cancelled, late_rank,
    checkpoint_stuck, step_oom,
)  # fmt: skip
