"""What is out, worded by what was really covered: one hole on one node and it is not out."""

import re

from sluggish.causes import Cause
from sluggish.facts.log import LogSpan
from sluggish.findings import Finding, Role
from sluggish.verdict.case import Case
from sluggish.verdict.coverage import holes
from sluggish.verdict.model import RuledOut
from sluggish.verdict.tree import Kind, Question

_SPAN = re.compile(
    r"(?: on \d+ GPUs)? on \d+ nodes?\b(?=[;,]|$)|; switches not checked$|"
    r" \(switches: not checked\)"
)
"""What the coverage of the entry says once for all of its parts."""


def ruled_out(
    tree: tuple[Question, ...], chosen: Question | None, case: Case
) -> tuple[RuledOut, ...]:
    """One entry a cause that was looked for on every node of the job and not found."""
    out: list[RuledOut] = []
    for question in tree:
        if question is chosen or question.kind in (Kind.OPEN, Kind.MOVING):
            continue
        if chosen is not None and question.cause is chosen.cause:
            continue
        entry = _entry(question, case)
        if entry and not any(old.cause is entry.cause for old in out):
            out.append(entry)
    return tuple(out)


def _entry(question: Question, case: Case) -> RuledOut | None:
    if any(f.rule in question.listens and f.role is Role.ROOT for f in case.findings):
        return None
    if question.id in ("mismatch", "missing"):
        return _desync(case) if question.id == "mismatch" else None
    if not question.must or question.id == "cuda_memory" or holes(question, case):
        return None
    if question.id == "fabric" and case.wait and case.wait.state == "all_joined":
        return None  # everybody joined and nobody finished: what this looks like is the fabric
    if question.id == "crash" and not _log_is_whole(case):
        return None
    says = [_SPAN.sub("", f.says) for f in _all_clear(question, case)]
    if question.cause is Cause.NOT_RUNNING and not says:
        return None  # a job that Slurm ends or has ended is not one that runs
    why = "; ".join(dict.fromkeys(says)) or _plain(question)
    nodes = len(case.look.nodes)
    coverage = f"{nodes} of {nodes} nodes"
    if question.id == "fabric":
        coverage += "; switches not checked"
    return RuledOut(cause=question.cause, why=why, coverage=coverage)


def _log_is_whole(case: Case) -> bool:
    spans = case.facts.all(LogSpan)
    return bool(spans)


def _all_clear(question: Question, case: Case) -> list[Finding]:
    return [f for f in case.findings if f.rule in question.listens and f.role is Role.ALL_CLEAR]


def _plain(question: Question) -> str:
    return {
        Cause.NODE_DOWN: "no node is down, silent to Slurm or was booted since the job started",
        Cause.GPU_FAULT: "no fatal Xid, all GPUs answer",
        Cause.IB_FAULT: "all host ports in use are Active",
        Cause.MEMORY: "no oom-kill in the job's time",
        Cause.DATA_STALL: "no process in state D, all mounts answer",
        Cause.APP_CRASH: "no exception before the first timeout, no rank ended",
    }.get(question.cause, f"no sign of {question.cause}")


def _desync(case: Case) -> RuledOut | None:
    """Out only where every rank was seen and all posted the same operation and sizes."""
    wait = case.wait
    if wait is None or wait.unobserved or not wait.observed:
        return None
    if case.look.world_size is not None and wait.observed < case.look.world_size:
        return None
    if wait.state == "all_joined":
        why = f"all {wait.observed} ranks posted the same operation and sizes"
    elif wait.state == "none":
        why = "no rank waits in a collective"
    else:
        return None
    return RuledOut(cause=Cause.RANK_DESYNC, why=why, coverage=f"{wait.observed} ranks")
