"""Which of a node's GPUs are the job's, by Slurm's numbers; and the rank of one that is lost.

Slurm tells each task the numbers of the GPUs of its step (`SLURM_STEP_GPUS`, or `SLURM_JOB_GPUS` in
a batch script; srun(1), sbatch(1)). They count the devices of the node, as a rule by address.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sluggish.facts.derived import OwnGpus, Place
from sluggish.facts.gpu import Gpu, GpuCount, SmiFailure
from sluggish.facts.host import RankProcess
from sluggish.facts.store import Facts
from sluggish.job import NodeState

NUMBERS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


def own_gpus(facts: Facts, places: Sequence[Place]) -> Iterator[OwnGpus]:
    """One a node on which it is sure.

    A site may number devices otherwise: a share of a node counts only where ranks are seen on GPUs
    of that share and on no other. A card that is gone from every listing shifts the numbers of the
    others: all that Slurm has configured must be there.
    """
    for node, numbers in _numbers(facts).items():
        every = _addresses(facts, node)
        if not every or len(every) != _configured(facts, node) or max(numbers) >= len(every):
            continue
        mine = tuple(every[n] for n in sorted(numbers))
        used = {p.gpu_pci for p in places if p.node == node and p.gpu_pci}
        if used <= set(mine) and (used or len(mine) == len(every)):
            yield OwnGpus(node=node, pci=mine)


def with_the_last(places: tuple[Place, ...], own: Sequence[OwnGpus]) -> tuple[Place, ...]:
    """Where all ranks of a node but one are seen on a GPU each, that one has the GPU left over.

    A GPU that left the bus lists no process any more: nothing else ties its rank to it.
    """
    given: dict[int, str] = {}
    for gpus in own:
        here = [p for p in places if p.node == gpus.node]
        free = set(gpus.pci) - {p.gpu_pci for p in here}
        without = [p for p in here if p.gpu_pci is None]
        if len(here) == len(gpus.pci) and len(free) == len(without) == 1:
            given[without[0].rank] = free.pop()
    return tuple(
        replace(place, gpu_pci=given[place.rank]) if place.rank in given else place
        for place in places
    )


def _numbers(facts: Facts) -> dict[str, set[int]]:
    """Node -> Slurm's numbers of the GPUs of its ranks; tasks may each be told only their own."""
    found: dict[str, set[int]] = {}
    for process in facts.all(RankProcess):
        if process.node is None or process.rank is None:
            continue
        told = dict(process.env)
        words = next((told[name] for name in NUMBERS if told.get(name)), "").split(",")
        if all(word.isascii() and word.isdigit() and len(word) < 4 for word in words):
            found.setdefault(process.node, set()).update(map(int, words))
    return found


def _addresses(facts: Facts, node: str) -> list[str]:
    """All GPUs of the node that any listing or error names, in the order of the bus.

    Empty where MIG is on: Slurm then counts instances.
    """
    if any(gpu.mig for gpu in facts.all(Gpu) if gpu.node == node):
        return []
    counts = [c for c in facts.all(GpuCount) if c.node == node]
    told = {pci for count in counts for pci in (*count.pci, *count.dead)}
    told |= {f.pci for f in facts.all(SmiFailure) if f.node == node and f.pci}
    return sorted(told)


def _configured(facts: Facts, node: str) -> int | None:
    return next((s.gpus for s in facts.all(NodeState) if s.node == node), None)
