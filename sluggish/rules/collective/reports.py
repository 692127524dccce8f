"""What the ranks' own watchdogs and NCCL's RAS report: who waits, who does not answer."""

from collections.abc import Iterator
from datetime import timedelta

from sluggish.causes import Family
from sluggish.facts.collective import RasCounts, RasRank, RasReport, Wait, WatchdogTimeout
from sluggish.facts.log import LogSign
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.collective.common import counted, ranks_words


@rule("SYNC-WATCHDOG", family=Family.COLLECTIVE, needs=(WatchdogTimeout, LogSign))
def sync_watchdog(view: View) -> Iterator[Finding]:
    """Ranks report that a collective timed out, or that their watchdog itself is stuck."""
    lines = view.all(WatchdogTimeout)
    stuck = [s for s in view.all(LogSign) if s.kind == "watchdog_stuck"]
    failed = [s for s in view.all(LogSign) if s.kind == "nccl_failed"]
    if stuck and not lines:
        yield _stuck_watchdogs(stuck)
    elif failed and not lines:
        yield _context(
            failed[0],
            "a collective failed or timed out; its record, WorkNCCL(...), is not in what was given",
        )
    if not lines:
        return
    first = min(lines, key=lambda w: (w.at is None, w.at.timestamp() if w.at else 0.0, w.order))
    known = {r for w in lines if (r := w.rank if w.rank is not None else w.group_rank) is not None}
    start = first.at - timedelta(milliseconds=first.ran_ms) if first.at and first.ran_ms else None
    number = f" #{first.seq}" if first.seq is not None else ""
    yield Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=start or first.at,
        says=f"{counted(len(known) or len(lines), 'report')} a timeout in "
        f"{first.op or 'a collective'}{number}: they waited",
        quote=first.line,
        source="job log",
        subtype="hang",
    )


def _stuck_watchdogs(stuck: list[LogSign]) -> Finding:
    """The heartbeat monitor speaks: no collective timed out, the watchdog thread does not run."""
    ranks = tuple(sorted({s.rank for s in stuck if s.rank is not None}))
    who = f" on {ranks_words(ranks)}" if ranks else ""
    return _context(
        stuck[0],
        f"the watchdog thread itself does not move{who}: a CUDA or NCCL call, or the GIL, holds "
        "it; no collective timed out",
    )


def _context(sign: LogSign, says: str) -> Finding:
    return Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        at=sign.at,
        says=says,
        quote=sign.line,
        source="job log",
        subtype="hang",
    )


@rule("SYNC-RAS", family=Family.COLLECTIVE, needs=(RasReport,), wants=(RasRank, RasCounts, Wait))
def sync_ras(view: View) -> Iterator[Finding]:
    """NCCL's RAS shows ranks at different counts, or processes that it has lost, at one look."""
    wait = view.one(Wait)
    if wait is not None and wait.roots:
        return  # the graph names them
    reports = view.all(RasReport)
    newest = max((r.sample for r in reports), default="")
    for told in [t for t in view.all(RasCounts) if t.sample == newest][:4]:
        yield _ras_context(_counts(told))
    lost = [(r.state, r) for r in view.all(RasRank)
            if r.sample == newest and r.state in ("missing", "unresponsive", "dead")]  # fmt: skip
    for state, rank in lost[:4]:
        where = f" on {rank.host}" if rank.host else ""
        pid = f" (pid {rank.pid}{where})" if rank.pid else where
        says = f"RAS: rank {rank.rank} of a communicator of {rank.size} is {state}{pid}"
        yield _ras_context(f"{says}: its process, or the way to it, is gone", rank)
    gone = {(r.host, r.pid) for _, r in lost}
    for report in reports:
        for host, pid in (*report.dead, *report.unresponsive)[:4]:
            if (host, pid) not in gone and report.sample == newest:
                yield _ras_context(f"RAS: pid {pid} on {host} does not answer")


def _counts(told: RasCounts) -> str:
    rows = ", ".join(
        f"{many} at #{number}" + (f" ({ranks_words(ranks)})" if ranks else "")
        for number, many, ranks in told.rows
    )
    return (
        f"RAS: {told.op or 'operation'} counts of a communicator differ: {rows}; the lowest count "
        "is the suspect if it stays there, a gap of one is normal in a running job"
    )


def _ras_context(says: str, rank: RasRank | None = None) -> Finding:
    return Finding(
        node=None,
        subject="RAS",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        says=says,
        source="RAS",
        spots=(Spot(pid=rank.pid, node=None),) if rank and rank.pid else (),
    )
