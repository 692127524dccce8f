"""Small jobs that run, hang or end, and leave the dumps that their ranks would write.

A rank's program is a list of calls. A call ends when everybody it needs is at the matching call;
what nobody can end stays pending. Nothing here knows how a culprit is found.
"""

from dataclasses import dataclass, field
from typing import Any

from evalgen.flight_recorder import Call, Group, Recorder, as_json, frame, mesh, pickled

T0 = 1_795_995_400_000_000_000
TICK = 3_000_000
TOOK = 2_000_000


@dataclass(frozen=True)
class Op:
    """A collective on a group, or (peer) one half of a point-to-point operation."""

    group: Group
    name: str
    ins: tuple[int, ...] = (1024,)
    outs: tuple[int, ...] = (1024,)
    peer: int | None = None


STOP = "stop"  # asleep in a data loader, for ever
DIE = "die"  # the process ends and leaves no dump
Program = list[Op | str]


@dataclass
class Job:
    """Ranks with programs; run() lets them go as far as they can."""

    world: int
    groups: tuple[Group, ...]
    programs: dict[int, Program]
    version: str = "2.10"
    backend: str = "nccl"
    timing: bool = False
    batched: bool = False
    run_ahead: int = 0
    buffer_size: int = 2000
    late: dict[int, int] = field(default_factory=dict)
    """Rank -> nanoseconds that it needs longer before each call."""
    dead: set[int] = field(default_factory=set)
    recorders: dict[int, Recorder] = field(default_factory=dict)

    def run(self) -> "Job":
        now = T0
        at = dict.fromkeys(range(self.world), 0)
        open_: dict[int, Call] = {}
        for rank in range(self.world):
            self.recorders[rank] = Recorder(
                rank=rank,
                groups=self.groups,
                version=self.version,
                backend=self.backend,
                timing=self.timing,
                buffer_size=self.buffer_size,
            )
        moved = True
        while moved:
            now += 40 * TICK
            for rank, program in self.programs.items():
                if rank not in open_ and at[rank] < len(program):
                    op = program[at[rank]]
                    if isinstance(op, Op):
                        when = now + rank * 1000 + self.late.get(rank, 0)
                        open_[rank] = self._post(rank, op, when)
            ready = {r: self.programs[r][at[r]] for r in open_}
            finished = _finished(ready, self.recorders)
            moved = bool(finished)
            end = now + max(self.late.values(), default=0) + TOOK
            for rank in finished:
                self.recorders[rank].complete(open_.pop(rank), at_ns=end + rank * 500)
                at[rank] += 1
            now = end
        self._leave(at, open_, now)
        return self

    def _post(self, rank: int, op: Op, when: int) -> Call:
        recorder = self.recorders[rank]
        stack = [
            frame(op.name.split()[0], "/opt/venv/lib/python3.11/site-packages/torch/d.py", 9),
            frame(f"step_of_{op.name.split()[0]}", "/opt/train/train.py", 100 + len(op.name)),
        ]
        if op.peer is None:
            ins, outs = [list(op.ins)], [list(op.outs)]
            return recorder.collective(op.group, op.name, ins, outs, at_ns=when, frames=stack)
        if self.batched:
            return recorder.batch_p2p(op.group, [(op.name, op.peer, op.ins)], at_ns=when)
        return recorder.p2p(op.group, op.name, op.peer, op.ins, at_ns=when, frames=stack)

    def _leave(self, at: dict[int, int], open_: dict[int, Call], now: int) -> None:
        for rank, program in self.programs.items():
            if at[rank] < len(program) and program[at[rank]] == DIE:
                self.dead.add(rank)
            if rank in open_:
                self.recorders[rank].start(open_[rank], at_ns=now)
                ahead = [op for op in program[at[rank] + 1 :] if isinstance(op, Op)]
                for op in ahead[: self.run_ahead]:
                    self._post(rank, op, now)

    def dumps(self) -> dict[int, Any]:
        return {r: rec.dump() for r, rec in self.recorders.items() if r not in self.dead}

    def files(self) -> dict[int, bytes]:
        return {rank: pickled(dump) for rank, dump in self.dumps().items()}

    def json_files(self) -> dict[int, bytes]:
        return {rank: as_json(dump) for rank, dump in self.dumps().items()}


def _finished(ready: dict[int, Any], recorders: dict[int, Recorder]) -> set[int]:
    done: set[int] = set()
    for rank, op in ready.items():
        if op.peer is not None:
            other = ready.get(op.peer)
            if (
                other is not None
                and other.peer == rank
                and other.group == op.group
                and other.name != op.name
            ):
                done |= {rank, op.peer}
            continue
        same = all(
            ready.get(r) == op and recorders[r].seq[op.group] == recorders[rank].seq[op.group]
            for r in op.group.ranks
        )
        if same:
            done.add(rank)
    return done


def fsdp(world: int = 16, culprit: int | None = None, fault: str = "", **how: Any) -> Job:
    """Unshard and reduce-scatter on one group; in step 3 the culprit does something else."""
    g = Group(name="0", desc="default_pg", ranks=tuple(range(world)))
    gather = Op(g, "_all_gather_base", (1024,), (1024 * world,))
    scatter = Op(g, "_reduce_scatter_base", (2048 * world,), (2048,))
    odd: dict[str, Op | str] = {
        "operation": Op(g, "all_reduce", (1,), (1,)),
        "size": Op(g, "_reduce_scatter_base", (1024 * world,), (1024,)),
        "missing": STOP,
        "dead": DIE,
    }
    programs: dict[int, Program] = {}
    for rank in range(world):
        program: Program = [Op(g, "all_reduce_barrier", (1,), (1,))]
        for step in range(6):
            program += [gather, scatter]
            if rank == culprit and step == 3:
                program[-1] = odd[fault]
        programs[rank] = program
    return Job(world, (g,), programs, **how).run()


def tp_dp(tp: int = 4, dp: int = 4, culprit: int | None = None, fault: str = "", **how: Any) -> Job:
    """Two all-reduces in the row, one in the column; the culprit stops before step 3."""
    hashed = how.pop("hashed", False)
    groups = mesh((dp, tp), ("DATA_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP"), hashed=hashed)
    programs: dict[int, Program] = {}
    for rank in range(tp * dp):
        row = next(g for g in groups if g.desc.startswith("TENSOR") and rank in g.ranks)
        column = next(g for g in groups if g.desc.startswith("DATA") and rank in g.ranks)
        program: Program = [Op(groups[0], "all_reduce_barrier", (1,), (1,))]
        for step in range(6):
            if rank == culprit and step == 3:
                program += [Op(groups[0], "all_reduce", (1,), (1,))] if fault == "operation" else []
                program += [DIE if fault == "dead" else STOP]
            program += [Op(row, "all_reduce"), Op(row, "all_reduce")]
            program += [Op(column, "all_reduce", (4096,), (4096,))]
        programs[rank] = program
    return Job(tp * dp, groups, programs, **how).run()


def pipeline(stages: int = 8, culprit: int | None = None, **how: Any) -> Job:
    """Micro-batches pass from stage to stage; the culprit stops after its sixth receive."""
    world = Group(name="0", desc="default_pg", ranks=tuple(range(stages)))
    pipe = Group(name="1", desc="PIPELINE_MODEL_PARALLEL_GROUP", ranks=tuple(range(stages)))
    programs: dict[int, Program] = {}
    for rank in range(stages):
        program: Program = [Op(world, "all_reduce_barrier", (1,), (1,))]
        for batch in range(8):
            if rank > 0:
                program.append(Op(pipe, "recv", peer=rank - 1))
            if rank == culprit and batch == 5:
                program.append(STOP)
            if rank < stages - 1:
                program.append(Op(pipe, "send", peer=rank + 1))
        program.append(Op(world, "all_reduce", (4096,), (4096,)))
        programs[rank] = program
    return Job(stages, (world, pipe), programs, **how).run()
