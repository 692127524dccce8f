"""The drain gate: a healthy node named for draining is the worst error but one."""

from sluggish.causes import Cause, Level
from sluggish.findings import Finding, Role, Strength
from sluggish.text import is_node_name
from sluggish.verdict.case import Case, agrees, same_node

DRAINS = {
    "GPU-XID",
    "GPU-LOST",
    "GPU-SXID",
    "GPU-MISSING",
    "GPU-ECC",
    "GPU-REMAP",
    "GPU-RECOVERY",
    "IB-PORT",
    "IB-FATAL",
}
"""Rules that read the hardware itself; a vote of peers, a flap, a shape drains nothing.

A port error that NCCL prints may be the switch's: without the port's own state it drains nothing.
"""
NO_DRAIN_ACTIONS = {"none", "restart_app", "check_fabric"}
"""Catalogue actions that end with the job: contained ECC wants a restart, not a drain."""
GRAPHLESS = (None, "none", "unobserved")


def drain_nodes(
    cause: Cause, level: Level | None, chosen: tuple[Finding, ...], case: Case
) -> tuple[str, ...]:
    """Nodes with root hardware evidence in the window, at high confidence, agreeing with the graph.

    Empty for every other cause, for a shared fault, and for a node outside the job.
    """
    if cause not in (Cause.GPU_FAULT, Cause.IB_FAULT) or level is not Level.HIGH:
        return ()
    if any(finding.shared for finding in chosen):
        return ()
    nodes = [
        spot.node
        for finding in chosen
        if _convicts(finding, case)
        for spot in finding.spots
        if spot.node and is_node_name(spot.node) and _of_job(spot.node, case)
    ]
    return tuple(dict.fromkeys(nodes))


def _convicts(finding: Finding, case: Case) -> bool:
    if finding.rule not in DRAINS or finding.role is not Role.ROOT:
        return False
    if finding.strength is Strength.WEAK or finding.action in NO_DRAIN_ACTIONS:
        return False
    if agrees(finding, case):
        return True
    return case.wait is None or case.wait.state in GRAPHLESS


def _of_job(node: str, case: Case) -> bool:
    return any(same_node(node, other) for other in case.look.nodes)
