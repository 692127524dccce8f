"""SIGKILL from outside with nothing that says who sent it: a weak sign of the OOM killer."""

from collections.abc import Iterator

from sluggish.correlate.jobsense import in_job
from sluggish.correlate.logorder import before_timeouts, key
from sluggish.correlate.window import When, when
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import OomKill
from sluggish.facts.log import LogSign, LogSpan, ProcessExit, SlurmMessage
from sluggish.findings import Finding, Role, Spot, Strength, View

KILL = 9
MANY = 3
"""So many killed with SIGKILL together are a step being torn down."""
WORKER_KILLED = "killed by signal: Killed"
"""PyTorch's words for a loader worker that got SIGKILL."""
ENDED_BY = ("cancelled", "time_limit", "node_failure", "preempted", "step_aborted", "requeued")


def by_unknown(view: View) -> Iterator[Finding]:
    """One process, or one loader worker, killed before anything else was wrong.

    The kernel's OOM killer is the usual sender of a SIGKILL that nobody asked for; its own record
    is in the kernel log alone, and where that was read without one it was not the sender.
    """
    if any(m.kind in (*ENDED_BY, "oom") for m in view.all(SlurmMessage)) or view.all(OomKill):
        return
    ends = [e for e in view.all(ProcessExit) if e.signal == KILL and not e.oom]
    if len({(e.node, e.rank, e.local_rank, e.task, e.pid) for e in ends}) >= MANY:
        return
    workers = [s for s in view.all(LogSign)
               if s.kind == "worker_killed" and WORKER_KILLED in s.line]  # fmt: skip
    told = sorted((*ends, *workers), key=key)
    for event in told[:1]:
        if _stands(view, event):
            yield _finding(event)


def _stands(view: View, event: ProcessExit | LogSign) -> bool:
    look = view.one(Look)
    if not in_job(event.node, look) or (event.node and view.saw(OomKill, event.node)):
        return False
    if event.node is None and view.saw(OomKill, None):
        return False
    if when(event.at, look, view.one(Onset)) in (When.HISTORY, When.AFTERMATH, When.TEARDOWN):
        return False
    return before_timeouts(event, view.all(WatchdogTimeout), view.all(LogSpan)) is not False


def _finding(event: ProcessExit | LogSign) -> Finding:
    worker = isinstance(event, LogSign)
    pid = None if worker else event.pid
    who = "a loader worker" if worker else f"rank {event.rank}" if event.rank is not None else (
        f"pid {pid}" if pid else "a process")  # fmt: skip
    accused = event.rank is not None or event.node is not None
    return Finding(
        node=event.node,
        subject=who,
        role=Role.ROOT,
        strength=Strength.WEAK,
        at=event.at,
        says=f"{who} got SIGKILL and nothing tells from whom: most often it is the OOM killer, "
        "whose record is in the kernel log only",
        quote=event.line,
        source="job log",
        spots=(Spot(rank=event.rank, node=event.node, pid=pid, doing="killed with SIGKILL"),)
        if accused
        else (),
    )
