"""What the kernel and NCCL saw happen to an HCA or its link."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from sluggish.causes import Family
from sluggish.correlate.window import When
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricEvent, NcclAsyncEvent, NcclHcas, Port
from sluggish.facts.host import PcieError, RankProcess
from sluggish.facts.log import Version
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    Owners,
    give_up,
    job_node,
    note,
    phase_of,
    several,
    subject,
)

FATAL_KINDS = ("fatal", "health", "firmware", "bus")
NOISE = "ACCESS_REG"
"""mlx5 prints it when somebody reads counters of an NVSwitch-managing HCA (gpud PR 1167)."""

_MOVES = {
    When.HISTORY: (Role.HOUSEKEEPING, Strength.WEAK),
    When.EARLIER: (Role.CONTEXT, Strength.WEAK),
    When.AFTERMATH: (Role.CONSEQUENCE, Strength.WEAK),
    When.TEARDOWN: (Role.CONSEQUENCE, Strength.WEAK),
}


@rule(
    "IB-FLAP",
    family=Family.FABRIC,
    needs=(FabricEvent,),
    wants=(Port, NcclHcas, Version, RankProcess, Look, Onset),
)
def ib_flap(view: View) -> Iterator[Finding]:
    """A link that the job uses went down in the window; its duration decides, not the count."""
    owners = Owners(view)
    limit = give_up(view)
    windows: dict[When, list[_Outage]] = defaultdict(list)
    for event, lasted in _outages(view):
        node = job_node(event.node, view)
        hca, mine = owners.of(event, node)
        if mine:
            outage = _Outage(event=event, node=node, hca=hca, lasted=lasted)
            windows[phase_of(event.at, view)].append(outage)
        elif hca is None and node not in owners.nodes:
            yield note(
                Role.CONTEXT,
                f"{_place(event)} lost its link; whether the job uses it was not seen",
                node=node,
                subject=subject(_place(event)),
                source="kernel",
                quote=event.line,
                at=event.at,
            )
    for where, group in windows.items():
        if len({o.node for o in group}) >= SHARED_NODES:
            yield _flaps(group, where, limit)
        else:
            yield from (_flap(outage, where, limit) for outage in group)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outage:
    event: FabricEvent
    node: str | None
    hca: str | None
    lasted: float | None
    """Seconds until the link came back; None: not seen to come back."""


def _place(event: FabricEvent) -> str:
    return event.hca or event.netdev or event.pci or "a link"


def _weight(outages: list[_Outage], where: When, limit: float) -> tuple[Role, Strength]:
    """A short flap is ridden out by retries; one that lasts longer kills the job."""
    role, strength = _MOVES.get(where, (Role.ROOT, Strength.WEAK))
    long = any(o.lasted is None or o.lasted > limit for o in outages)
    return role, Strength.STRONG if role is Role.ROOT and where is When.CAUSE and long else strength


def _flap(outage: _Outage, where: When, limit: float) -> Finding:
    role, strength = _weight([outage], where, limit)
    if outage.lasted is None:
        told = "lost its link, no return seen"
    else:
        told = f"lost its link for {outage.lasted:g} s, NCCL gives up after {limit:.0f} s"
    return Finding(
        node=outage.node,
        subject=subject(outage.hca),
        role=role,
        strength=strength,
        at=outage.event.at,
        says=f"{outage.hca} {told}",
        quote=outage.event.line,
        source="kernel",
        spots=(Spot(node=outage.node, hca=outage.hca),),
        subtype="port_error",
        action="check_fabric",
    )


def _flaps(group: list[_Outage], where: When, limit: float) -> Finding:
    role, strength = _weight(group, where, limit)
    nodes = list(dict.fromkeys(o.node for o in group))
    return Finding(
        node=None,
        subject="links",
        role=role,
        strength=strength,
        at=min((o.event.at for o in group if o.event.at), default=None),
        says=f"links went down on {len(nodes)} nodes ({several(nodes)}): switch, rail or subnet",
        quote=group[0].event.line,
        source="kernel",
        spots=tuple(Spot(node=o.node, hca=o.hca) for o in group),
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )


def _outages(view: View) -> Iterator[tuple[FabricEvent, float | None]]:
    """Every link_down with the seconds until the same link came up, None where it did not."""
    links: dict[tuple[str | None, str | None], list[FabricEvent]] = defaultdict(list)
    for event in view.all(FabricEvent):
        node = job_node(event.node, view)
        if event.kind in ("link_down", "link_up") and (node or event.node is None):
            links[node, event.hca or event.netdev or event.pci].append(event)
    for events in links.values():
        timed = sorted((e for e in events if e.at is not None), key=lambda e: e.at or datetime.max)
        for number, event in enumerate(timed):
            if event.kind == "link_down" and event.at:
                ups = [e.at for e in timed[number + 1 :] if e.kind == "link_up" and e.at]
                yield event, (ups[0] - event.at).total_seconds() if ups else None
        yield from ((e, None) for e in events if e.at is None and e.kind == "link_down")


@rule(
    "IB-FATAL",
    family=Family.FABRIC,
    needs=(FabricEvent, PcieError),
    wants=(Port, NcclHcas, Look, Onset),
)
def ib_fatal(view: View) -> Iterator[Finding]:
    """The driver of an HCA reports that its firmware or the card itself has failed."""
    owners = Owners(view)
    first: dict[tuple[str | None, str | None], Finding] = {}
    for event in (*view.all(FabricEvent), *_dead_on_the_bus(view)):
        node = job_node(event.node, view)
        if event.kind not in FATAL_KINDS or NOISE in event.line or (event.node and not node):
            continue
        hca, used = owners.of(event, node)
        unknown = hca is None and node not in owners.nodes and event.kind != "bus"
        if used or unknown:
            first.setdefault((node, hca or event.pci), _fatal(event, node, hca, used, view))
    shared = len({f.node for f in first.values() if f.role is Role.ROOT}) >= SHARED_NODES
    for finding in first.values():
        yield _share(finding) if shared and finding.role is Role.ROOT else finding


def _dead_on_the_bus(view: View) -> Iterator[FabricEvent]:
    """A fatal PCIe error of an HCA: the card has left the bus."""
    for error in view.all(PcieError):
        if error.severity == "fatal" and error.pci:
            yield FabricEvent(
                node=error.node, at=error.at, kind="bus", pci=error.pci, line=error.line
            )


def _fatal(
    event: FabricEvent, node: str | None, hca: str | None, used: bool, view: View
) -> Finding:
    where = phase_of(event.at, view)
    role, strength = _MOVES.get(where, (Role.ROOT, Strength.STRONG))
    if where is When.AFTERMATH:  # dead hardware is dead: the health poll may come late
        role = Role.ROOT
    elif where is When.CAUSE and used:
        strength = Strength.DECISIVE
    name = hca or event.pci or "an HCA"
    return Finding(
        node=node,
        subject=subject(hca or event.pci),
        role=role,
        strength=strength,
        at=event.at,
        says=f"{name}: the driver reports a dead firmware or card ({event.kind})",
        quote=event.line,
        source="kernel",
        spots=(Spot(node=node, hca=hca),),
        subtype="hca_fatal",
    )


def _share(finding: Finding) -> Finding:
    return replace(finding, shared=True, action="check_fabric")


@rule(
    "IB-ASYNC",
    family=Family.FABRIC,
    needs=(NcclAsyncEvent,),
    wants=(Look, Onset),
)
def ib_async(view: View) -> Iterator[Finding]:
    """NCCL reports an asynchronous event: the host that prints it is the one whose port moved."""
    events: dict[tuple[str | None, str | None, str], NcclAsyncEvent] = {}
    for event in view.all(NcclAsyncEvent):
        node = job_node(event.node, view)
        if event.kind in ("event", "fatal") and (node or event.node is None):
            events.setdefault((node, event.hca, event.event or event.kind), event)
    errors = {k: e for k, e in events.items() if _weighs(e)}
    nodes = {node for node, _, _ in errors if node}
    if len(nodes) >= SHARED_NODES:
        yield _everywhere(list(errors.items()), sorted(nodes), view)
    else:
        for (node, hca, _), event in errors.items():
            back = any((n, h) == (node, hca) and w.startswith("port active") for n, h, w in events)
            yield _async(event, node, back, view)
    for (node, hca, words), event in events.items():
        if not _weighs(event):
            yield note(
                Role.CONTEXT,
                f"NCCL reports: {words}",
                node=node,
                subject=subject(hca),
                source="job log",
                quote=event.line,
                at=event.at,
            )


def _weighs(event: NcclAsyncEvent) -> bool:
    words = (event.event or "").lower()
    return "port error" in words or _is_fatal(words)


def _is_fatal(words: str) -> bool:
    return "catastrophic" in words or "device_fatal" in words or "device fatal" in words


def _async(event: NcclAsyncEvent, node: str | None, back: bool, view: View) -> Finding:
    fatal = _is_fatal((event.event or "").lower())
    where = phase_of(event.at, view)
    role, strength = Role.ROOT, Strength.STRONG
    if where in (When.HISTORY, When.EARLIER, When.TEARDOWN):
        role, strength = _MOVES[where]
    elif back:
        strength = Strength.WEAK
    return Finding(
        node=node,
        subject=subject(event.hca, event.port),
        role=role,
        strength=strength,
        at=event.at,
        says=f"{event.hca or 'a port of this host'}: {event.event}" + ", active again" * back,
        quote=event.line,
        source="job log",
        spots=(Spot(node=node, hca=event.hca, rank=event.rank if node is None else None),),
        subtype="hca_fatal" if fatal else "port_error",
    )


def _everywhere(
    errors: list[tuple[tuple[str | None, str | None, str], NcclAsyncEvent]],
    nodes: list[str],
    view: View,
) -> Finding:
    """Many hosts at once: the switch or the subnet (NVIDIA's answer in NVIDIA/nccl issue 905)."""
    first = min((e.at for _, e in errors if e.at), default=None)
    role, strength = Role.ROOT, Strength.STRONG
    if phase_of(first, view) in (When.HISTORY, When.EARLIER, When.TEARDOWN):
        role, strength = _MOVES[phase_of(first, view)]
    return Finding(
        node=None,
        subject="ports",
        role=role,
        strength=strength,
        at=first,
        says=f"port errors on {len(nodes)} nodes ({several(nodes)}): switch or subnet",
        quote=errors[0][1].line,
        source="job log",
        spots=tuple(Spot(node=node, hca=hca) for (node, hca, _), _ in errors),
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )
