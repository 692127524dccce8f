"""Finding, Rule, @rule, ask(): what was seen, by a rule that sees only what it declared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from sluggish.causes import Family
from sluggish.facts.store import Facts, Gap

T = TypeVar("T")


class Role(StrEnum):
    """What part a finding can play in the story."""

    ROOT = "root_candidate"
    CONSEQUENCE = "consequence"
    CONTEXT = "context"
    ALL_CLEAR = "all_clear"
    HOUSEKEEPING = "housekeeping"  # true, not the cause, somebody should see to it later


class Strength(StrEnum):
    """How much a finding proves. One decisive finding with full coverage can carry a verdict."""

    DECISIVE = "decisive"
    STRONG = "strong"
    WEAK = "weak"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """The place a finding points at; every field None where it does not tell."""

    rank: int | None = None
    node: str | None = None
    pid: int | None = None
    gpu_index: int | None = None
    gpu_uuid: str | None = None
    gpu_pci: str | None = None
    hca: str | None = None
    group: str | None = None
    seq: int | None = None
    operation: str | None = None
    doing: str | None = None
    source_line: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation. A rule leaves `rule` and `family` empty; `ask` fills them in."""

    node: str | None
    subject: str
    """`gpu 3`, `mlx5_0/1`, `rank 3`, `job`."""
    role: Role
    strength: Strength
    at: datetime | None = None
    says: str = ""
    """One calm sentence part, without node and time, e.g. `Xid 79: GPU has fallen off the bus`."""
    quote: str = ""
    """The raw line, untrusted."""
    source: str = ""
    """Where it was read, as the screen shows it: `kernel`, `ibstat`, `flight recorder`."""
    spots: tuple[Spot, ...] = ()
    """The places it accuses (root) or concerns; several where one fault has several places."""
    subtype: str | None = None
    """A subtype of the cause that listens to this rule, where one rule knows several."""
    action: str | None = None
    """A word of the catalogue that remedies key on: reset_gpu, reboot_node, rma, ..."""
    shared: bool = False
    """True: the fault is of something that many nodes share; no drain lines."""
    rule: str = ""
    family: Family | None = None


class View:
    """What a rule may see: only the fact types that it declared."""

    def __init__(self, facts: Facts, allowed: tuple[type, ...]) -> None:
        self._facts = facts
        self._allowed = allowed

    def all(self, kind: type[T]) -> tuple[T, ...]:
        """Every fact of a declared type."""
        self._check(kind)
        return self._facts.all(kind)

    def one(self, kind: type[T]) -> T | None:
        """The only fact of a declared type, or None."""
        found = self.all(kind)
        return found[0] if found else None

    def saw(self, kind: type, node: str | None) -> bool:
        """Whether this type was really looked for on this node."""
        self._check(kind)
        return self._facts.saw(kind, node)

    def gaps(self, kind: type) -> tuple[Gap, ...]:
        """Where this type could not be seen."""
        self._check(kind)
        return tuple(gap for gap in self._facts.gaps if gap.fact is kind)

    def _check(self, kind: type) -> None:
        if kind not in self._allowed:
            raise LookupError(f"{kind.__name__} is not declared in needs or wants")


Observe = Callable[[View], Iterator[Finding]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule: its id, its family of evidence, what it needs, and the function that observes."""

    id: str
    family: Family
    needs: tuple[type, ...]
    """Without at least one fact or one look at any of these the rule is skipped."""
    wants: tuple[type, ...]
    observe: Observe

    @property
    def doc(self) -> str:
        """Its observation in one present-tense sentence."""
        return (self.observe.__doc__ or "").strip().splitlines()[0]


def rule(
    rule_id: str, *, family: Family, needs: tuple[type, ...], wants: tuple[type, ...] = ()
) -> Callable[[Observe], Rule]:
    """Make a plain function a Rule. The id is stable for ever."""

    def make(observe: Observe) -> Rule:
        return Rule(id=rule_id, family=family, needs=needs, wants=wants, observe=observe)

    return make


def ask(one: Rule, facts: Facts) -> tuple[Finding, ...]:
    """Let one rule look at the facts it declared; findings come back with its id and family."""
    view = View(facts, one.needs + one.wants)
    return tuple(replace(f, rule=one.id, family=one.family) for f in one.observe(view))


def ask_all(rules: tuple[Rule, ...], facts: Facts) -> tuple[Finding, ...]:
    """Every rule's findings, in the order of the rules."""
    return tuple(finding for one in rules for finding in ask(one, facts))
