"""DATA-AUTH: nodes take the connection and then hang while they look the user up."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, in_job
from sluggish.facts.derived import Look
from sluggish.facts.host import NodeIdentity
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

HANGS = "auth hangs"
CROWD = 2
"""On one node it may be that node; on two it is what they share."""


@rule("DATA-AUTH", family=Family.DATA, needs=(NodeIdentity,), wants=(Look,))
def data_auth(view: View) -> Iterator[Finding]:
    """Login hangs after the connection on several nodes: home directories or accounts."""
    look = view.one(Look)
    gaps = [gap for gap in view.gaps(NodeIdentity) if gap.why.startswith(HANGS)]
    nodes = [n for n in dict.fromkeys(g.node for g in gaps) if n and in_job(n, look)]
    if not nodes:
        return
    many = len(nodes) >= CROWD
    yield Finding(
        node=nodes[0] if len(nodes) == 1 else None,
        subject="node",
        role=Role.ROOT if many else Role.CONTEXT,
        strength=Strength.WEAK,
        says=f"{folded(nodes)} take the connection and hang at login: the home directory or the "
        "account service does not answer",
        source="look",
        spots=tuple(Spot(node=node) for node in nodes) if not many else (),
        subtype="storage",
        shared=many,
    )
