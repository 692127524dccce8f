"""The wait-for answer from NCCL's RAS: launches by operation, per communicator.

RAS counts five operations and no send, recv or all-to-all. It lists the minority, which may be
the leaders: only the lowest count is suspect. Two answers apart in time must not have moved.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable

from sluggish.facts.collective import Group, RasCounts, RasRank, RasReport, Wait, WaitRoot
from sluggish.facts.store import Facts

Counts = dict[int, tuple[tuple[str, int], ...]]
BLIND = "RAS sees no send, recv or all-to-all"


def from_ras(facts: Facts, world_size: int | None) -> Wait | None:
    """None without a RAS answer. A RAS answer without a difference is never healthy."""
    reports = facts.all(RasReport)
    if not reports:
        return None
    notes = [BLIND]
    samples = {r.sample for r in reports}
    if len(samples) < 2:
        notes.append("RAS was asked once: a gap of one operation is normal in a running job")
    if any(not r.complete for r in reports):
        notes.append("a RAS answer was cut short")
    ranks = facts.all(RasRank)
    if len(samples) > 1 and _moved(ranks, facts.all(RasCounts)):
        return _wait("none", None, (), (*notes, "counts moved between two RAS answers"))
    found = [_of_comm(comm, rows, notes) for comm, rows in _by_comm(ranks).items()]
    found += [_of_text(one, notes) for one in facts.all(RasCounts) if one.sample == max(samples)]
    answers = [w for w in found if w is not None]
    missing = _missing(ranks, world_size)
    if answers:
        return min(answers, key=lambda w: (w.state != "mismatch", not w.roots))
    return _wait("unobserved", None, (), tuple(notes), unobserved=missing)


def _by_comm(ranks: Iterable[RasRank]) -> dict[str, dict[int, RasRank]]:
    """The newest answer of each communicator."""
    newest: dict[str, dict[int, RasRank]] = defaultdict(dict)
    for row in sorted(ranks, key=lambda r: (r.comm, r.sample, r.rank)):
        newest[row.comm][row.rank] = row
    return dict(newest)


def _moved(ranks: Iterable[RasRank], texts: Iterable[RasCounts]) -> bool:
    seen: dict[object, tuple[str, object]] = {}
    rows: list[tuple[object, str, object]] = [
        ((r.comm, r.rank), r.sample, r.counts) for r in ranks if r.counts
    ]
    rows += [((t.comm, t.op, "text"), t.sample, t.rows) for t in texts]
    for key, sample, counts in sorted(rows, key=lambda row: row[1]):
        old = seen.get(key)
        if old is not None and old[0] != sample and old[1] != counts:
            return True
        seen[key] = (sample, counts)
    return False


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


def _of_text(one: RasCounts, notes: list[str]) -> Wait | None:
    """The text lists outliers only: the late are named where they are the ones listed."""
    if len(one.rows) < 2:
        return None
    group = Group(name=one.comm, ranks=tuple(range(one.size or 0)))
    lowest = min(one.rows)
    number, how_many, listed = lowest
    total = sum(n for _, n, _ in one.rows)
    if len(listed) == how_many and 2 * how_many < total:
        what = one.op or "operations"
        roots = tuple(
            WaitRoot(
                rank=r,
                group=group,
                seq=max(one.rows)[0],
                doing=f"has launched {what} up to {number} only",
                waiters=total - how_many,
            )
            for r in listed
        )
        return _wait("host_stuck", group, roots, tuple(notes))
    more = (*notes, f"{how_many} of {total} ranks are behind and RAS does not list them")
    return _wait("unobserved", group, (), more)


def _missing(ranks: Iterable[RasRank], world_size: int | None) -> tuple[int, ...]:
    """Ranks without data in the communicator of the whole job."""
    whole = [r for r in ranks if r.size == (world_size or r.size) and not r.counts]
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
