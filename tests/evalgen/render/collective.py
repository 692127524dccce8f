"""Flight-recorder dumps and the answer of NCCL RAS.

RAS text: NCCL's ras.rst and src/ras/client_support.cc (2.27). Counts are operations launched, by
kind; a rank is listed by itself where fewer than half of the ranks share its count.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..flight_recorder import Group, as_json, pickled
from ..world import Rank, World

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_FUNCTION_OF = {
    "_all_gather_base": "AllGather", "_reduce_scatter_base": "ReduceScatter",
    "all_reduce": "AllReduce", "all_reduce_barrier": "AllReduce", "broadcast": "Broadcast",
    "reduce": "Reduce",
}  # fmt: skip


def dump(rank: Rank, *, json: bool = False) -> bytes:
    assert rank.recorder is not None
    top = rank.recorder.dump()
    return as_json(top) if json else pickled(top)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comm:
    """A communicator: the group it serves and its hash."""

    group: Group
    hash: int
    status: str = "RUNNING"
    initialising: frozenset[int] = frozenset()
    """Group ranks still inside ncclCommInitRank."""
    before: int = 0
    """Operations of each kind that ran before the recorded time."""


def counts(world: World, comm: Comm) -> dict[int, dict[str, int]]:
    """Rank in the group -> operations launched by kind, those before the recorded time included."""
    out: dict[int, dict[str, int]] = {}
    for position, r in enumerate(comm.group.ranks):
        tally: Counter[str] = Counter()
        for (group, op), n in world.ranks[r].launched.items():
            if group == comm.group.name and op in _FUNCTION_OF:
                tally[_FUNCTION_OF[op]] += n
        out[position] = {f: tally[f] for f in FUNCTIONS}
    for f in FUNCTIONS:
        used = sum(t[f] > 0 for t in out.values()) * 2 > len(out)
        for t in out.values():
            t[f] += comm.before if used else 0
    return out


def _mismatch(world: World, comm: Comm, tally: dict[int, dict[str, int]]) -> list[str]:
    out: list[str] = []
    size = len(tally)
    for function in FUNCTIONS:
        values = Counter(t[function] for t in tally.values())
        if len(values) < 2:
            continue
        out.append(f"  Communicator ranks have different {function} operation counts")
        for value, n in sorted(values.items(), key=lambda kv: (-kv[1], -kv[0])):
            words = f"launched up to operation {value}" if value else "not launched any operations"
            if n > 1:
                out.append(f"  {n} ranks have {words}")
            if n * 2 >= size:
                continue
            for position, t in tally.items():
                if t[function] == value:
                    rank = world.ranks[comm.group.ranks[position]]
                    where = (
                        f"GPU {rank.local} managed by process {rank.pid} on node {rank.node.addr}"
                    )
                    out.append(
                        f"  Rank {position} -- {where}"
                        if n > 1
                        else f"  Rank {position} has {words} -- {where}"
                    )
        out.append("")
    return out


def ras(world: World) -> str:
    """The text that `verbose status` answers."""
    comms: list[Comm] = world.comms
    dead = [r for r in world.ranks if not r.alive]
    nodes, total = len(world.nodes), len(world.ranks)
    per_node = total // nodes
    cuda = int(float(world.cuda) * 1000)
    out = [
        f"NCCL version {world.nccl} compiled with CUDA {world.cuda}",
        f"CUDA runtime version {cuda}, driver version {cuda}",
        "", "Job summary", "===========", "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"{nodes:7d}  {per_node:9d}  {1:11d}  {total:9d}  {total:7d}",
        "", f"Communicators... (0.0{len(comms)}s)", "=============", "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
    ]  # fmt: skip
    tallies = {c.hash: counts(world, c) for c in comms}
    table: dict[tuple[int, int, str, str], list[Comm]] = {}
    for c in sorted(comms, key=lambda c: (-len(c.group.ranks), c.hash)):
        lost = [r for r in c.group.ranks if not world.ranks[r].alive]
        uneven = len({tuple(t.values()) for t in tallies[c.hash].values()}) > 1
        error = "INCOMPLETE" if lost else "MISMATCH" if uneven or c.initialising else "OK"
        hosts = len({world.ranks[r].node.name for r in c.group.ranks})
        table.setdefault((len(c.group.ranks), hosts, c.status, error), []).append(c)
    for k, ((size, hosts, status, error), group) in enumerate(table.items()):
        out.append(
            f"{k:5d}  {len(group):8d}  {hosts:8d}  {size // hosts:8d}  {size:8d}  "
            f"{size * len(group):8d}  {status:>8}  {error:>6}"
        )
    out += ["", "Errors", "======", ""]
    if dead:
        words = "es are" if len(dead) > 1 else " is"
        out += [
            "DEAD",
            f"  {len(dead)} job process{words} considered dead (unreachable via the RAS network)",
        ]
        out += [f"  Process {r.pid} on node {r.node.addr} managing GPU {r.local}" for r in dead]
        out.append("")  # fmt: skip
    for k, (key, group) in enumerate(table.items()):
        for j, c in enumerate(group):
            lost = [p for p, r in enumerate(c.group.ranks) if not world.ranks[r].alive]
            if key[3] == "INCOMPLETE":
                out += [
                    f"#{k}-{j} ({c.hash:016x}) INCOMPLETE",
                    f"  Missing communicator data from {len(lost)} rank" + "s" * (len(lost) > 1),
                ]
                for p in lost:
                    rank = world.ranks[c.group.ranks[p]]
                    out.append(
                        f"  Rank {p} -- GPU {rank.local} managed by process {rank.pid} on node "
                        f"{rank.node.addr}"
                    )
                out.append("")  # fmt: skip
    out += ["Warnings", "========", ""]
    for k, group in enumerate(table.values()):
        for j, c in enumerate(group):
            alive = {
                p: t for p, t in tallies[c.hash].items() if world.ranks[c.group.ranks[p]].alive
            }
            lines = _mismatch(world, c, alive)
            if lines:
                out += [f"#{k}-{j} ({c.hash:016x}) MISMATCH", *lines]
    return "\n".join(out) + "\n"
