"""NODE-DOWN and NODE-SILENT: a node that Slurm has lost, and one that did not answer us."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, in_job, on_nodes, split_seen
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.gpu import Gpu
from sluggish.facts.host import HostMemory, KernelSpan, NodeIdentity, RankProcess
from sluggish.facts.log import EarlierFailure, SlurmMessage
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import WAITS, Job, NodeState, current, lost_run

NOTICED = timedelta(minutes=15)
"""A node that is set down this long after the first abort may have died before it."""
# srun: error: Node failure on gpu-08      ("JOB 7 ON gpu-07" names the batch host, not the dead)
_FAILED_NODE = re.compile(r"[Nn]ode failure on ([A-Za-z0-9][A-Za-z0-9._-]{0,250})")
# srun: error: Task launch for StepId=48213.0 failed on node gpu-07: Prolog failed
_LAUNCH = re.compile(r" failed on node [\w.-]{1,253}: (?P<why>.{1,80})")
_OF_THE_NODE = ("rolog failed", "connection failure", "timed out", "ero Bytes were transmitted")
"""Slurm's reasons that lie with the node or the way to it; others are of the request."""
ALIVE = ("RUNNING", "SUSPENDED", "COMPLETING")
ANSWERS = (NodeIdentity, RankProcess, HostMemory, KernelSpan, Gpu)
"""A node that gave any of these has answered."""
LIVES = ("refused", "auth denied", "auth hangs", "host key", "no shell")
"""How a node that we could not look into shows all the same that its kernel runs."""


@rule(
    "NODE-DOWN",
    family=Family.SLURM,
    needs=(NodeState, Job, SlurmMessage),
    wants=(Look, Onset, EarlierFailure, *ANSWERS),
)
def node_down(view: View) -> Iterator[Finding]:
    """Slurm has lost a node of the job: DOWN, not responding, NODE_FAIL."""
    look = view.one(Look)
    states = [s for s in view.all(NodeState) if in_job(s.node, look)]
    found = [f for s in states if (f := _of_state(s, view))]
    roots = [f for f in found if f.role is Role.ROOT]
    known = {f.node for f in roots}
    found += [f for f in _of_messages(view) if f.node not in known and (f.node or not roots)]
    found += [f for f in _of_launch(view) if f.node not in {g.node for g in found}]
    job = current(view.all(Job))
    if job and job.state == "NODE_FAIL" and not any(f.role is Role.ROOT for f in found):
        found.append(_of_job(job, view))
    shared = len({f.node for f in found if f.role is Role.ROOT and f.node}) > 1
    for finding in found:
        yield _with_shared(finding) if shared and finding.role is Role.ROOT else finding
    if states and not any(f.role is Role.ROOT for f in found):
        yield _all_clear(states, look)
    if job:
        yield from _of_runs(job, view)


def _of_state(state: NodeState, view: View) -> Finding | None:
    down = state.state == "DOWN"  # FAIL is a drain with another name
    mute = "NOT_RESPONDING" in state.flags
    if not down and not mute:
        return _drained(state)
    place = when(state.reason_at, view.one(Look), view.one(Onset))
    if place is When.TEARDOWN and mute and _soon_after(state, view.one(Onset)):
        place = When.AFTERMATH  # Slurm notices a death only after SlurmdTimeout
    answered = _answers(state.node, view)
    lives = any(
        gap.why.startswith(LIVES) for gap in view.gaps(NodeIdentity) if gap.node == state.node
    )
    role = Role.ROOT
    if place is When.TEARDOWN:
        role = Role.CONSEQUENCE
    elif place is When.HISTORY and not mute:
        role = Role.CONTEXT
    # `*` also stands for a second after every boot: it needs a second sign
    strength = Strength.DECISIVE if down and mute and not lives else Strength.STRONG
    if answered:
        strength = Strength.WEAK
    words = "+".join((state.state, *state.flags))
    says = f"Slurm says {words}" + (f": {state.reason}" if state.reason else "")
    return Finding(
        node=state.node,
        subject="node",
        role=role,
        strength=strength,
        at=state.reason_at,
        says=says
        + ("; but the node answered this look" if answered else "")
        + ("; but something answers at its SSH port" if lives and not answered else ""),
        source="scontrol",
        spots=(Spot(node=state.node, doing="lost to Slurm"),),
        subtype="not_responding" if mute and not down else "node_fail",
    )


def _answers(node: str, view: View) -> bool:
    return any(view.saw(kind, node) for kind in ANSWERS)


def _soon_after(state: NodeState, onset: Onset | None) -> bool:
    if onset is None or onset.teardown_at is None or state.reason_at is None:
        return False
    return state.reason_at <= onset.teardown_at + NOTICED


def _drained(state: NodeState) -> Finding | None:
    """Somebody has judged this node already: told, never a cause, never overwritten."""
    if not {"DRAIN", "FAIL"} & {state.state, *state.flags} and state.state != "DRAINED":
        return None
    by = f" by {state.reason_by}" if state.reason_by else ""
    return Finding(
        node=state.node,
        subject="node",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=state.reason_at,
        says=f"already draining{by}: {state.reason or 'no reason given'}",
        source="scontrol",
        spots=(Spot(node=state.node),),
    )


def _of_messages(view: View) -> Iterator[Finding]:
    """`DUE TO NODE FAILURE` in the job's log; only srun's line names the node that failed."""
    mine = [m for m in view.all(SlurmMessage) if m.kind == "node_failure"]
    job = current(view.all(Job))
    # what an earlier run left in its log accuses no node of the run that Slurm says is alive
    again = bool(job and job.state in ALIVE and (job.restarts or lost_run(view.all(Job), job)))
    named = {m[1].rstrip("."): one for one in mine if (m := _FAILED_NODE.search(one.line))}
    for node in [n for n in named if in_job(n, view.one(Look))] or [None]:
        message = named[node] if node else mine[0] if mine else None
        if message is None:
            return
        yield Finding(
            node=node,
            subject="node",
            role=Role.CONTEXT if again else Role.ROOT,
            strength=Strength.STRONG,
            at=message.at,
            says="Slurm ended the job for a node failure" + ", and started it again" * again,
            quote=message.line,
            source="job log",
            spots=(Spot(node=node),) if node else (),
            subtype="node_fail",
        )


def _of_launch(view: View) -> Iterator[Finding]:
    """srun could not start its tasks on a node; a prolog that fails is often a health check."""
    look = view.one(Look)
    told = {m.node: m for m in view.all(SlurmMessage) if m.kind == "launch_failed" and m.node}
    for node, message in told.items():
        found = _LAUNCH.search(message.line)
        why = found["why"] if found else ""
        if not in_job(node, look):
            continue
        weak = "rolog" not in why or _answers(node, view)
        yield Finding(
            node=node,
            subject="node",
            role=Role.ROOT if any(word in why for word in _OF_THE_NODE) else Role.CONTEXT,
            strength=Strength.WEAK if weak else Strength.STRONG,
            at=message.at,
            says=f"Slurm could not start the step on this node: {why}",
            quote=message.line,
            source="job log",
            spots=(Spot(node=node, doing="its step was not started"),),
            subtype="node_fail",
        )


def _of_job(job: Job, view: View) -> Finding:
    """Slurm's record names the node from 23.11 on (`FailedNode=`, src/slurmctld/job_mgr.c)."""
    node = job.failed_node if in_job(job.failed_node, view.one(Look)) else None
    answered = node is not None and _answers(node, view)
    which = f"for {node}" if node else "; which node it was stands in slurmctld's log or sinfo"
    return Finding(
        node=node,
        subject="node" if node else "job",
        role=Role.ROOT,
        strength=Strength.STRONG,
        at=job.ended_at,
        says=f"Slurm says NODE_FAIL{' ' * bool(node)}{which}"
        + ", which answers this look again" * answered,
        source=job.source or "Slurm",
        spots=(Spot(node=node, doing="lost to Slurm"),) if node else (),
        subtype="node_fail",
    )


def _of_runs(job: Job, view: View) -> Iterator[Finding]:
    """A job that Slurm started again, or will: which run was lost, where, and to which node."""
    jobs = view.all(Job)
    waits = next((j for j in jobs if j.state in WAITS and j.id == job.id), None)
    lost = lost_run(jobs, job)
    if lost is not None:
        where = f"the run before this one, on {folded(lost.nodes)}, ended NODE_FAIL"
        yield _context(lost, f"{where}{_at(lost)}: {_lost_to(lost, view)}")
    elif waits and waits is not job and job.state == "NODE_FAIL":
        why = f" ({waits.reason})" if waits.reason else ""
        says = f"this run, on {folded(job.nodes)}, ended{_at(job)}; it waits to be started again"
        yield _context(waits, says + why)


def _at(run: Job) -> str:
    return f" at {run.ended_at:%H:%M:%SZ}" if run.ended_at else ""


def _lost_to(run: Job, view: View) -> str:
    if run.failed_node in run.nodes:
        return f"{run.failed_node} failed"
    told = [fact.node for fact in view.all(EarlierFailure) if fact.node in run.nodes]
    if told:
        return f"{folded(told)} failed"
    bad = [
        f"{s.node} is {'+'.join((s.state, *s.flags))}"
        for s in view.all(NodeState)
        if s.node in run.nodes and (s.state == "DOWN" or "NOT_RESPONDING" in s.flags)
    ]
    return "; ".join(bad[:4]) or "which node it was stands in slurmctld's log"


def _context(run: Job, says: str) -> Finding:
    return Finding(
        node=None, subject="job", role=Role.CONTEXT, strength=Strength.WEAK, at=run.ended_at,
        says=says, source=run.source or "Slurm",
    )  # fmt: skip


def _with_shared(finding: Finding) -> Finding:
    return replace(finding, shared=True)


def _all_clear(states: list[NodeState], look: Look | None) -> Finding:
    names = {s.node for s in states}
    seen, blind = split_seen(look, lambda node: node in names)
    where = on_nodes(seen, blind) if seen else on_nodes([s.node for s in states], [])
    return Finding(
        node=None,
        subject="job",
        role=Role.ALL_CLEAR,
        strength=Strength.STRONG,
        says=f"no node is down or silent to Slurm {where}",
        source="scontrol",
    )


@rule("NODE-SILENT", family=Family.PROCESS, needs=(Look,), wants=ANSWERS)
def node_silent(view: View) -> Iterator[Finding]:
    """A node of the job did not answer the look: unknown, never a cause by itself."""
    look = view.one(Look)
    if look is None or look.loose:
        return
    silent = [n for n in look.nodes if not any(view.saw(kind, n) for kind in ANSWERS)]
    whys: dict[str, list[str]] = {}
    for node in silent:
        gaps = [gap.why for kind in ANSWERS for gap in view.gaps(kind) if gap.node == node]
        whys.setdefault(gaps[0] if gaps else "no evidence", []).append(node)
    for why, nodes in whys.items():
        yield Finding(
            node=nodes[0] if len(nodes) == 1 else None,
            subject="node",
            role=Role.CONTEXT,
            strength=Strength.WEAK,
            says=f"{folded(nodes)} did not answer this look ({why})",
            source="look",
            spots=tuple(Spot(node=node) for node in nodes),
        )
