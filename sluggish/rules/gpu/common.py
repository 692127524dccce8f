"""Helpers that the GPU rules share: places, whose GPU it is, shared causes, wording of coverage."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, Xid
from sluggish.facts.host import KernelSpan
from sluggish.findings import Finding, Role, Spot, Strength, View
from sluggish.hostlist import fold

MEMORY_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140, 171, 172})
"""Codes of GPU memory errors and row remapping (NVIDIA's Xid catalogue)."""


def subject(index: int | None, pci: str | None) -> str:
    """`gpu 3`, or the address where nvidia-smi's index is not known."""
    if index is not None:
        return f"gpu {index}"
    return f"gpu {pci}" if pci else "gpu"


def spot(gpu: Gpu, places: Iterable[Place]) -> Spot:
    """The place of a GPU, with the rank that runs on it if a source tells."""
    rank = next((p for p in places if p.node == gpu.node and is_at(p, gpu)), None)
    return Spot(
        node=gpu.node,
        gpu_index=gpu.index,
        gpu_uuid=gpu.uuid,
        gpu_pci=gpu.pci,
        rank=rank.rank if rank else None,
        pid=rank.pid if rank else None,
    )


def is_at(place: Place, gpu: Gpu) -> bool:
    """Whether a rank's place is this GPU; the strongest key that both have decides."""
    if place.gpu_pci and gpu.pci:
        return place.gpu_pci == gpu.pci
    if place.gpu_uuid and gpu.uuid:
        return place.gpu_uuid == gpu.uuid
    return place.gpu_index is not None and place.gpu_index == gpu.index


def is_others(view: View, gpu: Gpu) -> bool:
    """True where the job's ranks are known to run on other GPUs of this shared node."""
    here = [p for p in view.all(Place) if p.node == gpu.node and _has_gpu(p)]
    look = view.one(Look)
    share = look.gpus_per_node if look else None
    all_placed = share is not None and len(here) >= share
    return all_placed and not any(is_at(p, gpu) for p in here)


def _has_gpu(place: Place) -> bool:
    return bool(place.gpu_pci or place.gpu_uuid) or place.gpu_index is not None


def mark_shared(findings: list[Finding]) -> list[Finding]:
    """The same fault on two or more nodes is one shared cause: nobody is to be drained for it."""
    nodes = {f.node for f in findings if f.role is Role.ROOT and f.node is not None}
    if len(nodes) < 2:
        return findings
    return [replace(f, shared=True) if f.role is Role.ROOT else f for f in findings]


def memory_xid(view: View, gpu: Gpu) -> Xid | None:
    """A memory Xid of this GPU since the job started, if the kernel log shows one."""
    started = _started(view)
    for xid in view.all(Xid):
        same = xid.node == gpu.node and gpu.pci is not None and xid.pci.lower() == gpu.pci
        recent = xid.at is None or started is None or xid.at >= started
        if same and recent and xid.code in MEMORY_XIDS:
            return xid
    return None


def log_covers_job(view: View, node: str | None) -> bool:
    """Whether the node's kernel log was read and reaches back to the start of the job."""
    if not view.saw(Xid, node):
        return False
    started = _started(view)
    spans = [s for s in view.all(KernelSpan) if s.node == node and not s.filtered]
    if any(s.from_boot for s in spans):
        return True
    return started is not None and any(s.first_at and s.first_at <= started for s in spans)


def _started(view: View) -> datetime | None:
    look = view.one(Look)
    return look.job_started_at if look else None


def all_clear(view: View, says: str, source: str, seen: set[str | None]) -> Finding:
    """One all-clear for the job, with the nodes that it does not speak for."""
    look = view.one(Look)
    blind = [n for n in (look.nodes if look else ()) if n not in seen]
    if blind:
        says += f"; not seen on {fold(blind)}"
    return Finding(
        node=None,
        subject="job",
        role=Role.ALL_CLEAR,
        strength=Strength.STRONG,
        says=says,
        source=source,
    )


def on_nodes(nodes: Iterable[str | None]) -> str:
    """` on 2 nodes`; empty where no file tells its node."""
    count = len({n for n in nodes if n is not None})
    return f" on {count} node{'s' if count != 1 else ''}" if count else ""
