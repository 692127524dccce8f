"""Nodes that start NCCL with different HCAs."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.hcas import keys, odd_nodes
from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclAddress, NcclHcas, NcclNetwork, NcclTrouble
from sluggish.facts.ib_words import natural
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import blind, job_node, note, several

SHOWN_HCAS = 4
PLUGINS = ("Libfabric", "AWS Libfabric")
"""Names of the OFI plugin: its provider's line says what it runs over."""


@rule(
    "CFG-HCASET",
    family=Family.FABRIC,
    needs=(NcclHcas, NcclTrouble, NcclNetwork),
    wants=(NcclAddress, Look),
)
def cfg_hcaset(view: View) -> Iterator[Finding]:
    """NCCL lists fewer HCAs on some nodes than on the others, or uses none there."""
    sets = _sets(view)
    yield from _no_hca(view)
    counts = {node: len(found) for node, found in sets.items()}
    told = next((t for t in view.all(NcclTrouble) if t.kind == "mixed_hcas"), None)
    if len(set(counts.values())) > 1:
        yield _unequal(sets, counts, told.line if told else "", view)
    elif told:
        yield Finding(
            node=None,
            subject="HCA lists",
            role=Role.ROOT,
            strength=Strength.STRONG,
            at=told.at,
            says="NCCL itself says that its ranks have different numbers of network devices",
            quote=told.line,
            source="job log",
            subtype="hca_mismatch",
        )
    elif sets and len(sets) > 1:
        yield _equal(sets, counts, view)


def _sets(view: View) -> dict[str | None, frozenset[tuple[str, int]]]:
    """HCAs of each node, over all its ranks; of the OFI plugin only their number is known."""
    found: dict[str | None, set[tuple[str, int]]] = defaultdict(set)
    for line in view.all(NcclHcas):
        if node := job_node(line.node, view):
            found[node] |= {key for name in line.hcas for key in keys(name)}
    for said in view.all(NcclNetwork):
        if said.nics and said.provider and (node := job_node(said.node, view)):
            found[node] |= {(f"{said.provider} {i}", 1) for i in range(said.nics)}
    return {node: frozenset(hcas) for node, hcas in found.items()}


def _no_hca(view: View) -> Iterator[Finding]:
    """Nodes where NCCL took sockets while it uses HCAs on others: the two cannot talk."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for said in view.all(NcclNetwork):
        if node := job_node(said.node, view):
            over = said.network in (None, "Socket") or (said.provider or "").startswith("tcp")
            if said.provider or said.network not in PLUGINS:
                kinds[node].add("sockets" if over else "HCAs")
    for one in view.all(NcclHcas):
        if node := job_node(one.node, view):
            kinds[node].add("HCAs")
    for said in view.all(NcclAddress):
        if "NET/Socket" in said.line and (node := job_node(said.node, view)):
            kinds[node].add("sockets")
    # a node that has both listed its HCAs and then took them, or a plugin
    odd = sorted(node for node, found in kinds.items() if found == {"sockets"})
    others = [node for node, found in kinds.items() if "HCAs" in found]
    if odd and others:
        yield Finding(
            node=odd[0] if len(odd) == 1 else None,
            subject="network",
            role=Role.ROOT,
            strength=Strength.STRONG,
            says=f"{several(odd)}: NCCL uses sockets there and HCAs on {several(sorted(others))}",
            quote=next(
                (n.line for kind in (NcclNetwork, NcclAddress) for n in view.all(kind)
                 if job_node(n.node, view) in odd), ""),
            source="job log",
            spots=tuple(Spot(node=node) for node in odd) if len(odd) <= SHOWN_HCAS else (),
            subtype="hca_mismatch",
            shared=len(odd) > 1,
        )  # fmt: skip


def _unequal(
    sets: dict[str | None, frozenset[tuple[str, int]]],
    counts: dict[str | None, int],
    told: str,
    view: View,
) -> Finding:
    _, odd = odd_nodes(counts)
    most = max(counts.values())
    odd = odd or tuple(n for n, count in counts.items() if count < most)
    missing = _missing(sets, odd)
    lines = [n for n in view.all(NcclHcas) if job_node(n.node, view) in odd]
    where = f"{several(odd)} {'uses' if len(odd) == 1 else 'use'} {counts[odd[0]]} HCAs"
    usual = next((count for node, count in counts.items() if node not in odd), most)
    without = f", without {', '.join(missing[:SHOWN_HCAS])}" if missing else ""
    if extra := _extra(sets, odd):
        without += f", and {', '.join(extra[:SHOWN_HCAS])} besides"
    return Finding(
        node=odd[0] if len(odd) == 1 else None,
        subject="HCA lists",
        role=Role.ROOT,
        strength=Strength.STRONG,
        says=f"{where}, the other nodes {usual}{without}",
        quote=told or (lines[0].line if lines else ""),
        source="job log",
        spots=tuple(
            Spot(node=node, hca=missing[0] if len(missing) == 1 and len(odd) == 1 else None)
            for node in odd
        ),
        subtype="hca_mismatch",
    )


def _missing(
    sets: dict[str | None, frozenset[tuple[str, int]]], odd: tuple[str | None, ...]
) -> list[str]:
    """HCAs that every other node lists and no odd one does."""
    others = [found for node, found in sets.items() if node not in odd]
    common = frozenset.intersection(*others) if others else frozenset[tuple[str, int]]()
    mine = frozenset[tuple[str, int]]().union(*(sets[node] for node in odd))
    return sorted({hca for hca, _ in common - mine}, key=natural)


def _extra(
    sets: dict[str | None, frozenset[tuple[str, int]]], odd: tuple[str | None, ...]
) -> list[str]:
    """HCAs of the odd nodes that no other node lists."""
    others = frozenset[tuple[str, int]]().union(*(f for n, f in sets.items() if n not in odd))
    mine = frozenset[tuple[str, int]]().union(*(sets[node] for node in odd))
    return sorted({hca for hca, _ in mine - others}, key=natural)


def _equal(
    sets: dict[str | None, frozenset[tuple[str, int]]], counts: dict[str | None, int], view: View
) -> Finding:
    names = len(set(sets.values()))
    alike = "the same HCAs" if names == 1 else f"the same number of HCAs, by {names} sets of names"
    unseen = blind(view, sets)
    return note(
        Role.ALL_CLEAR,
        f"NCCL lists {alike} ({next(iter(counts.values()))}) on {len(sets)} nodes"
        + (f", but blind on {several(unseen)}" if unseen else ""),
        subject="HCA lists",
        source="job log",
    )
