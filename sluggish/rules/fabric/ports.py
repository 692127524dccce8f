"""Ports that are not Active, HCAs that are gone."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.hcas import Used, of_job
from sluggish.correlate.window import When
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricEvent, FabricFlavour, NcclHcas, Port, RdmaDevices
from sluggish.facts.fabric_side import SubnetManager
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    blind,
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
from sluggish.rules.fabric.subnet import of_subnet

_MEANING = {
    "polling": "no signal from the far end",
    "disabled": "switched off by an administrator, firmware or the switch",
    "training": "the link is being negotiated: a flap caught in the act",
    "link_error_recovery": "the link is recovering from errors: a flap caught in the act",
    "sleep": "asleep",
    "linkup": "the link is up",
}
_RECOVERING = ("link_error_recovery", "training")
"""Physical states of a link whose port may still be called Active (IBTA; rdma-core ibstat.c)."""


RAILS = 8
"""A usual node has no more ports for compute: what is Down beside so many is storage's or free."""


@rule(
    "IB-PORT",
    family=Family.FABRIC,
    needs=(Port, RdmaDevices),
    wants=(NcclHcas, FabricEvent, FabricFlavour, SubnetManager, Look, Onset),
)
def ib_port(view: View) -> Iterator[Finding]:
    """A port that the job uses is not Active, or a node shows no RDMA device at all."""
    ports, mine = ports_and_used(view)
    used = in_use(ports, mine)
    bad = [p for p in used if p.state == "down"]
    starting = [p for p in used if p.state in ("initializing", "armed")]
    if not of_subnet(starting, view):
        bad += starting
    listed = listed_on(view) if bad else {}
    start_up = {p for p in bad if p.node in listed and (p.hca, p.port) not in listed[p.node]}
    yield from (_left_out_note(p) for p in bad if p in start_up)
    bad = [p for p in bad if p not in start_up]
    off = [p for p in bad if _switched_off(p, used, mine, view)]
    yield from (_off_note(p) for p in off)
    bad = [p for p in bad if p not in off]
    yield from _faults(bad, used, mine, view)
    gone = _no_devices(view)
    yield from (_gone(node, view) for node in gone)
    yield from _aside(mine)
    shaky = [p for p in used if _is_recovering(p)]
    yield from _caught(shaky)
    if used and not (bad or off or starting or start_up or gone or shaky):
        yield _clear(used, view)


def _faults(bad: list[Port], used: tuple[Port, ...], mine: Used, view: View) -> Iterator[Finding]:
    nodes = {p.node for p in bad}
    if len(nodes) < SHARED_NODES:
        yield from (_single(p, used, mine, view) for p in bad)
        return
    by_hca: dict[tuple[str, int], list[Port]] = defaultdict(list)
    for port in bad:
        by_hca[port.hca, port.port].append(port)
    for (hca, number), group in by_hca.items():
        yield _shared(hca, number, group, used, mine)


def _is_recovering(port: Port) -> bool:
    """ActiveDefer is what the port is called while its link recovers."""
    held = port.state == "active" and port.phys_state in _RECOVERING
    return held or port.state == "active_defer"


def _caught(shaky: list[Port]) -> Iterator[Finding]:
    """Flaps caught in the act; one look does not tell how long they last, so weak."""
    shared = len({p.node for p in shaky}) >= SHARED_NODES
    for port in shaky:
        words = (port.phys_state or port.state).replace("_", " ")
        yield Finding(
            node=None if shared else port.node,
            subject=subject(port.hca, port.port),
            role=Role.ROOT,
            strength=Strength.WEAK,
            says=f"{named(port.hca, port.port)} of {port.node or 'node'} is still called Active, "
            f"but its link is in {words}: a flap caught in the act",
            source=port.source,
            spots=(spot(port),),
            subtype="shared_fabric" if shared else "port_error",
            shared=shared,
            action="check_fabric",
        )


def _single(port: Port, used: tuple[Port, ...], mine: Used, view: View) -> Finding:
    peers = [p for p in used if (p.hca, p.port) == (port.hca, port.port) and p.node != port.node]
    active = any(p.state == "active" for p in peers)
    role, strength = Role.ROOT, Strength.DECISIVE if mine.listed else Strength.STRONG
    if not mine.listed and not active:
        strength = Strength.WEAK
    event = _went_down(port, view)
    where = phase_of(event.at, view) if event else When.UNKNOWN
    spare = strength is Strength.WEAK and event is None and _rails_are_up(port, used)
    if spare:
        role = Role.CONTEXT
    if where in (When.AFTERMATH, When.TEARDOWN):
        role = Role.CONSEQUENCE
    elif where is When.HISTORY:
        strength = Strength.WEAK
    flaps = _active_elsewhere(port, view)
    if port.state == "armed":  # a sweep passes within seconds, and one look has no length
        strength = Strength.WEAK
    soft = flaps or port.state in ("initializing", "armed")
    if soft and strength is Strength.DECISIVE:
        strength = Strength.STRONG
    return Finding(
        node=port.node,
        subject=subject(port.hca, port.port),
        role=role,
        strength=strength,
        at=event.at if event else None,
        says=_says(port)
        + (f"; Active in {flaps}: it flaps" if flaps else "")
        + (f"; {RAILS} of its kind are Active: nothing says that the job uses it" if spare else ""),
        quote=event.line if event else "",
        source=port.source,
        spots=(spot(port),),
        subtype="port_down",
        action="check_fabric" if soft or port.phys_state == "disabled" else None,
    )


def _rails_are_up(port: Port, used: tuple[Port, ...]) -> bool:
    """Of one node alone: as many ports of this kind are Active as a node has rails."""
    kind = (port.node, port.link_layer, port.hca_type)
    alike = [p for p in used if (p.node, p.link_layer, p.hca_type) == kind and p.state == "active"]
    return len(alike) >= RAILS and {p.node for p in used} == {port.node}


def _active_elsewhere(port: Port, view: View) -> str:
    """Another tool of the same look read Active: one reading does not exclude flapping."""
    return " and ".join(
        p.source
        for p in view.all(Port)
        if (p.hca, p.port, p.state) == (port.hca, port.port, "active")
        and job_node(p.node, view) == port.node
    )


def _says(port: Port) -> str:
    name = named(port.hca, port.port)
    state = port.state.capitalize()
    if port.state == "armed":
        return f"{name} Armed, link up: the subnet manager sweeps; trouble only if it stays so"
    if port.state == "initializing":
        return f"{name} {state}, link up: no subnet manager has brought up this port"
    link = f"link {port.node or 'node'} {name} - switch"
    words = (port.phys_state or "physical state unknown").replace("_", " ").capitalize()
    meaning = _MEANING.get(port.phys_state or "", "")
    return f"{link}: port {state}, {words}" + (f" ({meaning})" if meaning else "")


def _shared(
    hca: str, number: int, group: list[Port], used: tuple[Port, ...], mine: Used
) -> Finding:
    total = len({p.node for p in used})
    return Finding(
        node=None,
        subject=subject(hca, number),
        role=Role.ROOT,
        strength=Strength.DECISIVE if mine.listed else Strength.STRONG,
        says=(
            f"{named(hca, number)} not Active on {len(group)} of {total} nodes "
            f"({several([p.node for p in group])}): their rail, leaf switch or its power, "
            "not one node"
        ),
        source=group[0].source,
        spots=tuple(spot(p) for p in group),
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )


def _went_down(port: Port, view: View) -> FabricEvent | None:
    """The last time that the kernel saw this link go down."""
    events = [
        e
        for e in view.all(FabricEvent)
        if e.kind == "link_down" and job_node(e.node, view) == port.node and _same(e, port)
    ]
    return max(events, key=lambda e: (e.at is not None, e.at), default=None)


def _same(event: FabricEvent, port: Port) -> bool:
    return (
        (event.hca is not None and event.hca == port.hca)
        or (event.pci is not None and event.pci == port.pci)
        or (event.netdev is not None and event.netdev == port.netdev)
    )


def _left_out_note(port: Port) -> Finding:
    return note(
        Role.CONTEXT,
        f"{_says(port)}; it was so when NCCL started, which left it out on this node",
        node=port.node,
        subject=subject(port.hca, port.port),
        strength=Strength.STRONG,
        source=port.source,
        spots=(spot(port),),
    )


def _switched_off(port: Port, used: tuple[Port, ...], mine: Used, view: View) -> bool:
    """Disabled, and nothing says that the job uses it: switched off on purpose (trap T9).

    NCCL's list, another node where it is Active, or a link that went down would say so.
    """
    if port.phys_state != "disabled" or mine.listed or _went_down(port, view):
        return False
    key = (port.hca, port.port)
    return not any((p.hca, p.port) == key and p.state == "active" for p in used)


def _off_note(port: Port) -> Finding:
    return note(
        Role.CONTEXT,
        f"{named(port.hca, port.port)} is Disabled, ignored: nothing says that the job uses it",
        node=port.node,
        subject=subject(port.hca, port.port),
        source=port.source,
    )


def _no_devices(view: View) -> list[str]:
    """Nodes on which every tool that ran lists no HCA, while another node has some."""
    look = view.one(Look)
    names: dict[str, set[str]] = defaultdict(set)
    for devices in view.all(RdmaDevices):
        if (node := of_job(devices.node, look)) is not None:
            names[node] |= set(devices.names)
    return sorted(n for n, found in names.items() if not found) if any(names.values()) else []


def _gone(node: str, view: View) -> Finding:
    had = [n for n in view.all(NcclHcas) if job_node(n.node, view) == node]
    lost = f"; NCCL had {len(had[0].hcas)} there at its start" if had else ""
    return Finding(
        node=node,
        subject="HCAs",
        role=Role.ROOT,
        strength=Strength.DECISIVE if had else Strength.STRONG,
        says=f"no RDMA device is visible on {node}, its peers have some{lost}",
        quote=had[0].line if had else "",
        source="ibstat",
        spots=(Spot(node=node),),
        subtype="hca_fatal",
    )


def _aside(mine: Used) -> Iterator[Finding]:
    """Down and not used: said, never held against a node."""
    for left in mine.aside:
        nodes = left.not_active_on
        if nodes:
            yield note(
                Role.CONTEXT,
                f"{left.hca} is not Active on {several(nodes)}, ignored: {left.why}",
                node=nodes[0] if len(nodes) == 1 else None,
                subject=subject(left.hca),
                source="ports",
            )


def _clear(used: tuple[Port, ...], view: View) -> Finding:
    known = [p for p in used if p.state != "unknown"]
    rates = sorted({f"{p.rate_gbps:g}" for p in known if p.rate_gbps and p.state == "active"})
    speed = f" at {' or '.join(rates)} Gb/s" if rates else ""
    active = sum(p.state in ("active", "active_defer") for p in used)
    says = f"{active}/{len(used)} host ports Active{speed} (switches: not checked)"
    efa = any(f.kind == "efa" for f in view.all(FabricFlavour))
    if efa:
        says = f"{len(used)} EFA devices are there; their state says ACTIVE whatever happens"
    unseen = blind(view, (p.node for p in used))
    return note(
        Role.ALL_CLEAR if len(known) == len(used) and not efa else Role.CONTEXT,
        says + (f", but blind on {several(unseen)}" if unseen else ""),
        strength=Strength.STRONG,
        source=used[0].source,
    )
