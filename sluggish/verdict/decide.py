"""decide(): walk the tree over the findings and write down every answer."""

from dataclasses import dataclass
from datetime import timedelta

from sluggish.causes import Cause, Phase
from sluggish.findings import Finding, Role, Strength
from sluggish.verdict.blame import RANK, culprits
from sluggish.verdict.case import Case, agrees, moving
from sluggish.verdict.confidence import confidence, families_of
from sluggish.verdict.coverage import blind_nodes, not_answered, not_checked
from sluggish.verdict.drain import drain_nodes
from sluggish.verdict.model import Answer, Since, Verdict
from sluggish.verdict.next_probe import next_probe
from sluggish.verdict.ruled_out import ruled_out
from sluggish.verdict.tree import TREE, Kind, Question

CONCURRENT = timedelta(seconds=30)
"""Two recorded events this close are not ordered: clocks, printk and log buffers differ."""
OPEN_ROLES = (Role.ROOT, Role.CONSEQUENCE, Role.CONTEXT)
"""That it hangs may be said by a victim too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A question that says yes, with the findings that say so."""

    question: Question
    findings: tuple[Finding, ...]
    subtype: str | None


def decide(case: Case, tree: tuple[Question, ...] = TREE) -> Verdict:
    """The verdict of this case: cause, place, confidence, path, and what stays open."""
    choice, path = walk(case, tree)
    cause = choice.question.cause if choice else Cause.UNKNOWN
    subtype = choice.subtype if choice else "no_evidence"
    chosen = choice.findings if choice else ()
    contradicts = _contradicts(choice, case, tree)
    sure = confidence(choice.question if choice else None, chosen, case, contradicts, tree)
    blame = cause not in (Cause.UNKNOWN, Cause.PROGRESSING, Cause.NOT_RUNNING)
    blamed = culprits(chosen, case) if blame else ()
    return Verdict(
        cause=cause,
        subtype=subtype,
        confidence=sure,
        culprits=blamed,
        victims=_victims(case, cause),
        onset=_since(case, cause),
        path=path,
        ruled_out=ruled_out(tree, choice.question if choice else None, case),
        contradicts=contradicts,
        not_checked=not_checked(tree, case),
        next_probe=next_probe(cause, subtype, sure, case, blamed),
        cost_gpu_hours=_cost(case, cause),
        families=families_of(chosen, case),
        preliminary=case.look.loose,
        shared=any(f.shared for f in chosen),
        drain_nodes=drain_nodes(cause, sure.level, chosen, case),
        says=chosen[0].says if chosen else "",
    )


def walk(case: Case, tree: tuple[Question, ...]) -> tuple[Choice | None, tuple[Answer, ...]]:
    """Ask the questions in order; hard ones are settled among themselves first."""
    hard = _best_hard(case, tree)
    moves = _moves(case)
    weak: Choice | None = None
    path: list[Answer] = []
    for question in tree:
        found = _roots(question, case)
        if question.kind is Kind.HARD:
            yes = hard if hard and hard.question is question else None
        elif question.kind is Kind.OPEN:
            # a weak sign of a cause stands before no cause at all
            yes = weak or _open(question, found, case)
        else:
            yes = _ordered(question, found, case)
        if (
            yes is None
            and weak is None
            and not moves
            and question.kind in (Kind.STATE, Kind.HARD, Kind.ORDER)
        ):
            weak = _weak(question, found, case)
        decided = yes is not None
        path.append(_answer(question, yes, found, case))
        if decided:
            return yes, tuple(path)
    return weak, tuple(path)


def _roots(question: Question, case: Case) -> tuple[Finding, ...]:
    roles = OPEN_ROLES if question.kind is Kind.OPEN else (Role.ROOT,)
    return tuple(f for f in case.findings if f.rule in question.listens and f.role in roles)


def _best_hard(case: Case, tree: tuple[Question, ...]) -> Choice | None:
    """Agreeing place first, then decisive before strong, then the earlier, then reading order."""
    running: list[tuple[tuple[int, int], int, Finding, Question]] = []
    moves = _moves(case)
    for number, question in enumerate(tree):
        if question.kind is not Kind.HARD:
            continue
        for finding in _roots(question, case):
            at_root = agrees(finding, case)
            if at_root is False or finding.strength is Strength.WEAK:
                continue
            if moves and finding.strength is not Strength.DECISIVE:
                continue  # a part that is ill, but has not stopped this job
            merit = (1 if at_root else 0, RANK[finding.strength])
            running.append((merit, number, finding, question))
    if not running:
        return None
    top = max(merit for merit, *_ in running)
    best = [item for item in running if item[0] == top]
    times = [f.at for _, _, f, _ in best if f.at is not None]
    if times:
        limit = min(times) + CONCURRENT
        best = [item for item in best if item[2].at is None or item[2].at <= limit]
    question = min(best, key=lambda item: item[1])[3]
    chosen = [f for _, _, f, q in running if q is question]
    return _choice(question, tuple(chosen), case)


def _moves(case: Case) -> bool:
    """The log's own steps go on: nothing has stopped this job."""
    return any(f.rule == "PROG-STEPS" for f in moving(case))


def _choice(question: Question, found: tuple[Finding, ...], case: Case) -> Choice | None:
    """The findings that carry a yes: those of the strongest one's subtype, best first."""
    if not found:
        return None
    order = list(question.listens)
    ranked = sorted(
        found,
        key=lambda f: (agrees(f, case) is not True, -RANK[f.strength], order.index(f.rule)),
    )
    subtype = ranked[0].subtype or question.listens[ranked[0].rule]
    same = tuple(f for f in ranked if _same_fault(f, ranked[0]))
    return Choice(question=question, findings=same, subtype=subtype)


def _open(question: Question, found: tuple[Finding, ...], case: Case) -> Choice | None:
    """It hangs: the subtype is the first of the question's own order that anything speaks for."""
    if moving(case):  # a collective under way is what a running job looks like
        return Choice(question=question, findings=(), subtype="unobserved")
    for rule_id, subtype in question.listens.items():
        mine = tuple(f for f in found if f.rule == rule_id)
        if mine and subtype:
            starting = subtype == "hang" and case.phase.phase in (Phase.START_UP, Phase.FIRST_STEP)
            return Choice(
                question=question,
                findings=mine,
                subtype=mine[0].subtype or ("start_up_hang" if starting else subtype),
            )
    if case.onset is not None:
        return Choice(question=question, findings=(), subtype="hang")
    if case.look.nodes and any(blind_nodes(q, case) for q in TREE):
        return Choice(question=question, findings=(), subtype="unobserved")
    return None


def _same_fault(one: Finding, head: Finding) -> bool:
    """A second finding belongs to the fault if it accuses the same place, or is as strong."""
    if one is head or RANK[one.strength] >= RANK[head.strength]:
        return True
    places = {(s.node, s.rank) for s in head.spots}
    return any((s.node, s.rank) in places for s in one.spots)


def _ordered(question: Question, found: tuple[Finding, ...], case: Case) -> Choice | None:
    strong = tuple(f for f in found if f.strength is not Strength.WEAK)
    if question.id != "mismatch":
        strong = tuple(f for f in strong if agrees(f, case) is not False)
    if not strong:
        return None
    if question.kind is Kind.MOVING and not _may_move(question, case):
        return None
    return _choice(question, strong, case)


def _may_move(question: Question, case: Case) -> bool:
    """Moving needs every node seen; a loop that has stalled cannot be moving."""
    if question.id in ("steps", "straggler") and case.onset is not None:
        return False
    if question.id == "straggler":
        return True
    # steps that go on say more of the network than its own list of evidence does
    looked = (q for q in TREE if q.id in ("gpu", "fabric", "memory"))
    blind = [node for q in looked for node in not_answered(q, case) if node]
    return not blind and case.look.live and bool(case.look.nodes)


def _weak(question: Question, found: tuple[Finding, ...], case: Case) -> Choice | None:
    weak = tuple(f for f in found if f.strength is Strength.WEAK and agrees(f, case) is not False)
    return _choice(question, weak, case)


def _answer(
    question: Question, yes: Choice | None, found: tuple[Finding, ...], case: Case
) -> Answer:
    blind = blind_nodes(question, case)
    spoke = tuple(dict.fromkeys(f.rule for f in found))
    if yes is not None and yes.question is question:
        says = "; ".join(f"{f.rule} {f.node or ''} {f.says}".replace("  ", " ")
                         for f in yes.findings[:2])  # fmt: skip
        return Answer(
            question=question.id, text=question.asks, answer="yes", rules=spoke, says=says
        )
    if yes is not None:
        says = f"only a weak sign, of {yes.question.id}: {yes.findings[0].says}"
        return Answer(question=question.id, text=question.asks, answer="no", rules=spoke, says=says)
    says = _why_not(found, case) if found else ""
    answer = "unknown" if blind and not found else "no"
    return Answer(
        question=question.id, text=question.asks, answer=answer, rules=spoke, says=says, blind=blind
    )


def _why_not(found: tuple[Finding, ...], case: Case) -> str:
    head = found[0]
    if agrees(head, case) is False:
        return f"{head.rule} on {head.node or head.subject}: not where the others wait"
    if head.strength is Strength.WEAK:
        return f"{head.rule}: too weak to decide"
    return f"{head.rule} on {head.node or head.subject}: something else is stronger or earlier"


def _contradicts(choice: Choice | None, case: Case, tree: tuple[Question, ...]) -> tuple[str, ...]:
    """Strong root findings of other questions that the verdict does not explain."""
    if choice is None:
        return ()
    out: list[str] = []
    for question in tree:
        if question is choice.question or question.kind in (Kind.OPEN, Kind.MOVING):
            continue
        for finding in _roots(question, case):
            if finding.strength is Strength.WEAK or _explained(finding, choice, case):
                continue
            where = finding.node or finding.subject
            out.append(f"{finding.rule} on {where}: {finding.says}")
    return tuple(dict.fromkeys(out))


def _explained(finding: Finding, choice: Choice, case: Case) -> bool:
    """What follows from a verdict does not speak against it.

    Same place, or the others' waiting: a rank that is gone is what a missing rank looks like.
    """
    if finding.rule.startswith("SYNC-") or finding.rule in ("START-RENDEZVOUS", "DATA-STEPS"):
        return agrees(finding, case) is not False
    places = {(s.node, s.rank) for f in choice.findings for s in f.spots}
    nodes = {node for node, _ in places if node}
    ranks = {rank for _, rank in places if rank is not None}
    for spot in finding.spots:
        if spot.rank is not None and spot.rank in ranks:
            return True
        if spot.node is not None and spot.node in nodes:
            return True
        place = case.places.get(spot.rank) if spot.rank is not None else None
        if place and place.node in nodes:
            return True
    later = [f.at for f in choice.findings if f.at is not None]
    return bool(later and finding.at and finding.at > min(later))


def _victims(case: Case, cause: Cause) -> tuple[int, ...]:
    return case.wait.waiters if case.wait and cause is not Cause.PROGRESSING else ()


def _since(case: Case, cause: Cause) -> Since | None:
    if case.onset is None or cause in (Cause.PROGRESSING,):
        return None
    return Since(earliest=case.onset.earliest, latest=case.onset.latest, source=case.onset.source)


def _cost(case: Case, cause: Cause) -> float | None:
    """GPU-hours that the job held and did not use since the onset."""
    if case.onset is None or case.now is None or cause is Cause.PROGRESSING:
        return None
    gpus = case.look.world_size or (case.look.gpus_per_node or 0) * len(case.look.nodes)
    if not gpus:
        return None
    stalled = (case.now - case.onset.latest).total_seconds()
    return round(max(stalled, 0.0) * gpus / 3600, 2)
