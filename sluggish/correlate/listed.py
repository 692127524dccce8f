"""Processes that a list alone shows (`pmon`, `--query-compute-apps`), put to their GPU."""

from collections.abc import Sequence
from dataclasses import replace

from sluggish.facts.gpu import Gpu, GpuApps
from sluggish.facts.store import Facts


def with_processes(facts: Facts) -> None:
    """Gives each GPU the processes that a list shows on it, where its own report shows none.

    A GPU that nothing else describes becomes one of which only its processes are known.
    """
    gpus = facts.facts.get(Gpu, [])
    for apps in facts.all(GpuApps):
        found = [n for n, gpu in enumerate(gpus) if _same(gpu, apps)]
        for number in found:
            if not gpus[number].processes_listed:
                gpus[number] = replace(
                    gpus[number], processes=apps.processes, processes_listed=True
                )
        if not found and not _counted_anew(gpus, apps):
            facts.add(
                Gpu(
                    node=apps.node,
                    index=apps.index,
                    uuid=apps.uuid,
                    pci=apps.pci,
                    processes=apps.processes,
                    processes_listed=True,
                )
            )
            gpus = facts.facts[Gpu]


def _same(gpu: Gpu, apps: GpuApps) -> bool:
    if gpu.node != apps.node:
        return False
    if apps.uuid and gpu.uuid:
        return apps.uuid == gpu.uuid
    if apps.pci and gpu.pci:
        return apps.pci == gpu.pci
    return apps.index is not None and apps.index == gpu.index


def _counted_anew(gpus: Sequence[Gpu], apps: GpuApps) -> bool:
    """A number alone, on a node whose GPUs are known by others: which GPU it is nobody says."""
    return apps.index is not None and any(gpu.node == apps.node for gpu in gpus)
