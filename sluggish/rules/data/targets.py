"""DATA-TARGET: a target of Lustre that this client has lost, whatever its mount answers."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, in_job, on_nodes, split_seen
from sluggish.correlate.procs import deltas, what_it_waits_on
from sluggish.facts.collective import Wait
from sluggish.facts.derived import Look, Place
from sluggish.facts.host import LustreTarget, Mount, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

LOST = {"DISCONN", "CONNECTING", "EVICTED", "REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT", "RECOVER"}
"""No request is answered in these (Lustre, lustre_import.h); IDLE and NEW are a client's rest."""
MGS = "MGS"
"""The management server: it hands out settings, no data and no locks of files wait for it."""
SHOWN = 3


@rule(
    "DATA-TARGET",
    family=Family.DATA,
    needs=(LustreTarget, Mount),
    wants=(RankProcess, Look, Place, Wait),
)
def data_target(view: View) -> Iterator[Finding]:
    """A target of a Lustre file system is not connected: what lies on it stands still."""
    look = view.one(Look)
    told = [t for t in view.all(LustreTarget) if in_job(t.node, look) and not t.inactive]
    lost: dict[str, list[LustreTarget]] = defaultdict(list)
    for target in told:
        if target.state in LOST and target.target != MGS:
            lost[target.target].append(target)
    held = {d.node for d in deltas(view.all(RankProcess)) if what_it_waits_on(d) == "network"}
    roots = {root.rank for wait in view.all(Wait) for root in wait.roots}
    awaited = {p.node: p.rank for p in view.all(Place) if p.rank in roots}
    for name in sorted(lost, key=lambda n: (-_waited(lost[n]), n))[:SHOWN]:
        yield _finding(name, lost[name], told, held, awaited)
    if not lost:
        yield from _all_clear(view, told, look)


def _waited(targets: Sequence[LustreTarget]) -> int:
    return sum(target.inflight or 0 for target in targets)


def _finding(
    name: str,
    lost: list[LustreTarget],
    told: Sequence[LustreTarget],
    held: set[str | None],
    awaited: Mapping[str | None, int],
) -> Finding:
    """Strong where a request is under way to it, or a process of that node is held by storage."""
    nodes = list(dict.fromkeys(target.node for target in lost))
    fine = {t.node for t in told if t.target == name and t.node not in nodes}
    waited = _waited(lost)
    states = ", ".join(sorted({target.state for target in lost}))
    says = f"{name} of Lustre is {states}"
    says += f" on {folded(nodes)}" if len(nodes) > 1 else ""
    says += f", FULL or IDLE on {len(fine)} other nodes" if fine else ""
    says += f"; {waited} requests wait for it" if waited else ""
    one = nodes[0] if len(nodes) == 1 else None
    waiting = {target.node for target in lost if target.inflight} or held & set(nodes)
    return Finding(
        node=one,
        subject=name,
        role=Role.ROOT,
        strength=Strength.STRONG if waiting else Strength.WEAK,
        says=says,
        quote=f"target: {name}_UUID state: {lost[0].state} connection: {lost[0].server}",
        source="lustre import",
        spots=tuple(
            Spot(rank=awaited.get(node), node=node, doing=f"waits for {name}")
            for node in nodes
            if node in waiting
        )[:SHOWN],
        subtype="storage",
        shared=one is None,
    )


def _all_clear(view: View, told: Sequence[LustreTarget], look: Look | None) -> Iterator[Finding]:
    with_lustre = {m.node for m in view.all(Mount) if m.fstype == "lustre"}
    seen_on = {target.node for target in told}
    seen, blind = split_seen(look, lambda node: node in seen_on)
    if seen:
        count = len({target.target for target in told})
        yield _context(
            Role.ALL_CLEAR, f"{count} targets of Lustre connected {on_nodes(seen, blind)}"
        )
    hidden = [node for node in with_lustre - seen_on if in_job(node, look)]
    if hidden:
        yield _context(
            Role.CONTEXT,
            f"{folded(hidden)}: single targets of Lustre not seen (root's to read); a mount that "
            "answers clears none of them",
        )


def _context(role: Role, says: str) -> Finding:
    return Finding(
        node=None, subject="lustre", role=role,
        strength=Strength.STRONG if role is Role.ALL_CLEAR else Strength.WEAK, says=says,
        source="lustre import",
    )  # fmt: skip
