"""What a mailed report of the fabric's own tools says of the job's nodes and of the switches."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.hcas import of_job
from sluggish.facts.derived import Look
from sluggish.facts.fabric import FabricReport, FabricSummary
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import SHARED_NODES, note, several

SHOWN_SWITCHES = 3


@rule("IB-REPORT", family=Family.FABRIC, needs=(FabricReport, FabricSummary), wants=(Look,))
def ib_report(view: View) -> Iterator[Finding]:
    """A report of ibdiagnet or UFM names a port of the job's nodes, or a switch port."""
    look = view.one(Look)
    known = look is not None and bool(look.nodes)
    mine: dict[str, list[FabricReport]] = defaultdict(list)
    beside: list[FabricReport] = []
    for report in view.all(FabricReport):
        nodes = {of_job(_host(end), look) for end in report.ends} - {None} if known else set()
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
        says = f"ibdiagnet's summary: {'errors in ' + ', '.join(bad[:4]) if bad else clean}"
        yield note(Role.CONTEXT, says, subject="switches", source="report")


def _host(end: str) -> str:
    """`r9i1n24/U1/P1`, `gpu-03 mlx5_0:1`, `gpu-03:1/2` as the host's name."""
    return end.split("/")[0].split(" ")[0].split(":")[0]


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
