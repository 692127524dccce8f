"""Facts and Gaps: bundle -> facts, and who could not be seen."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any, TypeVar

from sluggish.evidence.model import Bundle, Clock, Evidence
from sluggish.evidence.workers import Lost
from sluggish.facts.origin import InPart, Origin
from sluggish.job import Job, ends_before

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A measurement that is missing: never a healthy value."""

    node: str | None
    fact: type | None
    """The fact type that could not be seen; None: the whole probe was not understood."""
    probe: str
    why: str
    path: str = ""


@dataclass(slots=True)
class Facts:
    """All facts of a look, by type, with the nodes on which each type was really looked for."""

    facts: dict[type, list[Any]] = field(default_factory=lambda: defaultdict(list))
    gaps: list[Gap] = field(default_factory=list)
    seen: dict[type, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    """Nodes where a probe that yields this type ran and was understood, also if it found none."""
    answered: dict[str, set[str | None]] = field(default_factory=lambda: defaultdict(set))
    """Probe id -> nodes on which it ran to its end and was understood."""

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """Every fact of this type, in the order of evidence."""
        return tuple(self.facts.get(kind, ()))

    def add(self, fact: object) -> None:
        self.facts[type(fact)].append(fact)

    def saw(self, kind: type, node: str | None) -> bool:
        """Whether this type was looked for on this node, and understood."""
        return node in self.seen.get(kind, ())

    def why_blind(self, kind: type, node: str) -> str | None:
        """None if the type was seen on the node, else the reason for the blindness."""
        if self.saw(kind, node):
            return None
        for gap in self.gaps:
            if gap.node == node and gap.fact in (kind, None):
                return gap.why
        return "not collected"

    def why_silent(self, probe: str, node: str) -> str:
        """Why this probe has no usable answer from this node."""
        for gap in self.gaps:
            if gap.probe == probe and gap.node == node:
                return gap.why
        return "not collected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What a probe made of one piece of evidence."""

    found: list[Any]
    why: str | None = None
    """Why it is not all, or nothing."""


Mapper = Callable[[Callable[[Evidence], Parsed], Sequence[Evidence]], Iterable[Parsed | Lost]]
"""`map`, or one that spreads the work over processes."""


def read(
    bundle: Bundle,
    probes: Sequence[ModuleType],
    text_of: Callable[[Evidence, ModuleType], Any],
    mapper: Mapper = map,
) -> Facts:
    """Run every piece of evidence through its probe. A failure becomes a Gap and the rest goes on.

    `text_of` is the edge to the disk: it gives a probe's `parse` the form it wants (text or bytes).
    """
    facts = Facts()
    by_id = {probe.ID: probe for probe in probes}
    clocks = {clock.node: clock for clock in bundle.clocks}

    def one(item: Evidence) -> Parsed:
        probe = by_id.get(item.probe)
        if probe is None:
            return Parsed(found=[])
        return parsed(bundle, item, probe, clocks, text_of, ended)

    slurm = [i for i in bundle.evidence if (p := by_id.get(i.probe)) and Job in p.FACTS]
    ended: tuple[datetime, ...] = ()
    told = [fact for item in slurm for fact in one(item).found]
    ended = ends_before([fact for fact in told if isinstance(fact, Job)])
    outcomes = list(zip(bundle.evidence, mapper(one, bundle.evidence), strict=True))
    whole = {_asked(item) for item, outcome in outcomes if _is_whole(item, outcome)}
    for item, outcome in outcomes:
        probe = by_id.get(item.probe)
        if item.error and not item.size and _asked(item) in whole:
            continue  # asked twice, with and without the right: one answer is enough
        if probe is None:
            why = f"no probe named {item.probe} in this version"
            facts.gaps.append(
                Gap(node=item.node, fact=None, probe=item.probe, why=why, path=item.path)
            )
        elif isinstance(outcome, Lost):
            _blind(facts, item, probe, f"not readable: {outcome.why}")
        else:
            _file(facts, item, probe, outcome)
    return facts


def _asked(item: Evidence) -> tuple[str | None, str, str, int | None]:
    return item.node, item.probe, item.sample, item.rank


def _is_whole(item: Evidence, outcome: Parsed | Lost) -> bool:
    return not item.error and isinstance(outcome, Parsed) and outcome.why is None


def parsed(
    bundle: Bundle | None,
    item: Evidence,
    probe: ModuleType,
    clocks: dict[str, Clock],
    text_of: Callable[[Evidence, ModuleType], Any],
    ended: tuple[datetime, ...] = (),
) -> Parsed:
    """One piece of evidence through its probe, on our clock; without a bundle while one is made.

    `ended`: when earlier runs of the job ended.
    """
    if item.error and not item.size:
        return Parsed(found=[], why=_say(item))
    found: list[Any] = []
    shift = shift_of(clocks.get(item.node or ""))
    try:
        origin = replace(origin_of(item, bundle, clocks), ended=ended)
        for fact in probe.parse(text_of(item, probe), origin):
            found.append(on_our_clock(fact, shift) if shift else fact)
    except ValueError as problem:
        # an answer cut short: what it showed is true, but it cannot say "none" or "all"
        how = "in part" if isinstance(problem, InPart) else "not understood"
        return Parsed(found=found, why=f"{how}: {problem}")
    except OSError as problem:
        return Parsed(found=[], why=f"not readable: {problem.strerror or problem}")
    return Parsed(found=found)


def _file(facts: Facts, item: Evidence, probe: ModuleType, outcome: Parsed) -> None:
    for fact in outcome.found:
        facts.add(fact)
    if outcome.why is not None:
        _blind(facts, item, probe, outcome.why)
        return
    nodes = {getattr(fact, "node", None) for fact in outcome.found} | {item.node}
    for kind in probe.FACTS:
        facts.seen[kind] |= nodes
    if not item.error:
        facts.answered[probe.ID] |= nodes
    if item.error:
        _blind(facts, item, probe, _say(item))


SECOND = "second sample: "
"""Begins the reason of a gap where only what moves between the samples is not known."""


def _blind(facts: Facts, item: Evidence, probe: ModuleType, why: str) -> None:
    second = item.sample == "b" and item.node in facts.answered[probe.ID]
    why = f"{SECOND}{why}" if second else why
    for kind in probe.FACTS:
        facts.gaps.append(Gap(node=item.node, fact=kind, probe=item.probe, why=why, path=item.path))
        # an answer that was cut short saw something, but cannot say "none"
        if item.error and not second:
            facts.seen[kind].discard(item.node)


def _say(item: Evidence) -> str:
    first = item.stderr.strip().splitlines()
    return f"{item.error}: {first[0]}" if first else str(item.error)


def origin_of(item: Evidence, bundle: Bundle | None, clocks: dict[str, Clock]) -> Origin:
    """What a parser may know of this evidence."""
    clock = clocks.get(item.node or "")
    boot_at = None
    if clock and clock.now is not None and clock.uptime_s is not None:
        boot_at = clock.now - timedelta(seconds=clock.uptime_s)
    return Origin(
        node=item.node,
        rank=item.rank,
        sample=item.sample,
        path=item.path,
        command=item.command,
        taken_at=item.started_at or (bundle.taken_at if bundle else None) or item.mtime,
        boot_at=boot_at,
        utc_offset_s=_zone(item, clock, clocks),
        stderr=item.stderr,
        exit_code=item.exit_code,
        mtime=item.mtime,
        size=item.size,
    )


CLOCK_FLOOR_S = 0.5
"""A smaller difference orders nothing that a log line or a 1 s sample could show."""


def shift_of(clock: Clock | None) -> timedelta | None:
    """What turns this node's times into the collector's; None where they agree or none was seen."""
    if clock is None or clock.offset_s is None or abs(clock.offset_s) < CLOCK_FLOOR_S:
        return None
    return timedelta(seconds=-clock.offset_s)


def on_our_clock(fact: Any, shift: timedelta) -> Any:
    """The same fact with every time in it moved by `shift`, also in the facts that it holds."""
    moved: dict[str, Any] = {}
    for each in fields(fact):
        value = getattr(fact, each.name)
        if isinstance(value, datetime):
            moved[each.name] = value + shift
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            moved[each.name] = tuple(on_our_clock(part, shift) for part in value)
    return replace(fact, **moved) if moved else fact


IN_UTC = "TZ=UTC "
"""A command that ran so printed UTC, wherever its machine stands."""


def _zone(item: Evidence, clock: Clock | None, clocks: dict[str, Clock]) -> int:
    if (item.command or "").startswith(IN_UTC):
        return 0
    return clock.utc_offset_s if clock else _common_zone(clocks)


def _common_zone(clocks: dict[str, Clock]) -> int:
    """Zone of evidence of no node (Slurm's answers, the job's log): the nodes' common one."""
    zones = {clock.utc_offset_s for clock in clocks.values()}
    return zones.pop() if len(zones) == 1 else 0


def by_node(facts: Iterable[T]) -> dict[str | None, list[T]]:
    """Facts grouped by their node, in order."""
    groups: dict[str | None, list[T]] = defaultdict(list)
    for fact in facts:
        groups[getattr(fact, "node", None)].append(fact)
    return groups
