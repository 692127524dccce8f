"""What the ranks run, and the event loop that runs it.

A rank's program is a list of operations. A collective is over when every member has joined it with
the same operation and sizes and nothing below it is broken; until then its members wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .flight_recorder import Call, Group, Recorder
from .world import Rank, World


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation of a rank's program."""

    kind: str
    """coll, send, recv, batch, compute, sync, stop."""
    group: Group | None = None
    name: str = ""
    ins: tuple[tuple[int, ...], ...] = ()
    outs: tuple[tuple[int, ...], ...] = ()
    dtype: str = "BFloat16"
    peer: int = -1
    seconds: float = 0.0
    site: str = "step"
    parts: tuple[tuple[str, int, tuple[int, ...]], ...] = ()
    """Of a batch: (send or recv, peer, size)."""
    launched: bool = True
    """False: the CPU never comes back from the call that should launch the kernel."""
    why: str = ""


def compute(seconds: float) -> Op:
    return Op(kind="compute", seconds=seconds)


def sync() -> Op:
    """The CPU waits for the GPU: loss.item()."""
    return Op(kind="sync")


def stop(why: str) -> Op:
    """The CPU goes no further: it waits for something outside the GPUs."""
    return Op(kind="stop", why=why)


def coll(group: Group, name: str, ins: int, outs: int, **more: Any) -> Op:
    return Op(kind="coll", group=group, name=name, ins=((ins,),), outs=((outs,),), **more)


def all_gather(g: Group, n: int, site: str = "unshard") -> Op:
    return coll(g, "_all_gather_base", n, n * len(g.ranks), site=site)


def reduce_scatter(g: Group, n: int, site: str = "reduce_grad") -> Op:
    return coll(g, "_reduce_scatter_base", n * len(g.ranks), n, site=site, dtype="Float")


def all_reduce(g: Group, n: int, site: str = "all_reduce", **more: Any) -> Op:
    return coll(g, "all_reduce", n, n, site=site, **more)


def barrier(g: Group, launched: bool = True) -> Op:
    """dist.all_reduce(torch.ones(1)) as a hand-made barrier before the checkpoint."""
    return all_reduce(g, 1, site="barrier", dtype="Float", launched=launched)


@dataclass(slots=True)
class _Lane:
    """One rank while its program runs."""

    rank: Rank
    ops: list[Op]
    cpu: float
    gpu: float
    pc: int = 0
    queue: list[tuple[Op, Call | None, float, Any]] = field(default_factory=list)
    stopped: str = ""
    pairs: dict[Any, int] = field(default_factory=dict)


def run(
    world: World,
    programs: dict[int, list[Op]],
    groups: tuple[Group, ...],
    *,
    starts_at: float,
    dies: dict[int, float] | None = None,
    freezes: dict[int, float] | None = None,
    broken: dict[int, float] | None = None,
    wire_s: float = 0.009,
    **recorder: Any,
) -> None:
    """Run the programs until nothing moves or the look is taken; leaves recorders and states.

    `dies`: rank -> time at which its process is gone. `freezes`: rank -> time from which its CPU
    side hangs in the kernel. `broken`: rank -> time from which no
    collective with it gets through, though it posts.
    """
    dies, freezes, broken = dies or {}, freezes or {}, broken or {}
    ends = dies | freezes
    lanes: dict[int, _Lane] = {}
    for rank in world.ranks:
        rank.recorder = Recorder(
            rank=rank.rank, groups=groups, library=world.nccl,
            timeout_ms=world.timeout_s * 1000, **recorder,
        )  # fmt: skip
        t = starts_at + world.rng.uniform(0, 0.004)
        lanes[rank.rank] = _Lane(rank=rank, ops=programs[rank.rank], cpu=t, gpu=t)
    joins: dict[Any, dict[int, tuple[Op, float]]] = {}
    moved = True
    while moved:
        moved = False
        for lane in lanes.values():
            limit = min(ends.get(lane.rank.rank, 9e18), world.taken_at)
            moved |= _enqueue(world, lane, limit)
            moved |= _drain(lane, lanes, joins, broken, wire_s, world.taken_at)
    for lane in lanes.values():
        _settle(lane, world.taken_at, dies, freezes)


def _enqueue(world: World, lane: _Lane, limit: float) -> bool:
    """The CPU side: issue operations until it must wait."""
    moved = False
    while lane.pc < len(lane.ops) and not lane.stopped:
        op = lane.ops[lane.pc]
        if lane.cpu >= limit:
            break
        if op.kind == "sync":
            if lane.queue:
                break
            lane.cpu = max(lane.cpu, lane.gpu) + 0.0004
        elif op.kind == "stop":
            if lane.queue:
                break
            lane.cpu = max(lane.cpu, lane.gpu)
            lane.stopped = op.why
        elif op.kind == "compute":
            lane.queue.append((op, None, lane.cpu, None))
            lane.cpu += 0.0011
        else:
            lane.cpu += 0.00021 + world.rng.uniform(0, 0.00004)
            call, key = _record(lane, op)
            lane.queue.append((op, call, lane.cpu, key))
            if not op.launched:
                lane.stopped = f"inside {op.name}"
        lane.pc += 1
        moved = True
    return moved


def _record(lane: _Lane, op: Op) -> tuple[Call, Any]:
    assert op.group is not None
    assert lane.rank.recorder is not None
    rec, at_ns = lane.rank.recorder, int(lane.cpu * 1e6) * 1000
    me = lane.rank.rank
    at_ns += int(lane.rank.node.offset_s * 1e9)
    what = (op.group.name, op.name)
    lane.rank.launched[what] = lane.rank.launched.get(what, 0) + 1
    if op.kind == "coll":
        call = rec.collective(
            op.group, op.name, op.ins, op.outs, at_ns=at_ns, dtype=op.dtype, frames=SITES[op.site]
        )
        if not op.launched:  # recorded before the NCCL call, counted as enqueued after it
            rec.status[op.group][0] -= 1
        return call, (op.group.name, op.group.ranks, call.seq)
    if op.kind == "batch":
        call = rec.batch_p2p(op.group, op.parts, at_ns=at_ns)
        return call, tuple(_pair(lane, op.group, me, kind, peer) for kind, peer, _ in op.parts)
    call = rec.p2p(op.group, op.kind, op.peer, op.ins[0], at_ns=at_ns)
    return call, (_pair(lane, op.group, me, op.kind, op.peer),)


def _pair(lane: _Lane, group: Group, me: int, kind: str, peer: int) -> Any:
    ends = (me, peer) if kind == "send" else (peer, me)
    lane.pairs[ends] = lane.pairs.get(ends, 0) + 1
    return (group.name, *ends, lane.pairs[ends])


def _drain(
    lane: _Lane,
    lanes: dict[int, _Lane],
    joins: dict[Any, dict[int, tuple[Op, float]]],
    broken: dict[int, float],
    wire_s: float,
    limit: float,
) -> bool:
    """The GPU side: run the head of the stream if it can run."""
    moved = False
    while lane.queue:
        op, call, enqueued, key = lane.queue[0]
        if op.kind == "compute":
            lane.gpu = max(lane.gpu, enqueued) + op.seconds
            lane.queue.pop(0)
            moved = True
            continue
        if not op.launched:
            break
        me = lane.rank.rank
        keys = key if op.kind != "coll" else (key,)
        for k in keys:
            if me not in joins.setdefault(k, {}):
                joins[k][me] = (op, max(lane.gpu, enqueued))
                moved = True
                if lane.rank.recorder is not None and call is not None:
                    begun = max(lane.gpu, enqueued) + 0.05 + lane.rank.node.offset_s
                    lane.rank.recorder.start(call, at_ns=int(begun * 1e6) * 1000)
        if not _over(lane, lanes, keys, op, joins, broken, wire_s, limit):
            break
        moved = True
    return moved


def _over(
    lane: _Lane,
    lanes: dict[int, _Lane],
    keys: Sequence[Any],
    op: Op,
    joins: dict[Any, dict[int, tuple[Op, float]]],
    broken: dict[int, float],
    wire_s: float,
    limit: float,
) -> bool:
    """Finish the head of this lane if all its counterparts have joined."""
    last, dead = 0.0, False
    for k in keys:
        there = joins[k]
        members = op.group.ranks if op.kind == "coll" else k[1:3]  # type: ignore[union-attr]
        if any(m not in there for m in members):
            return False
        if op.kind == "coll":
            shapes = {(o.name, o.ins, o.outs, o.dtype) for o, _ in there.values()}
            dead |= len(shapes) > 1
        last = max(last, *(t for _, t in there.values()))
        dead |= any(last + wire_s >= broken.get(m, 9e18) for m in members)
    done = last + wire_s
    if dead or done > limit:
        return False
    _op, call, _enqueued, _key = lane.queue.pop(0)
    lane.gpu = done
    noticed = int((done + 0.03) * 1e6) * 1000 + int(lane.rank.node.offset_s * 1e9)
    assert call is not None
    assert lane.rank.recorder is not None
    begun = joins[keys[0]].get(lane.rank.rank, (op, done))[1]
    lane.rank.recorder.complete(call, at_ns=noticed, ran_ns=int((done - begun) * 1e9))
    return True


def _settle(lane: _Lane, limit: float, dies: dict[int, float], freezes: dict[int, float]) -> None:
    """What the rank is doing when it is looked at."""
    rank = lane.rank
    rank.pending = [call for _, call, _, _ in lane.queue if call is not None]
    head = lane.queue[0][0] if lane.queue else None
    if rank.rank in dies:
        rank.alive, rank.doing = False, "gone"
    elif rank.rank in freezes:
        rank.doing, rank.state, rank.cpu_cores = "host", "D", 0.0
    elif lane.stopped:
        rank.doing = "host"
        rank.state, rank.wchan, rank.cpu_cores = "S", "futex_wait_queue", 0.02
    elif head is not None and (lane.pc >= len(lane.ops) or lane.cpu < limit - 60):
        rank.doing = "spin"
        rank.cpu_cores = 1.02
    elif head is None and lane.pc >= len(lane.ops):
        rank.doing = "idle"
    else:
        rank.doing = "work"
    activity = {"host": "context", "spin": "spin", "work": "work", "gone": "idle"}
    if rank.gpu.activity != "lost":
        rank.gpu.activity = activity.get(rank.doing, "context")
    if not rank.alive:
        rank.gpu.pid, rank.gpu.memory_mib = None, 4


_TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
_C10D = f"{_TORCH}/distributed/distributed_c10d.py"
_TAIL = [
    ("main", "/opt/train/train.py", 402),
    ("<module>", "/opt/train/train.py", 431),
]


def _frames(*inner: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [{"name": n, "filename": f, "line": k} for n, f, k in (*inner, *_TAIL)]


_FSDP = f"{_TORCH}/distributed/fsdp/_fully_shard"
_PG = f"{_FSDP}/_fsdp_param_group.py"
SITES: dict[str, list[dict[str, Any]]] = {
    "unshard": _frames(
        ("all_gather_into_tensor", _C10D, 4029), ("foreach_all_gather",
         f"{_FSDP}/_fsdp_collectives.py", 317), ("unshard", _PG, 341), ("pre_forward", _PG, 403),
        ("_call_impl", f"{_TORCH}/nn/modules/module.py", 1784), ("train_step",
         "/opt/train/train.py", 233), ("train_epoch", "/opt/train/train.py", 288)),
    "reduce_grad": _frames(
        ("reduce_scatter_tensor", _C10D, 4511), ("foreach_reduce",
         f"{_FSDP}/_fsdp_collectives.py", 532), ("post_backward", _PG, 466),
        ("backward", f"{_FSDP}/_fsdp_param_group.py", 802),
        ("_engine_run_backward", f"{_TORCH}/autograd/graph.py", 841),
        ("train_step", "/opt/train/train.py", 241), ("train_epoch", "/opt/train/train.py", 288)),
    "barrier": _frames(
        ("all_reduce", _C10D, 3007), ("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 81),
        ("wait_for_everyone", "/opt/train/checkpoint.py", 57), ("save_epoch",
         "/opt/train/checkpoint.py", 88), ("train_epoch", "/opt/train/train.py", 301)),
    "all_reduce": _frames(
        ("all_reduce", _C10D, 3007), ("wrapper", f"{_TORCH}/distributed/c10d_logger.py", 81),
        ("train_step", "/opt/train/train.py", 246), ("train_epoch", "/opt/train/train.py", 288)),
    "bucket": _frames(
        ("_engine_run_backward", f"{_TORCH}/autograd/graph.py", 841),
        ("backward", f"{_TORCH}/_tensor.py", 647), ("train_step", "/opt/train/train.py", 241),
        ("train_epoch", "/opt/train/train.py", 288)),
    "tensor_parallel": _frames(
        ("all_reduce", _C10D, 3007), ("reduce_from_tp",
         "/opt/train/parallel/layers.py", 141), ("forward", "/opt/train/model.py", 96),
        ("_call_impl", f"{_TORCH}/nn/modules/module.py", 1784), ("train_step",
         "/opt/train/train.py", 233), ("train_epoch", "/opt/train/train.py", 288)),
    "router": _frames(
        ("all_reduce", _C10D, 3007), ("log_router_balance", "/opt/train/moe.py", 212),
        ("train_step", "/opt/train/train.py", 236), ("train_epoch", "/opt/train/train.py", 288)),
    "step": _frames(("train_step", "/opt/train/train.py", 233),
                    ("train_epoch", "/opt/train/train.py", 288)),
}  # fmt: skip

Plan = Callable[[int], list[Op]]


def fsdp(g: Group, *, layers: int = 6, n: int = 4_194_304, step_s: float = 1.9) -> list[Op]:
    """One step of fully_shard with reshard_after_forward: every step begins with all-gathers."""
    part = step_s / (layers * 2)
    ops: list[Op] = []
    for _ in range(layers):
        ops += [all_gather(g, n), compute(part * 0.7)]
    for _ in range(layers):
        ops += [all_gather(g, n), compute(part * 1.3), reduce_scatter(g, n)]
    return [*ops, sync()]


def fsdp_accumulate(
    g: Group, *, micro: int = 8, layers: int = 6, n: int = 4_194_304, step_s: float = 1.9
) -> list[list[Op]]:
    """One optimizer step as its micro-steps. fully_shard with reshard_after_forward=False, and
    reshard_after_backward off inside the window: parameters stay whole, so only the first
    micro-step gathers, and every later one begins with the reduce-scatter of its backward."""
    part = step_s / layers
    steps = []
    for k in range(micro):
        ops: list[Op] = []
        for _ in range(layers):
            ops += [all_gather(g, n)] if k == 0 else []
            ops += [compute(part * 0.35)]
        for _ in range(layers):
            ops += [compute(part * 0.65), reduce_scatter(g, n)]
        steps.append([*ops, sync()])
    return steps


def ddp(g: Group, *, buckets: int = 6, step_s: float = 0.8) -> list[Op]:
    """One step of DistributedDataParallel: compute, one all-reduce a bucket, the loss."""
    ops = [compute(step_s * 0.5)]
    for _ in range(buckets):
        ops += [
            compute(step_s * 0.5 / buckets),
            all_reduce(g, 6_553_600, site="bucket", dtype="Float"),
        ]
    return [*ops, sync()]


def mesh_step(tp: Group, dp: Group, *, layers: int = 4, step_s: float = 1.6) -> list[Op]:
    """Tensor parallel inside a row, data parallel across: two all-reduces a layer, then grads."""
    part = step_s / (layers * 4)
    ops: list[Op] = []
    for _ in range(layers * 4):
        ops += [compute(part), all_reduce(tp, 33_554_432, site="tensor_parallel")]
    ops += [all_reduce(dp, 65_536_000, site="bucket", dtype="Float")]
    return [*ops, sync()]
