"""Faults that lie below one switch: compared by the leaf on which Slurm says that a node hangs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from sluggish.causes import Family
from sluggish.correlate.hcas import of_job
from sluggish.correlate.ib_vote import address_book, edges
from sluggish.correlate.window import When
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.fabric import (
    FabricEvent,
    NcclAddress,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    Port,
    Switch,
)
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    Owners,
    in_use,
    job_node,
    note,
    phase_of,
    ports_and_used,
    several,
)

Where = tuple[str, str | None]
"""Node and HCA."""
NOW = (When.CAUSE, When.AFTERMATH, When.UNKNOWN)


@rule(
    "IB-LEAF",
    family=Family.FABRIC,
    needs=(Switch,),
    wants=(
        Port, NcclHcas, NcclAddress, NcclCompletion, NcclAsyncEvent, FabricEvent, Place, Look,
        Onset,
    ),
)  # fmt: skip
def ib_leaf(view: View) -> Iterator[Finding]:
    """All nodes with the same kind of fabric fault hang on one switch, others show none."""
    leaf = _leaves(view)
    if len(set(leaf.values())) < 2:
        return
    for what, places in _suspects(view).items():
        nodes = sorted({node for node, _ in places})
        if len(nodes) >= SHARED_NODES:
            yield from _on_leaves(what, nodes, places, leaf)
    yield from _across(view, leaf)


def _leaves(view: View) -> dict[str, str]:
    """Node of the job -> its leaf switch. A node that stands on several is on none."""
    look = view.one(Look)
    found: dict[str, set[str]] = defaultdict(set)
    for switch in view.all(Switch):
        if switch.level == 0 and not switch.block:
            for name in switch.nodes:
                if (node := of_job(name, look)) is not None:
                    found[node].add(switch.name)
    return {node: names.pop() for node, names in found.items() if len(names) == 1}


def _suspects(view: View) -> dict[str, list[Where]]:
    """Kind of sign -> where it was seen. Kinds are not mixed: two different faults are two."""
    ports, mine = ports_and_used(view)
    down: list[Where] = [
        (p.node, p.hca) for p in in_use(ports, mine) if p.node and p.state == "down"
    ]
    owners = Owners(view)
    lost: list[Where] = []
    for event in view.all(FabricEvent):
        node = job_node(event.node, view)
        if event.kind == "link_down" and node and phase_of(event.at, view) in NOW:
            hca, used = owners.of(event, node)
            lost += [(node, hca)] if used else []
    moved: list[Where] = []
    for told in view.all(NcclAsyncEvent):
        node = job_node(told.node, view)
        if node and "port error" in (told.event or "") and phase_of(told.at, view) in NOW:
            moved.append((node, told.hca))
    return {"ports down": down, "links lost": lost, "port errors": moved}


def _on_leaves(
    what: str, nodes: list[str], places: Iterable[Where], leaf: Mapping[str, str]
) -> Iterator[Finding]:
    below = {leaf[node] for node in nodes if node in leaf}
    others = [node for node in leaf if node not in nodes]
    if len(below) == 1 and all(node in leaf for node in nodes):
        name = next(iter(below))
        beside = [node for node in others if leaf[node] != name]
        if not beside:
            return
        told = f"{what} on {len(nodes)} nodes ({several(nodes)}), all on switch {name}"
        clean = f"none on the {len(beside)} nodes of the other switches"
        spots = tuple(Spot(node=node, hca=hca) for node, hca in dict.fromkeys(places))
        yield _finding(f"{told}; {clean}", name, spots)
    elif len(below) > 1:
        yield note(
            Role.CONTEXT,
            f"{what} on nodes of {len(below)} switches: what stands above them, or the subnet",
            subject="switches",
            source="topology",
        )


def _across(view: View, leaf: Mapping[str, str]) -> Iterator[Finding]:
    """Peers lost one another across the border of one switch, never inside one."""
    found = [c for c in view.all(NcclCompletion) if phase_of(c.at, view) is not When.HISTORY]
    look = view.one(Look)
    book = address_book(view.all(NcclHcas), view.all(NcclAddress), look)
    lost = edges(found, book, view.all(Place), look)
    if not lost or not all(e.reporter in leaf and e.peer in leaf for e in lost):
        return
    pairs = [(leaf[e.reporter], leaf[e.peer]) for e in lost]
    common = set(pairs[0]).intersection(*map(set, pairs))
    if not common or any(one == other for one, other in pairs):
        return
    # of two switches that lost one another either may be at fault: both are named
    name = " or ".join(sorted(common))
    for one in common:
        inside = {n for e in lost for n in (e.reporter, e.peer) if leaf[n] == one}
        outside = {n for e in lost for n in (e.reporter, e.peer) if leaf[n] != one}
        if len(inside) < SHARED_NODES or len(outside) < SHARED_NODES:
            return  # one node on a side: that node is as likely
    over = {e.hca for e in lost}
    rail = f" over {next(iter(over))}" if len(over) == 1 and None not in over else ""
    yield _finding(
        f"{len({frozenset((e.reporter, e.peer)) for e in lost})} pairs of nodes lost one "
        f"another{rail}, each across the border of switch {name}, none inside a switch: "
        "its links upwards, or the spine",
        name,
        (),
    )


def _finding(says: str, name: str, spots: tuple[Spot, ...]) -> Finding:
    return Finding(
        node=None,
        subject=f"switch {name}",
        role=Role.ROOT,
        strength=Strength.STRONG,
        says=says,
        source="topology",
        spots=spots,
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )
