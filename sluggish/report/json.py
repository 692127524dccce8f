"""The diagnosis as one JSON document for scripts; docs/diagnosis.schema.json describes it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec

from sluggish.causes import SUBTYPES, Cause, Family, Level, Phase
from sluggish.findings import Finding, Role, Strength
from sluggish.report.parts import Closed, CulpritDoc, GpuDoc
from sluggish.text import safe
from sluggish.verdict.model import Answer, Culprit, Diagnosis, Remedy, Verdict

SCHEMA = 1
"""Number of this format; it goes up when a key changes its meaning or goes."""
LONG = 2_000
_NAMES = sorted({name for each in SUBTYPES.values() for name in each})
Subtype = Annotated[str, msgspec.Meta(extra_json_schema={"enum": _NAMES})]


class Reply(StrEnum):
    """Answer to a question of the tree."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class JobState(StrEnum):
    """Slurm's job states (squeue manual, "JOB STATE CODES"); UNKNOWN is any word beside them."""

    BOOT_FAIL = "BOOT_FAIL"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    DEADLINE = "DEADLINE"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PENDING = "PENDING"
    PREEMPTED = "PREEMPTED"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    RESIZING = "RESIZING"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    REVOKED = "REVOKED"
    RUNNING = "RUNNING"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"
    SUSPENDED = "SUSPENDED"
    TIMEOUT = "TIMEOUT"
    UNKNOWN = "UNKNOWN"


class Needs(StrEnum):
    """Who can run a remedy's commands."""

    OWNER = "job owner"
    ADMIN = "slurm administrator"
    ROOT = "root"
    ANYBODY = "nobody special"


class JobDoc(Closed):
    """The job; a field is null where the evidence does not tell."""

    id: str | None
    name: str | None
    user: str | None
    state: JobState | None
    nodes: list[str]
    gpus_per_node: int | None
    gpu_model: str | None
    world_size: int | None
    started_at: datetime | None
    ended_at: datetime | None
    elapsed_s: float | None
    phase: Phase


class ConfidenceDoc(Closed):
    level: Level | None
    why_not_higher: str | None


class OnsetDoc(Closed):
    earliest: datetime
    latest: datetime
    source: str


class AnswerDoc(Closed):
    question: str
    text: str
    answer: Reply
    rules: list[str]
    says: str
    blind: list[str]


class RuledOutDoc(Closed):
    cause: Cause
    why: str
    coverage: str


class NotCheckedDoc(Closed):
    what: str
    where: str | None
    why: str


class VerdictDoc(Closed):
    cause: Cause
    subtype: Subtype | None
    confidence: ConfidenceDoc
    culprits: list[CulpritDoc]
    victims: list[int]
    onset: OnsetDoc | None
    path: list[AnswerDoc]
    ruled_out: list[RuledOutDoc]
    contradicts: list[str]
    not_checked: list[NotCheckedDoc]
    next_probe: str | None
    cost_gpu_hours: float | None


class FindingDoc(Closed):
    rule: str
    family: Family | None
    node: str | None
    subject: str
    role: Role
    strength: Strength
    at: datetime | None
    says: str
    quote: str


class RemedyDoc(Closed):
    title: str
    commands: list[str]
    effect: str
    disruptive: bool
    precondition: str | None
    needs: Needs


class UnreadDoc(Closed):
    path: str
    why: str


class BundleDoc(Closed):
    path: str
    loose: bool
    taken_at: datetime | None
    evidence: int
    unread: list[UnreadDoc]


class Document(Closed):
    """A diagnosis."""

    schema: int
    tool_version: str
    job: JobDoc
    verdict: VerdictDoc
    findings: list[FindingDoc]
    remedies: list[RemedyDoc]
    bundle: BundleDoc


def render(diagnosis: Diagnosis) -> str:
    """One JSON document with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document(diagnosis)), indent=2).decode() + "\n"


def document(diagnosis: Diagnosis) -> Document:
    """The same content as the screen, without its folding. Text is made safe to print."""
    return Document(
        schema=SCHEMA,
        tool_version=diagnosis.tool_version,
        job=_job(diagnosis),
        verdict=_verdict(diagnosis.verdict),
        findings=[_finding(finding) for finding in diagnosis.findings],
        remedies=[_remedy(remedy) for remedy in diagnosis.remedies],
        bundle=BundleDoc(
            path=_text(diagnosis.bundle),
            loose=diagnosis.loose,
            taken_at=diagnosis.taken_at,
            evidence=diagnosis.evidence_count,
            unread=[UnreadDoc(path=_text(u.path), why=_text(u.why)) for u in diagnosis.unread],
        ),
    )


def _text(text: str) -> str:
    return safe(text, LONG)


def _maybe(text: str | None) -> str | None:
    return None if text is None else safe(text, LONG)


def _job(diagnosis: Diagnosis) -> JobDoc:
    job, summary = diagnosis.job, diagnosis.summary
    return JobDoc(
        id=_maybe(job.id) if job else None,
        name=_maybe(job.name) if job else None,
        user=_maybe(job.user) if job else None,
        state=_state(job.state) if job else None,
        nodes=[_text(node) for node in summary.nodes],
        gpus_per_node=summary.gpus_per_node,
        gpu_model=_maybe(summary.gpu_model),
        world_size=summary.world_size,
        started_at=job.started_at if job else None,
        ended_at=job.ended_at if job else None,
        elapsed_s=summary.elapsed_s,
        phase=summary.phase,
    )


def _state(word: str | None) -> JobState | None:
    if word is None:
        return None
    return JobState(word) if word in JobState.__members__ else JobState.UNKNOWN


def _verdict(verdict: Verdict) -> VerdictDoc:
    onset = verdict.onset
    return VerdictDoc(
        cause=verdict.cause,
        subtype=verdict.subtype,
        confidence=ConfidenceDoc(
            level=verdict.confidence.level, why_not_higher=_maybe(verdict.confidence.why_not_higher)
        ),
        culprits=[_culprit(culprit) for culprit in verdict.culprits],
        victims=list(verdict.victims),
        onset=OnsetDoc(earliest=onset.earliest, latest=onset.latest, source=_text(onset.source))
        if onset
        else None,
        path=[_answer(answer) for answer in verdict.path],
        ruled_out=[
            RuledOutDoc(cause=out.cause, why=_text(out.why), coverage=_text(out.coverage))
            for out in verdict.ruled_out
        ],
        contradicts=[_text(line) for line in verdict.contradicts],
        not_checked=[
            NotCheckedDoc(what=_text(gap.what), where=_maybe(gap.where), why=_text(gap.why))
            for gap in verdict.not_checked
        ],
        next_probe=_maybe(verdict.next_probe),
        cost_gpu_hours=verdict.cost_gpu_hours,
    )


def _culprit(culprit: Culprit) -> CulpritDoc:
    return CulpritDoc(
        rank=culprit.rank,
        node=_maybe(culprit.node),
        pid=culprit.pid,
        gpu=GpuDoc(
            index=culprit.gpu_index, uuid=_maybe(culprit.gpu_uuid), pci=_maybe(culprit.gpu_pci)
        ),
        hca=_maybe(culprit.hca),
        group=_maybe(culprit.group),
        seq=culprit.seq,
        operation=_maybe(culprit.operation),
        doing=_maybe(culprit.doing),
        source_line=_maybe(culprit.source_line),
    )


def _answer(answer: Answer) -> AnswerDoc:
    return AnswerDoc(
        question=answer.question,
        text=answer.text,
        answer=Reply(answer.answer),
        rules=list(answer.rules),
        says=_text(answer.says),
        blind=[_text(node) for node in answer.blind],
    )


def _finding(finding: Finding) -> FindingDoc:
    return FindingDoc(
        rule=finding.rule,
        family=finding.family,
        node=_maybe(finding.node),
        subject=_text(finding.subject),
        role=finding.role,
        strength=finding.strength,
        at=finding.at,
        says=_text(finding.says),
        quote=_text(finding.quote),
    )


def _remedy(remedy: Remedy) -> RemedyDoc:
    return RemedyDoc(
        title=_text(remedy.title),
        commands=[_text(command) for command in remedy.commands],
        effect=_text(remedy.effect),
        disruptive=remedy.disruptive,
        precondition=_maybe(remedy.precondition),
        needs=Needs(remedy.needs),
    )
