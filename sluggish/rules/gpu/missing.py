"""GPU-MISSING: a GPU that should be there does not answer, with or without an Xid."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.facts.derived import Look, OwnGpus
from sluggish.facts.gpu import Gpu, GpuCount, SmiFailure
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import NodeState
from sluggish.rules.gpu.common import all_clear, mark_shared, on_nodes, subject

ENOUGH_PEERS = 3
"""Nodes that must be counted before one that differs is the odd one (two only differ)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """How many GPUs each source lists on one node."""

    node: str | None
    smi: GpuCount | None
    bus: GpuCount | None
    slurm: int | None


@rule(
    "GPU-MISSING",
    family=Family.KERNEL,
    needs=(GpuCount, SmiFailure),
    wants=(Gpu, Look, NodeState, OwnGpus),
)
def gpu_missing(view: View) -> Iterator[Finding]:
    """A GPU that the job should have is not on the bus or does not answer nvidia-smi."""
    counts = _by_node(view)
    found = [f for c in counts for f in _of_node(view, c, counts)]
    by_word = list(_lost_by_word(view, found))
    named = {f.node for f in by_word if f.spots[0].gpu_pci}
    counted = {f.node for f in found if f.role is Role.ROOT}
    # a card with an address says more than a number for its node
    found = [f for f in found if f.node not in named or (f.spots and f.spots[0].gpu_pci)]
    found += [f for f in by_word if f.spots[0].gpu_pci or f.node not in counted]
    yield from mark_shared(found)
    if not any(f.role is Role.ROOT for f in found):
        yield from _clear(view, counts)


def _by_node(view: View) -> list[_Counts]:
    by_source: dict[tuple[str | None, str], GpuCount] = {}
    for count in view.all(GpuCount):
        old = by_source.get((count.node, count.source))
        if old is None or count.pci or not old.pci:  # a list without addresses says less
            by_source[count.node, count.source] = count
    nodes = dict.fromkeys(count.node for count in view.all(GpuCount))
    gres = {state.node: state.gpus for state in view.all(NodeState)}
    return [
        _Counts(
            node=node,
            smi=by_source.get((node, "nvidia-smi")),
            bus=by_source.get((node, "pci")),
            slurm=gres.get(node) if node else None,
        )
        for node in nodes
    ]


def _of_node(view: View, c: _Counts, counts: list[_Counts]) -> Iterator[Finding]:
    if c.bus is not None:
        for address in c.bus.dead:
            yield _finding(
                c.node, address, Strength.DECISIVE, "off_bus", "lspci",
                "the card reads as all ones on the PCI bus (rev ff): it fell off the bus",
            )  # fmt: skip
    if c.node is None:
        return  # files of several nodes may stand behind None: their counts do not compare
    if any(g.mig for g in view.all(Gpu) if g.node == c.node):
        return  # Slurm counts instances there, nvidia-smi boards
    look = view.one(Look)
    need = look.gpus_per_node if look else None
    own = _own(view, c.node)
    if need is not None and own is not None and c.smi is not None and c.smi.count >= need:
        yield from _of_the_job(c.smi, own)  # it lists others' GPUs: nothing hides any from it
    elif need is not None:
        yield from _against_need(c, need)
    elif c.smi is not None:
        yield from _against_others(c, c.smi, counts)


def _own(view: View, node: str | None) -> tuple[str, ...] | None:
    return next((own.pci for own in view.all(OwnGpus) if own.node == node), None)


def _of_the_job(smi: GpuCount, own: tuple[str, ...]) -> Iterator[Finding]:
    """On a shared node a number tells nothing: each card that the job holds must be listed."""
    for address in own if smi.pci else ():
        if address not in smi.pci:
            yield _finding(
                smi.node, address, Strength.DECISIVE, "missing", "nvidia-smi",
                "nvidia-smi does not list the GPU, which Slurm gave to the job",
            )  # fmt: skip


def _against_need(c: _Counts, need: int) -> Iterator[Finding]:
    """The job's own share: whoever lists less than that lacks a GPU of this job."""
    if c.slurm is not None and 0 < c.slurm < need:
        return  # a job cannot have more than the node: one of the two was read wrongly
    plugged = c.bus.count + len(c.bus.dead) if c.bus is not None else 0
    if c.bus is not None and 0 < plugged < need:
        if c.smi is not None and c.smi.count > plugged:
            return  # nvidia-smi cannot list what is not on the bus: the listing is not whole
        sure = c.bus.whole or c.smi is not None
        yield _finding(
            c.node, None, Strength.DECISIVE if sure else Strength.STRONG, "off_bus", "PCI bus",
            f"{c.bus.count} GPUs on the PCI bus, the job has {need} on this node",
        )  # fmt: skip
    elif c.smi is not None and 0 < c.smi.count < need:
        # a list without addresses shows nowhere that it is whole
        yield from _each(
            c, Strength.DECISIVE if c.smi.pci else Strength.STRONG,
            f"nvidia-smi lists {c.smi.count} GPUs, the job has {need} on this node",
        )  # fmt: skip


def _against_others(c: _Counts, smi: GpuCount, counts: list[_Counts]) -> Iterator[Finding]:
    """Without the job's share: against the bus, Slurm's gres and the other nodes."""
    if smi.count == 0:
        return  # one broken query is not the loss of all GPUs
    whole = _whole(c)
    others = [o for o in counts if o.node != c.node and o.smi is not None]
    if whole is not None and smi.count < whole:
        known = [(o.smi.count, n) for o in others if o.smi and (n := _whole(o)) is not None]
        full = [listed for listed, n in known if listed >= n]
        short = [listed for listed, n in known if listed < n]
        where = "are plugged in" if c.bus is not None else "stand in Slurm's gres"
        says = f"nvidia-smi lists {smi.count} GPUs, {whole} {where}"
        if full and not short:
            yield from _each(c, Strength.STRONG, says)
        elif short:
            yield _subset(
                c, f"{says}, on other nodes too: a container or cgroup shows some of them"
            )
        else:
            yield from _each(c, Strength.WEAK, f"{says}; a container or cgroup may hide the rest")
        return
    usual = _usual(counts)
    if usual is not None and smi.count < usual and whole is None:
        strength = Strength.STRONG if len(others) + 1 >= ENOUGH_PEERS else Strength.WEAK
        says = f"nvidia-smi lists {smi.count} GPUs, {usual} on the other nodes"
        yield _finding(c.node, None, strength, "missing", "nvidia-smi", says)


def _whole(c: _Counts) -> int | None:
    """How many GPUs the node has, by the bus or by what Slurm was told."""
    plugged = c.bus.count if c.bus is not None else None
    return max((n for n in (plugged, c.slurm) if n is not None), default=None)


def _usual(counts: list[_Counts]) -> int | None:
    """What most nodes show; with two that differ, the larger: cards vanish, they do not appear."""
    numbers = Counter(c.smi.count for c in counts if c.smi is not None and c.node is not None)
    if len(numbers) < 2:
        return None
    number, times = numbers.most_common(1)[0]
    if 2 * times > sum(numbers.values()):
        return number
    return max(numbers) if sum(numbers.values()) == 2 else None


def _each(c: _Counts, strength: Strength, says: str) -> Iterator[Finding]:
    """One finding a card that is on the bus and not in nvidia-smi; else one for the node."""
    gone = sorted(set(c.bus.pci) - set(c.smi.pci)) if c.bus and c.smi and c.smi.pci else []
    if c.smi and c.bus and len(gone) == c.bus.count - c.smi.count:
        for address in gone:
            yield _finding(c.node, address, strength, "missing", "nvidia-smi", says)
    else:
        yield _finding(c.node, None, strength, "missing", "nvidia-smi", says)


def _subset(c: _Counts, says: str) -> Finding:
    return Finding(
        node=c.node,
        subject="gpu",
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        says=says,
        source="nvidia-smi",
    )


def _lost_by_word(view: View, found: list[Finding]) -> Iterator[Finding]:
    """nvidia-smi itself names a GPU that it cannot reach; one GPU is told once."""
    told = {s.gpu_pci for f in found for s in f.spots}
    for failure in view.all(SmiFailure):
        if failure.kind != "gpu_lost" or (failure.pci and failure.pci in told):
            continue
        told.add(failure.pci)
        gone = failure.pci is not None and any(
            c.source == "pci" and c.node == failure.node and c.pci and failure.pci not in c.pci
            for c in view.all(GpuCount)
        )
        yield _finding(
            failure.node, failure.pci, _by_word(view, failure), "off_bus" if gone else "missing",
            "nvidia-smi",
            "nvidia-smi cannot reach the GPU" + (", nor is it on the PCI bus" if gone else ""),
            failure.line,
        )  # fmt: skip
    for gpu in view.all(Gpu):
        lost = next((e for e in gpu.errors if "gpu is lost" in e.lower()), None)
        if lost and gpu.pci not in told:
            told.add(gpu.pci)
            yield _finding(
                gpu.node, gpu.pci, Strength.DECISIVE, "off_bus", "nvidia-smi",
                "nvidia-smi says that the GPU is lost", lost, gpu.index,
            )  # fmt: skip


def _by_word(view: View, failure: SmiFailure) -> Strength:
    """On a node with more GPUs than the job has, the lost one may be somebody else's."""
    own = _own(view, failure.node)
    if own is not None and failure.pci is not None:
        return Strength.DECISIVE if failure.pci in own else Strength.WEAK
    look = view.one(Look)
    share = look.gpus_per_node if look else None
    listed = [c for c in view.all(GpuCount) if c.node == failure.node and c.source == "nvidia-smi"]
    if share is not None and any(c.count >= share for c in listed):
        return Strength.WEAK
    return Strength.DECISIVE if failure.pci else Strength.STRONG


def _clear(view: View, counts: list[_Counts]) -> Iterator[Finding]:
    good = [c for c in counts if c.smi is not None and c.smi.count > 0]
    if not good:
        return
    listed = sum(c.smi.count for c in good if c.smi)
    look = view.one(Look)
    share = look.gpus_per_node if look else None
    nodes: set[str | None] = {c.node for c in good}
    if share is not None:
        says = f"{listed} GPUs answer, {share * len(good)} needed{on_nodes(nodes)}"
    else:
        says = f"{listed} GPUs answer{on_nodes(nodes)}; how many there should be is not known"
        on_bus = [c for c in good if c.bus is not None and c.smi is not None]
        if len(on_bus) == len(good):
            says = f"{listed} GPUs answer, as many as are plugged in{on_nodes(nodes)}"
    yield all_clear(view, says, "nvidia-smi", nodes)


def _finding(
    node: str | None,
    pci: str | None,
    strength: Strength,
    subtype: str,
    source: str,
    says: str,
    quote: str = "",
    index: int | None = None,
) -> Finding:
    return Finding(
        node=node,
        subject=subject(index, pci),
        role=Role.ROOT,
        strength=strength,
        says=says,
        quote=quote,
        source=source,
        spots=(Spot(node=node, gpu_pci=pci, gpu_index=index),),
        subtype=subtype,
        action="reboot_node",
    )
