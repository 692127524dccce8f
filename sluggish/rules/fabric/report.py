"""What a mailed report of the fabric's own tools says of the job's nodes and of the switches."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.fabric_ends import Ends
from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclHcas, Port, PortCounters
from sluggish.facts.fabric_side import (
    FabricLink,
    FabricMember,
    FabricReport,
    FabricSummary,
    PortQuery,
    PortTotals,
    SubnetManager,
)
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import SHARED_NODES, note, several
from sluggish.rules.fabric.sides import Sign, shared_says, signs

SHOWN_SWITCHES = 3


@rule(
    "IB-REPORT",
    family=Family.FABRIC,
    needs=(FabricReport, FabricSummary, FabricLink, FabricMember, PortTotals, PortQuery),
    wants=(Port, PortCounters, NcclHcas, SubnetManager, Look),
)
def ib_report(view: View) -> Iterator[Finding]:
    """A report of the fabric's tools or of UFM names a port of the job's nodes, or a switch."""
    whose = Ends(view.one(Look))
    mine: dict[str, list[FabricReport]] = defaultdict(list)
    beside: list[FabricReport] = []
    for report in view.all(FabricReport):
        nodes = {whose.of(end)[0] for end in report.ends} - {None}
        for node in nodes:
            mine[node or ""].append(report)
        if not nodes:
            beside.append(report)
    shared = len(mine) >= SHARED_NODES
    if shared:
        yield _all_of(mine)
    else:
        yield from (_of_node(node, reports) for node, reports in mine.items())
    if beside:
        ends = [" - ".join(r.ends) for r in beside]
        more = f" and {len(ends) - SHOWN_SWITCHES} more" if len(ends) > SHOWN_SWITCHES else ""
        told = f"{', '.join(ends[:SHOWN_SWITCHES])}{more}"
        says = f"the fabric's report names ports of no node of the job: {told} ({beside[0].says})"
        yield note(Role.CONTEXT, says, subject="switches", source="report", quote=beside[0].line)
    for summary in view.all(FabricSummary):
        bad = [f"{name} {errors}" for name, _, errors in summary.stages if errors]
        clean = f"no error in {len(summary.stages)} stages, at an unknown time"
        if summary.tool == "ibqueryerrors":
            clean = (
                f"{summary.stages[0][0]} checked, none beyond its thresholds, at an unknown time"
            )
            bad = [f"{summary.stages[0][2]} of {summary.stages[0][0]}"] if bad else []
        says = f"{summary.tool}'s summary: {'errors in ' + ', '.join(bad[:4]) if bad else clean}"
        yield note(Role.CONTEXT, says, subject="switches", source="report")
    told_signs, rest = signs(view)
    yield from _of_signs(told_signs)
    yield from rest


def _of_signs(found: list[Sign]) -> Iterator[Finding]:
    """Weak, as all of a report; the same kind on two nodes is of what they share."""
    kinds: dict[str, list[Sign]] = defaultdict(list)
    for sign in found:
        kinds[sign.kind].append(sign)
    for group in kinds.values():
        several_nodes = len({s.node for s in group}) >= SHARED_NODES
        # a port that waits for a manager which does not answer is no fault of its node
        unmanaged = all(s.subtype == "subnet_manager" for s in group)
        shared = several_nodes or unmanaged
        for one in group[:1] if shared else group:
            where = f" (so are {shared_says(group)})" if several_nodes else ""
            yield Finding(
                node=None if shared else one.node,
                subject=one.rail or "port",
                role=Role.ROOT,
                strength=Strength.WEAK,
                says=f"{one.says}{where}",
                quote=one.line,
                source="report",
                spots=()
                if unmanaged
                else tuple(Spot(node=s.node, hca=s.hca) for s in group if shared or s is one),
                subtype=one.subtype if unmanaged or not shared else "shared_fabric",
                shared=shared,
                action="check_fabric",
            )


def _of_node(node: str, reports: list[FabricReport]) -> Finding:
    """Weak: the report does not tell when, so it may be of before the job or after its end."""
    more = f", and {len(reports) - 1} more" if len(reports) > 1 else ""
    return Finding(
        node=node,
        subject="port",
        role=Role.ROOT,
        strength=Strength.WEAK,
        says=f"the fabric's report names {' - '.join(reports[0].ends)}: {reports[0].says}{more}",
        quote=reports[0].line,
        source="report",
        spots=(Spot(node=node),),
        subtype="port_error",
        action="check_fabric",
    )


def _all_of(mine: dict[str, list[FabricReport]]) -> Finding:
    nodes = sorted(mine)
    first = mine[nodes[0]][0]
    return Finding(
        node=None,
        subject="ports",
        role=Role.ROOT,
        strength=Strength.WEAK,
        says=f"the fabric's report names ports of {len(nodes)} nodes ({several(nodes)}): "
        f"{first.says}",
        quote=first.line,
        source="report",
        spots=tuple(Spot(node=node) for node in nodes),
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )
