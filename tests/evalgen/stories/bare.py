"""Incidents of which little is left to see: no dumps, no stacks, no record of an end."""

from __future__ import annotations

from ..clock import epoch
from ..program import fsdp, stop
from ..render import joblog
from ..world import World, build
from .common import (
    GPU,
    Expected,
    comms_of,
    culprit,
    everybody,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip
from .desync import accumulating
from .hardware import train
from .host import all_gone

_SOUND = ["gpu_fault", "ib_fault", "node_down", "progressing"]


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {"seed": 2, "model": "H100", "age_s": 5 * 3600, "timeout_s": 3600,
                               "step_at_stall": 9800, "job_name": "run"}  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def _odd(world: World, why: str, *, ago: float) -> None:
    """Rank 3's CPU goes elsewhere after a whole step."""
    g = everybody(world)
    comms_of(world, [g])
    usual = [op for _ in range(18) for op in fsdp(g)]
    odd = [op for _ in range(14) for op in fsdp(g)] + [stop(why)]
    stall(world, {r.rank: odd if r.rank == 3 else usual for r in world.ranks}, (g,), ago=ago,
          warm_s=14 * world.step_s, **ring())  # fmt: skip


def watchdog_only() -> tuple[World, Expected]:
    world = _world(
        "watchdog_only", nodes=["wd-1", "wd-2"], job_id="1212", state="FAILED", timeout_s=600,
        reason="NonZeroExitCode", exit_code="134:0", taken_at=epoch("2026-06-25T05:25:00Z"),
        env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    usual, odd = accumulating(g, 4, launched=True)
    programs = {r.rank: odd if r.rank == 3 else usual for r in world.ranks}
    stall(world, programs, (g,), ago=900, warm_s=4 * 8 * world.step_s + 2, **ring(64))
    tell_start(world)
    records = [x for r in world.ranks if (x := joblog.watchdog(world, r)) is not None]
    end = max(records) + 8
    for r in world.ranks:
        joblog.abort(world, end + 0.02 * r.rank, r)
        joblog.srun_exit(world, end + 1 + 0.03 * r.rank, r, 134)
    seq = world.ranks[3].pending[0].seq
    all_gone(world, end + 6)
    return world, Expected(
        cause="rank_desync", subtype="collective_mismatch",
        culprits=[culprit(world.ranks[3], seq=seq)],
        told="The seed's fault, told by nothing but the watchdogs: 15 timed out in a "
        "reduce_scatter, rank 3 in an all_reduce at the same number. The dumps were not kept.",
        must_not=[*_SOUND, "data_stall", "app_crash"],
    )  # fmt: skip


def vanished_rank() -> tuple[World, Expected]:
    world = _world("vanished_rank", nodes=["vr-1", "vr-2"], job_id="909",
                   taken_at=epoch("2026-02-17T17:17:00Z"))  # fmt: skip
    train(world, ago=380, dead=(9,))
    rank = world.ranks[9]
    world.ras = False
    tell_start(world, nccl=False)
    return world, Expected(
        cause="app_crash", subtype="exit", culprits=[culprit(rank, GPU)],
        told="Rank 9 calls os._exit in a thread: no traceback, no line of srun, no kernel line; "
        "its process is not there and 15 wait.",
        also=[("rank_desync", "missing_rank")], must_not=[*_SOUND, "data_stall"],
    )  # fmt: skip


def unseen() -> tuple[World, Expected]:
    world = _world("unseen", nodes=["us-1", "us-2"], job_id="311", ras=False,
                   taken_at=epoch("2026-03-21T21:21:00Z"))  # fmt: skip
    _odd(world, "elsewhere", ago=700)
    world.ranks[3].dumps = False
    world.without |= {"stacks", "gpu_samples"}
    tell_start(world, nccl=False)
    return world, Expected(
        cause="unknown", subtype="unobserved", also=[("rank_desync", "missing_rank"),
                                                     ("unknown", "hang")],
        told="15 dumps say that they wait for rank 3; rank 3 left none, nobody saw its stack, and "
        "its process lives: where it is cannot be known.",
        must_not=[*_SOUND, "app_crash"], extra={"hint_rank": 3},
    )  # fmt: skip


def silent_unnoticed() -> tuple[World, Expected]:
    world = _world("silent_unnoticed", model="H200", nodes=["su-1", "su-2", "su-3"], job_id="4040",
                   taken_at=epoch("2026-09-24T04:24:00Z"), timeout_s=1800,
                   env={"NCCL_DEBUG": "WARN"})  # fmt: skip
    t = train(world, ago=190, dead=tuple(range(8, 16)), entries=64)
    node = world.nodes[1]
    node.error = "unreachable"
    tell_start(world, nccl=False)
    joblog.nccl_init(world, ranks={0, 8, 16})
    for k, r in enumerate((0, 16, 20)):
        joblog.completion_error(world, t + 35 + k, world.ranks[r], node,
                                f"mlx5_{world.ranks[r].local}", 50123 + k)  # fmt: skip
    return world, Expected(
        cause="node_down", subtype="not_responding", culprits=[whole(node)],
        also=[("ib_fault", "unreachable_peer"), ("unknown", "unobserved")],
        told="The second node froze three minutes ago; Slurm has not noticed yet. It does not "
        "answer, RAS counts its eight processes dead, peers get no answer from it.",
        must_not=["gpu_fault", "rank_desync", "data_stall", "app_crash", "progressing"],
    )  # fmt: skip


def data_steps() -> tuple[World, Expected]:
    world = _world("data_steps", nodes=["ds-1", "ds-2"], job_id="1193", ras=False,
                   step_at_stall=1200, steps_total=1200, age_s=2700, nccl="2.21.5", torch="2.4.0",
                   taken_at=epoch("2026-10-29T08:40:00Z"))  # fmt: skip
    _odd(world, "left its loop", ago=650)
    world.without |= {"flight_recorder", "stacks"}
    tell_start(world, nccl=False)
    t = world.stalled_at
    assert t is not None
    world.log = [(w, s) for w, s in world.log if " - step " not in s]
    for back in range(12, 0, -1):
        for r in world.ranks:
            step = 1200 - back - (7 if r.rank == 3 else 0)
            joblog.info(world, t - back * world.step_s, f"rank {r.rank}: epoch 0 step {step}/1200 "
                        "| loss 2.1", rank=r.rank)  # fmt: skip
    joblog.info(world, t - 0.2, "rank 3: epoch 0 finished after 1193 steps", rank=3)
    return world, Expected(
        cause="rank_desync", subtype="missing_rank", culprits=[culprit(world.ranks[3])],
        told="Rank 3's sampler is seven batches short. Old software: no dumps, no RAS, no stacks; "
        "but every rank prints its steps, and rank 3 the end of its epoch.",
        also=[("unknown", "hang")], must_not=[*_SOUND, "app_crash"],
    )  # fmt: skip


STORIES = (watchdog_only, vanished_rank, unseen, silent_unnoticed, data_steps)
