"""Where every rank stands: dumps -> one standing a rank, groups with their real members.

The raw material of the wait-for graph. Nothing here depends on the order of the facts.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from sluggish.correlate._groups import number_groups
from sluggish.correlate._one_job import one_job
from sluggish.facts.collective import Collective, Group, GroupHead, RankRecord
from sluggish.text import counted

Sizes = tuple[tuple[int, ...], ...]
Signature = tuple[str, tuple[int, ...], tuple[int, ...], tuple[str, ...]]

UNKNOWN = "an operation that the ring has lost"
UNEVEN = ("all_to_all", "alltoall")
"""Sizes may differ from rank to rank by right."""


@dataclass(slots=True)
class Standing:
    """One rank: what it has posted and what it waits in. Mutable while it is being built."""

    rank: int
    records: list[RankRecord]
    """One, or two: a process has one recorder for NCCL and one for Gloo."""
    heads: dict[int, GroupHead] = field(default_factory=dict)
    """By number of the group."""
    at: tuple[int, Collective] | None = None
    """Group number and oldest unfinished operation in program order; None: in no collective."""
    batch: tuple[Collective, ...] = ()
    """Point-to-point: all operations of the batch it is at."""
    stale: bool = False
    """Its dump is older than what its peers have finished: it tells nothing."""
    lost: bool = False
    """The ring has lost what it waits in: `at` is what it queued behind that."""


@dataclass(slots=True)
class Node:
    """Ranks that are at the same operation, and whom they wait for."""

    group: int
    op: Collective
    signature: Signature
    joined: set[int] = field(default_factory=set)
    waits: set[int] = field(default_factory=set)
    """Observed ranks."""
    unseen: set[int] = field(default_factory=set)
    """Members without a dump that it may wait for."""
    finished: set[int] = field(default_factory=set)
    """Members that have finished it."""
    odd: bool = False
    """The minority of a mismatch."""
    tied: bool = False
    mirror: set[int] = field(default_factory=set)
    """Ranks that posted another signature in its place."""
    crossed: tuple[tuple[int, Collective], ...] = ()
    """Point-to-point: two halves that met and differ in size or dtype, each with its rank."""


@dataclass(slots=True)
class Scene:
    """Everything that the graph looks at."""

    groups: list[Group]
    standings: dict[int, Standing]
    unobserved: set[int]
    notes: list[str]
    world_size: int | None
    gloo: set[int]
    """Groups that run on Gloo: there `finished` may mean `failed`."""
    guessed: set[int]
    """Groups whose members no dump tells."""


def signature(op: Collective) -> Signature:
    """What must be equal on every rank: operation, numbers of elements, dtypes.

    Shapes are compared by their number of elements, as the library sees them. Rooted operations
    have input or output on the root only, all-to-all may be uneven.
    """
    return _signature(op.op, op.in_sizes, op.out_sizes, op.dtypes)


@lru_cache(maxsize=4096)
def _signature(op: str, in_sizes: Sizes, out_sizes: Sizes, dtypes: tuple[str, ...]) -> Signature:
    ins = tuple(math.prod(dims) for dims in in_sizes)
    outs = tuple(math.prod(dims) for dims in out_sizes)
    if any(word in op for word in UNEVEN):
        ins = outs = ()
    elif op.startswith("gather"):
        outs = ()
    elif op.startswith("scatter"):
        ins = ()
    return op, ins, outs, dtypes


def one_sided(op: Collective) -> bool:
    """Whether one rank may finish although others have not come: its end proves nothing."""
    return op.op.lstrip("_").startswith(("broadcast", "gather", "scatter", "send", "recv")) or (
        op.op.lstrip("_").startswith("reduce") and "scatter" not in op.op
    )


def posted(head: GroupHead, seq: int) -> bool:
    """Whether the rank has posted this number; a group that left the ring tells nothing."""
    return head.last_enqueued is not None and head.last_enqueued >= seq


def build(
    records: Iterable[RankRecord], heads: Iterable[GroupHead], world_size: int | None
) -> Scene:
    """Choose one dump a rank, number the groups, find each rank's place."""
    notes: list[str] = []
    heads = list(heads)
    chosen = _newest(one_job(records, heads, notes), notes)
    path_to_record = {(r.rank, r.path): r for rows in chosen.values() for r in rows}
    kept = sorted(
        (h for h in heads if (h.rank, h.path) in path_to_record),
        key=lambda h: (h.rank, h.group.name, h.group.desc, h.path),
    )
    on_gloo = {id(h) for h in kept if path_to_record[h.rank, h.path].backend == "gloo"}
    groups, number_of, guessed = number_groups(kept, on_gloo, world_size)
    standings = {rank: Standing(rank=rank, records=rows) for rank, rows in chosen.items()}
    for head in kept:
        standings[head.rank].heads[number_of[id(head)]] = head
    mixed = {number_of[id(head)] for head in kept if head.p2p}
    for standing in standings.values():
        _place(standing, mixed)
    members = {rank for group in groups for rank in group.ranks}
    if world_size:
        members |= set(range(world_size))
    elif members:
        world_size = max(members | set(chosen)) + 1
    scene = Scene(
        groups=groups,
        standings=dict(sorted(standings.items())),
        unobserved=members - set(chosen),
        notes=notes,
        world_size=world_size,
        gloo={number_of[i] for i in on_gloo},
        guessed=guessed,
    )
    _note_lost(scene)
    _note_empty(scene)
    return scene


def _newest(records: Iterable[RankRecord], notes: list[str]) -> dict[int, list[RankRecord]]:
    """The newest dump of each rank and recorder; of equally new ones the fullest, with frames."""
    chosen: dict[int, dict[bool, RankRecord]] = {}
    twice: set[int] = set()
    for record in sorted(records, key=_newness):
        own = chosen.setdefault(record.rank, {})
        old = own.get(record.backend == "gloo")
        if old is not None and old.last_created_at != record.last_created_at:
            twice.add(record.rank)
        own[record.backend == "gloo"] = record
    if twice:
        notes.append(
            f"{counted(len(twice), 'rank has', 'ranks have')} several dumps: the newest was read"
        )
    versions = {r.library for own in chosen.values() for r in own.values() if r.library}
    if len(versions) > 1:
        notes.append(f"library versions differ between dumps: {', '.join(sorted(versions)[:4])}")
    return {rank: [own[k] for k in sorted(own)] for rank, own in chosen.items()}


def _newness(record: RankRecord) -> tuple[float, int, bool, str]:
    created = record.last_created_at.timestamp() if record.last_created_at else 0.0
    return created, record.entries, not record.path.endswith(".json"), record.path


def _place(standing: Standing, mixed: set[int]) -> None:
    """Oldest unfinished operation over all groups: later ones are run-ahead."""
    two = len(standing.records) > 1  # two recorders count apart: there only the clock orders
    pending = [
        (op.enqueued_at.timestamp() if two and op.enqueued_at else 0.0, op.order, n, op)
        for n, head in standing.heads.items()
        for op in head.pending
    ]
    if not pending:
        standing.at = _place_by_status(standing, mixed)
        return
    _, _, number, op = min(pending, key=lambda row: row[:3])
    standing.at = (number, op)
    if op.peer is not None:
        head = standing.heads[number]
        standing.batch = tuple(
            p for p in head.pending if p.seq == op.seq and p.peer is not None
        ) or (op,)


def _place_by_status(standing: Standing, mixed: set[int]) -> tuple[int, Collective] | None:
    """The ring is empty or has lost the operation, pg_status still tells that one is open.

    Groups with sends and receives mix two counters there and tell nothing.
    """
    open_ = [
        (number, head.last_completed)
        for number, head in sorted(standing.heads.items())
        if number not in mixed
        and head.last_enqueued is not None
        and head.last_completed is not None
        and head.last_enqueued > head.last_completed
    ]
    if len(open_) != 1:
        return None
    number, completed = open_[0]
    return number, Collective(seq=max(completed, 0) + 1, op=UNKNOWN)


def _note_empty(scene: Scene) -> None:
    """A few empty rings among full ones: those ranks' groups were reset, or posted nothing."""
    empty = [s.rank for s in scene.standings.values() if not any(r.entries for r in s.records)]
    if empty and 2 * len(empty) < len(scene.standings):
        who = ", ".join(str(rank) for rank in empty[:8]) + (" ..." if len(empty) > 8 else "")
        scene.notes.append(f"the ring of {_ranks(empty)} {who} is empty: look there first")


def _ranks(ranks: list[int]) -> str:
    return "rank" if len(ranks) == 1 else "ranks"


def _note_lost(scene: Scene) -> None:
    """A ring that wrapped may have lost the operation that hangs: pg_status would still tell."""
    for standing in scene.standings.values():
        standing.lost = any(r.wrapped for r in standing.records) and _lost(standing)
    lost = sum(standing.lost for standing in scene.standings.values())
    if lost:
        scene.notes.append(
            f"ring wrapped on {counted(lost, 'rank', 'ranks')}: what they wait in was lost"
        )


def _lost(standing: Standing) -> bool:
    """Whether an older operation than the oldest pending one in the ring is still open."""
    heads = standing.heads.values()
    if standing.at is None:
        return any(
            not h.posted and (h.last_enqueued or -1) > (h.last_completed or -1) for h in heads
        )
    if not any(h.recent for h in heads):  # it is full of what was queued behind
        return True
    return any(
        h.pending[0].seq > h.last_completed + 1
        for h in heads
        if h.pending and not h.p2p and h.last_completed is not None
    )
