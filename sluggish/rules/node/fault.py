"""NODE-FAULT: a panic, a kernel bug, a lockup or an error of processor or memory on a node."""

from collections.abc import Iterator
from dataclasses import replace

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import KernelTrouble
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

WORDS = {
    "panic": "the kernel panicked",
    "oops": "a bug of the kernel ended a task (oops)",
    "mce": "processor or memory reports an error that it could not correct",
    "soft_lockup": "a CPU was stuck in the kernel (soft lockup)",
    "hard_lockup": "a CPU was stuck with interrupts off (hard lockup)",
    "rcu_stall": "a CPU did not come out of the kernel in time (RCU stall)",
}
STOPS = ("panic", "oops", "mce", "hard_lockup")
"""These stop what ran there. A lockup of seconds passes, and a hung driver makes it too."""
AGAIN = 2
"""One soft lockup passes; the same one again 20 s later is a CPU that does not come back."""


@rule("NODE-FAULT", family=Family.KERNEL, needs=(KernelTrouble,), wants=(Look, Onset))
def node_fault(view: View) -> Iterator[Finding]:
    """The kernel of a node reports a panic, a bug, a lockup, or a fault of processor or memory."""
    look, onset = view.one(Look), view.one(Onset)
    groups: dict[tuple[str | None, str, When], list[KernelTrouble]] = {}
    for trouble in view.all(KernelTrouble):
        kind = "hard_lockup" if "hard LOCKUP" in trouble.line else trouble.kind
        if kind in WORDS and in_job(trouble.node, look):
            place = when(trouble.at, look, onset)
            groups.setdefault((trouble.node, kind, place), []).append(trouble)
    found = [_finding(node, kind, at, lines) for (node, kind, at), lines in groups.items()]
    shared = len({f.node for f in found if f.role is Role.ROOT}) > 1
    for finding in found:
        yield replace(finding, shared=shared and finding.role is Role.ROOT)


def _finding(node: str | None, kind: str, place: When, lines: list[KernelTrouble]) -> Finding:
    first = lines[0]
    role, strength = _weigh(kind, place, len(lines))
    count = f" ({len(lines)} times)" if len(lines) > 1 else ""
    old = "; before this job" if place is When.HISTORY else ""
    return Finding(
        node=node,
        subject="node",
        role=role,
        strength=strength,
        at=first.at,
        says=f"{WORDS[kind]}{count}{old}",
        quote=first.line,
        source="kernel",
        spots=(Spot(node=node, doing=WORDS[kind]),),
        subtype="host_fault",
    )


def _weigh(kind: str, place: When, count: int) -> tuple[Role, Strength]:
    if place is When.TEARDOWN:
        return Role.CONSEQUENCE, Strength.WEAK
    if place in (When.HISTORY, When.EARLIER):
        later = Role.HOUSEKEEPING if kind == "mce" else Role.CONTEXT
        return later, Strength.WEAK
    if place is When.UNKNOWN:  # also what firmware reports of the boot before
        return Role.ROOT, Strength.WEAK
    if kind in STOPS and place is When.CAUSE:
        return Role.ROOT, Strength.STRONG
    if kind in STOPS or count >= AGAIN:
        return Role.ROOT, Strength.STRONG if place is When.CAUSE else Strength.WEAK
    return Role.ROOT, Strength.WEAK
