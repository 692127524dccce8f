"""MEM-GROWTH: host memory is nearly gone, or tasks stall for it."""

from collections.abc import Iterator
from statistics import median

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job, share
from sluggish.correlate.procs import deltas
from sluggish.facts.derived import Look
from sluggish.facts.host import CgroupMemory, HostMemory, Pressure, ProcessDelta, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

LOW_AVAILABLE = 0.03
"""Share of host memory: below this reclaim decides the pace (judgement; 60 GiB of 2 TiB)."""
STALLED_FULL = 10.0
"""avg10 of `full` memory pressure, per cent: all tasks stood still for a second of ten."""
AT_LIMIT = 0.98
"""Of a cgroup's limit. Page cache fills a cgroup too, so only together with pressure."""
SOON_S = 900.0
"""Growth that eats what is available within this long is worth a word."""


@rule(
    "MEM-GROWTH",
    family=Family.PROCESS,
    needs=(HostMemory, Pressure, CgroupMemory),
    wants=(RankProcess, Look),
)
def mem_growth(view: View) -> Iterator[Finding]:
    """Memory of a node is nearly used up, grows fast, or tasks stall for it."""
    look = view.one(Look)
    moved = deltas(view.all(RankProcess))
    nodes = dict.fromkeys(fact.node for fact in (*view.all(HostMemory), *view.all(Pressure)))
    for node in (n for n in nodes if in_job(n, look)):
        stalled = _stalled(view.all(Pressure), node)
        full = _host(view.all(HostMemory), node) or _cgroup(view.all(CgroupMemory), node, stalled)
        growth = _growth(view.all(HostMemory), moved, node)
        if full and stalled is not None and stalled >= STALLED_FULL:
            says = f"{full}; all tasks stalled for memory {stalled:.0f}% of the last 10 s"
            yield _finding(node, Strength.STRONG, says, moved)
        elif full or growth:
            yield _finding(node, Strength.WEAK, full or growth or "", moved)
        elif stalled is not None and stalled >= STALLED_FULL:
            says = f"all tasks stalled for memory {stalled:.0f}% of the last 10 s"
            yield _finding(node, Strength.WEAK, says, moved)


def _stalled(pressures: tuple[Pressure, ...], node: str | None) -> float | None:
    """The lowest of the samples: one spike is no stall."""
    found = [
        p.full_avg10
        for p in pressures
        if p.node == node and p.resource == "memory" and p.full_avg10 is not None
    ]
    return min(found, default=None)


def _host(samples: tuple[HostMemory, ...], node: str | None) -> str | None:
    mine = [m for m in samples if m.node == node and m.total_bytes]
    low = [
        m
        for m in mine
        if m.available_bytes is not None
        and m.total_bytes
        and m.available_bytes / m.total_bytes < LOW_AVAILABLE
        and not (m.swap_free_bytes and m.swap_free_bytes > m.total_bytes * LOW_AVAILABLE)
    ]
    if not low or len(low) < len(mine):
        return None
    last = low[-1]
    used = share((last.total_bytes or 0) - (last.available_bytes or 0), last.total_bytes or 0)
    return f"host memory {used} used"


def _cgroup(
    groups: tuple[CgroupMemory, ...], node: str | None, stalled: float | None
) -> str | None:
    if stalled is None or stalled < STALLED_FULL:
        return None
    for group in groups:
        limit, now = group.limit_bytes, group.current_bytes
        if group.node == node and limit and now and now >= AT_LIMIT * limit:
            return f"the job's memory cgroup is at its limit ({now >> 30} of {limit >> 30} GiB)"
    return None


def _growth(
    samples: tuple[HostMemory, ...], moved: tuple[ProcessDelta, ...], node: str | None
) -> str | None:
    """Sum of RSS growth of the job's processes against what is available."""
    mine = [d for d in moved if d.node == node and d.role != "other" and d.seconds]
    left = [m.available_bytes for m in samples if m.node == node and m.available_bytes is not None]
    if not mine or not left:
        return None
    rate = sum(max(0, d.rss_growth_bytes or 0) for d in mine) / median(d.seconds or 1 for d in mine)
    if rate <= 0 or left[-1] / rate > SOON_S:
        return None
    minutes = max(1, round(left[-1] / rate / 60))
    return f"RSS of the job grows {rate / 1e9:.1f} GB/s: memory is gone in {minutes} min"


def _finding(
    node: str | None, strength: Strength, says: str, moved: tuple[ProcessDelta, ...]
) -> Finding:
    mine = [d for d in moved if d.node == node and d.role == "rank" and d.rss_growth_bytes]
    worst = max(mine, key=lambda d: d.rss_growth_bytes or 0, default=None)
    grew = worst is not None and (worst.rss_growth_bytes or 0) > 1 << 30
    spot = Spot(node=node, rank=worst.rank if worst and grew else None,
                pid=worst.pid if worst and grew else None)  # fmt: skip
    return Finding(
        node=node,
        subject="host memory",
        role=Role.ROOT,
        strength=strength,
        says=says,
        source="memory",
        spots=(spot,),
        subtype="growth",
    )
