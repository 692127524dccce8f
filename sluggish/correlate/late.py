"""Who comes last, again and again, while nothing hangs."""

from statistics import median

from sluggish.facts.collective import Group, GroupHead

LATE_FACTOR = 4.0  # the late rank waits this much less than the median of its peers
LATE_FLOOR_MS = 50.0  # the watchdog looks every 100 ms: shorter waits tell nothing
LATE_STEPS = 4  # collectives that must be compared
MOST_LATE = 0.25  # when more ranks than this are late, the group is uneven and nobody is late


def late_ranks(heads: tuple[GroupHead, ...]) -> tuple[tuple[int, Group, float, float], ...]:
    """(rank, group, its wait, the others' median wait; ms) of who comes last to most collectives.

    Who comes last waits least: completion is one moment for all, so no clock is compared.
    """
    by_group: dict[tuple[str, tuple[int, ...]], list[GroupHead]] = {}
    for head in heads:
        if head.arrivals and head.group.ranks:
            by_group.setdefault((head.group.name, head.group.ranks), []).append(head)
    found: list[tuple[int, Group, float, float]] = []
    for rows in by_group.values():
        found += _late_in(rows)
    return tuple(sorted(found, key=lambda row: (-row[3], row[0])))


def _late_in(rows: list[GroupHead]) -> list[tuple[int, Group, float, float]]:
    waits: dict[int, dict[int, float]] = {}
    for head in rows:
        flat = head.arrivals
        for seq, created, done in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if done:
                waits.setdefault(seq, {})[head.rank] = (done - created) / 1e6
    full = [w for w in waits.values() if len(w) >= max(3, len(rows) // 2)]
    if len(full) < LATE_STEPS:
        return []
    mine = {h.rank: [w[h.rank] for w in full if h.rank in w] for h in rows}
    typical = {rank: median(w) for rank, w in mine.items() if len(w) >= LATE_STEPS}
    if len(typical) < 3:
        return []
    usual = median(typical.values())
    late = [r for r, w in typical.items() if usual >= LATE_FLOOR_MS and w * LATE_FACTOR <= usual]
    if not late or len(late) > MOST_LATE * len(typical):
        return []
    return [(rank, rows[0].group, typical[rank], usual) for rank in sorted(late)]
