"""Stories of hosts short of something, and of jobs that end, wait, or do not get to their end."""

from __future__ import annotations

from ..clock import epoch, slurm
from ..program import ddp, fsdp, run, stop
from ..render import joblog
from ..world import World, build
from .common import (
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


STORIES = (memory_growth, slow_host, shutdown_hang, requeued, cancelled)
