"""What the records say together: runs of jobs, nodes that come back, hours lost. Pure."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sluggish.causes import Cause, Level
from sluggish.history.model import Entry

LAST = 10
"""Failed jobs of a node that are looked at: the same number for a busy node and for an idle one."""
REPEAT = 2
"""Convictions among them that make a node worth a line."""
Z = 1.96
"""For the order alone: lower end of the 95 % Wilson interval of convictions among failed jobs."""
NO_FAILURE = {
    (Cause.PROGRESSING, None),
    (Cause.NOT_RUNNING, "pending"),
    (Cause.NOT_RUNNING, "completed"),
    (Cause.NOT_RUNNING, "cancelled"),
    (Cause.NOT_RUNNING, "time_limit"),
    (Cause.NOT_RUNNING, "requeued"),
    (Cause.UNKNOWN, "no_evidence"),
}
"""Verdicts (None: with any subtype) that tell of no failure, or see nothing of it."""
MACHINE = {
    Cause.NODE_DOWN: ("node_fail", "rebooted", "not_responding", "host_fault"),
    Cause.GPU_FAULT: ("off_bus", "missing", "ecc", "row_remap", "nvlink", "nvswitch", "gsp", "xid",
                      "driver_stuck"),
    Cause.IB_FAULT: ("port_down", "port_error", "link_degraded", "hca_fatal"),
    Cause.STRAGGLER: ("slow_gpu", "slow_host", "slow_link"),
}  # fmt: skip
"""Verdicts that convict the node of their culprit. A rank that left the others, a full disk or a
wrong setting has a place as well, and the node there has done nothing."""
_LEVELS = (None, Level.LOW, Level.MEDIUM, Level.HIGH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a job with the verdict that counts for it, however often it was looked at."""

    job: str
    started: datetime | None
    verdict: Entry
    looks: tuple[int, ...]
    """Ids of its entries."""
    gpu_hours: float | None
    failed: bool
    """Asked once a node that took part: by the million in a large ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A node's record, beside the number of jobs it was in."""

    node: str
    jobs: int
    """Runs that were looked at while it took part."""
    failed: int
    """Of these, failed ones."""
    window: int
    """The last failed ones, at most `LAST`."""
    convicted: int
    """Of the window: runs whose fault was this node's."""
    named: int
    """Of the window: runs whose culprit stood here without the node being at fault."""
    verdicts: tuple[tuple[str, int], ...]
    """`cause/subtype` of the convictions with their number, most frequent first."""
    last: datetime | None
    """Look of the last conviction."""


def failed(entry: Entry) -> bool:
    """Whether the job stopped or was held back, for a known reason or not."""
    return not NO_FAILURE & {(entry.cause, entry.subtype), (entry.cause, None)}


def convicted(entry: Entry) -> frozenset[str]:
    """Nodes at fault: a fault of the machine, of this node alone, not below medium confidence."""
    known = MACHINE.get(Cause(entry.cause), ()) if entry.cause in list(Cause) else ()
    if entry.shared or entry.subtype not in known:
        return frozenset()
    if entry.confidence not in (Level.MEDIUM, Level.HIGH):
        return frozenset()
    return frozenset(culprit.node for culprit in entry.culprits if culprit.node)


def runs(entries: Iterable[Entry]) -> tuple[Run, ...]:
    """Runs in the order of their last looks.

    A job that was looked at five times failed once: of its looks those that saw a failure count
    before the others, the surest of them before the rest, the last of these.
    """
    looks: dict[tuple[str, datetime | None], list[Entry]] = {}
    latest: dict[str, tuple[str, datetime | None]] = {}
    for entry in sorted(entries, key=lambda e: e.id):
        key = (entry.job, entry.started)
        if entry.started is None:  # Slurm did not say which run it is: the one that was seen last
            key = latest.get(entry.job, key)
        elif (entry.job, None) in looks and latest[entry.job] == (entry.job, None):
            looks[key] = looks.pop((entry.job, None))
        latest[entry.job] = key
        looks.setdefault(key, []).append(entry)
    found = [_run(key, mine) for key, mine in looks.items()]
    return tuple(sorted(found, key=lambda run: run.looks[-1]))


def _run(key: tuple[str, datetime | None], looks: list[Entry]) -> Run:
    best = max(looks, key=lambda e: (failed(e), _sure(e), e.id))
    lost = [look.gpu_hours for look in looks if look.gpu_hours is not None and failed(look)]
    return Run(
        job=key[0],
        started=key[1],
        verdict=best,
        looks=tuple(look.id for look in looks),
        gpu_hours=max(lost, default=None) if failed(best) else None,
        failed=failed(best),
    )


def _sure(entry: Entry) -> int:
    return _LEVELS.index(Level(entry.confidence)) if entry.confidence in list(Level) else 0


def record(node: str, took_part: Sequence[Run]) -> Record:
    """The record of a node out of the runs in which it took part, in order."""
    bad = [run for run in took_part if run.failed]
    window = bad[-LAST:]
    guilty = [run for run in window if node in convicted(run.verdict)]
    named = [run for run in window if any(c.node == node for c in run.verdict.culprits)]
    verdicts = Counter(verdict_of(run.verdict) for run in guilty)
    return Record(
        node=node,
        jobs=len(took_part),
        failed=len(bad),
        window=len(window),
        convicted=len(guilty),
        named=len(named) - len(guilty),
        verdicts=tuple(verdicts.most_common()),
        last=guilty[-1].verdict.at if guilty else None,
    )


def records(all_runs: Sequence[Run], parts: Mapping[str, Iterable[int]]) -> tuple[Record, ...]:
    """Every node's record, the worst first."""
    found: list[Record] = []
    by_look = {look: number for number, run in enumerate(all_runs) for look in run.looks}
    for node, looks in parts.items():
        mine = sorted({number for number in map(by_look.get, looks) if number is not None})
        found.append(record(node, [all_runs[number] for number in mine]))
    return tuple(sorted(found, key=lambda r: (-_at_least(r.convicted, r.window), r.node)))


def offenders(found: Iterable[Record]) -> tuple[Record, ...]:
    """Nodes that come back."""
    return tuple(one for one in found if one.convicted >= REPEAT)


def _at_least(hits: int, of: int) -> float:
    """The share that so few cases prove: 3 of 3 stand before 4 of 10, 9 of 10 before 2 of 2."""
    if not hits:
        return 0.0
    share = hits / of
    middle = share + Z * Z / (2 * of)
    spread = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    return (middle - spread) / (1 + Z * Z / of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What one cause cost."""

    cause: str
    jobs: int
    gpu_hours: float
    unknown: int
    """Jobs of these whose loss is not known: no onset was seen."""


def losses(all_runs: Iterable[Run]) -> tuple[Loss, ...]:
    """GPU-hours by cause, each run once, the dearest first."""
    by_cause: dict[str, list[Run]] = {}
    for run in all_runs:
        if run.failed:
            by_cause.setdefault(run.verdict.cause, []).append(run)
    found = [
        Loss(
            cause=cause,
            jobs=len(mine),
            gpu_hours=round(sum(run.gpu_hours or 0.0 for run in mine), 2),
            unknown=sum(run.gpu_hours is None for run in mine),
        )
        for cause, mine in by_cause.items()
    ]
    return tuple(sorted(found, key=lambda loss: (-loss.gpu_hours, -loss.jobs, loss.cause)))


def verdict_of(entry: Entry) -> str:
    """`gpu_fault/ecc`."""
    return entry.cause + (f"/{entry.subtype}" if entry.subtype else "")


def context(node: str, earlier: Iterable[Entry], job: str, started: datetime | None) -> str | None:
    """A node's record before this run as one line; None where it was never convicted."""
    found = record(node, [run for run in runs(earlier) if not _same(run, job, started)])
    if not found.convicted:
        return None
    what = ", ".join(f"{name} {count}" for name, count in found.verdicts)
    return f"{node}: {share(found)} ({what})"


def share(found: Record) -> str:
    """`convicted in 3 of the last 10 failed jobs it was in`."""
    if not found.window:
        return "in no failed job"
    last = "the last " if found.failed > found.window else ""
    jobs = "job" if found.window == 1 else "jobs"
    return f"convicted in {found.convicted} of {last}{found.window} failed {jobs} it was in"


def _same(run: Run, job: str, started: datetime | None) -> bool:
    """Whether this may be the run that is looked at now."""
    return run.job == job and (started is None or run.started in (None, started))
