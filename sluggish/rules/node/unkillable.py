"""NODE-UNKILLABLE: Slurm could not end a step: a process in state D holds the node."""

import re
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, in_job
from sluggish.correlate.procs import deltas
from sluggish.facts.derived import Look
from sluggish.facts.host import ProcessDelta, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import Job, NodeState, current

# slurmd drains a node for it: Reason=Kill task failed [root@2026-11-24T03:12:01]
REASON = re.compile(r"kill task failed|kill job failed|unkillable", re.IGNORECASE)


@rule(
    "NODE-UNKILLABLE",
    family=Family.SLURM,
    needs=(NodeState, Job),
    wants=(RankProcess, Look),
)
def node_unkillable(view: View) -> Iterator[Finding]:
    """Slurm could not end a step on a node: a consequence of what its processes hang on."""
    look = view.one(Look)
    stuck = [d for d in deltas(view.all(RankProcess)) if d.state == "D" and in_job(d.node, look)]
    states = [s for s in view.all(NodeState) if in_job(s.node, look) and _unkillable(s)]
    for state in states:
        yield _finding(
            (state.node,), f"Slurm drained it: {state.reason}", [d for d in stuck
             if d.node == state.node], state,
        )  # fmt: skip
    job = current(view.all(Job))
    held = [d for d in stuck if d.node not in {s.node for s in states}]
    if job is not None and job.state == "COMPLETING" and held:
        nodes = tuple(dict.fromkeys(d.node for d in held if d.node))
        yield _finding(nodes, "the job has ended and does not let go of its nodes", held, None)


def _unkillable(state: NodeState) -> bool:
    return bool(state.reason and REASON.search(state.reason))


def _finding(
    nodes: tuple[str, ...], says: str, stuck: list[ProcessDelta], state: NodeState | None
) -> Finding:
    places = list(dict.fromkeys(d.wchan for d in stuck if d.wchan))
    where = f" on {', '.join(places[:2])}" if places else ""
    if stuck:
        count = f"{len(stuck)} process{'es' if len(stuck) > 1 else ''}"
        says += f"; {count} in state D{where} cannot be killed"
    else:
        says += "; a process in state D (storage or GPU driver) is the usual reason"
    return Finding(
        node=nodes[0] if len(nodes) == 1 else None,
        subject="node",
        role=Role.CONSEQUENCE,
        strength=Strength.STRONG if stuck else Strength.WEAK,
        at=state.reason_at if state else None,
        says=says if len(nodes) < 2 else f"{folded(nodes)}: {says}",
        source="scontrol" if state else "processes",
        spots=tuple(Spot(node=d.node, rank=d.rank, pid=d.pid) for d in stuck)
        or tuple(Spot(node=node) for node in nodes),
    )
