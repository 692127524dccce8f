"""GPU-STUCK: a call into the GPU driver does not return."""

import re
from collections.abc import Iterator
from datetime import datetime

from sluggish.causes import Family
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.gpu import Gpu, GpuSample, SmiFailure
from sluggish.facts.host import HungTask, KernelSpan, NodeIdentity, RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.gpu.common import mark_shared

# os_acquire_rwlock_write+0x35/0x60 [nvidia], uvm_va_space_mm_shutdown, nvidia_unlocked_ioctl;
# not nvme_*, not nvfs/nvidia_fs: those are storage
_DRIVER = re.compile(
    r"\[nvidia(?:_uvm|_modeset)?\]|\b_?(?:nvidia_(?!fs)\w|uvm_\w|nv\d{4,}rm|rm_ioctl|rm_perform"
    r"|os_acquire_\w|nv_open_|nv_close_|nvUvm)"
)
_SILENT = re.compile(r"(?:timeout|stuck)\b")
_BROKEN = frozenset({"no_driver", "no_devices", "version_mismatch", "unknown_error"})
_PROBES = ("nvidia_smi", "gpu_samples")


@rule(
    "GPU-STUCK",
    family=Family.KERNEL,
    needs=(),
    wants=(Gpu, GpuSample, SmiFailure, RankProcess, HungTask, KernelSpan, NodeIdentity,
           Look, Onset),
)  # fmt: skip
def gpu_stuck(view: View) -> Iterator[Finding]:
    """nvidia-smi does not return or fails, or a process sits unkillable in the GPU driver."""
    silent = _silent(view)
    stuck = {**_hung_tasks(view), **_processes(view)}
    found: list[Finding] = []
    for node in dict.fromkeys([*silent, *stuck]):
        found.append(_finding(node, silent.get(node), stuck.get(node)))
    found += list(_after_the_kill(view))
    found += [_broken(view, failure) for failure in view.all(SmiFailure) if failure.kind in _BROKEN]
    yield from mark_shared(found)


def _broken(view: View, failure: SmiFailure) -> Finding:
    """The query as a whole failed: not the loss of all GPUs, and not proof that they are well."""
    # a driver updated under a running kernel module: the job goes on with the old one
    updated = failure.kind == "version_mismatch"
    others = any(view.saw(Gpu, g.node) and g.node != failure.node for g in view.all(Gpu))
    return Finding(
        node=failure.node,
        subject="nvidia-smi",
        role=Role.HOUSEKEEPING if updated else (Role.ROOT if others else Role.CONTEXT),
        strength=Strength.WEAK,
        says="nvidia-smi failed here" + (" and works on other nodes" if others else ""),
        quote=failure.line,
        source="nvidia-smi",
        spots=(Spot(node=failure.node),),
        subtype="driver_stuck",
    )


def _silent(view: View) -> dict[str | None, str]:
    """Nodes where nvidia-smi did not answer although the node did."""
    out: dict[str | None, str] = {}
    gaps = [*view.gaps(Gpu), *view.gaps(GpuSample)]
    for gap in gaps:
        if gap.probe in _PROBES and _SILENT.match(gap.why) and _answers(view, gap.node):
            out.setdefault(gap.node, gap.why)
    for failure in view.all(SmiFailure):
        if failure.kind == "timeout":
            out.setdefault(failure.node, failure.line)
    return out


def _answers(view: View, node: str | None) -> bool:
    """A node that answers nothing at all is not a GPU's fault: it is unobserved."""
    return any(view.saw(kind, node) for kind in (NodeIdentity, KernelSpan, RankProcess))


def _processes(view: View) -> dict[str | None, tuple[str, str, int, datetime | None]]:
    """Processes in state D with the driver on their kernel stack or as what they wait on."""
    out: dict[str | None, tuple[str, str, int, datetime | None]] = {}
    for process in view.all(RankProcess):
        frames = (process.wchan or "", *process.kernel_stack)
        frame = next((f for f in frames if _DRIVER.search(f[:300])), None)
        if process.state == "D" and frame:
            says = f"{process.name or 'a process'} is in state D inside the GPU driver"
            out.setdefault(process.node, (says, frame, process.pid, process.at))
    return out


def _hung_tasks(view: View) -> dict[str | None, tuple[str, str, int, datetime | None]]:
    out: dict[str | None, tuple[str, str, int, datetime | None]] = {}
    look, onset = view.one(Look), view.one(Onset)
    for task in view.all(HungTask):
        placed = when(task.at, look, onset)
        if _in_driver(task) and placed not in (When.HISTORY, When.TEARDOWN):
            seconds = f" for {task.seconds} s" if task.seconds else ""
            says = f"the kernel reports {task.process} blocked{seconds} in the GPU driver"
            out.setdefault(task.node, (says, task.line, task.pid, task.at))
    return out


def _in_driver(task: HungTask) -> bool:
    inside = any(_DRIVER.search(f[:300]) for f in task.stack)
    return inside or task.process.startswith("nvidia-smi")


def _after_the_kill(view: View) -> Iterator[Finding]:
    """A task that hangs in the driver only after the job was killed hangs because of the kill."""
    look, onset = view.one(Look), view.one(Onset)
    for task in view.all(HungTask):
        if _in_driver(task) and when(task.at, look, onset) is When.TEARDOWN:
            yield Finding(
                node=task.node,
                subject=f"pid {task.pid}",
                role=Role.CONSEQUENCE,
                strength=Strength.WEAK,
                at=task.at,
                says=f"{task.process} blocked in the GPU driver after the job was killed",
                quote=task.line,
                source="kernel",
                spots=(Spot(node=task.node, pid=task.pid),),
            )


def _finding(
    node: str | None,
    silent: str | None,
    stuck: tuple[str, str, int, datetime | None] | None,
) -> Finding:
    """A silence alone is weak: the tool can hang for reasons of its own."""
    if stuck is not None:
        says, quote, pid, at = stuck
        if silent is not None:
            says = f"nvidia-smi did not return, and {says}"
        return Finding(
            node=node,
            subject=f"pid {pid}",
            role=Role.ROOT,
            strength=Strength.STRONG,
            at=at,
            says=says,
            quote=quote,
            source="processes",
            spots=(Spot(node=node, pid=pid),),
            subtype="driver_stuck",
            action="reboot_node",
        )
    return Finding(
        node=node,
        subject="nvidia-smi",
        role=Role.ROOT,
        strength=Strength.WEAK,
        says="nvidia-smi did not return in time; no process seen stuck in the driver",
        quote=silent or "",
        source="nvidia-smi",
        spots=(Spot(node=node),),
        subtype="driver_stuck",
    )
