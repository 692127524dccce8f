"""Megatron-like jobs: hosts that enqueue ahead, GPUs that execute in order, 1F1B pipelines.

TP, PP, DP and EP groups under Megatron's names and its order of ranks (tp fastest, then dp, then
pp). Send and receive go in batches (batch_isend_irecv). A host enqueues until it synchronises; a
GPU begins an operation when its older ones are over, and it ends when all members have begun it.
Faults: a host that stops (`host`), a GPU that executes nothing any more (`gpu`), each at the n-th
operation of a rank. Nothing here knows how a culprit is found.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from evalgen.flight_recorder import Call, Group, Recorder, pickled

T0 = 1_795_995_400_000_000_000
TICK = 3_000_000
HIDDEN, SEQ = 5120, 4096


@dataclass(frozen=True)
class Shape:
    """How the ranks are laid out."""

    tp: int = 2
    pp: int = 4
    dp: int = 2
    ep: int = 4

    @property
    def world(self) -> int:
        return self.tp * self.pp * self.dp


@dataclass(frozen=True)
class Op:
    """A collective, or (parts) a batch of sends and receives: (kind, global peer)."""

    group: Group
    name: str
    ins: tuple[int, ...] = ()
    outs: tuple[int, ...] = ()
    dtype: str = "BFloat16"
    parts: tuple[tuple[str, int], ...] = ()


SYNC = "sync"
Step = Op | str


def groups_of(shape: Shape) -> tuple[Group, ...]:
    """Groups in the order in which every rank creates them; the counter is their name."""
    tp, dp, pp, world = shape.tp, shape.dp, shape.pp, shape.world
    stage = tp * dp
    sets: list[tuple[str, list[list[int]]]] = [
        ("default_pg", [list(range(world))]),
        (
            "DATA_PARALLEL_GROUP",
            [[p * stage + d * tp + t for d in range(dp)] for p in range(pp) for t in range(tp)],
        ),
        (
            "MODEL_PARALLEL_GROUP",
            [[p * stage + d * tp + t for p in range(pp) for t in range(tp)] for d in range(dp)],
        ),
        (
            "TENSOR_MODEL_PARALLEL_GROUP",
            [[p * stage + d * tp + t for t in range(tp)] for p in range(pp) for d in range(dp)],
        ),
        (
            "PIPELINE_MODEL_PARALLEL_GROUP",
            [[p * stage + s for p in range(pp)] for s in range(stage)],
        ),
        ("EMBEDDING_GROUP", [[s, (pp - 1) * stage + s] for s in range(stage)] if pp > 1 else []),
        (
            "EXPERT_MODEL_PARALLEL_GROUP",
            [
                list(range(first, first + shape.ep))
                for p in range(pp)
                for first in range(p * stage, (p + 1) * stage, shape.ep)
            ],
        ),
    ]
    found: list[Group] = []
    for desc, rows in sets:
        found += [
            Group(name=str(len(found) + n), desc=desc, ranks=tuple(ranks))
            for n, ranks in enumerate(rows)
        ]
    return tuple(found)


def program(rank: int, shape: Shape, groups: tuple[Group, ...], batches: int, steps: int):
    """One rank's calls: start barrier, then steps of 1F1B with gradients at the end."""
    mine = {g.desc: g for g in groups if rank in g.ranks}
    stage = shape.tp * shape.dp
    at = rank // stage
    out: list[Step] = [Op(mine["default_pg"], "all_reduce_barrier", (1,), (1,)), SYNC]
    for _ in range(steps):
        out += _one_f_one_b(rank, at, stage, shape, mine, batches)
        out += _gradients(at, shape, mine)
    return out


def _layer(shape: Shape, mine: dict[str, Group]) -> list[Step]:
    tensor, expert = mine["TENSOR_MODEL_PARALLEL_GROUP"], mine["EXPERT_MODEL_PARALLEL_GROUP"]
    full, part = (SEQ, 1, HIDDEN), (SEQ // shape.tp, 1, HIDDEN)
    route = Op(expert, "all_to_all", (SEQ, HIDDEN), (SEQ, HIDDEN))
    return [
        Op(tensor, "_all_gather_base", part, full),
        Op(tensor, "_reduce_scatter_base", full, part),
        route,
        route,
    ]


def _one_f_one_b(
    rank: int, at: int, stage: int, shape: Shape, mine: dict[str, Group], batches: int
) -> list[Step]:
    pipe = mine["PIPELINE_MODEL_PARALLEL_GROUP"]
    first, last = at == 0, at == shape.pp - 1
    layer = _layer(shape, mine)

    def batch(*parts: tuple[str, int]) -> list[Step]:
        kept = tuple(p for p in parts if not (first and p[1] < rank) and not (last and p[1] > rank))
        return [Op(pipe, "batch", (SEQ, 1, HIDDEN), parts=kept), SYNC] if kept else []

    back, on = rank - stage, rank + stage
    warm = min(shape.pp - at - 1, batches)
    out: list[Step] = []
    for _ in range(warm):
        out += batch(("recv", back)) + layer + batch(("send", on))
    steady = batches - warm
    out += batch(("recv", back)) if steady else []
    for n in range(steady):
        out += layer + batch(("send", on), ("recv", on)) + layer
        final = n == steady - 1
        out += batch(("send", back)) if final else batch(("send", back), ("recv", back))
    for _ in range(warm):
        out += batch(("recv", on)) + layer + batch(("send", back))
    return out


def _gradients(at: int, shape: Shape, mine: dict[str, Group]) -> list[Step]:
    data, model = mine["DATA_PARALLEL_GROUP"], mine["MODEL_PARALLEL_GROUP"]
    out: list[Step] = [Op(data, "_reduce_scatter_base", (8192 * shape.dp,), (8192,), "Float")]
    if shape.pp > 1 and at in (0, shape.pp - 1):
        out.append(Op(mine["EMBEDDING_GROUP"], "all_reduce", (HIDDEN,), (HIDDEN,)))
    out += [Op(model, "all_reduce", (1,), (1,), "Float"), SYNC]
    out.append(Op(data, "_all_gather_base", (8192,), (8192 * shape.dp,)))
    return out


@dataclass
class Megatron:
    """A job that runs as far as it can, and the dumps that it then leaves."""

    shape: Shape = Shape()
    batches: int = 6
    steps: int = 2
    host: dict[int, int] = field(default_factory=dict)
    """Rank -> operation (counted from 0) that its host does not enqueue any more."""
    gpu: dict[int, int] = field(default_factory=dict)
    """Rank -> operation that its GPU does not execute any more."""
    half: dict[int, int] = field(default_factory=dict)
    """Rank -> collective that its peers finish and its GPU does not."""
    version: str = "2.10"
    buffer_size: int = 2000
    recorders: dict[int, Recorder] = field(default_factory=dict)

    def run(self) -> "Megatron":
        groups = groups_of(self.shape)
        world = range(self.shape.world)
        ranks = [
            _Rank(
                r,
                program(r, self.shape, groups, self.batches, self.steps),
                Recorder(rank=r, groups=groups, version=self.version, buffer_size=self.buffer_size),
                self.host.get(r),
                self.gpu.get(r),
                self.half.get(r),
            )
            for r in world
        ]
        now, moved = T0, True
        while moved:
            now += TICK
            moved = sum(rank.enqueue(now) for rank in ranks) > 0
            moved |= _execute(ranks, now)
        self.recorders = {rank.rank: rank.recorder for rank in ranks}
        return self

    def dumps(self, emptied: tuple[int, ...] = ()) -> dict[int, Any]:
        """`emptied`: ranks whose ring has lost everything, their pg_status is still there."""
        found = {rank: recorder.dump() for rank, recorder in self.recorders.items()}
        return {r: {**d, "entries": []} if r in emptied else d for r, d in found.items()}

    def files(self, emptied: tuple[int, ...] = ()) -> dict[int, bytes]:
        return {rank: pickled(dump) for rank, dump in self.dumps(emptied).items()}

    def operations(self, rank: int) -> int:
        steps = program(rank, self.shape, groups_of(self.shape), self.batches, self.steps)
        return sum(isinstance(step, Op) for step in steps)


@dataclass
class _Rank:
    rank: int
    program: list[Step]
    recorder: Recorder
    host_stops: int | None
    gpu_stops: int | None
    half_at: int | None
    at: int = 0
    posted: int = 0
    begun: int = 0
    """Operations that its GPU has finished: the next one is at the head of its queue."""
    queue: list[tuple[Op, Call, tuple[int, ...]]] = field(default_factory=list)
    counts: dict[Any, int] = field(default_factory=lambda: defaultdict(int))
    parts_done: set[tuple[str, int]] = field(default_factory=set)
    over: bool = False

    def enqueue(self, now: int) -> bool:
        before = self.at
        while self.at < len(self.program):
            step = self.program[self.at]
            if step == SYNC:
                if self.queue:
                    break
            elif isinstance(step, Op):
                if self.host_stops is not None and self.posted >= self.host_stops:
                    break
                self._post(step, now + self.posted % 7 * 1000 + self.rank)
            self.at += 1
        return self.at > before

    def _post(self, op: Op, when: int) -> None:
        if op.parts:
            sizes = [(kind, peer, list(op.ins)) for kind, peer in op.parts]
            call = self.recorder.batch_p2p(op.group, sizes, at_ns=when)
        else:
            call = self.recorder.collective(
                op.group, op.name, [list(op.ins)], [list(op.outs)], at_ns=when, dtype=op.dtype
            )
        self.queue.append((op, call, (self.posted,)))
        self.posted += 1

    def head(self) -> Op | None:
        if not self.queue or (self.gpu_stops is not None and self.begun >= self.gpu_stops):
            return None
        return self.queue[0][0]

    def finish(self, now: int) -> None:
        if self.half_at is not None and self.begun >= self.half_at:
            self.gpu_stops = self.begun  # its peers go on, its own kernel never ends
            return
        _, call, _ = self.queue.pop(0)
        self.recorder.complete(call, at_ns=now + self.rank)
        self.begun += 1
        self.parts_done.clear()


def _execute(ranks: list[_Rank], now: int) -> bool:
    heads = {rank.rank: rank.head() for rank in ranks}
    moved = _exchange(ranks, heads)
    done: list[_Rank] = []
    for rank in ranks:
        op = heads[rank.rank]
        if op is None:
            continue
        if op.parts:
            if all(part in rank.parts_done for part in op.parts):
                done.append(rank)
        elif all(heads[other] == op for other in op.group.ranks):
            done.append(rank)
    for rank in done:
        rank.finish(now)
    return moved or bool(done)


def _exchange(ranks: list[_Rank], heads: dict[int, Op | None]) -> bool:
    """Halves that meet: each part of a batch goes on its own."""
    moved = False
    for rank in ranks:
        op = heads[rank.rank]
        for kind, peer in op.parts if op else ():
            other = heads[peer]
            mirror = ("recv" if kind == "send" else "send", rank.rank)
            if (kind, peer) in rank.parts_done or other is None or mirror not in other.parts:
                continue
            if mirror not in ranks[peer].parts_done:
                rank.parts_done.add((kind, peer))
                ranks[peer].parts_done.add(mirror)
                moved = True
    return moved
