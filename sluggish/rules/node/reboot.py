"""NODE-REBOOT: a node of the job booted after the job had started."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job, on_nodes, split_seen
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import NodeIdentity, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import NodeState

SKEW = timedelta(seconds=60)
"""The boot is read on the node's clock, the job's start on the controller's."""
BOOT_TAKES = timedelta(minutes=30)
"""A node that died before the watchdog fired may be up again this long after it did."""


@rule(
    "NODE-REBOOT",
    family=Family.PROCESS,
    needs=(NodeIdentity, NodeState),
    wants=(RankProcess, Look, Onset),
)
def node_reboot(view: View) -> Iterator[Finding]:
    """A node booted after the job had started on it."""
    look = view.one(Look)
    started = look.job_started_at if look else None
    if started is None:
        return
    boots = {node: boot for node, boot in _boots(view).items() if in_job(node, look)}
    late = {node: boots[node] for node in booted_late(view) if node in boots}
    found = [_finding(node, *boot, view) for node, boot in late.items()]
    roots = [f for f in found if f.role is Role.ROOT]
    for finding in found:
        yield _shared(finding) if finding in roots and len(roots) > 1 else finding
    if boots and not late:
        seen, blind = split_seen(look, lambda node: node in boots)
        if seen:
            yield Finding(
                node=None,
                subject="job",
                role=Role.ALL_CLEAR,
                strength=Strength.STRONG,
                says=f"no reboot since job start {on_nodes(seen, blind)}",
                source="boot time",
            )


def booted_late(view: View) -> tuple[str, ...]:
    """Nodes whose last boot lies after the job's start."""
    look = view.one(Look)
    started = look.job_started_at if look else None
    if started is None:
        return ()
    boots = _boots(view).items()
    return tuple(node for node, (at, _) in boots if at > started + SKEW and in_job(node, look))


def _boots(view: View) -> dict[str, tuple[datetime, str]]:
    """Node -> last boot and who says so; the node's own uptime before Slurm's BootTime."""
    found: dict[str, tuple[datetime, str]] = {}
    for state in view.all(NodeState):
        if state.boot_at:
            found[state.node] = (state.boot_at, "scontrol")
    for identity in view.all(NodeIdentity):
        if identity.boot_at and identity.node:
            found[identity.node] = (identity.boot_at, "uptime")
    return found


def _finding(node: str, boot_at: datetime, source: str, view: View) -> Finding:
    role, strength, note = _part(node, boot_at, view)
    return Finding(
        node=node,
        subject="node",
        role=role,
        strength=strength,
        at=boot_at,
        says=f"the node booted after the job had started{note}",
        source=source,
        spots=(Spot(node=node, doing="rebooted"),),
        subtype="rebooted",
    )


def _part(node: str, boot_at: datetime, view: View) -> tuple[Role, Strength, str]:
    """A boot before the job's own processes is a node that was powered up for the job."""
    ranks = [p for p in view.all(RankProcess) if p.node == node and p.rank is not None]
    if ranks:
        return Role.CONTEXT, Strength.WEAK, ", but its ranks run since"
    onset = view.one(Onset)
    place = when(boot_at, view.one(Look), onset)
    if place is When.TEARDOWN and onset is not None:
        if onset.teardown_at and boot_at > onset.teardown_at + BOOT_TAKES:
            return Role.CONSEQUENCE, Strength.WEAK, ", long after the job's end"
        return Role.ROOT, Strength.WEAK, ", around the job's end"
    if place is When.EARLIER and not view.saw(RankProcess, node):
        return Role.ROOT, Strength.STRONG, ""
    return Role.ROOT, Strength.DECISIVE, ""


def _shared(finding: Finding) -> Finding:
    return replace(finding, shared=True)
