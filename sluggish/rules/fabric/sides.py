"""Links, HCAs and error totals as the fabric's own tools name them: hints, of no known time.

iblinkinfo writes `Could be 12X` at each link of a fabric whose ports can more than anybody wired,
so a link is slow only beside the same rail of the other nodes. Where the host itself reads its port
well, its own reading stands: the tool was run before or after.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sluggish.correlate.fabric_ends import Ends, hca_of, owners
from sluggish.facts.derived import Look
from sluggish.facts.fabric import Port, PortCounters
from sluggish.facts.fabric_side import FabricLink, FabricMember, PortQuery, PortTotals
from sluggish.findings import Finding, Role, View
from sluggish.rules.fabric.common import job_node, note, ports_and_used, several
from sluggish.rules.fabric.counters import SATURATED
from sluggish.rules.fabric.speed import slow_among
from sluggish.rules.fabric.subnet import silent

NOT_UP = ("initializing", "armed", "down")
TOLD = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors",
        "local_link_integrity_errors", "excessive_buffer_overrun_errors")  # fmt: skip
"""Of the totals, the counters of a link itself; waits and discards are large on healthy ports."""
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One thing that a tool says of one port of the job."""

    node: str
    rail: str
    """What stands behind the host's name: `mlx5_3`, `HCA-4`."""
    kind: str
    says: str
    line: str
    subtype: str

    @property
    def hca(self) -> str | None:
        return hca_of(self.rail)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mine:
    """A link with its end at a node of the job."""

    link: FabricLink
    node: str
    rail: str
    port: int
    far: str


def signs(view: View) -> tuple[list[Sign], list[Finding]]:
    """Links that are slow or not up, HCAs that do not answer; and what is said and accuses none."""
    found = [*_links(view), *_members(view)]
    stale = [sign for sign in found if _well(sign, view)]
    beside = [
        note(
            Role.CONTEXT,
            f"{sign.says}; {sign.node} itself reads this port well: another time",
            node=sign.node,
            subject=sign.rail or "port",
            source="report",
            quote=sign.line,
        )
        for sign in stale
    ]
    return [s for s in found if s not in stale], [*beside, *_totals(view), *_nobodys(view)]


def _links(view: View) -> Iterator[Sign]:
    groups: dict[tuple[str, str, int], dict[str | None, _Mine]] = defaultdict(dict)
    for mine in _of_job(view):
        if mine.link.state in NOT_UP:
            yield _not_up(mine, silent(view, (mine.node,)) is not None)
        elif mine.link.lanes and mine.link.lane_gbps:
            groups[mine.link.tool, mine.rail, mine.port][mine.node] = mine
    for group in groups.values():
        for port, why in slow_among({node: _as_port(mine) for node, mine in group.items()}):
            mine = group[port.node]
            # iblinkinfo tells what both ends can do: a slow end by design is no fault of the link
            if mine.link.could_be or mine.link.tool != "iblinkinfo":
                hint = f", could be {mine.link.could_be}" if mine.link.could_be else ""
                says = f"{mine.link.tool}: {_between(mine)} runs {why}{hint}"
                yield _sign(mine, "slow", says, "link_degraded")


def _of_job(view: View) -> Iterator[_Mine]:
    ends = Ends(view.one(Look))
    ports, used = ports_and_used(view)
    seen = {p.hca for p in ports}
    for link in view.all(FabricLink):
        for one, other in ((0, 1), (1, 0)):
            node, rail = ends.of(link.ends[one])
            hca = hca_of(rail)
            aside = hca in seen and (hca, link.ports[one]) not in used.keys
            if node and not aside:
                yield _Mine(
                    link=link, node=node, rail=rail, port=link.ports[one], far=link.ends[other]
                )


def _as_port(mine: _Mine) -> Port:
    lanes = mine.link.lanes or 0
    return Port(
        node=mine.node,
        hca=mine.rail,
        port=mine.port,
        state="active",
        rate_gbps=lanes * (mine.link.lane_gbps or 0),
        width=f"{lanes}X",
    )


def _not_up(mine: _Mine, without_manager: bool) -> Sign:
    waits = mine.link.state == "initializing"
    why = ": no subnet manager has brought it up" if waits else ""
    says = f"{mine.link.tool}: {_between(mine)} is {mine.link.state.capitalize()}{why}"
    subtype = "subnet_manager" if waits and without_manager else "port_down"
    return _sign(mine, "not up", says, subtype)


def _between(mine: _Mine) -> str:
    return f"link {mine.node} {mine.rail or mine.port} - {mine.far}"


def _sign(mine: _Mine, kind: str, says: str, subtype: str) -> Sign:
    return Sign(
        node=mine.node, rail=mine.rail, kind=kind, says=says, line=mine.link.line, subtype=subtype
    )


def _members(view: View) -> Iterator[Sign]:
    """HCAs that most nodes show to the fabric and one node does not."""
    ends = Ends(view.one(Look))
    ports, used = ports_and_used(view)
    seen = {p.hca for p in ports}
    mine = {hca for hca, _ in used.keys}
    tools: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for member in view.all(FabricMember):
        node, rail = ends.of(member.end)
        if node:
            tools[member.tool][node].add(rail)
    for tool, by_node in tools.items():
        count = Counter(rail for rails in by_node.values() for rail in rails)
        for node, rails in by_node.items():
            others = len(by_node) - 1
            for rail in sorted(count):
                aside = rail in seen and rail not in mine
                if rail in rails or aside or count[rail] * 2 <= others or others < 2:
                    continue
                says = f"{tool}: {node} {rail or 'HCA'} does not answer, that of {count[rail]} of "
                yield Sign(
                    node=node, rail=rail, kind="absent", says=f"{says}{others} other nodes does",
                    line="", subtype="port_down",
                )  # fmt: skip


def _well(sign: Sign, view: View) -> bool:
    """The node's own tools read this port Active, and as fast as the same port of the others."""
    if sign.hca is None:
        return False
    ports, _ = ports_and_used(view)
    alike = [p for p in ports if p.hca == sign.hca and p.state == "active"]
    here = [p for p in alike if p.node == sign.node]
    best = max((p.rate_gbps or 0 for p in alike), default=0)
    return bool(here) and all((p.rate_gbps or 0) >= best for p in here)


def _totals(view: View) -> Iterator[Finding]:
    """Totals since somebody cleared them: context, and full counters that hide what comes next."""
    look = view.one(Look)
    ends = Ends(look)
    ours: list[tuple[str, PortTotals]] = []
    others: list[PortTotals] = []
    for told in view.all(PortTotals):
        node, _ = ends.of(told.end)
        if node:
            ours.append((node, told))
        elif any(told.counters.get(name) for name in TOLD):
            others.append(told)
    moved = [t for _, t in ours if any(t.counters.get(name) for name in TOLD)]
    rest = "of no node of the job" if look and look.nodes else "(the job's nodes are not known)"
    for group, whose in ((moved, "of the job"), (others, rest)):
        if group:
            yield _sum_of(group, whose)
    read = {(job_node(c.node, view), c.hca) for c in view.all(PortCounters)}
    for node, told in ours:
        if (node, ends.of(told.end)[1]) in read:
            continue  # the node's own counters tell it
        full = sorted(n for n, top in SATURATED.items() if told.counters.get(n) == top)
        if full:
            yield note(
                Role.HOUSEKEEPING,
                f"{told.end}: {', '.join(full)} saturated, a new event cannot show; clear it "
                "(perfquery -R) once the node is drained",
                node=node,
                source="report",
                quote=told.line,
            )


def _sum_of(group: list[PortTotals], whose: str) -> Finding:
    def weight(told: PortTotals) -> tuple[int, ...]:
        return tuple(told.counters.get(name, 0) for name in TOLD)

    worst = sorted(group, key=weight, reverse=True)[:SHOWN]
    words = [f"{t.end} port {t.port} ({_counted(t)})" for t in worst]
    more = f" and {len(group) - SHOWN} more" if len(group) > SHOWN else ""
    return note(
        Role.CONTEXT,
        f"error totals {whose}: {'; '.join(words)}{more}: since somebody cleared them, so of no "
        "known time",
        subject="totals",
        source="report",
        quote=worst[0].line,
    )


def _counted(told: PortTotals) -> str:
    return ", ".join(f"{name} {told.counters[name]}" for name in TOLD if told.counters.get(name))


def _nobodys(view: View) -> Iterator[Finding]:
    """What was mailed and cannot be laid at a port: said, never guessed."""
    lost = [q for q, place in owners(view.all(PortQuery), view.all(Port), view.one(Look))
            if place is None]  # fmt: skip
    if lost:
        lids = several([f"LID {lid}" for lid in dict.fromkeys(q.lid for q in lost)])
        yield note(
            Role.CONTEXT,
            f"perfquery of {lids}: no port of the job, or more than one, is known by it (ibstat of "
            "each node tells the LIDs)",
            subject="perfquery",
            source="report",
            quote=lost[0].line,
        )
    look = view.one(Look)
    ends = {end for link in view.all(FabricLink) for end in link.ends}
    ends |= {member.end for member in view.all(FabricMember)}
    if not ends or look is None:
        return
    whose = Ends(look)
    there = {whose.of(end)[0] for end in ends}
    gone = [node for node in look.nodes if node not in there]
    says = f"the fabric's tools name no HCA of {several(gone)}: another name, or not there"
    if not look.nodes:
        says = "the fabric's tools name ends, and nothing tells the job's nodes: none is compared"
    if gone or not look.nodes:
        yield note(Role.CONTEXT, says, subject="HCAs", source="report")


def shared_says(group: Iterable[Sign]) -> str:
    """`mlx5_3 of gpu-01, mlx5_3 of gpu-02`."""
    return several([f"{s.rail or 'a port'} of {s.node}" for s in group])
