"""The wait-for answer from NCCL's RAS: launches by operation, per communicator.

RAS counts five operations and no send, recv or all-to-all. It lists the minority, which may be
the leaders: only the lowest count is suspect. Two answers apart in time must not have moved.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sluggish.facts.collective import Group, RasCounts, RasRank, RasReport, Wait, WaitRoot
from sluggish.facts.derived import Place
from sluggish.facts.store import Facts

Counts = dict[int, tuple[tuple[str, int], ...]]
BLIND = "RAS sees no send, recv or all-to-all"


def from_ras(facts: Facts, world_size: int | None) -> Wait | None:
    """None without a RAS answer. A RAS answer without a difference is never healthy."""
    reports = facts.all(RasReport)
    if not reports:
        return None
    notes = [BLIND]
    ranks = facts.all(RasRank)
    other = _other_job(ranks, reports, facts.all(Place), world_size)
    if other:
        return _wait("unobserved", None, (), (other,))
    samples = {r.sample for r in reports}
    if len(samples) < 2:
        notes.append("RAS was asked once: a gap of one operation is normal in a running job")
    if any(not r.complete for r in reports):
        notes.append("a RAS answer was cut short")
    texts = facts.all(RasCounts)
    moved = _moved(ranks, texts) if len(samples) > 1 else set[str]()
    if moved and moved >= {r.comm for r in ranks if r.counts} | {t.comm for t in texts}:
        return _wait("none", None, (), (*notes, "counts moved between two RAS answers"))
    if moved:
        notes.append(f"{len(moved)} communicators moved between two RAS answers: left out")
    comms = [(comm, rows) for comm, rows in _by_comm(ranks) if comm not in moved]
    found: list[Wait | None] = [_of_comm(comm, rows, notes) for comm, rows in comms]
    newest = max(samples)
    found += _texts([t for t in texts if t.sample == newest and t.comm not in moved], notes)
    to_global = _global_ranks(ranks, facts.all(Place), world_size)
    answers = [_placed(w, world_size, to_global) for w in found if w is not None]
    if answers:
        return min(answers, key=lambda w: (not w.roots, w.state != "mismatch"))
    return _wait("unobserved", None, (), tuple(notes), unobserved=_missing(ranks, world_size))


def _other_job(
    ranks: Iterable[RasRank],
    reports: Iterable[RasReport],
    places: Iterable[Place],
    world_size: int | None,
) -> str | None:
    """Two jobs on a node share the port: pids and sizes tell whose answer it is."""
    rows = list(ranks)
    ours = {p.pid for p in places if p.pid is not None}
    theirs = {r.pid for r in rows if r.pid is not None}
    if ours and len(theirs) > 1 and not ours & theirs:
        return "RAS answered for another job on a shared port (its pids are not this job's)"
    size = max([r.size for r in rows] + [r.processes or 0 for r in reports], default=0)
    if world_size is not None and size > world_size:
        return (
            f"RAS answered for another job on a shared port ({size} ranks, this job has "
            f"{world_size})"
        )
    return None


def _global_ranks(
    ranks: Iterable[RasRank], places: Iterable[Place], world_size: int | None
) -> dict[tuple[str, int], int]:
    """(communicator, rank in it) -> global rank, by host and pid where one process is one rank."""
    rows = list(ranks)
    by_process: dict[tuple[str | None, int], int] = {}
    for row in rows:
        if world_size is not None and row.size == world_size and row.pid is not None:
            by_process[row.host, row.pid] = row.rank
    by_pid: dict[int, set[int]] = defaultdict(set)
    for place in places:
        if place.pid is not None:
            by_pid[place.pid].add(place.rank)
    out: dict[tuple[str, int], int] = {}
    for row in rows:
        if row.pid is None:
            continue
        known = by_process.get((row.host, row.pid))
        if known is None and len(by_pid.get(row.pid, ())) == 1:
            known = next(iter(by_pid[row.pid]))
        if known is not None:
            out[row.comm, row.rank] = known
    return out


def _placed(wait: Wait, world_size: int | None, to_global: dict[tuple[str, int], int]) -> Wait:
    """A rank counts within its communicator: one that cannot be mapped is not named."""
    if wait.group is None or not wait.roots:
        return wait
    size = len(wait.group.ranks)
    if world_size is None or size == world_size:
        return wait
    comm = wait.group.name
    if not all((comm, r.rank) in to_global for r in wait.roots):
        told = f"ranks {[r.rank for r in wait.roots]} of communicator {comm} are not mapped"
        return replace(
            wait, state="unobserved", roots=(), confidence_notes=(*wait.confidence_notes, told)
        )
    roots = tuple(replace(r, rank=to_global[comm, r.rank]) for r in wait.roots)
    return replace(wait, roots=roots, world_size=world_size)


def _by_comm(ranks: Iterable[RasRank]) -> list[tuple[str, dict[int, RasRank]]]:
    """The newest answer of each communicator."""
    newest: dict[str, dict[int, RasRank]] = defaultdict(dict)
    for row in sorted(ranks, key=lambda r: (r.comm, r.sample, r.rank)):
        newest[row.comm][row.rank] = row
    return sorted(newest.items())


def _moved(ranks: Iterable[RasRank], texts: Iterable[RasCounts]) -> set[str]:
    """Communicators whose counts differ between two answers: their ranks are not stuck."""
    moved: set[str] = set()
    seen: dict[object, tuple[str, object]] = {}
    rows: list[tuple[tuple[object, ...], str, object]] = [
        ((r.comm, r.rank), r.sample, r.counts) for r in ranks if r.counts
    ]
    rows += [((t.comm, t.op, "text"), t.sample, t.rows) for t in texts]
    for key, sample, counts in sorted(rows, key=lambda row: row[1]):
        old = seen.get(key)
        if old is not None and old[0] != sample and old[1] != counts:
            moved.add(str(key[0]))
        seen[key] = (sample, counts)
    return moved


def _of_comm(comm: str, rows: dict[int, RasRank], notes: list[str]) -> Wait | None:
    counts: Counts = {r: row.counts for r, row in rows.items() if row.counts}
    away = tuple(sorted(r for r, row in rows.items() if not row.counts))
    if len(counts) < 2 or len(set(counts.values())) < 2:
        return None
    size = max(row.size for row in rows.values())
    group = Group(name=comm, ranks=tuple(range(size)))
    votes = Counter(counts.values())
    (usual, most), *rest = votes.most_common()
    totals = {r: sum(n for _, n in c) for r, c in counts.items()}
    top = max(totals.values())
    late = sorted(r for r, total in totals.items() if total < top)
    if late and 2 * len(late) < len(counts):
        roots = [_root(r, group, f"has launched {top - totals[r]} fewer", rows, top) for r in late]
        return _wait("host_stuck", group, tuple(roots), tuple(notes), unobserved=away)
    if late:
        more = (*notes, "most ranks are behind a few: RAS alone cannot say who is late")
        return _wait("unobserved", group, (), more, unobserved=away)
    if most > rest[0][1] + len(away):
        odd = sorted(r for r, c in counts.items() if c != usual)
        roots = [_root(r, group, _differs(counts[r], usual), rows, top) for r in odd]
        return _wait("mismatch", group, tuple(roots), tuple(notes), unobserved=away)
    return _wait("tie", group, (), tuple(notes), unobserved=away)


def _root(rank: int, group: Group, doing: str, rows: dict[int, RasRank], top: int) -> WaitRoot:
    waiters = sum(1 for row in rows.values() if row.counts and row.rank != rank)
    return WaitRoot(rank=rank, group=group, seq=top, doing=doing, waiters=waiters)


def _differs(own: tuple[tuple[str, int], ...], usual: tuple[tuple[str, int], ...]) -> str:
    other = dict(usual)
    parts = [f"{op} {n - other.get(op, 0):+d}" for op, n in own if n != other.get(op, 0)]
    return "another collective: " + ", ".join(parts)


def _texts(rows: Iterable[RasCounts], notes: list[str]) -> Iterator[Wait]:
    """The text lists outliers only, one table an operation: put the tables of a communicator
    together. The late are named where they are the ones listed, else nobody is."""
    by_comm: dict[str, list[RasCounts]] = defaultdict(list)
    for row in rows:
        if len(row.rows) > 1:
            by_comm[row.comm].append(row)
    for comm, tables in sorted(by_comm.items()):
        yield _of_tables(comm, tables, notes)


def _of_tables(comm: str, tables: list[RasCounts], notes: list[str]) -> Wait:
    size = max((t.size or 0 for t in tables), default=0)
    group = Group(name=comm, ranks=tuple(range(min(size, 1 << 20))))
    ahead: dict[int, dict[str, int]] = defaultdict(dict)
    unlisted_late = 0
    for table in tables:
        usual, _, _ = max(table.rows, key=lambda row: (row[1], row[0]))
        for number, how_many, listed in table.rows:
            if number != usual and len(listed) < how_many:
                unlisted_late += how_many
            for rank in listed if number != usual else ():
                ahead[rank][table.op] = number - usual
    total = {rank: sum(deltas.values()) for rank, deltas in ahead.items()}
    seen = sum(how_many for _, how_many, _ in tables[0].rows)
    late = sorted(r for r, d in total.items() if d < 0)
    odd = sorted(r for r, d in total.items() if d == 0)
    if not unlisted_late and late and 2 * len(late) < seen:
        roots = tuple(_listed(r, group, ahead[r], seen, "has launched") for r in late)
        return _wait("host_stuck", group, roots, tuple(notes))
    if not unlisted_late and odd and 2 * len(odd) < seen:
        roots = tuple(_listed(r, group, ahead[r], seen, "another collective:") for r in odd)
        return _wait("mismatch", group, roots, tuple(notes))
    behind = (*notes, "the ranks that are behind are not listed by RAS: nobody is named")
    return _wait("unobserved", group, (), behind)


def _listed(rank: int, group: Group, deltas: dict[str, int], seen: int, words: str) -> WaitRoot:
    told = ", ".join(f"{op or 'operations'} {n:+d}" for op, n in sorted(deltas.items()))
    return WaitRoot(rank=rank, group=group, doing=f"{words} {told}", waiters=seen - 1)


def _missing(ranks: Iterable[RasRank], world_size: int | None) -> tuple[int, ...]:
    """Ranks without data in the communicator of the whole job."""
    lost = ("missing", "unresponsive", "dead")
    whole = [r for r in ranks if r.size == (world_size or r.size) and r.state in lost]
    size = max((r.size for r in whole), default=0)
    return tuple(sorted({r.rank for r in whole if r.size == size}))


def _wait(
    state: str,
    group: Group | None,
    roots: tuple[WaitRoot, ...],
    notes: tuple[str, ...],
    unobserved: tuple[int, ...] = (),
) -> Wait:
    return Wait(
        state=state,
        group=group,
        seq=roots[0].seq if roots else None,
        mismatch="operation" if state in ("mismatch", "tie") else None,
        roots=roots,
        unobserved=unobserved,
        world_size=len(group.ranks) if group else None,
        sources=("RAS",),
        confidence_notes=notes,
    )
