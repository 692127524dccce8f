"""GPU-LEFTOVER: memory of the job's GPUs is held by processes that are not the job's."""

import re
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, GpuProcess
from sluggish.facts.host import RankProcess
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.gpu.common import is_others, spot, subject

HELD_MIB = 1024
"""A context of a monitor takes some hundred MiB; a process that was left behind holds gigabytes."""
_SYSTEM = re.compile(r"Xorg|gnome|nvidia-cuda-mps|dcgm|nv-hostengine|nvsm|gdm")


@rule("GPU-LEFTOVER", family=Family.KERNEL, needs=(Gpu,), wants=(RankProcess, Look, Place))
def gpu_leftover(view: View) -> Iterator[Finding]:
    """A GPU of the job is also used by a process of somebody else, or its memory by nobody."""
    for node in dict.fromkeys(g.node for g in view.all(Gpu)):
        gpus = [g for g in view.all(Gpu) if g.node == node and g.processes_listed and not g.mig]
        mine = {p.pid for p in view.all(RankProcess) if p.node == node}
        listed = {p.pid for g in gpus for p in g.processes}
        if not mine & listed:  # a container's pids, or nothing to compare with
            continue
        for gpu in gpus:
            if not is_others(view, gpu) and (says := _says(gpu, mine)):
                yield _finding(view, gpu, says)


def _says(gpu: Gpu, mine: set[int]) -> str | None:
    foreign = [p for p in gpu.processes if _is_foreign(p, mine)]
    shared_with_us = any(p.pid in mine for p in gpu.processes)
    if foreign and (shared_with_us or gpu.processes):
        worst = max(foreign, key=lambda p: p.memory_mib or 0)
        gib = (worst.memory_mib or 0) / 1024
        return f"pid {worst.pid} ({worst.name or 'unknown'}), not of this job, holds {gib:.0f} GiB"
    if not gpu.processes and (gpu.memory_used_mib or 0) >= HELD_MIB:
        gib = (gpu.memory_used_mib or 0) / 1024
        return f"{gib:.0f} GiB are held and no process is listed: left by one that ended badly"
    return None


def _is_foreign(process: GpuProcess, mine: set[int]) -> bool:
    graphics = (process.kind or "C").upper() == "G"
    held = (process.memory_mib or 0) >= HELD_MIB
    return not graphics and held and process.pid not in mine and not _is_system(process)


def _is_system(process: GpuProcess) -> bool:
    return bool(_SYSTEM.search(process.name or ""))


def _finding(view: View, gpu: Gpu, says: str) -> Finding:
    return Finding(
        node=gpu.node,
        subject=subject(gpu.index, gpu.pci),
        role=Role.HOUSEKEEPING,
        strength=Strength.STRONG,
        says=says,
        source="nvidia-smi",
        spots=(spot(gpu, view.all(Place)),),
    )
