"""When: the look itself, and the onset of the stall as an interval with its source."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from sluggish.correlate._one_job import job_heads
from sluggish.evidence.model import Bundle
from sluggish.facts.collective import Group, GroupHead, RankRecord, Wait, WatchdogTimeout
from sluggish.facts.derived import ClockOffset, Look, Onset, Place
from sluggish.facts.host import NodeIdentity, RankProcess
from sluggish.facts.log import LogSpan, NcclInit, ProcessExit, Progress, PythonError, SlurmMessage
from sluggish.facts.store import Facts, on_our_clock, shift_of
from sluggish.job import Job, NodeState, current

STALE_STEPS = 5
"""So many of the job's own step times without a line mean that it stopped."""
STALE_FLOOR = timedelta(seconds=120)
"""The shortest silence that counts: log lines are buffered and not every step prints one."""
PENDING_FLOOR = timedelta(seconds=60)
"""A collective pending this long at the look is a stall, not a moment of a running job."""
ONE_LOOK = timedelta(seconds=60)
"""Files of one look are collected within this."""
TEARDOWN_KINDS = ("cancelled", "time_limit", "node_failure", "preempted", "step_aborted")


def look(bundle: Bundle, facts: Facts) -> Look:
    """When the job was looked at, and which nodes and ranks should have been seen."""
    job = current(facts.all(Job))
    return Look(
        at=bundle.taken_at or _latest(facts),
        nodes=_nodes(bundle, facts, job),
        world_size=_world_size(facts, job),
        job_started_at=job.started_at if job else None,
        loose=bundle.loose,
        gpus_per_node=job.gpus_per_node if job else None,
        live=not bundle.loose or _clocked(facts, _nodes(bundle, facts, job)),
    )


def _clocked(facts: Facts, nodes: tuple[str, ...]) -> bool:
    """Whether mailed files tell when they were taken: every node's own `date`, and none before
    the log's end. Otherwise a log that was cut while all was well would look like a job that is."""
    told = {i.node.split(".")[0]: i.now for i in facts.all(NodeIdentity) if i.node and i.now}
    clocks = [told.get(node.split(".")[0]) for node in nodes]
    known = [at for at in clocks if at is not None]
    if not known or len(known) < len(clocks):
        return False
    ends = [s.last_at for s in facts.all(LogSpan) if s.last_at]
    return max(ends, default=min(known)) <= min(known) + ONE_LOOK


def _nodes(bundle: Bundle, facts: Facts, job: Job | None) -> tuple[str, ...]:
    """Slurm's list first; else who was asked; else who appears in the evidence."""
    if job and job.nodes:
        # of a job that ends it lists those alone that are not free yet
        asked = bundle.nodes if job.state == "COMPLETING" else ()
        return tuple(dict.fromkeys((*asked, *job.nodes)))
    if bundle.nodes:
        return bundle.nodes
    seen = {item.node for item in bundle.evidence if item.node}
    for kind in (NodeState, NcclInit, NodeIdentity):
        seen |= {fact.node for fact in facts.all(kind) if fact.node}
    return tuple(sorted(seen))


def _world_size(facts: Facts, job: Job | None) -> int | None:
    """From the processes' own environment, else NCCL's lines, else groups, else Slurm."""
    sizes = [p.world_size for p in facts.all(RankProcess) if p.world_size]
    sizes = sizes or [line.world_size for line in facts.all(NcclInit)]
    if not sizes:  # a folder may hold dumps of other jobs too: theirs is no size of this one
        heads = job_heads(facts.all(RankRecord), facts.all(GroupHead))
        sizes = [len(head.group.ranks) for head in heads]
    if sizes and max(sizes):
        return max(sizes)
    if job and job.gpus_per_node and job.nodes:
        return job.gpus_per_node * len(job.nodes)
    return None


def _latest(facts: Facts) -> datetime | None:
    """The last instant that loose evidence tells of: the best "now" there is."""
    times = [
        at
        for kind in (Progress, WatchdogTimeout, ProcessExit, SlurmMessage, PythonError)
        for fact in facts.all(kind)
        if (at := fact.at) is not None
    ]
    times += [r.last_created_at for r in facts.all(RankRecord) if r.last_created_at]
    times += [i.now for i in facts.all(NodeIdentity) if i.now]
    times += [s.last_at for s in facts.all(LogSpan) if s.last_at]
    return max(times, default=None)


def clock_offsets(bundle: Bundle) -> Iterator[ClockOffset]:
    """The measured ones: what nobody measured is not an offset of zero."""
    for clock in bundle.clocks:
        if clock.offset_s is not None:
            yield ClockOffset(
                node=clock.node,
                offset_s=clock.offset_s,
                error_s=abs(clock.error_s or 0.0),
                drift_s=clock.drift_s or 0.0,
            )


def on_one_clock(facts: Facts, bundle: Bundle, places: Iterable[Place]) -> None:
    """Puts the watchdogs' own stamps right: in a log of many nodes each uses its node's clock."""
    shifts = {clock.node.split(".")[0]: shift_of(clock) for clock in bundle.clocks}
    if not any(shifts.values()) or any(e.node for e in bundle.evidence if e.probe == "job_log"):
        return  # evidence of one node was put right when it was read
    homes = {p.rank: shifts.get(p.node.split(".")[0]) for p in places if p.node}
    for number, line in enumerate(facts.all(WatchdogTimeout)):
        shift = homes.get(line.rank if line.rank is not None else -1)
        if shift is not None:
            facts.facts[WatchdogTimeout][number] = on_our_clock(line, shift)


def onset(facts: Facts, seen: Look, wait: Wait | None) -> Onset | None:
    """When progress stopped, from the best source there is; None where nothing says it stopped."""
    teardown = _teardown(facts)
    return (
        _from_watchdog(facts, teardown)
        or _from_pending(wait, seen, teardown)
        or _from_progress(facts, seen, teardown)
    )


def _from_watchdog(facts: Facts, teardown: datetime | None) -> Onset | None:
    """Report time minus "ran for N ms" is the start of the wait, also if the report came late."""
    starts = [
        (w.at - timedelta(milliseconds=w.ran_ms), w)
        for w in facts.all(WatchdogTimeout)
        if w.at is not None and w.ran_ms is not None
    ]
    if not starts:
        return None
    at = min(start for start, _ in starts)
    return Onset(
        earliest=at - timedelta(seconds=5), latest=at, source="watchdog", teardown_at=teardown
    )


def _from_pending(wait: Wait | None, seen: Look, teardown: datetime | None) -> Onset | None:
    if wait is None or wait.state in ("none", "unobserved") or wait.since is None:
        return None
    if seen.at is not None and seen.at - wait.since < PENDING_FLOOR:
        return None
    return Onset(
        earliest=wait.since - timedelta(seconds=5),
        latest=wait.since,
        source="oldest pending collective",
        teardown_at=teardown,
    )


def _from_progress(facts: Facts, seen: Look, teardown: datetime | None) -> Onset | None:
    steps = sorted(p.at for p in facts.all(Progress) if p.at is not None and p.kind == "step")
    if not steps or seen.at is None:
        return None
    pace = step_pace(steps)
    if seen.at - steps[-1] < max(STALE_FLOOR, pace * STALE_STEPS) and teardown is None:
        return None
    latest = min(steps[-1] + pace, teardown or seen.at)
    return Onset(
        earliest=steps[-1], latest=max(latest, steps[-1]), source="last progress line",
        teardown_at=teardown,
    )  # fmt: skip


def step_pace(steps: list[datetime]) -> timedelta:
    """Usual time between two progress lines; zero where there are too few to tell."""
    gaps = [b - a for a, b in pairwise(steps[-40:]) if b > a]
    return timedelta(seconds=median(g.total_seconds() for g in gaps)) if gaps else timedelta(0)


def _teardown(facts: Facts) -> datetime | None:
    """First cancel, kill or watchdog abort: what comes later is a consequence."""
    times = [m.at for m in facts.all(SlurmMessage) if m.kind in TEARDOWN_KINDS and m.at]
    times += [e.at for e in facts.all(ProcessExit) if e.signal == 15 and e.at]
    times += [w.at for w in facts.all(WatchdogTimeout) if w.at]
    return min(times, default=None)


def group_label(group: Group) -> str:
    """How a process group is called on the screen: its description, else its name."""
    return group.desc if group.desc not in ("", "undefined") else group.name or "group"
