"""Stories in which the ranks disagree: the seed in its tellings, and other desyncs.

Every telling is one fault: rank 3's sampler handed out fewer batches, so its loop ends early.
"""

from __future__ import annotations

from ..clock import epoch
from ..flight_recorder import Group, mesh
from ..program import (
    Op,
    all_reduce,
    barrier,
    compute,
    ddp,
    fsdp,
    fsdp_accumulate,
    mesh_step,
    reduce_scatter,
    stop,
    sync,
)  # fmt: skip
from ..world import World, build
from .common import (
    LOADER_STACK,
    Expected,
    comms_of,
    culprit,
    everybody,
    loader_workers,
    ring,
    stall,
    tell_start,
)  # fmt: skip

EARLY = 7
_DOING = {"operation": "all_reduce", "against": "reduce_scatter"}


def _seed_world(name: str, nodes: tuple[str, str] = ("gpu-07", "gpu-08"), **more: object) -> World:
    fields = {
        "seed": 3, "nodes": list(nodes), "job_id": "48213", "job_name": "llm-70b",
        "taken_at": epoch("2026-11-24T03:22:10Z"), "age_s": 14 * 3600 + 160, "timeout_s": 3600,
        "step_s": 1.9, "step_at_stall": 9592,
        "env": {"NCCL_DEBUG": "INFO",
                "NCCL_SOCKET_IFNAME": "ens41f0np0",
                "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/tmp/fr_pipe_"},
    } | more  # fmt: skip
    return build(name, **fields)  # type: ignore[arg-type]


def accumulating(g: Group, windows: int, *, launched: bool) -> tuple[list[Op], list[Op]]:
    """(everybody's program, the odd rank's): the odd one has one micro-step of the last window."""
    whole = [op for _ in range(windows) for m in fsdp_accumulate(g) for op in m]
    last = fsdp_accumulate(g)
    usual = whole + [op for m in last for op in m] + [barrier(g)]
    odd = whole + last[0] + [barrier(g, launched=launched), sync()]
    return usual, odd


def _same_seq(name: str, *, launched: bool, told: str, **more: object) -> tuple[World, Expected]:
    world = _seed_world(name, **more)
    g = everybody(world)
    comms_of(world, [g])
    usual, odd = accumulating(g, 4, launched=launched)
    programs = {r.rank: odd if r.rank == 3 else usual for r in world.ranks}
    stall(world, programs, (g,), ago=737, warm_s=4 * 8 * world.step_s + 2, **ring(64))
    tell_start(world)
    odd_rank = world.ranks[3]
    seq = odd_rank.pending[0].seq
    return world, Expected(
        cause="rank_desync", subtype="collective_mismatch", told=told,
        culprits=[culprit(odd_rank, seq=seq, **_DOING)],
        must_not=["gpu_fault", "ib_fault", "data_stall", "node_down", "progressing"],
    )  # fmt: skip


def seed() -> tuple[World, Expected]:
    return _same_seq(
        "seed", launched=False,
        told="FSDP (fully_shard) over all 16 ranks, one communicator; reshard_after_forward and, "
        "inside the accumulation window of 8, reshard_after_backward are off: only the first "
        "micro-step gathers. Rank 3 has one of the last 8 batches, 7 fewer than the rest, leaves "
        "the loop and calls the all_reduce [1] of the barrier before the checkpoint; the others' "
        "next collective is a reduce_scatter. The small all_reduce is the first that wants a "
        "tree: NCCL connects it at run time, on the CPU, and waits for peers that never come: no "
        "kernel was launched, so GPU 3 shows 0 % while the recorder already holds the call.",
    )  # fmt: skip


def seed_spin() -> tuple[World, Expected]:
    return _same_seq(
        "seed_spin", launched=True, nodes=("b300-r2-n14", "b300-r2-n15"), seed=4, job_id="50990",
        log_style="tqdm",
        told="As the seed, but trees had been connected by the barrier of an earlier epoch: rank "
        "3's own all_reduce kernel runs and spins, all 16 GPUs show 100 % at spin power.",
    )  # fmt: skip


def seed_allgather() -> tuple[World, Expected]:
    world = _seed_world("seed_allgather", nodes=("node0113", "node0118"), seed=5, job_id="7710",
                        log_style="titan")  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 14
    usual = [op for _ in range(warm + EARLY) for op in fsdp(g)] + [barrier(g)]
    odd = [op for _ in range(warm) for op in fsdp(g)] + [barrier(g), sync()]
    programs = {r.rank: odd if r.rank == 3 else usual for r in world.ranks}
    stall(world, programs, (g,), ago=912, warm_s=warm * world.step_s, **ring())
    tell_start(world)
    rank = world.ranks[3]
    return world, Expected(
        cause="rank_desync", subtype="collective_mismatch",
        told="FSDP with reshard_after_forward (the default): every step begins with an "
        "all-gather. Rank 3 runs out of data seven steps early; its barrier's all_reduce [1] "
        "meets the others' next all_gather at the same sequence number. All GPUs spin.",
        culprits=[culprit(rank, seq=rank.pending[0].seq, operation="all_reduce",
                          against="all_gather")],
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def _two_groups(world: World) -> tuple[Group, Group]:
    g = everybody(world)
    return g, Group(name="1", desc="mesh_fsdp", ranks=g.ranks)


def seed_own_group() -> tuple[World, Expected]:
    world = _seed_world(
        "seed_own_group",
        nodes=("dgx-a03", "dgx-a04"),
        seed=6,
        job_id="91422",
        age_s=1500,
        step_at_stall=14,
        steps_total=21,
    )
    g, shard = _two_groups(world)
    comms_of(world, [g, shard])
    warm = 14
    first = [barrier(g), sync()]
    usual = first + [op for _ in range(warm + EARLY) for op in fsdp(shard)] + [barrier(g)]
    odd = first + [op for _ in range(warm) for op in fsdp(shard)] + [barrier(g), sync()]
    programs = {r.rank: odd if r.rank == 3 else usual for r in world.ranks}
    stall(world, programs, (g, shard), ago=655, warm_s=warm * world.step_s, buffer_size=2000)
    tell_start(world, every=1)
    rank = world.ranks[3]
    return world, Expected(
        cause="rank_desync", subtype="missing_rank",
        also=[("rank_desync", "collective_mismatch"), ("rank_desync", "order_inversion")],
        told="FSDP over a device mesh: its collectives run in a group of their own, the barrier "
        "in default_pg. Rank 3 waits in default_pg for the 15 who wait in the mesh's all_gather "
        "for rank 3. Both communicators exist, so all 16 GPUs spin.",
        culprits=[culprit(rank, operation="all_reduce", against="all_gather")],
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def seed_cpu_barrier() -> tuple[World, Expected]:
    world = _seed_world("seed_cpu_barrier", nodes=("hgx21", "hgx22"), seed=7, job_id="130077",
                        log_style="megatron")  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 14
    usual = [op for _ in range(warm + EARLY) for op in fsdp(g)]
    odd = [op for _ in range(warm) for op in fsdp(g)] + [stop("gloo barrier")]
    programs = {r.rank: odd if r.rank == 3 else usual for r in world.ranks}
    rank = world.ranks[3]
    c10d = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    rank.stack = [
        ("barrier", c10d, 4884), ("wait_for_everyone", "/opt/train/checkpoint.py", 57),
        ("save_epoch", "/opt/train/checkpoint.py", 88), ("train_epoch", "/opt/train/train.py", 301),
        ("main", "/opt/train/train.py", 402), ("<module>", "/opt/train/train.py", 431),
    ]  # fmt: skip
    stall(world, programs, (g,), ago=1180, warm_s=warm * world.step_s, **ring())
    tell_start(world)
    return world, Expected(
        cause="rank_desync", subtype="missing_rank",
        also=[("rank_desync", "collective_mismatch")],
        told="FSDP (default resharding); the barrier before the checkpoint runs over a Gloo group "
        "on the CPU. Rank 3 left the loop seven steps early and waits there: nothing pending in "
        "its NCCL recorder, GPU at 0 %, the others in the next all_gather.",
        culprits=[culprit(rank, against="all_gather")],
        must_not=["gpu_fault", "ib_fault", "node_down", "progressing"],
    )  # fmt: skip


def order_inversion() -> tuple[World, Expected]:
    world = build(
        "order_inversion", seed=2, model="H200", nodes=["sm-n031", "sm-n032"], job_id="220913",
        job_name="dual-encoder", taken_at=epoch("2026-09-30T18:05:40Z"), age_s=5400,
        step_s=0.8, step_at_stall=5110, timeout_s=1800, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    g = everybody(world)
    a = Group(name="1", desc="image_tower", ranks=g.ranks)
    b = Group(name="2", desc="text_tower", ranks=g.ranks)
    comms_of(world, [a, b])
    warm = 70
    step = [compute(0.4), all_reduce(a, 4_194_304), all_reduce(b, 2_097_152), sync()]
    odd = [compute(0.4), all_reduce(b, 2_097_152), all_reduce(a, 4_194_304), sync()]
    programs = {r.rank: step * warm + (odd if r.rank == 10 else step) for r in world.ranks}
    stall(world, programs, (g, a, b), ago=540, warm_s=warm * 0.44, **ring())
    tell_start(world, nccl=False)
    return world, Expected(
        cause="rank_desync", subtype="order_inversion",
        also=[("rank_desync", "missing_rank"), ("rank_desync", "collective_mismatch")],
        told="Two groups of the same 16 ranks; in one step rank 10 calls them in the other order.",
        culprits=[culprit(world.ranks[10])],
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def mesh_inversion() -> tuple[World, Expected]:
    world = build(
        "mesh_inversion", seed=2, model="H200", nodes=["mi-1", "mi-2"], gpus=2, job_id="220914",
        job_name="tp2-dp2", taken_at=epoch("2026-09-30T20:15:40Z"), age_s=5400, step_s=0.8,
        step_at_stall=5110, timeout_s=1800, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    groups = mesh((2, 2), ("dp", "tp"))
    comms_of(world, groups[1:])
    warm = 70
    programs = {}
    for r in world.ranks:
        mine = {g.desc: g for g in groups if r.rank in g.ranks}
        tp = [all_reduce(mine["tp"], 4_194_304), sync()]
        dp = [all_reduce(mine["dp"], 2_097_152), sync()]
        last = [*dp, *tp] if r.rank in (0, 3) else [*tp, *dp]
        programs[r.rank] = [compute(0.4), *tp, *dp] * warm + [compute(0.4), *last]
    stall(world, programs, groups, ago=540, warm_s=warm * 0.44, **ring())
    tell_start(world, nccl=False)
    return world, Expected(
        cause="rank_desync", subtype="order_inversion",
        culprits=[],
        told="Rows and columns of a 2 x 2 mesh: on a branch that data decides, ranks 0 and 3 "
        "reduce over the columns first, 1 and 2 over the rows. 0 waits for 2, 2 for 3, 3 for 1 "
        "and 1 for 0. Two against two: the sides are told and nobody is blamed.",
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def size_mismatch() -> tuple[World, Expected]:
    world = build(
        "size_mismatch", seed=2, model="H100", nodes=["cn-0412", "cn-0413"], job_id="88120",
        job_name="vlm-ddp", taken_at=epoch("2026-10-02T07:41:00Z"), age_s=9100, step_s=0.8,
        step_at_stall=2207, timeout_s=1800,
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 24
    usual = [op for _ in range(warm + 4) for op in ddp(g)]
    odd_step = ddp(g)
    k = next(i for i, op in enumerate(odd_step) if op.kind == "coll") + 2
    odd_step[k] = all_reduce(g, 4_915_200, site="bucket", dtype="Float")
    odd = [op for _ in range(warm) for op in ddp(g)] + odd_step
    programs = {r.rank: odd if r.rank == 6 else usual for r in world.ranks}
    stall(world, programs, (g,), ago=480, warm_s=warm * world.step_s, **ring())
    tell_start(world, nccl=False)
    rank = world.ranks[6]
    return world, Expected(
        cause="rank_desync", subtype="size_mismatch",
        told="DDP; a text-only batch on rank 6 leaves the vision tower without gradients, its "
        "second bucket is smaller. Every rank is in the same all_reduce, one with another size.",
        culprits=[culprit(rank, seq=rank.pending[0].seq, operation="all_reduce")],
        must_not=["gpu_fault", "ib_fault", "data_stall", "progressing"],
    )  # fmt: skip


def mesh_cascade() -> tuple[World, Expected]:
    world = build(
        "mesh_cascade", seed=2, model="H100", nodes=[f"rack4-gpu{n}" for n in (1, 2, 3, 4)],
        job_id="61307", job_name="tp8-dp4", taken_at=epoch("2026-08-19T22:10:30Z"), age_s=70000,
        step_s=1.6, step_at_stall=31880, timeout_s=1800,
    )  # fmt: skip
    groups = mesh((4, 8), ("dp", "tp"))
    comms_of(world, groups[1:], before=410_000)
    warm = 10
    programs = {}
    for r in world.ranks:
        tp = next(x for x in groups if x.desc == "tp" and r.rank in x.ranks)
        dp = next(x for x in groups if x.desc == "dp" and r.rank in x.ranks)
        ops = [op for _ in range(warm) for op in mesh_step(tp, dp)]
        if r.rank == 13:
            programs[r.rank] = [*ops, stop("data loader")]
            r.stack = list(LOADER_STACK)
            loader_workers(r, state="S", wchan="futex_wait_queue")
        else:
            programs[r.rank] = ops + mesh_step(tp, dp)
    stall(world, programs, groups, ago=605, warm_s=warm * world.step_s, **ring())
    tell_start(world, nccl=False)
    return world, Expected(
        cause="data_stall", subtype="loader_wait",
        also=[("rank_desync", "missing_rank")],
        told="Tensor parallel 8 x data parallel 4. Rank 13's data-loader workers sleep on a lock "
        "and hand out no batch; its row waits in tp, every other row in dp, on the victims.",
        culprits=[culprit(world.ranks[13])],
        must_not=["gpu_fault", "ib_fault", "progressing"],
    )  # fmt: skip


def pipeline_stall() -> tuple[World, Expected]:
    world = build(
        "pipeline_stall", seed=2, model="H100", nodes=["pp-a", "pp-b"], job_id="30215", gpus=4,
        job_name="pp8", taken_at=epoch("2026-10-21T11:30:00Z"), age_s=6200, step_s=2.4,
        step_at_stall=1466, timeout_s=1800, log_style="megatron",
    )  # fmt: skip
    g = everybody(world)
    pp = Group(name="1", desc="PIPELINE_MODEL_PARALLEL_GROUP", ranks=g.ranks)
    comms_of(world, [g, pp], before=0)
    stages, micro, size = len(world.ranks), 8, (2048, 1, 5120)

    def step(stage: int, count: int) -> list[Op]:
        ops: list[Op] = []
        for _ in range(count):
            if stage:
                ops += [Op(kind="recv", group=pp, peer=stage - 1, ins=(size,)), sync()]
            ops.append(compute(0.06))
            if stage < stages - 1:
                ops += [Op(kind="send", group=pp, peer=stage + 1, ins=(size,)), sync()]
        return ops

    programs = {}
    for r in world.ranks:
        ops = [op for _ in range(9) for op in [*step(r.rank, micro), all_reduce(g, 4096), sync()]]
        if r.rank == 4:
            programs[r.rank] = ops + step(4, 5)[:-3] + [stop("lock")]
            r.stack = [("acquire_cache", "/opt/train/tokenizer_cache.py", 71),
                       ("next_microbatch", "/opt/train/data.py", 133),
                       ("forward_step", "/opt/train/pretrain.py", 90),
                       ("main", "/opt/train/pretrain.py", 221),
                       ("<module>", "/opt/train/pretrain.py", 233)]  # fmt: skip
        else:
            programs[r.rank] = [*ops, *step(r.rank, micro), all_reduce(g, 4096), sync()]
    stall(world, programs, (g, pp), ago=700, warm_s=9 * 1.2, **ring(64))
    tell_start(world, nccl=False)
    return world, Expected(
        cause="rank_desync", subtype="missing_rank",
        also=[("data_stall", "loader_wait"), ("straggler", "late_rank")],
        told="Pipeline of 8 stages, unbatched send and recv. Stage 4 hangs on a lock of its own "
        "after a recv: 5, 6, 7 wait in recv, those before it in send or in the step's "
        "all_reduce.",
        culprits=[culprit(world.ranks[4])], must_not=["gpu_fault", "ib_fault", "progressing"],
    )  # fmt: skip


def tie() -> tuple[World, Expected]:
    world = build(
        "tie", seed=2, model="H100", nodes=["duo1", "duo2"], gpus=1, job_id="411",
        job_name="smoke", taken_at=epoch("2026-10-11T09:12:00Z"), age_s=2100, step_s=0.6,
        step_at_stall=1870, timeout_s=1800,
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 140
    step = [compute(0.3), reduce_scatter(g, 1_048_576), sync()]
    odd = step * warm + [all_reduce(g, 1, site="router", dtype="Float"), sync()]
    programs = {0: step * (warm + 3), 1: odd}
    stall(world, programs, (g,), ago=420, warm_s=warm * 0.32, **ring())
    tell_start(world, nccl=False)
    return world, Expected(
        cause="rank_desync", subtype="tie",
        told="Two ranks, one in reduce_scatter, one in all_reduce at the same sequence number: "
        "one against one, neither can be blamed by count.",
        must_not=["gpu_fault", "ib_fault", "progressing"],
    )  # fmt: skip


STORIES = (
    seed, seed_spin, seed_allgather, seed_own_group, seed_cpu_barrier, order_inversion,
    mesh_inversion, size_mismatch, mesh_cascade, pipeline_stall, tie,
)  # fmt: skip
