"""A subnet without its manager: not the fault of the ports that wait for it."""

from collections.abc import Container, Iterator

from sluggish.causes import Family
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricEvent, NcclHcas, Port
from sluggish.facts.fabric_side import SubnetManager
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    in_use,
    job_node,
    note,
    ports_and_used,
    several,
    spot,
)
from sluggish.text import counted


def of_subnet(starting: list[Port], view: View) -> bool:
    """Ports with a link and no subnet manager on several nodes: the subnet, not the ports.

    Where `sminfo` got no answer one port is enough: only a port that bounces needs the manager.
    """
    nodes = {p.node for p in starting if p.link_layer != "ethernet"}
    return len(nodes) >= SHARED_NODES or (bool(nodes) and silent(view, nodes) is not None)


def silent(view: View, waiting: Container[str | None] = ()) -> SubnetManager | None:
    """The `sminfo` that got no answer, where none got one.

    Asked on a node whose own port waits it tells nothing: that port may be why.
    """
    told = view.all(SubnetManager)
    if any(one.answers for one in told):
        return None
    elsewhere = [one for one in told if one.node is None or job_node(one.node, view) not in waiting]
    return next(iter(elsewhere), None)


@rule(
    "IB-SM",
    family=Family.FABRIC,
    needs=(Port, SubnetManager),
    wants=(NcclHcas, FabricEvent, Look, Onset),
)
def ib_sm(view: View) -> Iterator[Finding]:
    """Ports of several nodes have a link but no subnet manager has brought them up."""
    ports, mine = ports_and_used(view)
    starting = [
        p
        for p in in_use(ports, mine)
        if p.state in ("initializing", "armed") and p.link_layer != "ethernet"
    ]
    joins = [e for e in view.all(FabricEvent) if "multicast join failed" in e.line]
    yield from _asked(view, bool(starting))
    if not of_subnet(starting, view):
        return
    quiet = silent(view, {p.node for p in starting})
    nodes = tuple(dict.fromkeys(p.node for p in starting))
    zero = sum(p.sm_lid == 0 for p in starting)
    told = f", {zero} of {len(starting)} with SM lid 0" if zero else ""
    sweep = all(p.state == "armed" for p in starting)
    sure = mine.listed and len(nodes) >= SHARED_NODES
    strength = Strength.DECISIVE if sure else Strength.STRONG
    yield Finding(
        node=None,
        subject="subnet manager",
        role=Role.ROOT,
        strength=Strength.WEAK if sweep else strength,
        says=(
            f"{counted(len(starting), 'port', 'ports')} on {counted(len(nodes), 'node', 'nodes')} "
            f"({several(nodes)}) {'is' if len(starting) == 1 else 'are'} "
            f"{starting[0].state.capitalize()} with the link up{told}: "
            + (
                "the subnet manager sweeps; trouble only if they stay so"
                if sweep
                else "no subnet manager; ports that never bounced stay Active without one"
            )
        ),
        quote=quiet.line if quiet else joins[0].line if joins else "",
        source=starting[0].source,
        # a single place would be taken for the culprit, and it only waits
        spots=tuple(spot(p) for p in starting) if len(nodes) >= SHARED_NODES else (),
        subtype="subnet_manager",
        shared=True,
        action="check_fabric",
    )


def _asked(view: View, starting: bool) -> Iterator[Finding]:
    """What `sminfo` was told; of no known time, so it accuses nobody by itself."""
    quiet = silent(view)
    if quiet is not None:
        rest = "" if starting else ": ports that are Active stay so without one"
        where = f" on {quiet.node}" if quiet.node else ""
        says = f"sminfo got no answer{where}: no subnet manager at that moment{rest}"
        yield note(Role.CONTEXT, says, subject="subnet manager", source="report", quote=quiet.line)
    for told in view.all(SubnetManager):
        if told.answers and (starting or told.state != "MASTER"):
            says = f"sminfo: the subnet manager of LID {told.lid} answers as {told.state}"
            more = " and has not brought up these ports" if starting else ", no MASTER"
            yield note(Role.CONTEXT, f"{says}{more}", subject="subnet manager", source="report",
                       quote=told.line)  # fmt: skip
            return
