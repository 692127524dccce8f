"""Confidence is a rule, not a feeling: families that agree, coverage, contradictions."""

from dataclasses import dataclass

from sluggish.causes import Cause, Family, Level
from sluggish.findings import Finding, Role, Strength
from sluggish.hostlist import fold
from sluggish.verdict.case import Case, agrees
from sluggish.verdict.coverage import NAMES, holes
from sluggish.verdict.model import Confidence
from sluggish.verdict.tree import Kind, Question

SHAPE_RULES = ("HANG-SPIN", "HANG-SPLIT", "HANG-PARKED")
"""Power and utilisation say that a job hangs, never why: they carry no verdict."""


def confidence(
    question: Question | None,
    chosen: tuple[Finding, ...],
    case: Case,
    contradicts: tuple[str, ...],
    tree: tuple[Question, ...],
) -> Confidence:
    """High: two families agree, or one decisive finding with full coverage, nothing against it."""
    if question is None or question.cause is Cause.UNKNOWN:
        return Confidence(level=None, why_not_higher="the cause is not proved")
    families = families_of(chosen, case)
    strengths = {f.strength for f in chosen}
    blind = _blindness(tree, case) if question.kind is not Kind.STATE else None
    against = f"contradicted by {contradicts[0]}" if contradicts else None
    count = f"one family of evidence ({families[0]})" if len(families) == 1 else None
    if Strength.DECISIVE not in strengths and Strength.STRONG not in strengths:
        return Confidence(level=Level.LOW, why_not_higher="only weak signs")
    two = len(families) >= 2
    rival = _rival(question, chosen, case, tree)
    if not against and not rival and (two or (Strength.DECISIVE in strengths and not blind)):
        return Confidence(level=Level.HIGH)
    reasons = [r for r in (against, rival, None if two else count, blind) if r]
    return Confidence(level=Level.MEDIUM, why_not_higher="; ".join(reasons) or None)


def _rival(
    question: Question, chosen: tuple[Finding, ...], case: Case, tree: tuple[Question, ...]
) -> str | None:
    """A weak sign of another recorded cause at the same place, which nobody could look at there.

    A rank that got SIGKILL may have crashed or have met the OOM killer: the kernel log tells.
    """
    places = {s.node for f in chosen for s in f.spots if s.node}
    for other in tree:
        if question.kind is not Kind.HARD or other.kind is not Kind.HARD or other is question:
            continue
        for finding in case.findings:
            if finding.rule not in other.listens or finding.role is not Role.ROOT:
                continue
            if finding.strength is not Strength.WEAK:
                continue  # that one contradicts, or follows
            if finding.node in places and (missing := holes(other, case).get(finding.node or "")):
                probe = NAMES.get(missing[0][0], missing[0][0])
                return f"not ruled out: {other.cause} ({probe} of {finding.node} not seen)"
    return None


def families_of(chosen: tuple[Finding, ...], case: Case) -> tuple[Family, ...]:
    """Independent families that point at the same fault, in order of their weight."""
    families = [f.family for f in chosen if f.family and f.strength is not Strength.WEAK]
    if chosen and any(agrees(f, case) for f in chosen):
        families.append(Family.COLLECTIVE)
    mine, accused = frozenset(chosen), _accused(chosen)
    for finding in case.findings:
        if finding.strength is Strength.WEAK or finding.family is None or finding in mine:
            continue
        if finding.role in (Role.ROOT, Role.CONSEQUENCE) and _same_spot(finding, accused, case):
            families.append(finding.family)
    return tuple(dict.fromkeys(families))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Accused:
    """The places of the findings that carry the verdict."""

    ranks: frozenset[int]
    gpus: frozenset[tuple[str | None, str]]
    ports: frozenset[tuple[str | None, str]]
    nodes: frozenset[str]
    """Nodes that are accused as a whole, without their domain."""


def _accused(chosen: tuple[Finding, ...]) -> _Accused:
    spots = [s for f in chosen for s in f.spots]
    return _Accused(
        ranks=frozenset(s.rank for s in spots if s.rank is not None),
        gpus=frozenset((s.node, s.gpu_pci) for s in spots if s.gpu_pci),
        ports=frozenset((s.node, s.hca) for s in spots if s.hca),
        nodes=frozenset(
            s.node.split(".")[0]
            for s in spots
            if s.node and s.rank is None and not s.gpu_pci and not s.hca
        ),
    )


def _same_spot(finding: Finding, accused: _Accused, case: Case) -> bool:
    """Whether another finding accuses a rank, GPU or port that the verdict accuses."""
    if finding.rule in SHAPE_RULES:
        return False
    for spot in finding.spots:
        if spot.rank is not None and spot.rank in accused.ranks:
            return True
        if (spot.node, spot.gpu_pci) in accused.gpus or (spot.node, spot.hca) in accused.ports:
            return True
        place = case.places.get(spot.rank) if spot.rank is not None else None
        if place and place.node and place.node.split(".")[0] in accused.nodes:
            return True  # a rank's own sign supports a finding about its whole node
    return False


def _blindness(tree: tuple[Question, ...], case: Case) -> str | None:
    """What keeps the coverage from being full: the hardware questions on every node."""
    found: dict[str, dict[str, None]] = {}
    for question in tree:
        if question.id not in ("node", "memory", "gpu", "fabric"):
            continue
        for node, missing in holes(question, case).items():
            for probe, _ in missing:
                nodes = found.setdefault(probe, {})
                if node:
                    nodes[node] = None
    if not found:
        return None
    parts = [
        f"{NAMES.get(probe, probe)}" + (f" of {fold(nodes)}" if nodes else "")
        for probe, nodes in list(found.items())[:3]
    ]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return "not seen: " + ", ".join(parts) + more
