"""Ports that are set up otherwise than the same ports of the other nodes: P_Key, GIDs, firmware."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.hcas import Key, odd_nodes
from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclCompletion, NcclHcas, NcclTrouble, Port
from sluggish.facts.host import RankProcess
from sluggish.facts.log import Progress
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import in_use, named, note, ports_and_used, several, subject

FULL_MEMBER = 0x8000
"""Top bit of a P_Key; limited members do not reach one another (IBTA, kernel sysfs `pkeys/0`)."""
ROUTABLE = "RoCE v2"
READ_GIDS = 8
"""Indices of the GID table that the probe reads."""
UNREACHED = 12
# ... next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.0.2
_INDEX = re.compile(r"local GID index (\d{1,3}),")
Ports = dict[str, Port]
"""The same port of each node."""


@rule(
    "CFG-PORTS",
    family=Family.FABRIC,
    needs=(Port,),
    wants=(NcclHcas, NcclTrouble, NcclCompletion, RankProcess, Progress, Look),
)
def cfg_ports(view: View) -> Iterator[Finding]:
    """P_Key, GID table or firmware of a port differs from the same port of the other nodes."""
    ports, mine = ports_and_used(view)
    groups: dict[Key, Ports] = defaultdict(dict)
    for port in in_use(ports, mine):
        if port.node and port.state == "active":
            groups[port.hca, port.port][port.node] = port
    role, strength = _weight(view)
    yield from _keys(groups, role, strength)
    yield from _gids(groups, _index(view), role, strength)
    yield from _firmware(groups)


def _weight(view: View) -> tuple[Role, Strength]:
    """What worked for hours is no wrong setting; connections that fail make it a strong one."""
    if len({p.step for p in view.all(Progress) if p.step is not None}) > 1:
        return Role.CONTEXT, Strength.WEAK
    modify = any(t.kind == "modify_qp" for t in view.all(NcclTrouble))
    lost = any(c.status == UNREACHED for c in view.all(NcclCompletion))
    return Role.ROOT, Strength.STRONG if modify or lost else Strength.WEAK


def _keys(groups: dict[Key, Ports], role: Role, strength: Strength) -> Iterator[Finding]:
    """Nodes whose default P_Key makes them limited members where the others are full ones."""
    odd: dict[str, list[str]] = defaultdict(list)
    for (hca, number), ports in groups.items():
        full = {n: bool(p.pkey & FULL_MEMBER) for n, p in ports.items()
                if p.pkey is not None and p.link_layer != "ethernet"}  # fmt: skip
        usual, different = odd_nodes(full)
        for node in different if usual else ():
            odd[node].append(named(hca, number))
    if odd:
        says = "limited members by their P_Key 0, the other nodes' are full members"
        yield _odd(odd, says, role, strength)


def _gids(
    groups: dict[Key, Ports], index: int | None, role: Role, strength: Strength
) -> Iterator[Finding]:
    """Nodes without a routable GID at the index that NCCL uses, where most nodes have one."""
    odd: dict[str, list[str]] = defaultdict(list)
    tables: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for (hca, number), ports in groups.items():
        told = {n: p for n, p in ports.items() if p.gid_types and p.link_layer == "ethernet"}
        there = {n: index in _routable(p) for n, p in told.items()}
        usual, different = odd_nodes(there)
        for node in different if usual and index is not None and index < READ_GIDS else ():
            odd[node].append(named(hca, number))
        for node, port in told.items():
            tables[node].add(_routable(port))
    if odd:
        says = f"no RoCE v2 GID at index {index}, which NCCL uses; the other nodes have one"
        yield _odd(odd, says, role, strength)
    elif index is None:
        _, different = odd_nodes({node: frozenset(found) for node, found in tables.items()})
        if different:
            says = f"{several(sorted(different))}: RoCE v2 GIDs at other indices than elsewhere"
            yield note(Role.CONTEXT, says, subject="GID tables", source="ib_ports")


def _routable(port: Port) -> tuple[int, ...]:
    return tuple(index for index, kind in port.gid_types if kind == ROUTABLE)


def _index(view: View) -> int | None:
    """The GID index of the job: its environment, else what NCCL printed."""
    told = [dict(p.env).get("NCCL_IB_GID_INDEX", "") for p in view.all(RankProcess)]
    for trouble in view.all(NcclTrouble):
        if trouble.kind == "modify_qp" and (found := _INDEX.search(trouble.detail)):
            told.append(found[1])
    known = Counter(int(text) for text in told if text.isdecimal() and len(text) < 4)
    return known.most_common(1)[0][0] if known else None


def _firmware(groups: dict[Key, Ports]) -> Iterator[Finding]:
    """Another firmware on a few nodes: true, worth a ticket, and no cause by itself."""
    odd: dict[str, tuple[str, str]] = {}
    for (hca, _), ports in groups.items():
        usual, different = odd_nodes({n: p.firmware for n, p in ports.items() if p.firmware})
        for node in different if usual else ():
            if ports[node].hca_type == next(iter(ports.values())).hca_type:
                odd.setdefault(node, (hca, f"{ports[node].firmware}, elsewhere {usual}"))
    for node, (hca, says) in odd.items():
        yield note(
            Role.CONTEXT, f"{hca} runs firmware {says}", node=node, subject=subject(hca),
            source="ib_ports",
        )  # fmt: skip


def _odd(odd: dict[str, list[str]], says: str, role: Role, strength: Strength) -> Finding:
    nodes = sorted(odd)
    hcas = sorted({hca for found in odd.values() for hca in found})
    where = f"{several(hcas)} of {several(nodes)}"
    return Finding(
        node=nodes[0] if len(nodes) == 1 else None,
        subject="port settings",
        role=role,
        strength=strength,
        says=f"{where}: {says}",
        source="ib_ports",
        spots=tuple(Spot(node=n, hca=odd[n][0] if len(odd[n]) == 1 else None) for n in nodes),
        subtype="hca_gid",
        shared=len(nodes) > 1,
    )
