"""GPU-ECC and GPU-REMAP: what the counters say of a GPU's memory.

Volatile counters count since the driver was loaded or the GPU was reset, aggregate ones over the
life of the board: neither carries a time. So a counter alone is never more than weak; with a memory
Xid of that GPU in the job's time it is strong; where the kernel log covers the job and shows none,
it is old and goes to housekeeping.
"""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, Xid
from sluggish.facts.host import KernelSpan, NodeIdentity
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.gpu.common import (
    all_clear,
    is_others,
    log_covers_job,
    mark_shared,
    memory_xid,
    on_nodes,
    spot,
    subject,
)

CORRECTABLE_PER_S = 1000.0
"""Dying HBM without any Xid was seen at 4,600 and 17,600 a second (NVSentinel 1748)."""
SECONDS_APART = 10.0
_WANTS = (Xid, KernelSpan, NodeIdentity, Look, Place)


@rule("GPU-ECC", family=Family.KERNEL, needs=(Gpu,), wants=_WANTS)
def gpu_ecc(view: View) -> Iterator[Finding]:
    """A GPU counts uncorrectable memory errors, or correctable ones at a rate of failing memory."""
    found = [f for gpu in view.all(Gpu) for f in _ecc(view, gpu)]
    found += _rates(view)
    yield from mark_shared(found)
    counted = [g for g in view.all(Gpu) if g.ecc_volatile_uncorrectable is not None]
    if counted and not any(g.ecc_volatile_uncorrectable for g in counted):
        nodes = {g.node for g in counted}
        says = f"no uncorrectable ECC error since driver load on {len(counted)} GPUs"
        rest = len(view.all(Gpu)) - len(counted)
        says += on_nodes(nodes) + (f"; {rest} GPUs do not count" if rest else "")
        yield all_clear(view, says, "nvidia-smi", nodes)


def _ecc(view: View, gpu: Gpu) -> Iterator[Finding]:
    count = gpu.ecc_volatile_uncorrectable
    if not count:
        return
    role, strength = _weigh(view, gpu)
    xid = memory_xid(view, gpu)
    says = f"{count} uncorrectable ECC error{'s' if count != 1 else ''} since driver load"
    if xid is not None:
        says += f", Xid {xid.code} in the job's time"
    elif role is Role.HOUSEKEEPING:
        says += ", none of it in the job's time"
    yield Finding(
        node=gpu.node,
        subject=subject(gpu.index, gpu.pci),
        role=role,
        strength=strength,
        at=xid.at if xid else None,
        says=says,
        quote=xid.line if xid else "",
        source="nvidia-smi",
        spots=(spot(gpu, view.all(Place)),),
        subtype="ecc",
        action="reset_gpu",
    )


def _weigh(view: View, gpu: Gpu) -> tuple[Role, Strength]:
    if is_others(view, gpu):
        return Role.HOUSEKEEPING, Strength.WEAK
    if memory_xid(view, gpu) is not None:
        return Role.ROOT, Strength.STRONG
    if log_covers_job(view, gpu.node):
        return Role.HOUSEKEEPING, Strength.WEAK
    return Role.ROOT, Strength.WEAK


def _rates(view: View) -> Iterator[Finding]:
    """Correctable errors a second: between two looks, or on average since boot at the least."""
    uptimes = {i.node: i.uptime_s for i in view.all(NodeIdentity) if i.uptime_s}
    looks: dict[tuple[str | None, str | None], list[Gpu]] = {}
    for gpu in view.all(Gpu):
        if gpu.ecc_volatile_correctable is not None and gpu.pci is not None:
            looks.setdefault((gpu.node, gpu.pci), []).append(gpu)
    for (node, _), gpus in looks.items():
        rate = _between(gpus)
        if rate is None:
            uptime = uptimes.get(node)
            rate = (gpus[-1].ecc_volatile_correctable or 0) / uptime if uptime else None
        if rate is not None and rate > CORRECTABLE_PER_S and not is_others(view, gpus[-1]):
            yield Finding(
                node=node,
                subject=subject(gpus[-1].index, gpus[-1].pci),
                role=Role.ROOT,
                strength=Strength.STRONG,
                says=f"{rate:,.0f} correctable ECC errors a second: failing memory",
                source="nvidia-smi",
                spots=(spot(gpus[-1], view.all(Place)),),
                subtype="ecc",
                action="rma",
            )


def _between(gpus: list[Gpu]) -> float | None:
    timed = sorted((g.at, g.ecc_volatile_correctable or 0) for g in gpus if g.at is not None)
    if len(timed) < 2:
        return None
    seconds = (timed[-1][0] - timed[0][0]).total_seconds()
    grown = timed[-1][1] - timed[0][1]
    return grown / seconds if seconds >= SECONDS_APART and grown >= 0 else None


@rule("GPU-REMAP", family=Family.KERNEL, needs=(Gpu,), wants=_WANTS)
def gpu_remap(view: View) -> Iterator[Finding]:
    """A GPU could not remap a bad row of its memory, or a remap waits for a reset."""
    found = [f for gpu in view.all(Gpu) for f in _remap(view, gpu)]
    yield from mark_shared(found)
    known = [g for g in view.all(Gpu) if g.remap_failed is not None]
    if known and not found:
        nodes = {g.node for g in known}
        says = f"no row remap failed or pending on {len(known)} GPUs{on_nodes(nodes)}"
        yield all_clear(view, says, "nvidia-smi", nodes)


def _remap(view: View, gpu: Gpu) -> Iterator[Finding]:
    worst = _worst(gpu)
    if worst is not None:
        role, strength = _failed(view, gpu)
        yield _said(view, gpu, role, strength, worst, "rma")
    if gpu.remap_pending:
        says = "row remap pending: works on, wants a reset when idle"
        yield _said(view, gpu, Role.HOUSEKEEPING, Strength.STRONG, says, "reset_gpu")
    elif gpu.repair_pending:
        says = "memory or TPC repair pending: wants a reset when idle"
        yield _said(view, gpu, Role.HOUSEKEEPING, Strength.STRONG, says, "reset_gpu")


def _worst(gpu: Gpu) -> str | None:
    if gpu.remap_failed:
        return "row remapping failed: the memory cannot be repaired"
    if gpu.unrepairable_memory:
        return "unrepairable memory"
    if gpu.sram_threshold_exceeded:
        return "SRAM error threshold exceeded"
    return None


def _failed(view: View, gpu: Gpu) -> tuple[Role, Strength]:
    """The flag stays for ever: with errors in the job's time it is a cause, without it is old."""
    if is_others(view, gpu):
        return Role.HOUSEKEEPING, Strength.STRONG
    if gpu.ecc_volatile_uncorrectable or memory_xid(view, gpu) is not None:
        return Role.ROOT, Strength.STRONG
    if log_covers_job(view, gpu.node):
        return Role.HOUSEKEEPING, Strength.STRONG
    return Role.ROOT, Strength.WEAK


def _said(view: View, gpu: Gpu, role: Role, strength: Strength, says: str, action: str) -> Finding:
    return Finding(
        node=gpu.node,
        subject=subject(gpu.index, gpu.pci),
        role=role,
        strength=strength,
        says=says,
        source="nvidia-smi",
        spots=(spot(gpu, view.all(Place)),),
        subtype="row_remap",
        action=action,
    )
