"""Case: everything that the tree may look at, gathered once."""

from dataclasses import dataclass
from datetime import datetime

from sluggish.facts.collective import Wait, WaitRoot
from sluggish.facts.derived import Look, Onset, PhaseFact, Place
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Spot, Strength
from sluggish.verdict.model import Culprit

MOVING = ("PROG-STEPS", "PROG-CKPT", "PROG-EVAL", "PROG-INIT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Findings, graph, places and times of one diagnosis."""

    findings: tuple[Finding, ...]
    facts: Facts
    look: Look
    wait: Wait | None
    onset: Onset | None
    phase: PhaseFact
    places: dict[int, Place]
    """By global rank."""

    @property
    def now(self) -> datetime | None:
        return self.look.at


def agrees(finding: Finding, case: Case) -> bool | None:
    """Whether a finding's place is the root of the wait-for graph; None where nobody can tell.

    With everybody joined there is no root: a fault in the transport is then what is expected.
    """
    wait = case.wait
    if wait is None or wait.state in ("none", "tie"):
        return None
    if wait.state == "all_joined":
        return True if _is_transport(finding) else None
    aside = idle_side(wait)
    suspects = [root.rank for root in wait.roots] or list(aside or wait.unobserved)
    if not suspects or not finding.spots:
        return None
    verdicts = [_same_place(s, case.places.get(r), r) for s in finding.spots for r in suspects]
    if any(v is True for v in verdicts):
        return True
    soft = (
        wait.state == "unobserved"
        or bool(aside)
        or _logs_only(wait)
        or any(v is None for v in verdicts)
    )
    return None if soft else False


def idle_side(wait: Wait) -> tuple[int, ...]:
    """Ranks in no collective that may wait for one another unseen: nobody among them is named."""
    alone = wait.state == "host_stuck" and not wait.roots and len(wait.sides) == 1
    return wait.sides[0][1] if alone else ()


def moving(case: Case) -> tuple[Finding, ...]:
    """Positive signs that it moves: its steps go on, or a pause that is worked at.

    Not yet a verdict: that needs every node seen.
    """
    return tuple(
        f
        for f in case.findings
        if f.rule in MOVING and f.role is Role.ROOT and f.strength is not Strength.WEAK
        if agrees(f, case) is not False and (f.rule != "PROG-STEPS" or case.onset is None)
    )


def _is_transport(finding: Finding) -> bool:
    return finding.rule.startswith(("GPU-", "IB-", "NODE-", "CFG-"))


def _logs_only(wait: Wait) -> bool:
    return bool(wait.sources) and all(s not in ("flight recorder", "RAS") for s in wait.sources)


def _same_place(spot: Spot, place: Place | None, rank: int) -> bool | None:
    if spot.rank is not None:
        return spot.rank == rank
    if place is None or place.node is None or spot.node is None:
        return None
    if not same_node(place.node, spot.node):
        return False
    if spot.pid is not None and place.pid is not None and spot.gpu_pci is None:
        return True  # another process of the rank's node, e.g. its loader worker
    if spot.gpu_pci is not None and place.gpu_pci is not None:
        return spot.gpu_pci == place.gpu_pci
    return True


def same_node(one: str, other: str) -> bool:
    """Host names are compared without their domain: tools differ in whether they print it."""
    return one == other or one.split(".")[0] == other.split(".")[0]


def culprit_of(spot: Spot, case: Case) -> Culprit:
    """A spot filled up with what is known of its rank: node, pid, GPU."""
    place = case.places.get(spot.rank) if spot.rank is not None else _rank_at(spot, case)
    root = _root_of(place.rank if place else spot.rank, case.wait)
    return Culprit(
        rank=spot.rank if spot.rank is not None else (place.rank if place else None),
        node=spot.node or (place.node if place else None),
        pid=spot.pid or (place.pid if place else None),
        gpu_index=_first(spot.gpu_index, place.gpu_index if place else None),
        gpu_uuid=spot.gpu_uuid or (place.gpu_uuid if place else None),
        gpu_pci=spot.gpu_pci or (place.gpu_pci if place else None),
        hca=spot.hca or (place.hca if place else None),
        group=spot.group or (root.group.desc or root.group.name if root and root.group else None),
        seq=_first(spot.seq, root.seq if root else None),
        operation=spot.operation or (root.operation if root else None),
        doing=spot.doing or (root.doing if root else None),
        source_line=spot.source_line or (root.source_line if root else None),
    )


def _first(one: int | None, other: int | None) -> int | None:
    return one if one is not None else other


def _rank_at(spot: Spot, case: Case) -> Place | None:
    """The rank that runs on this GPU or has this pid; none for a port or a whole node."""
    if spot.node is None or (spot.gpu_pci is None and spot.pid is None):
        return None
    for place in case.places.values():
        if place.node is None or not same_node(place.node, spot.node):
            continue
        if spot.gpu_pci is not None and place.gpu_pci == spot.gpu_pci:
            return place
        if spot.pid is not None and place.pid == spot.pid:
            return place
    return None


def _root_of(rank: int | None, wait: Wait | None) -> WaitRoot | None:
    if rank is None or wait is None:
        return None
    return next((root for root in wait.roots if root.rank == rank), None)
