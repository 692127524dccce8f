"""Facts -> the answer of `sluggish ranks`: who waits for whom, and nothing else."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from sluggish.correlate.blind import not_visible
from sluggish.correlate.late import late_ranks
from sluggish.correlate.locate import places
from sluggish.correlate.stacks import grouped
from sluggish.correlate.timeline import look
from sluggish.correlate.waitgraph import job_heads, label, wait_for
from sluggish.evidence.model import Bundle, Unread
from sluggish.evidence.open import text_of
from sluggish.facts.collective import Group, GroupHead, RankRecord, Wait, WaitRoot
from sluggish.facts.derived import Place
from sluggish.facts.host import Stack
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts, Mapper, read


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGpu:
    """The GPU of a rank; None where no source tells."""

    index: int | None = None
    uuid: str | None = None
    pci: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCulprit:
    """The object that `ranks` and `diagnose` share."""

    rank: int
    node: str | None = None
    pid: int | None = None
    gpu: RankGpu = RankGpu()
    hca: str | None = None
    group: str | None = None
    seq: int | None = None
    operation: str | None = None
    doing: str | None = None
    source_line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """One process group as the sources show it."""

    name: str
    desc: str
    role: str | None
    """dp, tp, pp, ep, cp, mp or a mesh dimension, where the name tells."""
    size: int
    ranks: tuple[int, ...]
    """Its members; empty where no source tells. With the name they are its identity."""
    observed: int
    last_completed: int | None
    """Lowest over its ranks: how far everybody came."""
    last_enqueued: int | None
    """Highest over its ranks."""
    waiting: tuple[int, ...]
    """Ranks with an unfinished operation of this group."""
    behind: tuple[int, ...]
    """Ranks that have posted less than the highest, where somebody waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksAnswer:
    """`sluggish ranks --json`."""

    state: str
    culprits: tuple[RankCulprit, ...]
    """Empty where nobody is to blame."""
    slow: tuple[RankCulprit, ...]
    unobserved: tuple[int, ...]
    groups: tuple[GroupState, ...]
    operation: str | None
    """What the waiters sit in."""
    mismatch: str | None
    sides: tuple[tuple[str, tuple[int, ...]], ...]
    waiters: int
    inside: int
    """Waiters in `operation` itself; 0 where the source does not tell."""
    observed: int
    world_size: int | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    stacks: tuple[tuple[tuple[int, ...], str], ...]
    """Ranks with equal stacks and what they do, smallest group first."""
    not_visible: tuple[str, ...]
    """Traffic that these sources cannot see, whatever they say."""


def gather(bundle: Bundle, probes: Sequence[ModuleType], mapper: Mapper = map) -> Facts:
    """Evidence to facts, with where the ranks live and who waits for whom."""
    facts = read(bundle, probes, text_of, mapper)
    facts.add(look(bundle, facts))
    for place in places(facts):
        facts.add(place)
    facts.add(wait_for(facts))
    return facts


def ranks_answer(facts: Facts, unread: Sequence[Unread] = ()) -> RanksAnswer:
    """Pure: the same facts in any order give the same answer. `unread`: files of no known kind."""
    wait = next(iter(facts.all(Wait)), None) or wait_for(facts)
    at = {place.rank: place for place in facts.all(Place)}
    slow = () if wait.roots or wait.waiters else _slow(facts)
    told = tuple(dict.fromkeys(source for source, _ in slow))
    return RanksAnswer(
        state=wait.state,
        culprits=tuple(_culprit(root, at) for root in wait.roots),
        slow=tuple(_culprit(root, at) for _, root in slow),
        unobserved=wait.unobserved,
        groups=group_states(facts),
        operation=wait.operation,
        mismatch=wait.mismatch,
        sides=wait.sides,
        waiters=len(wait.waiters),
        inside=wait.inside,
        observed=wait.observed,
        world_size=wait.world_size,
        sources=tuple(dict.fromkeys((*wait.sources, *told))),
        notes=(*wait.confidence_notes, *_not_read(facts, unread, set(wait.unobserved))),
        stacks=tuple(
            (g.ranks, g.meaning.words if g.meaning else g.frames[0].function)
            for g in grouped(facts.all(Stack))
        ),
        not_visible=not_visible(facts, wait),
    )


def _slow(facts: Facts) -> list[tuple[str, WaitRoot]]:
    """(source, rank) of who comes last while nothing hangs, the worst first."""
    found: dict[int, tuple[str, WaitRoot]] = {}
    for rank, group, own, usual in late_ranks(_heads(facts)):
        doing = f"waits {own:.0f} ms, others {usual:.0f} ms"
        root = WaitRoot(rank=rank, group=group, doing=doing)
        found.setdefault(rank, ("flight recorder", root))
    for sign in facts.all(LogSign):
        if sign.kind in STRAGGLERS and sign.rank is not None:
            root = WaitRoot(rank=sign.rank, doing=sign.detail)
            found.setdefault(sign.rank, (STRAGGLERS[sign.kind], root))
    return list(found.values())


STRAGGLERS = {"nvrx_straggler": "NVRx", "megatron_straggler": "Megatron's straggler detector"}
_NUMBER = re.compile(r"\d{1,9}")
SHOWN = 4  # files that could not be read are named up to here
OF_RANKS = {"flight_recorder": "flight recorder", "nccl_ras": "NCCL RAS", "stacks": "stacks"}


def _not_read(facts: Facts, unread: Sequence[Unread], unseen: set[int]) -> Iterator[str]:
    """A dump that was refused, cut short or empty: its rank is not seen for that reason.

    Files that by their names are of ranks that were not seen come first.
    """
    gaps = [gap for gap in facts.gaps if gap.probe in OF_RANKS]
    told = dict.fromkeys((gap.path or OF_RANKS[gap.probe], gap.why) for gap in gaps)
    told |= dict.fromkeys((one.path, one.why) for one in unread)
    rows = sorted(told, key=lambda row: _last_number(row[0]) not in unseen)
    for path, why in rows[:SHOWN]:
        yield f"{path}: {why}"
    if len(rows) > SHOWN:
        yield f"and {len(rows) - SHOWN} more files could not be read"


def _last_number(path: str) -> int | None:
    found = _NUMBER.findall(path.rpartition("/")[2])
    return int(found[-1]) if found else None


def _heads(facts: Facts) -> tuple[GroupHead, ...]:
    return job_heads(facts.all(RankRecord), facts.all(GroupHead))


def _culprit(root: WaitRoot, at: dict[int, Place]) -> RankCulprit:
    place = at.get(root.rank)
    gpu = RankGpu()
    if place:
        gpu = RankGpu(index=place.gpu_index, uuid=place.gpu_uuid, pci=place.gpu_pci)
    return RankCulprit(
        rank=root.rank,
        node=place.node if place else None,
        pid=place.pid if place else None,
        gpu=gpu,
        hca=place.hca if place else None,
        group=label(root.group) if root.group else None,
        seq=root.seq,
        operation=root.operation,
        doing=root.doing,
        source_line=root.source_line,
    )


def group_states(facts: Facts) -> tuple[GroupState, ...]:
    """One row a process group, in the order of their names."""
    by_object: dict[int, tuple[Group, list[GroupHead]]] = {}
    for head in _heads(facts):  # by identity first: to hash a world's members once a rank is slow
        by_object.setdefault(id(head.group), (head.group, []))[1].append(head)
    rows: dict[tuple[str, str, tuple[int, ...]], list[GroupHead]] = defaultdict(list)
    for group, heads in by_object.values():
        rows[group.name, group.desc, group.ranks] += heads
    return tuple(_group_state(key, heads) for key, heads in sorted(rows.items()))


def _group_state(key: tuple[str, str, tuple[int, ...]], heads: list[GroupHead]) -> GroupState:
    name, desc, ranks = key
    enqueued = [h.last_enqueued for h in heads if h.last_enqueued is not None]
    completed = [h.last_completed for h in heads if h.last_completed is not None]
    top = max(enqueued, default=None)
    waiting = tuple(sorted({h.rank for h in heads if h.pending}))
    behind = (
        tuple(sorted({h.rank for h in heads if h.last_enqueued is None or h.last_enqueued < top}))
        if waiting and top is not None
        else ()
    )
    return GroupState(
        name=name,
        desc=desc,
        role=role_of(desc or name),
        size=len(ranks) or len({h.rank for h in heads}),
        ranks=ranks,
        observed=len({h.rank for h in heads}),
        last_completed=min(completed, default=None),
        last_enqueued=top,
        waiting=waiting,
        behind=behind,
    )


_ROLES = (  # in this order: `DATA_PARALLEL_GROUP_WITH_CP` serves data parallelism
    ("world", ("default_pg",)),
    ("ep", ("expert", "mesh_ep")),
    ("tp", ("tensor", "mesh_tp")),
    ("pp", ("pipeline", "mesh_pp", "embedding")),
    ("dp", ("data_parallel", "mesh_dp", "fsdp", "shard", "replicate")),
    ("cp", ("context", "mesh_cp")),
    ("mp", ("model_parallel",)),
)


def role_of(name: str) -> str | None:
    """What parallelism a group serves, by Megatron's names; else the dimension of its mesh."""
    low = name.lower()
    for role, words in _ROLES:
        if low == role or any(word in low for word in words):
            return role
    return low.removeprefix("mesh_") or None if low.startswith("mesh_") else None
