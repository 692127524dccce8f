"""Signs of life besides the GPUs: what grows, how often it pauses while the job moves."""

from msgspec.structs import replace

from sluggish.watch.state import Job, Rules, Sign

IO_RATE = 256 * 1024.0
"""Bytes a second of a node's processes: a writer or reader at work, and no heartbeat."""
TRAFFIC_RATE = 1e6
"""Bytes a second over a node's ports; or a fiftieth of what it was while the job moved."""
CPU_CORES = 1.5
"""A rank that waits burns one core at most; compilers and preprocessing burn more."""
LONGEST_GAP_S = 900.0
RARE_S = 300.0
SMOOTH = 0.05


def grown(
    sign: Sign, total: float | None, at: float, least: float, moving: bool, part: float = 0.0
) -> Sign:
    """The sign with one more reading; `least` is the rate, per second, that counts as growth.

    `part`: of the rate that was learned, where that is more.
    """
    if total is None:
        return sign
    if sign.total is None or sign.at is None or at <= sign.at:
        return replace(sign, total=total, at=at, since=sign.since or at)
    rate = max(0.0, total - sign.total) / (at - sign.at)
    learned = sign.rate
    if moving:
        learned = learned + SMOOTH * (rate - learned) if learned else rate
    now = replace(sign, total=total, at=at, rate=learned)
    return _noted(now, rate > max(least, part * learned), moving)


def touched(sign: Sign, size: float | None, newest: float | None, at: float, moving: bool) -> Sign:
    """The job's logs. Their own times tell of the past, before the watch began."""
    if size is None:
        return sign
    if sign.total is None:
        grew_at = min(at, newest) if newest is not None else None
        return Sign(total=size, at=at, since=at, grew_at=grew_at, broken=True)
    return _noted(replace(sign, total=size, at=at), size != sign.total, moving)


def _noted(sign: Sign, grew: bool, moving: bool) -> Sign:
    if not grew:
        return sign if moving else replace(sign, broken=True)
    assert sign.at is not None
    gap = sign.gap_s
    if moving and not sign.broken and sign.grew_at is not None:
        gap = min(LONGEST_GAP_S, max(gap, sign.at - sign.grew_at))
    return replace(sign, grew_at=sign.at, gap_s=gap, broken=False)


def alive(sign: Sign, at: float, rules: Rules) -> bool:
    """It grew a moment ago."""
    return sign.grew_at is not None and at - sign.grew_at <= rules.sign_s


def dead(sign: Sign, at: float, rules: Rules) -> bool:
    """It was watched for long enough, and has not grown for longer than it ever paused."""
    if sign.since is None or sign.at is None or at - sign.at > rules.stale_s + rules.sign_s:
        return False
    seen = sign.grew_at if sign.grew_at is not None else sign.since
    return at - seen > max(rules.sign_s, 1.25 * sign.gap_s + 3 * rules.every_s)


def wrote(job: Job, at: float, seconds: float) -> bool:
    """Bytes of any size moved within so long, to files or over ports."""
    both = [s for n in job.nodes.values() for s in (n.io, n.traffic)]
    return any(s.grew_at is not None and at - s.grew_at <= seconds for s in both)


def of_life(job: Job, at: float, rules: Rules) -> tuple[str, ...]:
    """What shows that the job does something, whatever its GPUs show."""
    nodes = [n for n in job.nodes.values() if at - n.at <= rules.stale_s]
    found: list[str] = []
    if alive(job.log, at, rules):
        found.append("log")
    if any(alive(node.io, at, rules) for node in nodes):
        found.append("io")
    if any(alive(node.traffic, at, rules) for node in nodes):
        found.append("traffic")
    if any(alive(node.cpu, at, rules) for node in nodes):
        found.append("cpu")
    return tuple(found)


def seen(job: Job) -> int:
    """How many kinds of signs can testify; at least one is asked for."""
    nodes = job.nodes.values()
    kinds = ([job.log], [n.io for n in nodes], [n.traffic for n in nodes])
    return max(1, sum(any(map(_testifies, kind)) for kind in kinds))


def _testifies(sign: Sign) -> bool:
    """What is still for minutes while the job moves, e.g. io beside mapped data, says nothing."""
    return sign.since is not None and sign.gap_s < RARE_S


def of_death(job: Job, at: float, rules: Rules) -> tuple[str, ...]:
    """What stands still besides the GPUs; nothing of what was not seen."""
    nodes = [n for n in job.nodes.values() if at - n.at <= rules.stale_s]
    found: list[str] = []
    if dead(job.log, at, rules):
        found.append("log")
    for name in ("io", "traffic"):
        signs = [getattr(node, name) for node in nodes]
        seen = [sign for sign in signs if _testifies(sign)]
        if seen and all(dead(sign, at, rules) for sign in seen):
            found.append(name)
    return tuple(found)
