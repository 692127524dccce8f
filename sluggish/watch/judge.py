"""Where a job stands now: quiet or moving, noticed, alerted. Pure."""

from msgspec.structs import replace

from sluggish.watch import shape, signs
from sluggish.watch.resume import went_on
from sluggish.watch.state import WATCHDOG_S, Event, Job, Node, Rules

KEPT_DIPS = 32
WORDS = {"log": "no log line", "io": "no io", "traffic": "no port traffic"}


def shape_of(job: Job, at: float, rules: Rules) -> str:
    """One word for all its GPUs that are seen."""
    found: set[str] = set()
    for node in job.nodes.values():
        if at - node.at > rules.stale_s or node.gpu_at is None:
            continue
        if at - node.gpu_at > rules.stale_s + rules.window_s:
            continue
        found |= {track.shape for track in node.own().values()}
    found -= {shape.UNUSED, shape.GONE}
    if not found:
        return shape.UNKNOWN
    for first in (shape.MOVING, shape.UNKNOWN, shape.STEADY):
        if first in found:
            return first
    return "split" if len(found) > 1 else found.pop()


def judge(job: Job, at: float, rules: Rules) -> tuple[Job, list[Event]]:
    """Where the job stands now; called with each sample and, without samples, now and then."""
    now = shape_of(job, at, rules)
    job = replace(job, shape=now)
    life = signs.of_life(job, at, rules)
    still = signs.of_death(job, at, rules)
    job = went_on(job, at, rules)
    if now == shape.UNKNOWN:
        return job, []
    if _anew(job) and (job.moved_at is not None or job.moving_since is not None):
        job = replace(job, moved_at=None, moving_since=None, begun_at=at, quiet_since=None)
        job = replace(job, noticed=False, alerted=False, told=False, hard=())
    if now == shape.STEADY and (life or len(still) < min(2, signs.seen(job))):
        now = shape.MOVING
    if now == shape.STEADY and "traffic" not in still and _all_capped(job, at, rules):
        now = shape.MOVING  # every GPU works at its power cap, and its log lies in a buffer
    if now == shape.MOVING:
        return _moves(job, at, rules)
    job = replace(job, moving_since=None)
    if job.quiet_since is None:
        job = replace(job, quiet_since=_began(job, at, now, rules))
    quiet = at - (job.quiet_since or at)
    if "log" in life and job.moved_at is None and quiet > 2 * rules.notice_s:
        return _settled(job), []
    return _quiet(job, at, quiet, life, still, rules)


def _all_capped(job: Job, at: float, rules: Rules) -> bool:
    nodes = [node for node in job.nodes.values() if at - node.at <= rules.stale_s]
    found = [t for node in nodes for t in node.own().values() if t.shape != shape.UNUSED]
    return bool(found) and all(map(shape.capped, found))


def _anew(job: Job) -> bool:
    """Most of its GPUs were emptied: the ranks were started again within the job."""
    tracks = [t for node in job.nodes.values() for t in node.own().values() if t.full_mib]
    return bool(tracks) and sum(shape.emptied(t) for t in tracks) * 2 > len(tracks)


def _began(job: Job, at: float, now: str, rules: Rules) -> float:
    """The window's start; where the power does not tell, when the last sign stopped."""
    window = at - rules.window_s
    if now != shape.STEADY:
        return window
    every = (*(n.io for n in job.nodes.values()), *(n.traffic for n in job.nodes.values()))
    last = max((s.grew_at for s in (job.log, *every) if s.grew_at is not None), default=window)
    return min(window, last)


def _moves(job: Job, at: float, rules: Rules) -> tuple[Job, list[Event]]:
    events: list[Event] = []
    if job.quiet_since is not None:
        length = at - job.quiet_since
        if job.noticed:
            says = f"moves again after {length:.0f} s"
            events.append(Event(kind="moves", at=at, job=job.job, says=says))
        if job.moved_at is not None:  # the start-up is no dip of the running job
            job = _dip(job, length)
        job = replace(job, quiet_since=None, noticed=False, alerted=False, told=False)
    if job.hard and job.hard_at is not None and at - job.hard_at > rules.alert_s:
        job = replace(job, hard=(), hard_at=None)  # it went on in spite of it
    since = job.moving_since if job.moving_since is not None else at
    long = at - since > 1.5 * rules.window_s
    return replace(job, moving_since=since, moved_at=at if long else job.moved_at), events


def cleared(job: Job, at: float) -> Job:
    """After a look that saw it move: so long a quiet is its own, and the next alert comes later."""
    if job.quiet_since is None:
        return job
    job = _dip(job, at - job.quiet_since)
    return replace(job, quiet_since=at, noticed=False, alerted=False, told=False, hard=())


def _dip(job: Job, length: float) -> Job:
    return replace(
        job,
        dips=(*job.dips, length)[-KEPT_DIPS:],
        dip_at=(*job.dip_at, job.quiet_since or 0.0)[-KEPT_DIPS:],
    )


def _settled(job: Job) -> Job:
    """Low and flat, and its log goes on: that is this job's own moving level."""
    nodes: dict[str, Node] = {}
    for name, node in job.nodes.items():
        tracks = {
            n: replace(t, level_w=sorted(t.power)[len(t.power) // 2]) if t.power else t
            for n, t in node.tracks.items()
        }
        nodes[name] = replace(node, tracks=tracks)
    return replace(job, nodes=nodes, quiet_since=None, noticed=False)


def _quiet(
    job: Job, at: float, quiet: float, life: tuple[str, ...], still: tuple[str, ...], rules: Rules
) -> tuple[Job, list[Event]]:
    events: list[Event] = []
    if quiet >= rules.notice_s and not job.noticed:
        job = replace(job, noticed=True)
        events.append(
            Event(
                kind="quiet", at=at, job=job.job, since=job.quiet_since, signs=still,
                says=f"{_words(job.shape)} for {quiet:.0f} s; {_waits(job, life, rules, at)}",
            )
        )  # fmt: skip
    if job.alerted or quiet < rules.window_s:
        return job, events
    signs_of = still
    if job.hard and quiet >= min(rules.notice_s, 2 * rules.window_s) and not _writes(life):
        signs_of = (*job.hard[:2], *still)
    elif not _due(job, at, quiet, life, still, rules):
        return job, events
    job = replace(job, alerted=True, noticed=True)
    named = ", ".join(WORDS.get(sign, sign) for sign in signs_of)
    says = f"{_words(job.shape)} for {quiet:.0f} s and {named}"
    if not signs_of:
        says = f"{_words(job.shape)} for {quiet:.0f} s; nothing else can be seen: a look decides"
    events.append(
        Event(kind="alert", at=at, job=job.job, since=job.quiet_since, signs=signs_of, says=says)
    )
    return job, events


def _due(
    job: Job, at: float, quiet: float, life: tuple[str, ...], still: tuple[str, ...], rules: Rules
) -> bool:
    """Past its own dips with a second sign; or the watchdog is near, and only words go on."""
    last = cap(job, rules)
    # where a writer cannot be seen, a long checkpoint looks the same: that waits for the last,
    # and not longer than a job with the usual watchdog may
    writes_seen = any(node.io.since is not None for node in job.nodes.values())
    if not writes_seen:
        last = min(last, max(need(job, rules), WATCHDOG_S - rules.lead_s))
    if job.moved_at is None:
        # import, compilation, set-up: they end, and most of them say nothing meanwhile
        began = job.begun_at or job.started_at or job.quiet_since or at
        if at - began < rules.start_s and (job.shape == shape.PARKED or quiet < last):
            return False
    if quiet >= last:
        # heartbeats write logs and burn cores; bytes that move are work
        wrote = signs.wrote(job, at, min(rules.notice_s, last / 2))
        # who spins waits in a collective: its watchdog ends the job, whatever the log may mean
        ends = job.shape in (shape.SPIN, "split") and quiet >= cap(job, rules)
        return not wrote and (ends or writes_seen or not _undecided(job, life, still))
    return writes_seen and quiet >= need(job, rules) and not life and bool(still)


def _undecided(job: Job, life: tuple[str, ...], still: tuple[str, ...]) -> bool:
    """A log that pauses as it has done before: neither fresh nor silent for too long."""
    return job.log.since is not None and "log" not in life and "log" not in still


def _writes(life: tuple[str, ...]) -> bool:
    return "io" in life or "traffic" in life


def longest(job: Job) -> float:
    """The longest of its own dips; 0 where it had none."""
    return max(job.dips, default=0.0)


def need(job: Job, rules: Rules) -> float:
    """Seconds of quiet before an alert: a short dip may triple, a long one grow by minutes."""
    dip = longest(job)
    past = min(rules.times * dip, dip + rules.alert_s)
    return min(max(rules.alert_s, past), cap(job, rules))


def cap(job: Job, rules: Rules) -> float:
    """The last moment before the job's watchdog, but past its own longest dip.

    Where every GPU is idle no collective is under way, and a short watchdog counts nothing.
    """
    ends = job.watchdog_s if job.shape != shape.PARKED else max(job.watchdog_s, WATCHDOG_S)
    last = max(0.6 * ends, ends - rules.lead_s)
    return max(last, min(1.1 * longest(job), ends - rules.lead_s / 3))


def _words(word: str) -> str:
    return {
        shape.SPIN: "all GPUs spin in a collective",
        shape.PARKED: "all GPUs are parked",
        "split": "some GPUs are parked, the others spin",
        shape.STEADY: "the GPUs' power does not change",
    }.get(word, word)


def _waits(job: Job, life: tuple[str, ...], rules: Rules, at: float) -> str:
    if life:
        return f"{' and '.join(life)} {'goes' if len(life) == 1 else 'go'} on"
    left = need(job, rules) - (at - (job.quiet_since or at))
    dip = f", its longest dip was {longest(job):.0f} s" if job.dips else ""
    return f"an alert in {max(0.0, left):.0f} s unless it moves{dip}"
