"""NODE-CLOCK: how far the clocks of the nodes stand apart, and what their times are worth then."""

from collections.abc import Iterator
from statistics import median

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job
from sluggish.facts.derived import ClockOffset, Look
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold

APART_S = 1.0
"""chrony steps a clock that is off by more (`makestep 1.0 3`, as distributions ship it)."""
MUNGE_S = 300.0
"""munge refuses a credential older or younger than this (munged(8), default time to live)."""
ENOUGH = 3
"""From so many nodes on their median tells whether a node is off, or who looked at them."""
MOST = 4


@rule("NODE-CLOCK", family=Family.PROCESS, needs=(ClockOffset,), wants=(Look,))
def node_clock(view: View) -> Iterator[Finding]:
    """A node's clock stands apart from the others': its times do not tell what came first."""
    look = view.one(Look)
    clocks = [c for c in view.all(ClockOffset) if in_job(c.node, look)]
    usual = median(c.offset_s for c in clocks) if len(clocks) >= ENOUGH else 0.0
    far = [c for c in clocks if abs(c.offset_s - usual) > APART_S + c.error_s]
    for clock in far[:MOST]:
        yield _context(_says(clock.offset_s - usual, clock.error_s, len(clocks)), clock.node)
    if len(far) > MOST:
        more = fold(sorted(c.node for c in far[MOST:]))
        yield _context(f"clocks of {len(far) - MOST} more nodes stand apart: {more}")
    if abs(usual) > APART_S:
        where = "ahead of" if usual > 0 else "behind"
        yield _context(f"the nodes' clocks are {abs(usual):.0f} s {where} the clock of this look: "
                       "times are told in the latter")  # fmt: skip
    rough = sorted(c.node for c in clocks if c.error_s > APART_S and c not in far)
    if rough:
        worst = max(c.error_s for c in clocks if c.node in rough)
        yield _context(
            f"clocks known to {worst:.0f} s only on {fold(rough)}: what they wrote within that of "
            "one another is not put in order"
        )


def _says(offset: float, error: float, nodes: int) -> str:
    where = "ahead of" if offset > 0 else "behind"
    whose = "the other nodes'" if nodes >= ENOUGH else "the clock of this look"
    says = (
        f"clock {abs(offset):.1f} s {where} {whose} (± {max(error, 0.01):.2f} s): its times are "
        "moved by that; if it was set since, they are not comparable"
    )
    return f"{says}; munge refuses messages beyond 300 s" if abs(offset) > MUNGE_S else says


def _context(says: str, node: str | None = None) -> Finding:
    return Finding(
        node=node,
        subject="clock",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        says=says,
        source="clock",
        spots=(Spot(node=node),) if node else (),
    )
