"""Which dumps belong to the job that hangs: folders collect those of other jobs and earlier runs.

A dump names no job, and the next one of a rank overwrites only its own file. What tells: the
members of the default group, the times of the operations, and when the file was written.
"""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import median

from sluggish.facts.collective import GroupHead, RankRecord
from sluggish.text import counted

SLACK = timedelta(seconds=60)  # clocks of nodes differ
SAME_LOOK = timedelta(minutes=30)  # dumps of one hang are written within the longest timeout
SAME_START = timedelta(seconds=1)

World = tuple[int, ...]


def one_job(
    records: Iterable[RankRecord], heads: Iterable[GroupHead], notes: list[str]
) -> list[RankRecord]:
    """The newest job's records; what was set aside is said."""
    kept = _of_one_world(list(records), heads, notes)
    kept = _of_one_run(kept, notes)
    return _without_earlier(kept, notes)


def job_heads(records: Iterable[RankRecord], heads: Iterable[GroupHead]) -> tuple[GroupHead, ...]:
    """Of the job that is asked about: dumps of others and of earlier runs are left out."""
    heads, records = tuple(heads), tuple(records)
    kept = one_job(records, heads, [])
    newest = {(r.rank, r.backend == "gloo"): r.path for r in sorted(kept, key=_newness)}
    read = {(rank, path) for (rank, _), path in newest.items()}
    known = {(r.rank, r.path) for r in records}
    return tuple(h for h in heads if (h.rank, h.path) in read or (h.rank, h.path) not in known)


def _newness(record: RankRecord) -> tuple[float, int, str]:
    created = record.last_created_at.timestamp() if record.last_created_at else 0.0
    return created, record.entries, record.path


def _of_one_world(
    records: list[RankRecord], heads: Iterable[GroupHead], notes: list[str]
) -> list[RankRecord]:
    """Two memberships of the default group are two jobs."""
    worlds: dict[tuple[int, str], World] = {}
    same: dict[World, World] = {}
    seen: dict[
        int, World
    ] = {}  # by identity: to hash 8,192 members once a rank is 67 million steps
    for head in heads:
        ranks = head.group.ranks
        if ranks and (head.group.desc == "default_pg" or head.group.name == "0"):
            if id(ranks) not in seen:
                seen[id(ranks)] = same.setdefault(ranks, ranks)
            worlds[head.rank, head.path] = seen[id(ranks)]
    if len(same) < 2:
        return records
    members: dict[World, list[RankRecord]] = defaultdict(list)
    for record in records:
        world = worlds.get((record.rank, record.path))
        if world:
            members[world].append(record)
    ranked = sorted(members, key=lambda w: (_latest(members[w]), len(members[w]), len(w)))
    chosen = ranked[-1]
    kept = [r for r in records if worlds.get((r.rank, r.path), chosen) == chosen]
    sizes = ", ".join(str(len(world)) for world in reversed(ranked[-4:]))
    notes.append(
        f"dumps of {len(members)} jobs lie here (worlds of {sizes} ranks): those of the newest "
        f"were read, {len(records) - len(kept)} set aside; give each job a folder of its own"
    )
    return kept


def _of_one_run(records: list[RankRecord], notes: list[str]) -> list[RankRecord]:
    """A rank that began twice, in two folders: two runs. The folder of the newest is read."""
    starts: dict[tuple[int, str], dict[str, datetime]] = defaultdict(dict)
    for record in records:
        if record.first_created_at and not (record.wrapped or record.only_active):
            folder = record.path.rpartition("/")[0]
            starts[record.rank, record.backend][folder] = record.first_created_at
    runs = {
        folder
        for begun in starts.values()
        if len(begun) > 1 and max(begun.values()) - min(begun.values()) > SAME_START
        for folder in begun
    }
    if not runs:
        return records
    newest = max(runs, key=lambda f: (_latest(_in(records, f)), f))
    kept = [r for r in records if (f := r.path.rpartition("/")[0]) == newest or f not in runs]
    notes.append(f"dumps of {len(runs)} runs lie here: those in {newest or 'the top'} were read")
    return kept


def _in(records: list[RankRecord], folder: str) -> list[RankRecord]:
    return [r for r in records if r.path.rpartition("/")[0] == folder]


def _latest(records: list[RankRecord]) -> float:
    return max((r.last_created_at.timestamp() for r in records if r.last_created_at), default=0.0)


def _without_earlier(records: list[RankRecord], notes: list[str]) -> list[RankRecord]:
    """Dumps that end before the others begin: left over by an earlier run of the same size.

    Where the others' rings have wrapped their beginning is not seen: then the file must be old too.
    """
    begun = [r.first_created_at for r in records if r.first_created_at]
    if len(begun) < 3:
        return records
    start = datetime.fromtimestamp(median(b.timestamp() for b in begun), begun[0].tzinfo)
    whole = sum(not r.wrapped and not r.only_active for r in records if r.first_created_at)
    seen_start = 2 * whole > len(begun)
    written = [r.taken_at.timestamp() for r in records if r.taken_at]
    look = median(written) if written else None
    old = [
        r
        for r in records
        if r.last_created_at
        and r.last_created_at + SLACK < start
        and (seen_start or _is_old_file(r, look))
    ]
    if not old or 2 * len(old) >= len(records):
        old = _before_the_newest(records)
    if not old:
        return records
    notes.append(
        f"{counted(len(old), 'dump ends', 'dumps end')} before the others begin: left over from an "
        "earlier run, set aside"
    )
    gone = {id(r) for r in old}
    return [r for r in records if id(r) not in gone]


def _before_the_newest(records: list[RankRecord]) -> list[RankRecord]:
    """Half of the dumps or more, where they end before the newest begins: only it is of this run.

    Mixed, the few of a young run would seem to be waited for by those of the old one.
    """
    newest = max((r for r in records if r.last_created_at), key=lambda r: _latest([r]))
    start = newest.first_created_at
    if start is None or newest.wrapped or newest.only_active:
        return []
    old = [r for r in records if r.last_created_at and r.last_created_at + SLACK < start]
    return old if 2 * len(old) >= len(records) else []


def _is_old_file(record: RankRecord, look: float | None) -> bool:
    if look is None or record.taken_at is None:
        return False
    return look - record.taken_at.timestamp() > SAME_LOOK.total_seconds()
