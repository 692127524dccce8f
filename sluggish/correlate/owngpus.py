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
    every, configured = _addresses(facts), {s.node: s.gpus for s in facts.all(NodeState)}
    used: dict[str | None, set[str]] = {}
    for place in places:
        if place.gpu_pci:
            used.setdefault(place.node, set()).add(place.gpu_pci)
    for node, numbers in _numbers(facts).items():
        here = sorted(every.get(node, ()))
        if not here or len(here) != configured.get(node) or max(numbers) >= len(here):
            continue
        mine = tuple(here[n] for n in sorted(numbers))
        seen = used.get(node, set())
        if seen <= set(mine) and (seen or len(mine) == len(here)):
            yield OwnGpus(node=node, pci=mine)


def with_the_last(places: tuple[Place, ...], own: Sequence[OwnGpus]) -> tuple[Place, ...]:
    """Where all ranks of a node but one are seen on a GPU each, that one has the GPU left over.

    A GPU that left the bus lists no process any more: nothing else ties its rank to it.
    """
    given: dict[int, str] = {}
    by_node: dict[str | None, list[Place]] = {}
    for place in places:
        by_node.setdefault(place.node, []).append(place)
    for gpus in own:
        here = by_node.get(gpus.node, [])
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


def _addresses(facts: Facts) -> dict[str | None, set[str]]:
    """Node -> all GPUs that any listing or error names; in order of the bus when sorted.

    A node with MIG is left out: Slurm counts instances there.
    """
    found: dict[str | None, set[str]] = {}
    for count in facts.all(GpuCount):
        found.setdefault(count.node, set()).update((*count.pci, *count.dead))
    for failure in facts.all(SmiFailure):
        if failure.pci:
            found.setdefault(failure.node, set()).add(failure.pci)
    sliced = {gpu.node for gpu in facts.all(Gpu) if gpu.mig}
    return {node: told for node, told in found.items() if node not in sliced}
