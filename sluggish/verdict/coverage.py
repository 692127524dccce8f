"""Coverage: on which nodes a "no" was really looked for, and what could not be checked."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sluggish.correlate.blind import not_visible
from sluggish.correlate.window import BEFORE_ONSET
from sluggish.facts.derived import ClockOffset, Look, Onset
from sluggish.facts.fabric import Port
from sluggish.facts.fabric_side import FabricLink
from sluggish.facts.gpu import Gpu, OtherGpus
from sluggish.facts.host import KernelSpan, RankProcess
from sluggish.facts.log import LogSpan
from sluggish.facts.store import CLOCK_FLOOR_S, SECOND, Facts
from sluggish.hostlist import fold
from sluggish.verdict.case import Case
from sluggish.verdict.flavour import not_seen
from sluggish.verdict.model import NotChecked
from sluggish.verdict.tree import Question

JOB_LEVEL = frozenset(
    {"slurm_job", "sacct", "job_log", "nccl_ras", "topology", "ibdiagnet", "ibdiags"}
)
"""Probes whose answer is for the whole job and not for one node."""
NAMES = {
    "kernel_log": "kernel log",
    "nvidia_smi": "nvidia-smi",
    "gpu_samples": "GPU samples",
    "gpu_bus": "PCI bus",
    "imex": "IMEX domain",
    "ib_ports": "port states",
    "ib_counters": "port counters",
    "ibv_devinfo": "ibv_devinfo",
    "rank_procs": "processes",
    "memory": "memory",
    "mounts": "mounts",
    "sockets": "connections",
    "stacks": "stacks",
    "job_log": "job log",
    "slurm_job": "Slurm's job record",
    "slurm_node": "Slurm's node records",
    "nccl_ras": "NCCL RAS",
    "flight_recorder": "flight recorder",
    "identity": "boot and clock",
    "ibdiagnet": "the fabric's report",
    "ibdiags": "the fabric's tools",
    "topology": "Slurm's topology",
    "slingshot": "Slingshot ports",
    "network": "the job's network",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nodes:
    """What each node answered, by its name without the domain: looked up, never searched."""

    answered: dict[str, frozenset[str]]
    why: dict[tuple[str, str], str]
    spans: dict[str, list[KernelSpan]]


def _nodes_of(facts: Facts) -> _Nodes:
    why: dict[tuple[str, str], str] = {}
    for gap in facts.gaps:
        if gap.node is not None:
            why.setdefault((gap.probe, gap.node), gap.why)
    spans: dict[str, list[KernelSpan]] = {}
    for span in facts.all(KernelSpan):
        if span.node:
            spans.setdefault(_short(span.node), []).append(span)
    answered = {probe: _shorts(nodes) for probe, nodes in facts.answered.items()}
    # elsewhere it answers that there is no Slingshot, which tells nothing of the node's ports
    links = {_short(p.node) for p in facts.all(Port) if p.driver == "cxi" and p.node}
    answered["slingshot"] = answered.get("slingshot", frozenset()) & links
    return _Nodes(answered=answered, why=why, spans=spans)


def _shorts(nodes: Iterable[str | None]) -> frozenset[str]:
    return frozenset(_short(node) for node in nodes if node is not None)


def _short(node: str) -> str:
    return node.split(".", 1)[0]


def holes(question: Question, case: Case) -> dict[str, list[tuple[str, str]]]:
    """Node -> (probe, why) for all that keeps a "no" from being sure on that node.

    The key `""` stands for the whole job.
    """
    found = not_answered(question, case)
    if question.id == "fabric":
        for node, missing in not_seen(case).items():
            found[node] = found.get(node, []) + [m for m in missing if m not in found.get(node, [])]
    return found


def not_answered(question: Question, case: Case) -> dict[str, list[tuple[str, str]]]:
    """Node -> (probe, why) where a probe of the question did not run or was not understood."""
    found: dict[str, list[tuple[str, str]]] = {}
    for alternatives in question.must:
        if not set(alternatives) & JOB_LEVEL:
            continue
        if not any(case.facts.answered.get(probe) for probe in alternatives):
            found.setdefault("", []).append((alternatives[0], "not there"))
    per_node = tuple(a for a in question.must if not set(a) & JOB_LEVEL)
    nodes = _nodes_of(case.facts)
    for node in case.look.nodes:
        missing = _missing_on(node, per_node, question.also, case, nodes)
        if missing:
            found[node] = missing
    if (per_node or question.must) and not case.look.nodes:
        found.setdefault("", []).append(("nodes", "the job's nodes are not known"))
    return found


def _missing_on(
    node: str,
    must: tuple[tuple[str, ...], ...],
    also: tuple[str, ...],
    case: Case,
    nodes: _Nodes,
) -> list[tuple[str, str]]:
    short = _short(node)

    def spoke(probe: str) -> bool:
        return short in nodes.answered.get(probe, ())

    def silent(probe: str) -> tuple[str, str]:
        return probe, nodes.why.get((probe, node), "not collected")

    missing = [silent(ways[0]) for ways in must if not any(map(spoke, ways))]
    missing += [
        silent(probe)
        for probe in also
        if case.facts.answered.get(probe) and not spoke(probe) and silent(probe) not in missing
    ]
    if "kernel_log" in {p for a in must for p in a} and spoke("kernel_log"):
        late = _begins_late(nodes.spans.get(short, []), case.look, case.onset)
        if late:
            missing.append(("kernel_log", late))
    return missing


def answered(facts: Facts, probe: str, node: str) -> bool:
    """Whether a probe ran on this node and was understood."""
    return _short(node) in _shorts(facts.answered.get(probe, ()))


def _begins_late(spans: list[KernelSpan], look: Look, onset: Onset | None) -> str | None:
    """Why "no Xid" is not known although the log was read: it does not reach back far enough."""
    if spans and all(span.filtered for span in spans):
        return "the kernel log was filtered: each of its lines is about GPUs, adapters or oom-kills"
    spans = [span for span in spans if not span.filtered]
    if not spans or any(span.from_boot for span in spans):
        return None
    needed = _needed_from(look, onset)
    firsts = [span.first_at for span in spans if span.first_at is not None]
    if not firsts:
        empty = all(span.lines == 0 for span in spans)
        return "kernel log is empty" if empty else None
    if needed is None or min(firsts) <= needed:
        return None
    return f"kernel log begins {min(firsts):%H:%M:%SZ}, after the start of the cause window"


def _needed_from(look: Look, onset: Onset | None) -> datetime | None:
    """The log must reach back to the start of the cause window, or of a job that is younger."""
    start = onset.earliest - BEFORE_ONSET if onset else look.job_started_at
    if start and look.job_started_at and look.job_started_at > start:
        return look.job_started_at
    return start


def blind_nodes(question: Question, case: Case) -> tuple[str, ...]:
    """Nodes on which this question could not be looked at."""
    return tuple(node for node in holes(question, case) if node)


def not_checked(tree: tuple[Question, ...], case: Case) -> tuple[NotChecked, ...]:
    """Everything that could not be seen and would have mattered, equal holes folded over nodes."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for question in tree:
        for node, missing in holes(question, case).items():
            for probe, why in missing:
                nodes = found.setdefault((probe, why), {})
                if node:
                    nodes[node] = None
    out = [
        NotChecked(what=NAMES.get(probe, probe), where=fold(nodes) if nodes else None, why=why)
        for (probe, why), nodes in found.items()
    ]
    return (
        *out,
        *_of_gpus(case.facts),
        *_neighbours(case.facts),
        *_reports(case.facts),
        *_second_samples(case.facts),
        *_jumped(case.facts),
        *_read_in_part(case.facts),
        *_of_collectives(case),
        *_always(case),
    )


RACK_GPUS = 72
"""GPUs of one NVLink domain of a GB200 or GB300 rack (NVL72)."""


def _of_gpus(facts: Facts) -> Iterable[NotChecked]:
    """GPUs that no rule reads, fields that MIG hides, domain mates that the job does not hold."""
    others = [other for other in facts.all(OtherGpus) if other.count or other.source == "ROCm"]
    others = others or list(facts.all(OtherGpus))
    for maker in sorted({other.maker for other in others}):
        nodes = sorted({o.node for o in others if o.maker == maker and o.node})
        why = f"no rule reads GPUs of {maker}: neither healthy nor missing"
        yield NotChecked(what=f"{maker} GPUs", where=fold(nodes) if nodes else None, why=why)
    sliced = sorted({gpu.node for gpu in facts.all(Gpu) if gpu.mig and gpu.node})
    if sliced:
        why = "MIG is on: utilisation and remapped rows are hidden, power is the whole board's"
        yield NotChecked(what="load of GPUs", where=fold(sliced), why=why)
    domains: dict[str, set[tuple[str | None, str | None]]] = {}
    for gpu in facts.all(Gpu):
        if gpu.cluster_uuid:
            domains.setdefault(gpu.cluster_uuid, set()).add((gpu.node, gpu.uuid or gpu.pci))
    short = [seen for seen in domains.values() if len(seen) < RACK_GPUS]
    if short:
        seen = " and ".join(str(len(gpus)) for gpus in short[:3])
        why = f"the job's nodes show {seen} of {RACK_GPUS} GPUs; its mates outside the job do not"
        yield NotChecked(what="NVLink domain", why=f"{why} stand here")


def _neighbours(facts: Facts) -> Iterable[NotChecked]:
    """Who else runs there: a drain or a reboot line without names beside it is not "nobody"."""
    why = next((gap.why for gap in facts.gaps if gap.probe == "squeue"), None)
    if why is not None:
        yield NotChecked(what="other jobs on these nodes", why=why)


def _reports(facts: Facts) -> Iterable[NotChecked]:
    """Reports of the fabric that were given and told nothing, or not all."""
    whys = {(g.probe, g.why): None for g in facts.gaps if g.probe in ("ibdiagnet", "ibdiags")}
    for probe, why in whys:
        yield NotChecked(what=NAMES[probe], why=why)


def _second_samples(facts: Facts) -> Iterable[NotChecked]:
    """Nodes where a look ended before its window: what moves there is not known."""
    nodes: dict[str, dict[str, None]] = {}
    for gap in facts.gaps:
        if gap.why.startswith(SECOND) and gap.node:
            nodes.setdefault(gap.why.removeprefix(SECOND), {})[gap.node] = None
    for why, short in nodes.items():
        yield NotChecked(what="second samples", where=fold(short), why=why)


def _jumped(facts: Facts) -> Iterable[NotChecked]:
    """Nodes whose clock was set while we looked: their times are on two clocks."""
    for clock in facts.all(ClockOffset):
        if abs(clock.drift_s) > CLOCK_FLOOR_S:
            why = f"its clock jumped {clock.drift_s:+.1f} s during the look"
            yield NotChecked(what="order of events across nodes", where=clock.node, why=why)


def _read_in_part(facts: Facts) -> Iterable[NotChecked]:
    """Logs that were too big to be read line by line: what was, and how the rest was looked at."""
    for log in facts.all(LogSpan):
        if log.bytes_read < log.bytes_total:
            slow = ", slowly, for hyperscan is not installed" if log.slow_road else ""
            part = f"{log.bytes_read / 1e6:.1f} of {log.bytes_total / 1e6:.1f} MB"
            why = f"searched for known words{slow}; read around them, head and tail: {part}"
            if log.bytes_unsearched:
                why = f"{log.bytes_unsearched / 1e6:.1f} MB not searched; read: {part}"
            yield NotChecked(what=f"the rest of {log.path}", why=why)
    for span in facts.all(KernelSpan):
        if span.bytes_left_out:
            why = f"searched for known words; {span.bytes_left_out / 1e6:.1f} MB not read"
            yield NotChecked(what="the rest of the kernel log", where=span.node, why=why)


def _of_collectives(case: Case) -> list[NotChecked]:
    out: list[NotChecked] = []
    wait = case.wait
    if wait is None or not wait.observed:
        out.append(NotChecked(what="flight recorder", why=_why_no_dump(case.facts)))
    elif wait.unobserved:
        ranks = ", ".join(str(r) for r in wait.unobserved[:8])
        more = f" and {len(wait.unobserved) - 8} more" if len(wait.unobserved) > 8 else ""
        out.append(NotChecked(what="collectives", where=f"rank {ranks}{more}", why="no record"))
    if wait is not None and wait.observed:
        out += [
            NotChecked(what="collectives", why=blind) for blind in not_visible(case.facts, wait)
        ]
    if not case.facts.answered.get("nccl_ras"):
        out.append(NotChecked(what="NCCL RAS", why=_why_not(case.facts, "nccl_ras")))
    if not case.facts.answered.get("stacks"):
        out.append(NotChecked(what="stacks", why=_why_not(case.facts, "stacks")))
    return out


def _why_no_dump(facts: Facts) -> str:
    """Where dumps lie stands in the ranks' environments: another user may read neither."""
    found = [p for p in facts.all(RankProcess) if p.found_by in ("listpids", "cgroup")]
    if found and not any(p.env or p.rank is not None for p in found):
        return "denied: the ranks' environments, and with them their dumps, are their owner's"
    return "no dump in the evidence"


def _why_not(facts: Facts, probe: str) -> str:
    return next((gap.why for gap in facts.gaps if gap.probe == probe), "not asked")


def _always(case: Case) -> list[NotChecked]:
    why = "ports, counters and cables are not visible here"
    if case.facts.answered.get("ibdiagnet") or case.facts.all(FabricLink):
        why = "only what the fabric's report says, of no known time"
    return [NotChecked(what="switch side", why=why)]
