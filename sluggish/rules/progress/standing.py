"""SHUTDOWN-HANG, START-RENDEZVOUS, DATA-STEPS: not moving, and the log tells where."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.host import RankProcess
from sluggish.facts.log import LogSign, LogSpan, NcclInit, Progress
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.job import Job
from sluggish.rules.progress.common import SOURCE, live_now, span

SHUTDOWN_TIME = timedelta(minutes=3)
"""Longer than any clean end: uploads and destroy_process_group take seconds."""
FEW = 4
"""So many ranks are named one by one; more that are missing are one shared cause."""


@rule(
    "SHUTDOWN-HANG",
    family=Family.PROCESS,
    needs=(Progress,),
    wants=(Look, Job, RankProcess, LogSpan),
)
def shutdown_hang(view: View) -> Iterator[Finding]:
    """Training says that it is done, and the job's processes are still there."""
    done = next((p for p in reversed(view.all(Progress)) if p.kind == "training_done"), None)
    if done is None or any(p.kind == "step" and p.order > done.order for p in view.all(Progress)):
        return
    alive = sorted({p.rank for p in view.all(RankProcess) if p.rank is not None})
    running = any(job.state in ("RUNNING", "COMPLETING") for job in view.all(Job))
    now = live_now(view)
    waited = now - done.at if now is not None and done.at is not None else None
    if not (alive or running) or (waited is not None and waited < SHUTDOWN_TIME):
        return
    who = f"{len(alive)} ranks are still there" if alive else "the job is still RUNNING"
    since = f" {span(waited.total_seconds())} later" if waited is not None else ""
    yield Finding(
        node=None, subject="job", role=Role.ROOT, at=done.at, quote=done.line, source=SOURCE,
        strength=Strength.STRONG if waited is not None else Strength.WEAK, shared=True,
        says=f"training is done, and{since} {who}: the end hangs, the results are written",
        spots=tuple(Spot(rank=rank) for rank in alive) if len(alive) <= FEW else (),
    )  # fmt: skip


@rule(
    "START-RENDEZVOUS",
    family=Family.COLLECTIVE,
    needs=(LogSign,),
    wants=(NcclInit, Look, Place, RankProcess, Progress),
)
def start_rendezvous(view: View) -> Iterator[Finding]:
    """Ranks wait at the rendezvous, or in NCCL's start, for some that have not arrived."""
    signs = [s for s in view.all(LogSign) if s.kind in ("rendezvous_wait", "rendezvous_timeout")]
    if not signs or any(p.kind == "step" for p in view.all(Progress)):
        return
    joined, world = _counts(view, signs)
    arrived = {s.rank for s in signs if s.kind == "rendezvous_wait" and s.rank is not None}
    arrived |= {line.rank for line in view.all(NcclInit)}
    arrived |= {p.rank for p in view.all(Progress) if p.kind == "init" and p.rank is not None}
    missing = sorted(set(range(world)) - arrived) if world and arrived else []
    head = signs[-1]
    if joined is not None and world and joined >= world:
        return
    absent = world - joined if world is not None and joined is not None else None
    few = len(missing) <= max(1, (world or 0) // 50)
    sure = bool(missing) and (few if absent is None else len(missing) == absent)
    count = f"{joined} of {world}" if joined is not None and world else (
        f"some of {world}" if world else "some")  # fmt: skip
    yield Finding(
        node=_one_node(view, missing) if sure else None,
        subject=_name(missing) if sure else "job",
        role=Role.ROOT,
        # without a count the address, the port or the host may be wrong just as well
        strength=Strength.STRONG if joined is not None or sure else Strength.WEAK,
        at=head.at,
        says=f"{count} ranks are at the rendezvous" + (
            f"; {_name(missing)} never arrived" if sure else "; who is missing is not told"),
        quote=head.line,
        source=SOURCE,
        spots=tuple(_spot(view, rank) for rank in missing) if sure and len(missing) <= FEW else (),
        shared=sure and _many_nodes(view, missing),
    )  # fmt: skip


def _counts(view: View, signs: Sequence[LogSign]) -> tuple[int | None, int | None]:
    """The highest count that any rank has printed: they count up as ranks arrive."""
    told = [tuple(map(int, s.detail.split("/"))) for s in signs if _is_count(s.detail)]
    look = view.one(Look)
    if not told:
        return None, look.world_size if look else None
    joined, world = max(told)
    return joined, world


def _is_count(detail: str) -> bool:
    first, slash, second = detail.partition("/")
    return bool(slash) and first.isdecimal() and second.isdecimal()


def _spot(view: View, rank: int) -> Spot:
    place = next((p for p in view.all(Place) if p.rank == rank), None)
    return Spot(
        rank=rank,
        node=_node_of(view, rank),
        pid=place.pid if place else None,
        doing="not at the rendezvous",
    )


def _node_of(view: View, rank: int) -> str | None:
    """Its own place; else the node where all its neighbours are, ranks being dealt in blocks."""
    nodes = {p.rank: p.node for p in view.all(Place) if p.node}
    if rank in nodes:
        return nodes[rank]
    look = view.one(Look)
    size = look.gpus_per_node if look else None
    if not size or size < 3:
        return None
    first = rank - rank % size
    around = [nodes.get(r) for r in range(first, first + size) if r != rank]
    return around[0] if around and len(set(around)) == 1 else None


def _nodes_of(view: View, ranks: Sequence[int]) -> set[str]:
    return {node for rank in ranks[:1000] if (node := _node_of(view, rank))}


def _one_node(view: View, ranks: Sequence[int]) -> str | None:
    nodes = _nodes_of(view, ranks)
    return next(iter(nodes)) if len(nodes) == 1 else None


def _many_nodes(view: View, ranks: Sequence[int]) -> bool:
    return len(_nodes_of(view, ranks)) > 1 or len(ranks) > FEW


def _name(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {fold(str(rank) for rank in ranks).strip('[]')}"


@rule("DATA-STEPS", family=Family.DATA, needs=(Progress,), wants=(Place, Look))
def data_steps(view: View) -> Iterator[Finding]:
    """A rank has left its loop, or run out of data, at an earlier step than the others."""
    marks = view.all(Progress)
    ended = _last_of(marks, ("epoch_end", "data_exhausted"))
    going = _last_of(marks, ("step",))
    for rank, end in sorted(ended.items()):
        others = [p for r, p in going.items() if r != rank and _same_epoch(p, end)]
        peers = [p for r, p in ended.items() if r != rank and _same_epoch(p, end)]
        if end.step is None or _went_on(marks, end):
            continue
        reach = max((p.step for p in (*others, *peers) if p.step is not None), default=None)
        total = max((p.total_steps for p in (end, *others) if p.total_steps), default=None)
        short_of_others = reach is not None and reach > end.step
        short_of_total = total is not None and end.step < total
        if not (short_of_others or short_of_total):
            continue
        if len(peers) >= len(ended) - 1 and peers and all(p.step == end.step for p in peers):
            continue  # everybody ended there
        yield _short(view, rank, end, reach if short_of_others else total)


def _last_of(marks: Sequence[Progress], kinds: tuple[str, ...]) -> dict[int, Progress]:
    """Each rank's last mark with a step: only ranks that say who they are count."""
    last: dict[int, Progress] = {}
    for mark in marks:
        if mark.kind in kinds and mark.rank is not None and mark.step is not None:
            last[mark.rank] = mark
    return last


def _same_epoch(one: Progress, other: Progress) -> bool:
    return one.epoch is None or other.epoch is None or one.epoch == other.epoch


def _went_on(marks: Sequence[Progress], end: Progress) -> bool:
    """The rank began its next epoch: it had not run out."""
    return any(m.kind == "step" and m.rank == end.rank and m.order > end.order for m in marks)


def _short(view: View, rank: int, end: Progress, reach: int | None) -> Finding:
    place = next((p for p in view.all(Place) if p.rank == rank), None)
    what = "ran out of data" if end.kind == "data_exhausted" else "left its loop"
    epoch = f" of epoch {end.epoch}" if end.epoch is not None else ""
    return Finding(
        node=end.node or (place.node if place else None),
        subject=f"rank {rank}",
        role=Role.ROOT,
        strength=Strength.STRONG,
        at=end.at,
        says=f"{what} at step {end.step}{epoch}; the others go to step {reach}",
        quote=end.line,
        source=SOURCE,
        spots=(Spot(rank=rank, node=end.node or (place.node if place else None),
                    pid=place.pid if place else None, doing=f"{what} at step {end.step}"),),
    )  # fmt: skip
