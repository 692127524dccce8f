"""SLOW-HOST and PROC-ODD: one host that is slower, one rank whose CPU time stands apart."""

from collections.abc import Iterator
from statistics import median

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job
from sluggish.correlate.procs import deltas, odd_cpu
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import KernelTrouble, Pressure, ProcessDelta, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

PRESSED = 40.0
"""avg10 of `some` CPU pressure, per cent, on a node that has too little CPU (judgement)."""
TIMES_MEDIAN = 3.0
"""So many times the other nodes' median; a shift of most nodes is a shared cause, not a node."""
LONGEST_LOOK_S = 60.0
"""Two samples of one look are taken within a minute."""
MOST_HOT = 4
"""More hot nodes than this are the room's trouble: nobody is named."""
HOG = 4.0
"""Cores that one process outside the job burns."""


@rule(
    "SLOW-HOST",
    family=Family.PROCESS,
    needs=(Pressure, RankProcess, KernelTrouble),
    wants=(Look, Onset),
)
def slow_host(view: View) -> Iterator[Finding]:
    """One node's tasks wait for CPU far more than the others', or its processor is too hot."""
    look = view.one(Look)
    yield from _hot(view, look)
    moved = deltas(view.all(RankProcess))
    waits = _cpu_waits(view.all(Pressure), look)
    if len(waits) < 2:
        return
    pressed = [n for n, share in waits.items() if _stands_out(n, share, waits)]
    if len(pressed) * 4 > len(waits) and len(pressed) > 1:
        return
    for node in pressed:
        hog = _hog(moved, node)
        yield Finding(
            node=node,
            subject="CPU",
            role=Role.ROOT,
            strength=Strength.STRONG if hog else Strength.WEAK,
            says=f"tasks waited for CPU {waits[node]:.0f}% of the last 10 s, "
            f"the other nodes' median is {_others(node, waits):.0f}%{hog}",
            source="pressure",
            spots=(Spot(node=node, doing="waits for CPU"),),
            subtype="slow_host",
        )


def _hot(view: View, look: Look | None) -> Iterator[Finding]:
    """`Core temperature above threshold, cpu clock throttled`: a hint, it passes by itself."""
    late = (When.HISTORY, When.EARLIER, When.TEARDOWN)
    lines = [
        t for t in view.all(KernelTrouble)
        if t.kind == "thermal" and in_job(t.node, look)
        and when(t.at, look, view.one(Onset)) not in late
    ]  # fmt: skip
    nodes = {t.node for t in lines}
    for node in nodes if len(nodes) <= MOST_HOT else ():
        mine = [t for t in lines if t.node == node]
        yield Finding(
            node=node,
            subject="CPU",
            role=Role.ROOT,
            strength=Strength.WEAK,
            at=mine[0].at,
            says="a processor was too hot and lowered its clock",
            quote=mine[0].line,
            source="kernel",
            spots=(Spot(node=node, doing="CPU throttled for heat"),),
            subtype="slow_host",
        )


def _cpu_waits(pressures: tuple[Pressure, ...], look: Look | None) -> dict[str, float]:
    """Node -> the lowest of its samples."""
    found: dict[str, float] = {}
    for one in pressures:
        if one.resource != "cpu" or one.some_avg10 is None or one.node is None:
            continue
        if in_job(one.node, look):
            found[one.node] = min(found.get(one.node, one.some_avg10), one.some_avg10)
    return found


def _others(node: str, waits: dict[str, float]) -> float:
    return median(share for name, share in waits.items() if name != node)


def _stands_out(node: str, share: float, waits: dict[str, float]) -> bool:
    return share >= PRESSED and share >= TIMES_MEDIAN * max(_others(node, waits), 1.0)


def _hog(moved: tuple[ProcessDelta, ...], node: str) -> str:
    mine = [d for d in moved if d.node == node and d.role == "other" and not d.job_id]
    worst = max(mine, key=_cores, default=None)
    if worst is None or _cores(worst) < HOG:
        return ""
    return f"; {worst.name} (pid {worst.pid}), not of the job, burns {_cores(worst):.1f} cores"


def _cores(delta: ProcessDelta) -> float:
    """At least so many, where the time between the samples is not told."""
    return delta.cpu_rate if delta.cpu_rate is not None else (delta.cpu_s or 0.0) / LONGEST_LOOK_S


@rule("PROC-ODD", family=Family.PROCESS, needs=(RankProcess,), wants=(Look,))
def proc_odd(view: View) -> Iterator[Finding]:
    """One rank's CPU time stands apart from that of all the others: a hint, never a cause."""
    moved = deltas(view.all(RankProcess))
    rates = [d.cpu_rate for d in moved if d.role == "rank" and d.cpu_rate is not None]
    for odd in odd_cpu(moved):
        where = f", waits in {odd.wchan}" if odd.wchan else ""
        yield Finding(
            node=odd.node,
            subject=f"rank {odd.rank}",
            role=Role.CONTEXT,
            strength=Strength.WEAK,
            says=f"rank {odd.rank} uses {odd.cpu_rate:.1f} cores, the median of "
            f"{len(rates)} ranks is {median(rates):.1f}{where}",
            source="processes",
            spots=(Spot(rank=odd.rank, node=odd.node, pid=odd.pid, doing="CPU time stands apart"),),
        )
