"""What the wait-for graph, RAS and the watchdog say of the job's collectives.

A rank that waits is a victim; nothing here ever asks for a drain.
"""

from collections.abc import Iterator
from datetime import timedelta

from sluggish.causes import Family
from sluggish.correlate.late import late_ranks
from sluggish.correlate.waitgraph import label
from sluggish.facts.collective import (
    GroupHead,
    RankRecord,
    RasReport,
    Wait,
    WaitRoot,
    WatchdogTimeout,
)
from sluggish.facts.derived import Place
from sluggish.findings import Finding, Role, Rule, Spot, Strength, View, rule

CERTAIN = ("flight recorder",)
"""Sources that name group and sequence number of every rank; the others leave some of it out."""


def spot_of(root: WaitRoot, places: dict[int, Place]) -> Spot:
    """A root with its node, pid and GPU."""
    place = places.get(root.rank)
    return Spot(
        rank=root.rank,
        node=place.node if place else None,
        pid=place.pid if place else None,
        gpu_index=place.gpu_index if place else None,
        gpu_uuid=place.gpu_uuid if place else None,
        gpu_pci=place.gpu_pci if place else None,
        hca=place.hca if place else None,
        group=label(root.group) if root.group else None,
        seq=root.seq,
        operation=root.operation,
        doing=root.doing,
        source_line=root.source_line,
    )


def _places(view: View) -> dict[int, Place]:
    return {place.rank: place for place in view.all(Place)}


def _wait(view: View, *states: str) -> Wait | None:
    wait = view.one(Wait)
    return wait if wait is not None and wait.state in states else None


def _strength(wait: Wait, best: Strength = Strength.DECISIVE) -> Strength:
    """Logs name no group for sure, one RAS answer is a moment: they are never decisive."""
    if any(s in CERTAIN for s in wait.sources):
        blind = bool(wait.unobserved) or any("older than" in n for n in wait.confidence_notes)
        return Strength.STRONG if blind and best is Strength.DECISIVE else best
    once = any("asked once" in n or "do not name the group" in n for n in wait.confidence_notes)
    return Strength.WEAK if once else Strength.STRONG


def _root_findings(
    wait: Wait, view: View, strength: Strength, subtype: str | None
) -> Iterator[Finding]:
    places = _places(view)
    spots = tuple(spot_of(root, places) for root in wait.roots)
    if not spots:
        return
    nodes = {s.node for s in spots}
    yield Finding(
        node=nodes.pop() if len(nodes) == 1 else None,
        subject=_subject(wait),
        role=Role.ROOT,
        strength=strength,
        at=wait.since,
        says=_says(wait),
        source=" + ".join(wait.sources),
        spots=spots,
        subtype=subtype,
    )


def _subject(wait: Wait) -> str:
    ranks = [root.rank for root in wait.roots]
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + some(ranks)


def some(ranks: list[int] | tuple[int, ...], limit: int = 8) -> str:
    """`0-2, 5`, cut where it is long."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] + 1 == rank:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    shown = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in parts[:limit])
    return shown + (f" and {len(parts) - limit} more" if len(parts) > limit else "")


def _says(wait: Wait) -> str:
    first = wait.roots[0]
    own = first.operation or first.doing or "no collective"
    where = f" in {wait.operation}" if wait.operation else ""
    number = f" #{wait.seq}" if wait.seq is not None else ""
    return f"{_subject(wait)}: {own}; {len(wait.waiters)} ranks wait{where}{number}"


@rule("SYNC-OP", family=Family.COLLECTIVE, needs=(Wait,), wants=(Place,))
def sync_op(view: View) -> Iterator[Finding]:
    """Ranks of one process group sit in different operations at one sequence number."""
    wait = _wait(view, "mismatch")
    if wait and wait.mismatch == "operation":
        yield from _root_findings(wait, view, _strength(wait), "collective_mismatch")


@rule("SYNC-SIZE", family=Family.COLLECTIVE, needs=(Wait,), wants=(Place,))
def sync_size(view: View) -> Iterator[Finding]:
    """Ranks sit in the same operation with different sizes or dtypes."""
    wait = _wait(view, "mismatch")
    if wait and wait.mismatch in ("sizes", "dtypes"):
        yield from _root_findings(wait, view, _strength(wait), "size_mismatch")


@rule("SYNC-MISSING", family=Family.COLLECTIVE, needs=(Wait,), wants=(Place,))
def sync_missing(view: View) -> Iterator[Finding]:
    """A rank has not posted the collective in which the others wait for it."""
    wait = _wait(view, "host_stuck")
    if wait is None:
        return
    if wait.roots:
        yield from _root_findings(wait, view, _strength(wait, Strength.STRONG), "missing_rank")
        return
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=wait.since,
        says=f"{len(wait.waiters)} ranks wait, most others are in no collective: nobody is named",
        source=" + ".join(wait.sources),
    )


@rule("SYNC-DEVICE", family=Family.COLLECTIVE, needs=(Wait,), wants=(Place,))
def sync_device(view: View) -> Iterator[Finding]:
    """A rank posted a collective that its peers have finished and it has not."""
    wait = _wait(view, "device_stuck")
    if wait:
        yield from _root_findings(wait, view, _strength(wait, Strength.STRONG), None)


@rule("SYNC-CYCLE", family=Family.COLLECTIVE, needs=(Wait,), wants=(Place,))
def sync_cycle(view: View) -> Iterator[Finding]:
    """Ranks wait for one another in a circle over process groups: they posted in another order."""
    wait = _wait(view, "cycle")
    if wait:
        yield from _root_findings(wait, view, _strength(wait), "order_inversion")


@rule("SYNC-STALL", family=Family.COLLECTIVE, needs=(Wait,))
def sync_stall(view: View) -> Iterator[Finding]:
    """Every member posted the same operation and nobody finishes it: not a desync."""
    wait = _wait(view, "all_joined")
    if wait is None:
        return
    number = f" #{wait.seq}" if wait.seq is not None else ""
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=wait.since,
        says=f"every member of {label(wait.group) if wait.group else 'the group'} joined "
        f"{wait.operation}{number}, none has finished: not a desync",
        source=" + ".join(wait.sources),
        subtype="all_joined",
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"ranks {some(ranks)}" if ranks else "a rank not told"


@rule("SYNC-TIE", family=Family.COLLECTIVE, needs=(Wait,))
def sync_tie(view: View) -> Iterator[Finding]:
    """Two sides of equal number sit in different operations: both are told, neither is blamed."""
    wait = _wait(view, "tie")
    if wait is None:
        return
    told = " against ".join(f"{op} ({_ranks(ranks)})" for op, ranks in wait.sides)
    yield Finding(
        node=None,
        subject="job",
        role=Role.ROOT,
        strength=Strength.STRONG,
        at=wait.since,
        says=f"{told or 'operations differ'}: no majority, neither side is blamed",
        source=" + ".join(wait.sources),
    )


@rule("SYNC-UNSEEN", family=Family.COLLECTIVE, needs=(Wait,))
def sync_unseen(view: View) -> Iterator[Finding]:
    """The ranks that are waited for left no dump: unknown, not guilty."""
    wait = _wait(view, "unobserved")
    if wait is None or not wait.observed or not wait.waiters:
        return
    who = f"ranks {some(wait.unobserved)}" if wait.unobserved else "somebody"
    where = f" in {wait.operation}" if wait.operation else ""
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=wait.since,
        says=f"{len(wait.waiters)} ranks wait{where}; {who} left nothing to read: not seen",
        source=" + ".join(wait.sources),
        subtype="unobserved",
    )


@rule("SYNC-WATCHDOG", family=Family.COLLECTIVE, needs=(WatchdogTimeout,))
def sync_watchdog(view: View) -> Iterator[Finding]:
    """Ranks report that a collective timed out: they are the ones that waited."""
    lines = view.all(WatchdogTimeout)
    if not lines:
        return
    first = min(lines, key=lambda w: (w.at is None, w.at.timestamp() if w.at else 0.0, w.order))
    known = {r for w in lines if (r := w.rank if w.rank is not None else w.group_rank) is not None}
    start = first.at - timedelta(milliseconds=first.ran_ms) if first.at and first.ran_ms else None
    number = f" #{first.seq}" if first.seq is not None else ""
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=start or first.at,
        says=f"{len(known) or len(lines)} ranks report a timeout in {first.op or 'a collective'}"
        f"{number}: they waited",
        quote=first.line,
        source="job log",
        subtype="hang",
    )


@rule(
    "SLOW-RANK",
    family=Family.COLLECTIVE,
    needs=(GroupHead,),
    wants=(Wait, Place, RankRecord, RasReport),
)
def slow_rank(view: View) -> Iterator[Finding]:
    """Nothing hangs, and one rank comes last to its collectives again and again."""
    wait = view.one(Wait)
    if wait is not None and wait.state != "none":
        return
    places = _places(view)
    told: set[int] = set()
    for rank, group, own, usual in late_ranks(view.all(GroupHead)):
        if rank in told:
            continue
        told.add(rank)
        doing = f"comes last: waits {own:.0f} ms where the others wait {usual:.0f} ms"
        root = WaitRoot(rank=rank, group=group, doing=doing)
        place = places.get(rank)
        yield Finding(
            node=place.node if place else None,
            subject=f"rank {rank}",
            role=Role.ROOT,
            strength=Strength.STRONG,
            says=doing,
            source="flight recorder",
            spots=(spot_of(root, places),),
            subtype="late_rank",
        )


RULES: tuple[Rule, ...] = (
    sync_op,
    sync_size,
    sync_missing,
    sync_device,
    sync_cycle,
    sync_stall,
    sync_tie,
    sync_unseen,
    sync_watchdog,
    slow_rank,
)
