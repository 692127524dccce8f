"""Links that are up and slower than the same link of the other nodes."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.hcas import odd_nodes
from sluggish.correlate.window import When
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricEvent, NcclAsyncEvent, NcclHcas, Port
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    in_use,
    job_node,
    listed_on,
    named,
    note,
    phase_of,
    ports_and_used,
    several,
    spot,
    subject,
)

Slow = tuple[Port, str]
"""A port and what is slow about it."""


@rule("IB-RATE", family=Family.FABRIC, needs=(Port,), wants=(NcclHcas, Look, Onset))
def ib_rate(view: View) -> Iterator[Finding]:
    """A port runs at a lower rate than the same port of the other nodes."""
    slow, doubtful = _slow_rates(view)
    yield from _findings(slow, "link_degraded", Strength.WEAK)
    for port, why, doubt in doubtful:
        says = f"{named(port.hca, port.port)}: {why}: {doubt}"
        yield note(Role.CONTEXT, says, node=port.node, subject=subject(port.hca, port.port),
                   source=port.source, spots=(spot(port),))  # fmt: skip


@rule(
    "SLOW-LINK",
    family=Family.FABRIC,
    needs=(Port,),
    wants=(NcclHcas, FabricEvent, NcclAsyncEvent, Look, Onset),
)
def slow_link(view: View) -> Iterator[Finding]:
    """A link of one node is slower than its peers': rate, PCIe width or speed."""
    slow = _slow_rates(view)[0] + _slow_pcie(view)
    yield from _findings(slow, "slow_link", Strength.STRONG)
    named_already: set[tuple[str | None, str | None]] = {(p.node, p.hca) for p, _ in slow}
    for event in view.all(NcclAsyncEvent):
        if event.kind == "speed_change" and (node := job_node(event.node, view)):
            if (node, event.hca) in named_already or phase_of(event.at, view) is When.HISTORY:
                continue
            port = Port(node=node, hca=event.hca or "HCA", port=event.port or 1, state="active")
            named_already.add((node, event.hca))
            yield from _findings([(port, event.event or "")], "slow_link", Strength.STRONG)


def _findings(slow: list[Slow], subtype: str, strength: Strength) -> Iterator[Finding]:
    """One finding a port; the same on several nodes is one shared finding a port name."""
    nodes = {p.node for p, _ in slow}
    groups: dict[str, list[Slow]] = defaultdict(list)
    for port, why in slow:
        shared = len(nodes) >= SHARED_NODES
        groups[port.hca if shared else f"{port.node} {port.hca} {why}"].append((port, why))
    for group in groups.values():
        port, why = group[0]
        shared = len(nodes) >= SHARED_NODES
        where = f" on {several([p.node for p, _ in group])}" if shared else ""
        yield Finding(
            node=None if shared else port.node,
            subject=subject(port.hca, port.port),
            role=Role.ROOT,
            strength=strength,
            says=f"{named(port.hca, port.port)}{where}: {why}",
            source=port.source or "job log",
            spots=tuple(spot(p) for p, _ in group),
            subtype=subtype,
            shared=shared,
            action="check_fabric" if shared else None,
        )


Doubtful = tuple[Port, str, str]
"""A port, what is slow about it, and why that may be by design."""


def _slow_rates(view: View) -> tuple[list[Slow], list[Doubtful]]:
    """Ports that are slow for sure beside their peers, and those that may be meant to be."""
    ports, mine = ports_and_used(view)
    active = [p for p in in_use(ports, mine) if p.state == "active" and p.rate_gbps]
    groups: dict[tuple[str, int], dict[str | None, Port]] = defaultdict(dict)
    for port in active:
        groups[port.hca, port.port][port.node] = port
    if len({p.node for p in active}) == 1:
        return _slow_siblings(active, mine.listed)
    slow = [slow for group in groups.values() for slow in slow_among(group)]
    listed = listed_on(view)
    doubtful: list[Doubtful] = []
    for port, why in slow:
        if port.node in listed and (port.hca, port.port) not in listed[port.node]:
            doubtful.append((port, why, "NCCL does not use it on this node"))
        elif not mine.listed and _renumbered(port, active):
            doubtful.append((port, why, "the node has as many fast ports as its peers, under "
                             "other names: storage or management"))  # fmt: skip
    doubted = {(p.node, p.hca, p.port) for p, _, _ in doubtful}
    return [(p, why) for p, why in slow if (p.node, p.hca, p.port) not in doubted], doubtful


def _slow_siblings(active: list[Port], listed: bool) -> tuple[list[Slow], list[Doubtful]]:
    """One node seen: its own ports are the only peers, and cards alike may serve two networks.

    Several at the same lower rate are a second network, not several faults. A single one is slow
    if NCCL uses it or if lanes are missing that no cable leaves out.
    """
    shared = Counter(p.rate_gbps for p in active)
    slow = slow_among(dict(enumerate(active)))
    slow = [(p, why) for p, why in slow if shared[p.rate_gbps] == 1]
    widths = Counter(p.width for p in active)
    lost = [p for p, _ in slow if listed or (p.width == "1X" and widths["1X"] == 1)]
    doubt = "a link that degraded, or a storage or management port: no peer tells"
    return (
        [(p, why) for p, why in slow if p in lost],
        [(p, why, doubt) for p, why in slow if p not in lost],
    )


def _renumbered(slow: Port, active: list[Port]) -> bool:
    """The node has no fewer ports of the full rate than its peers: one name more, no link less."""
    full = max(p.rate_gbps or 0 for p in active if (p.hca, p.port) == (slow.hca, slow.port))
    fast = Counter(p.node for p in active if p.rate_gbps == full)
    others = Counter(fast[node] for node in {p.node for p in active} - {slow.node})
    usual = max(others, key=lambda count: (others[count], count))
    return fast[slow.node] >= usual


def slow_among(group: dict[int, Port] | dict[str | None, Port]) -> list[Slow]:
    """Ports below the rate that most share; of two that differ, the slower is the suspect."""
    rates = {str(key): port.rate_gbps or 0 for key, port in group.items()}
    mode, odd = odd_nodes(rates)
    if mode is None and len(rates) == 2:
        mode = max(rates.values())
        odd = tuple(key for key, rate in rates.items() if rate < mode)
    by_key = {str(key): port for key, port in group.items()}
    return [
        (by_key[key], f"{by_key[key].rate_gbps:g} Gb/s{_width(by_key[key])}, its peers {mode:g}")
        for key in odd
        if mode is not None and rates[key] < mode
    ]


def _width(port: Port) -> str:
    return f" ({port.width})" if port.width else ""


def _slow_pcie(view: View) -> list[Slow]:
    """PCIe narrower or slower than the card can, where the same HCA of most nodes is not."""
    ports, mine = ports_and_used(view)
    groups: dict[str, list[Port]] = defaultdict(list)
    for port in in_use(ports, mine):
        if port.pcie_width and port.pcie_max_width:
            groups[port.hca].append(port)
    out: list[Slow] = []
    for group in groups.values():
        low = [p for p in group if _below(p)]
        if len(low) * 2 <= len(group):
            out += [(p, _pcie_says(p)) for p in low]
    return out


def _below(port: Port) -> bool:
    narrow = (port.pcie_width or 0) < (port.pcie_max_width or 0)
    slow = bool(port.pcie_speed and port.pcie_max_speed) and port.pcie_speed != port.pcie_max_speed
    return narrow or slow


def _pcie_says(port: Port) -> str:
    return (
        f"PCIe x{port.pcie_width} {port.pcie_speed or ''} of "
        f"x{port.pcie_max_width} {port.pcie_max_speed or ''}".replace("  ", " ").strip()
    )
