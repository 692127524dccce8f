"""The wait-for answer from log lines alone: who reports waits, who is silent or odd is asked for.

Rules: the reporters are the waiters; equal numbers compare only within one named group; another
"last enqueued" at the same stuck operation is run-ahead, not a mismatch.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sluggish.facts.collective import (
    Fingerprint,
    Group,
    LaggingRanks,
    QueuePosition,
    Wait,
    WaitRoot,
    WatchdogTimeout,
)
from sluggish.facts.store import Facts

Sign = tuple[str, int | None, int | None]
LOGS = ("watchdog",)
LAGGING = {
    "never_joined": "never joined a collective",
    "not_joined": "did not join the collective",
    "not_finished": "joined and did not finish",
    "monitored_barrier": "did not reach the monitored barrier",
}


@dataclass(slots=True)
class Report:
    """What one rank's lines say of one group."""

    seq: int | None = None
    sign: Sign | None = None
    enqueued: int | None = None
    completed: int | None = None
    since: datetime | None = None


@dataclass(slots=True)
class Told:
    """A group as the log shows it. `name` is empty where lines do not tell the group."""

    name: str
    reports: dict[int, Report] = field(default_factory=dict)


def from_logs(facts: Facts, world_size: int | None, dead: dict[int, str]) -> Wait | None:
    """None where no line speaks of a hung collective."""
    reports = _by_group(facts.all(WatchdogTimeout), facts.all(QueuePosition))
    answers = (
        _of_fingerprints(facts.all(Fingerprint)),
        _of_lagging(facts.all(LaggingRanks)),
        *(_of_group(told, world_size, dead) for told in _in_order(reports)),
        _of_idle(facts.all(WatchdogTimeout), facts.all(QueuePosition)),
    )
    found = [a for a in answers if a is not None]
    order = ("mismatch", "host_stuck", "device_stuck", "tie", "all_joined", "unobserved")
    return min(found, key=lambda w: order.index(w.state), default=None)


def _of_idle(
    timeouts: Iterable[WatchdogTimeout], positions: Iterable[QueuePosition]
) -> Wait | None:
    """Others time out while everything that this rank enqueued is complete: it is elsewhere."""
    reports = list(timeouts)
    waiting = {r for t in reports if (r := _rank(t)) is not None}
    last: dict[int, QueuePosition] = {}
    for where in sorted(positions, key=lambda p: p.order):
        rank = _rank(where)
        if rank is not None:
            last[rank] = where
    busy = {r for r, p in last.items() if p.last_enqueued != p.last_completed} | waiting
    idle = sorted(set(last) - busy)
    if not reports or not idle or (len(idle) > 1 and len(idle) >= len(busy)):
        return None
    doing = "no collective: everything it enqueued is complete"
    return Wait(
        state="host_stuck",
        operation=next((t.op for t in reports if t.op), None),
        roots=tuple(WaitRoot(rank=r, doing=doing, waiters=len(busy)) for r in idle),
        waiters=tuple(sorted(busy)),
        observed=len(busy) + len(idle),
        sources=LOGS,
        since=min((t.at for t in reports if t.at), default=None),
        confidence_notes=("from log lines alone: the lines do not name the group",),
    )


def _in_order(reports: dict[str, Told]) -> list[Told]:
    return sorted(reports.values(), key=lambda told: (-len(told.reports), told.name))


def _rank(fact: WatchdogTimeout | QueuePosition) -> int | None:
    """Global rank; a rank within the default group is one too."""
    if fact.rank is not None:
        return fact.rank
    return fact.group_rank if fact.group in (None, "", "0", "default_pg") else None


def _by_group(
    timeouts: Iterable[WatchdogTimeout], positions: Iterable[QueuePosition]
) -> dict[str, Told]:
    reports: dict[str, Told] = {}
    for one in sorted(timeouts, key=lambda t: t.order):
        rank = _rank(one)
        if rank is None or one.op is None:
            continue
        told = reports.setdefault(one.group or "", Told(one.group or ""))
        report = told.reports.setdefault(rank, Report())
        if report.sign is None or (one.seq or 0) < (report.seq or 0):
            report.seq, report.sign = one.seq, (one.op, one.numel_in, one.numel_out)
            if one.at is not None and one.ran_ms is not None:
                report.since = one.at - timedelta(milliseconds=one.ran_ms)
    for where in sorted(positions, key=lambda p: p.order):
        rank = _rank(where)
        if rank is None:
            continue
        told = reports.setdefault(where.group or "", Told(where.group or ""))
        report = told.reports.setdefault(rank, Report())
        report.enqueued, report.completed = where.last_enqueued, where.last_completed
    return _joined(reports)


def _joined(reports: dict[str, Told]) -> dict[str, Told]:
    """Timeout lines often leave the group out that the position lines of the same rank name."""
    bare = reports.get("")
    if bare is None:
        return reports
    named = [told for name, told in reports.items() if name]
    for rank, report in list(bare.reports.items()):
        homes = [t for t in named if rank in t.reports and t.reports[rank].sign is None]
        fitting = [t for t in homes if report.seq is None or _fits(t.reports[rank], report.seq)]
        if len(fitting) == 1:
            home = fitting[0].reports[rank]
            home.seq, home.sign, home.since = report.seq, report.sign, report.since
            del bare.reports[rank]
    if not bare.reports:
        del reports[""]
    return reports


def _fits(report: Report, seq: int) -> bool:
    low = report.completed if report.completed is not None else -1
    return low < seq and (report.enqueued is None or seq <= report.enqueued)


def _of_group(told: Told, world_size: int | None, dead: dict[int, str]) -> Wait | None:
    waiting = {r: rep for r, rep in told.reports.items() if rep.sign is not None}
    if not waiting:
        return None
    seqs = {rep.seq for rep in waiting.values()}
    at = min((s for s in seqs if s is not None), default=None)
    here = {r: rep for r, rep in waiting.items() if rep.seq == at}
    signs: dict[Sign, list[int]] = defaultdict(list)
    for rank, rep in sorted(here.items()):
        signs[rep.sign or ("", None, None)].append(rank)
    group = Group(name=told.name, ranks=(), desc=told.name)
    base = _Base(group, at, tuple(sorted(waiting)), _since(waiting.values()), world_size)
    whole = told.name in ("", "0", "default_pg")
    silent = set(range(world_size)) - set(told.reports) if world_size and whole else set[int]()
    if len(signs) > 1:
        return _mismatch(base, signs, silent)
    text = _text(next(iter(signs)))
    behind = _behind(told, at)
    fallen = sorted(r for r in silent if r in dead)
    if told.name and behind:
        doing = "no collective: everything it enqueued is complete"
        return _stuck(base, text, behind, doing, silent)
    if fallen:
        roots = [(r, f"dead: {dead[r]}") for r in fallen]
        return base.wait("host_stuck", text, _roots(base, roots), tuple(sorted(silent)))
    if world_size and whole and len(here) == world_size and not silent:
        return base.wait("all_joined", text, (), ())
    found = base.wait("unobserved", text, (), tuple(sorted(silent)))
    return replace(found, sides=_places(waiting)) if len(here) < len(waiting) else found


def _places(waiting: dict[int, Report]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Operation and number with the ranks that wait there; told, never compared."""
    found: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank, rep in sorted(waiting.items()):
        if rep.sign is not None:
            found[rep.seq or 0, _text(rep.sign)].append(rank)
    return tuple((f"{text} #{seq}", tuple(ranks)) for (seq, text), ranks in sorted(found.items()))


def _behind(told: Told, at: int | None) -> list[int]:
    """Ranks whose queue is empty before the operation in which the others wait."""
    if at is None:
        return []
    return sorted(
        r
        for r, rep in told.reports.items()
        if rep.sign is None
        and rep.enqueued is not None
        and rep.enqueued == rep.completed
        and rep.enqueued < at
    )


@dataclass(frozen=True, slots=True)
class _Base:
    group: Group
    seq: int | None
    waiters: tuple[int, ...]
    since: datetime | None
    world_size: int | None

    def wait(
        self, state: str, text: str | None, roots: tuple[WaitRoot, ...], silent: tuple[int, ...]
    ) -> Wait:
        blamed = {r.rank for r in roots}
        notes = ["from log lines alone: reporters are the ranks that wait"]
        if silent:
            notes.append(f"{len(silent)} ranks printed nothing")
        return Wait(
            state=state,
            group=self.group if self.group.name else None,
            seq=self.seq,
            operation=text,
            roots=roots,
            waiters=tuple(r for r in self.waiters if r not in blamed),
            unobserved=tuple(r for r in silent if r not in blamed),
            observed=len(self.waiters),
            world_size=self.world_size,
            sources=LOGS,
            since=self.since,
            confidence_notes=tuple(notes),
        )


def _roots(base: _Base, who: list[tuple[int, str]]) -> tuple[WaitRoot, ...]:
    count = len([r for r in base.waiters if r not in {rank for rank, _ in who}])
    return tuple(
        WaitRoot(
            rank=rank,
            group=base.group if base.group.name else None,
            seq=base.seq,
            doing=doing,
            waiters=count,
        )
        for rank, doing in who
    )


def _stuck(base: _Base, text: str, ranks: list[int], doing: str, silent: set[int]) -> Wait:
    roots = _roots(base, [(r, doing) for r in ranks])
    return base.wait("host_stuck", text, roots, tuple(sorted(silent)))


def _mismatch(base: _Base, signs: dict[Sign, list[int]], silent: set[int]) -> Wait:
    """Another operation or size at one number of one group. Without a group's name: never sure."""
    ordered = sorted(signs.items(), key=lambda item: (-len(item[1]), item[1]))
    kind = "operation" if len({s[0] for s in signs}) > 1 else "sizes"
    sides = tuple((_text(sign), tuple(ranks)) for sign, ranks in ordered)
    first, second = ordered[0], ordered[1]
    clear = len(first[1]) > len(second[1]) + len(silent)
    notes = ["from log lines alone"]
    if not base.group.name:
        notes.append("the lines do not name the group: two groups may be compared")
    roots: tuple[WaitRoot, ...] = ()
    if clear:
        doing = "another collective" if kind == "operation" else "other sizes"
        roots = tuple(
            WaitRoot(
                rank=rank,
                group=base.group if base.group.name else None,
                seq=base.seq,
                operation=_text(sign),
                doing=doing,
                waiters=len(first[1]),
            )
            for sign, ranks in ordered[1:]
            for rank in ranks
        )
    blamed = {r.rank for r in roots}
    return Wait(
        state="mismatch" if clear else "tie",
        group=base.group if base.group.name else None,
        seq=base.seq,
        operation=_text(first[0]),
        mismatch=kind,
        roots=roots,
        waiters=tuple(r for r in base.waiters if r not in blamed),
        unobserved=tuple(sorted(silent)),
        observed=len(base.waiters),
        world_size=base.world_size,
        sources=LOGS,
        since=base.since,
        confidence_notes=tuple(notes),
        sides=sides,
    )


def _since(reports: Iterable[Report]) -> datetime | None:
    return min((r.since for r in reports if r.since is not None), default=None)


def _text(sign: Sign) -> str:
    op, numel_in, _ = sign
    return f"{op} [{numel_in}]" if numel_in is not None else op


def _of_fingerprints(lines: Iterable[Fingerprint]) -> Wait | None:
    """Each rank names its first different peer: N-1 name the odd one, the odd one names rank 0."""
    pairs: set[tuple[int, int, str, str, int | None, str]] = {
        (f.rank, f.other_rank, f.op or "", f.other_op or "", f.seq, f.aspects)
        for f in lines
        if f.rank is not None and f.other_rank is not None
    }
    if not pairs:
        return None
    runs: dict[int, str] = {}
    for rank, other, op, other_op, _, _ in sorted(pairs, key=str):
        runs.setdefault(rank, op)
        runs.setdefault(other, other_op)
    accused = Counter(other for _, other, *_ in pairs)
    aspects = " ".join(sorted({p[5] for p in pairs}))
    kind = "operation" if len(set(runs.values())) > 1 else "sizes"
    if kind == "sizes" and "dtype" in aspects.lower():
        kind = "dtypes"
    (odd, votes), *rest = accused.most_common()
    clear = votes > 1 and votes > (rest[0][1] if rest else 0)
    seqs = [p[4] for p in pairs if p[4] is not None]
    seq = min(seqs, default=None)
    by_op: dict[str, list[int]] = defaultdict(list)
    for rank, op in sorted(runs.items()):
        by_op[op].append(rank)
    sides = sorted(by_op.items(), key=lambda side: (-len(side[1]), side[1]))
    roots = (
        (
            WaitRoot(
                rank=odd,
                seq=seq,
                operation=runs[odd] or None,
                doing="another collective" if kind == "operation" else "other sizes",
                waiters=len(runs) - 1,
            ),
        )
        if clear
        else ()
    )
    return Wait(
        state="mismatch" if roots else "tie",
        seq=seq,
        operation=next((op for op, ranks in sides if odd not in ranks), sides[0][0]) or None,
        mismatch=kind,
        roots=roots,
        waiters=tuple(r for r in sorted(runs) if not roots or r != odd),
        observed=len(runs),
        sources=("fingerprint",),
        confidence_notes=("from fingerprint lines alone: a vote of the ranks that printed",),
        sides=tuple((op, tuple(ranks)) for op, ranks in sides),
    )


def _of_lagging(reports: Iterable[LaggingRanks]) -> Wait | None:
    """The desync report and the monitored barrier name who has not come."""
    late: dict[int, LaggingRanks] = {}
    for report in sorted(reports, key=lambda r: (r.kind, r.order)):
        for rank in report.ranks if report.kind in LAGGING else ():
            late.setdefault(rank, report)
    if not late:
        return None
    kinds = {r.kind for r in late.values()}
    state = "device_stuck" if kinds == {"not_finished"} else "host_stuck"
    roots = tuple(
        WaitRoot(rank=rank, seq=r.seq, operation=None, doing=LAGGING[r.kind])
        for rank, r in sorted(late.items())
        if not (r.kind == "not_finished" and kinds != {"not_finished"})
    )
    first = next(iter(late.values()))
    return Wait(
        state=state,
        seq=first.seq,
        operation=first.op,
        roots=roots,
        sources=("desync report",),
        confidence_notes=("from a desync or barrier report: it takes the lowest number as late",),
    )
