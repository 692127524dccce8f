"""Plays traces through the watch: alarms of healthy jobs, seconds until a hang is told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.watch.advance import advance, hard
from sluggish.watch.state import Event, Job, Rules

from . import odd, traces
from .traces import Phase, World

RULES = Rules()


@dataclass(slots=True)
class Told:
    """What came of one trace."""

    kind: str
    seed: int
    seconds: float = 0.0
    notices: int = 0
    alerts: list[tuple[str, Event]] = field(default_factory=list)
    """With the phase that it came in."""
    notice_s: float | None = None
    alert_s: float | None = None
    watchdog_s: float = 0.0


def _phase(world: World, phase: Phase) -> Iterator[None]:
    until = world.at + phase.seconds
    world.memory = phase.memory if phase.name != "init" else 900.0
    while world.at < until:
        yield


def healthy(kind: str, seed: int, seconds: float, rules: Rules = RULES) -> Told:
    """A healthy job of this kind; whatever alarms is wrong."""
    world = World(seed=seed)
    job = Job(job="1", started_at=world.started_at)
    told = Told(kind=kind, seed=seed)
    began = world.at
    days = odd if kind in odd.KINDS else traces
    for phase in days.healthy(world, kind, seconds):
        for _ in _phase(world, phase):
            for sample in world.tick(phase):
                job, events = advance(job, sample, rules)
                for event in events:
                    told.notices += event.kind == "quiet"
                    if event.kind == "alert":
                        told.alerts.append((phase.name, event))
    told.seconds = world.at - began
    return told


def hanging(kind: str, seed: int, rules: Rules = RULES) -> Told:
    """A job that hangs; seconds from the fault to the notice and to the alert."""
    world = World(seed=seed)
    case = odd.HANGS.get(kind, odd.Hang(base=kind))
    odd.change(world, case.habit)
    job = Job(job="1", started_at=world.started_at, watchdog_s=case.watchdog_s)
    told = Told(kind=kind, seed=seed, watchdog_s=job.watchdog_s)
    phases = case.before(world) if case.before else traces.before(world, case.base)
    for phase in phases:
        for _ in _phase(world, phase):
            for sample in world.tick(phase):
                if kind == "found hanging":  # nobody watched until now
                    continue
                job, events = advance(job, sample, rules)
                told.alerts += [(phase.name, e) for e in events if e.kind == "alert"]
    phase = traces.hang(world, case.base)
    if kind == "found hanging":
        for _ in range(40):
            list(world.tick(phase))
    at = world.at
    if kind == "gpu off the bus":
        job = hard(job, "Xid 79", at + 2)
    if kind == "node lost":
        job = hard(job, "gpu-01 is lost", at + 20)
    for _ in _phase(world, phase):
        for sample in world.tick(phase):
            job, events = advance(job, sample, rules)
            for event in events:
                if event.kind in ("quiet", "alert") and told.notice_s is None:
                    told.notice_s = event.at - at
                if event.kind == "alert" and told.alert_s is None:
                    told.alert_s = event.at - at
        if told.alert_s is not None:
            break
    return told


def quantile(values: list[float], part: float) -> float:
    """The nearest rank; endless where a value is missing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(part * len(ordered) + 0.5) - 1))]
