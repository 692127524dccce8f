"""What the wait-for graph says of the job's collectives. A rank that waits is a victim."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.waitgraph import label
from sluggish.facts.collective import Wait
from sluggish.facts.derived import Place
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.collective.common import counted, places_of, ranks_words, some, spot_of

CERTAIN = ("flight recorder",)
"""Sources that name group and sequence number of every rank; the others leave some of it out."""


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
    places = places_of(view)
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


def _says(wait: Wait) -> str:
    first = wait.roots[0]
    own = first.operation or first.doing or "no collective"
    where = f" in {wait.operation}" if wait.operation else ""
    if where and 0 < wait.inside < len(wait.waiters):
        where = f", {wait.inside} of them{where}"
    number = f" #{wait.seq}" if wait.seq is not None else ""
    waiting = (
        f"; {counted(len(wait.waiters))}{where}{number}" if wait.waiters else f"{where}{number}"
    )
    return f"{_subject(wait)}: {own}{waiting}"


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
    told = "most others are in no collective"
    if len(wait.sides) == 1:
        told = f"{ranks_words(wait.sides[0][1])} are in none and may wait for one another unseen"
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=wait.since,
        says=f"{counted(len(wait.waiters))}, {told}: nobody is named",
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
    if wait and not wait.roots:
        yield _opposed(wait, "no order is rarer", "order_inversion")
    elif wait:
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


@rule("SYNC-TIE", family=Family.COLLECTIVE, needs=(Wait,))
def sync_tie(view: View) -> Iterator[Finding]:
    """Two sides of equal number sit in different operations: both are told, neither is blamed."""
    wait = _wait(view, "tie")
    if wait:
        yield _opposed(wait, "no majority", None)


def _opposed(wait: Wait, why: str, subtype: str | None) -> Finding:
    told = " against ".join(f"{op} ({ranks_words(ranks)})" for op, ranks in wait.sides)
    return Finding(
        node=None,
        subject="job",
        role=Role.ROOT,
        strength=_strength(wait, Strength.STRONG),
        at=wait.since,
        says=f"{told or 'operations differ'}: {why}, neither side is blamed",
        source=" + ".join(wait.sources),
        subtype=subtype,
    )


@rule("SYNC-UNSEEN", family=Family.COLLECTIVE, needs=(Wait,))
def sync_unseen(view: View) -> Iterator[Finding]:
    """The ranks that are waited for left no dump: unknown, not guilty."""
    wait = _wait(view, "unobserved")
    if wait is None or not wait.observed or not wait.waiters:
        return
    who = f"ranks {some(wait.unobserved)}" if wait.unobserved else "somebody"
    where = f" in {wait.operation}" if wait.operation else ""
    if wait.sides:  # at several numbers: groups may differ, so nothing is compared
        where = " in " + ", ".join(f"{op} ({ranks_words(ranks)})" for op, ranks in wait.sides[:3])
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=wait.since,
        says=f"{counted(len(wait.waiters))}{where}; {who} left nothing to read: not seen",
        source=" + ".join(wait.sources),
        subtype="unobserved",
    )
