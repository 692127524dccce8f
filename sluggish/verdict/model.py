"""Verdict, Remedy, Diagnosis: what the tree decided, what to do, what a renderer may see."""

from dataclasses import dataclass, field
from datetime import datetime

from sluggish.causes import Cause, Family, Level, Phase
from sluggish.evidence.model import Unread
from sluggish.findings import Finding
from sluggish.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question of the tree with its answer: a step of the path."""

    question: str
    """Id of the question, e.g. `gpu`."""
    text: str
    """The question in words."""
    answer: str
    """`yes`, `no` or `unknown`: a closed list."""
    rules: tuple[str, ...] = ()
    """Rules that were listened to and spoke."""
    says: str = ""
    blind: tuple[str, ...] = ()
    """Nodes on which the question could not be looked at: the answer rests on the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """The place that is to blame; every field None where the evidence does not tell."""

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
class RuledOut:
    """A cause that is out, worded by what was really covered."""

    cause: Cause
    why: str
    """E.g. `16/16 host ports Active, no flap since job start`."""
    coverage: str
    """How much was seen, e.g. `2 of 2 nodes; switches not checked`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotChecked:
    """Something that could not be seen and would have mattered."""

    what: str
    where: str | None = None
    """Node, folded nodes, rank; None for the whole job."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """How sure the verdict is; None below low (the verdict is `unknown` then)."""

    level: Level | None
    why_not_higher: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Since:
    """When progress stopped: an interval, and what told it."""

    earliest: datetime
    latest: datetime
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the tree decided, with everything that it rests on."""

    cause: Cause
    subtype: str | None = None
    confidence: Confidence = field(default_factory=lambda: Confidence(level=None))
    culprits: tuple[Culprit, ...] = ()
    victims: tuple[int, ...] = ()
    """Ranks that wait for the culprit."""
    onset: Since | None = None
    path: tuple[Answer, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    contradicts: tuple[str, ...] = ()
    not_checked: tuple[NotChecked, ...] = ()
    next_probe: str | None = None
    """The cheapest next look where the cause is not proved."""
    cost_gpu_hours: float | None = None
    """GPU-hours since the onset."""
    families: tuple[Family, ...] = ()
    """Independent families of evidence that carry the verdict."""
    preliminary: bool = False
    """True where the numbers or the place may still change, e.g. from loose files."""
    shared: bool = False
    """The fault is of something that many nodes share: no drain lines."""
    drain_nodes: tuple[str, ...] = ()
    """Nodes for which the drain gate is open: the only ones that a drain line may name."""
    says: str = ""
    """One line more than cause and subtype, e.g. `link gpu-07 mlx5_5 - switch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One step of advice. sluggish prints it, a person runs it."""

    order: int
    title: str
    commands: tuple[str, ...] = ()
    effect: str = ""
    disruptive: bool = False
    precondition: str | None = None
    needs: str = "job owner"
    """`job owner`, `slurm administrator`, `root`, `nobody special`: a closed list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Facts about the job and the look that head every report."""

    nodes: tuple[str, ...] = ()
    """Nodes of the job, or those that the evidence names."""
    gpus_per_node: int | None = None
    gpu_model: str | None = None
    world_size: int | None = None
    phase: Phase = Phase.UNKNOWN
    elapsed_s: float | None = None
    """Age of the job at the look."""
    took_s: float | None = None
    """How long the look took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything a renderer may see."""

    job: Job | None
    taken_at: datetime | None
    """When the evidence was taken, UTC: the `now` of the report."""
    summary: Summary = field(default_factory=Summary)
    findings: tuple[Finding, ...] = ()
    verdict: Verdict
    remedies: tuple[Remedy, ...] = ()
    bundle: str = ""
    """Path of the evidence as it was given."""
    loose: bool = False
    unread: tuple[Unread, ...] = ()
    evidence_count: int = 0
    tool_version: str = ""
