"""Bundle -> Diagnosis: the whole flow on one page."""

from collections import Counter
from collections.abc import Sequence
from types import ModuleType

from sluggish import __version__
from sluggish.correlate.fabric_ends import queried, under_hcas
from sluggish.correlate.flavour import flavours
from sluggish.correlate.listed import with_processes
from sluggish.correlate.locate import at_home, places
from sluggish.correlate.owngpus import own_gpus, with_the_last
from sluggish.correlate.phase import phase
from sluggish.correlate.profile import profile
from sluggish.correlate.shape import derive_shapes
from sluggish.correlate.timeline import clock_offsets, look, on_one_clock, onset
from sluggish.correlate.waitgraph import wait_for
from sluggish.evidence.model import Bundle
from sluggish.evidence.open import text_of
from sluggish.facts.collective import Wait
from sluggish.facts.derived import Look, Onset, PhaseFact, Place
from sluggish.facts.gpu import Gpu
from sluggish.facts.host import RankProcess
from sluggish.facts.store import Facts, Mapper, read
from sluggish.findings import ask_all
from sluggish.job import Job, Neighbour, NodeState, current
from sluggish.probes import PROBES
from sluggish.remedies import REASON, remedies
from sluggish.rules import RULES
from sluggish.verdict.case import Case
from sluggish.verdict.decide import decide
from sluggish.verdict.model import Diagnosis, Summary


def diagnose(
    bundle: Bundle, mapper: Mapper = map, *, cloud: bool = False, reason: str = REASON
) -> Diagnosis:
    """Everything after the evidence is a pure function of it; `mapper` may use processes.

    `cloud`: the nodes are known to be a provider's instances, whatever the evidence shows.
    `reason`: the site's template of drain reasons.
    """
    facts = gather(bundle, PROBES, mapper)
    findings = ask_all(RULES, facts)
    case = Case(
        findings=findings,
        facts=facts,
        look=facts.all(Look)[0],
        wait=facts.all(Wait)[0],
        onset=next(iter(facts.all(Onset)), None),
        phase=facts.all(PhaseFact)[0],
        places={place.rank: place for place in facts.all(Place)},
    )
    verdict = decide(case)
    job = current(facts.all(Job))
    kind = profile(facts, case.look, cloud=cloud)
    states = facts.all(NodeState)
    inside = sorted(
        {p.node for p in facts.all(RankProcess) if p.own_mounts and p.rank is not None and p.node}
    )
    unread = any(gap.probe == "flight_recorder" and gap.node in inside for gap in facts.gaps)
    return Diagnosis(
        job=job,
        taken_at=case.look.at,
        summary=_summary(facts, case),
        findings=findings,
        verdict=verdict,
        remedies=remedies(
            verdict,
            findings,
            job,
            states,
            verdict.drain_nodes,
            kind,
            facts.all(Neighbour),
            reason,
            inside=inside,
            unread=unread,
        ),
        bundle=bundle.path,
        loose=bundle.loose,
        unread=bundle.unread,
        evidence_count=len(bundle.evidence),
        tool_version=__version__,
    )


def gather(bundle: Bundle, probes: Sequence[ModuleType], mapper: Mapper = map) -> Facts:
    """Evidence to facts, then the derived facts in the order in which they need one another."""
    facts = read(bundle, probes, text_of, mapper)
    seen = look(bundle, facts)
    facts.add(seen)
    with_processes(facts)
    under_hcas(facts)
    for counted in tuple(queried(facts, seen)):
        facts.add(counted)
    for flavour in tuple(flavours(facts, seen)):
        facts.add(flavour)
    known = places(facts)
    own = tuple(own_gpus(facts, known))
    known = with_the_last(known, own)
    for place in (*own, *known):
        facts.add(place)
    at_home(facts, known)
    on_one_clock(facts, bundle, known)
    for clock in clock_offsets(bundle):
        facts.add(clock)
    wait = wait_for(facts)
    facts.add(wait)
    stalled = onset(facts, seen, wait)
    if stalled is not None:
        facts.add(stalled)
    facts.add(phase(facts, seen))
    for shape in tuple(derive_shapes(facts)):
        facts.add(shape)
    return facts


def _summary(facts: Facts, case: Case) -> Summary:
    started = case.look.job_started_at
    models = Counter(gpu.name for gpu in facts.all(Gpu) if gpu.name)
    per_node = Counter(gpu.node for gpu in facts.all(Gpu))
    gpus = case.look.gpus_per_node or max(per_node.values(), default=None)
    return Summary(
        nodes=case.look.nodes,
        gpus_per_node=gpus,
        gpu_model=models.most_common(1)[0][0] if models else None,
        world_size=case.look.world_size,
        phase=case.phase.phase,
        elapsed_s=(case.now - started).total_seconds() if case.now and started else None,
    )
