"""GPU-LOST and GPU-SXID: GPU trouble told without the word Xid, and errors of the NVSwitch."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from sluggish.catalog.xid import sxid
from sluggish.causes import Family
from sluggish.correlate.window import When
from sluggish.correlate.xidrole import OFF_BUS, role
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Gpu, GpuTrouble, SXid, Xid
from sluggish.facts.host import KernelSpan, PcieError
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.xid.common import (
    SOURCE,
    WHEN_WORDS,
    Scene,
    all_clear,
    is_others,
    mark_shared,
    same_node,
    scene,
    spot,
    standing,
    subject,
)

SAME_LOSS = timedelta(minutes=5)
"""An Xid of the same GPU this near tells the same fault, and GPU-XID speaks of it."""
# kind -> subtype, action, words, strength in the window
_KINDS = {
    "fallen_off": ("off_bus", "reboot_node", "has fallen off the bus", Strength.DECISIVE),
    "gpu_lost": ("off_bus", "reboot_node", "is lost from the bus", Strength.STRONG),
    "bus_error": ("off_bus", "reboot_node", "met a fatal PCIe error", Strength.STRONG),
    "init_failed": ("missing", "reboot_node", "did not initialise", Strength.STRONG),
    "reset_required": ("xid", "reset_gpu", "the driver wants a GPU reset", Strength.STRONG),
    "uvm_fatal": ("xid", "reboot_node", "unified memory fails until a reboot", Strength.DECISIVE),
    "nvlink": ("nvlink", "check_fabric", "an NVLink was not found at its peer", Strength.WEAK),
}  # fmt: skip
_OF_A_GPU = frozenset({"fallen_off", "gpu_lost", "init_failed", "bus_error"})
_WANTS = (Gpu, Xid, Look, Onset, Place)
FABRIC_MANAGER = "] detected NVSwitch "
"""Stands in each line of Fabric Manager's log; no line of the kernel has it."""
SWITCH_ECHO = 12028
"""Access to a dead GPU or process (driver: non-fatal); some tools call it fatal."""


@rule("GPU-LOST", family=Family.KERNEL, needs=(GpuTrouble, PcieError), wants=_WANTS)
def gpu_lost(view: View) -> Iterator[Finding]:
    """The kernel log tells of a lost or unusable GPU without the word Xid."""
    now = scene(view)
    told = (*view.all(GpuTrouble), *_on_the_bus(view))
    found = [_trouble(now, t) for t in told if not _told_by_xid(view, t)]
    yield from mark_shared(found)


def _on_the_bus(view: View) -> Iterator[GpuTrouble]:
    """Fatal PCIe errors of a device that the NVIDIA driver holds: in most the GPU is gone.

    `nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), ...`
    """
    lost = {(t.node, t.pci) for t in view.all(GpuTrouble)}
    for error in view.all(PcieError):
        ours = error.severity == "fatal" and "nvidia 0" in error.line
        if ours and (error.node, error.pci) not in lost:
            lost.add((error.node, error.pci))
            yield GpuTrouble(
                node=error.node, at=error.at, kind="bus_error", pci=error.pci, line=error.line
            )


def _told_by_xid(view: View, trouble: GpuTrouble) -> bool:
    """A loss is told by a 79 alone, other trouble by any Xid of that GPU that can be a cause."""
    loss = trouble.kind in ("fallen_off", "gpu_lost", "bus_error")
    return any(
        same_node(x.node, trouble.node)
        and trouble.pci in (None, x.pci)
        and (x.code == OFF_BUS if loss else role(x).hang == "cause")
        and (x.at is None or trouble.at is None or abs(x.at - trouble.at) <= SAME_LOSS)
        for x in view.all(Xid)
    )


def _trouble(now: Scene, trouble: GpuTrouble) -> Finding:
    subtype, action, words, strength = _KINDS.get(
        trouble.kind, (None, None, "driver and library versions do not match", Strength.WEAK)
    )
    where = now.when(trouble.at)
    return Finding(
        node=trouble.node,
        subject=subject(now, trouble.node, trouble.pci),
        role=_role(now, trouble, where) if subtype else Role.CONTEXT,
        strength=_strength(now, trouble, where, strength),
        at=trouble.at,
        says=(f"GPU {words}" if trouble.kind in _OF_A_GPU else words)
        + (f"; {WHEN_WORDS[where]}" if where in WHEN_WORDS else ""),
        quote=trouble.line,
        source=SOURCE,
        spots=(spot(now, trouble.node, trouble.pci, None),),
        subtype=subtype,
        action=action,
    )


def _role(now: Scene, trouble: GpuTrouble, where: When) -> Role:
    if where is When.TEARDOWN:
        return Role.CONSEQUENCE
    if where is When.HISTORY or is_others(now, trouble.node, trouble.pci):
        return Role.HOUSEKEEPING
    lasting = trouble.kind == "fallen_off" and standing(now, trouble.node, trouble.pci) is not False
    return Role.CONTEXT if where is When.EARLIER and not lasting else Role.ROOT


def _strength(now: Scene, trouble: GpuTrouble, where: When, full: Strength) -> Strength:
    if trouble.pci is None and full is Strength.DECISIVE and trouble.kind == "fallen_off":
        full = Strength.STRONG
    sure = where is When.CAUSE or (
        where is When.UNKNOWN and bool(standing(now, trouble.node, trouble.pci))
    )
    return Strength.STRONG if full is Strength.DECISIVE and not sure else full


@rule("GPU-SXID", family=Family.KERNEL, needs=(SXid,), wants=(*_WANTS, KernelSpan))
def gpu_sxid(view: View) -> Iterator[Finding]:
    """An NVSwitch of the node reported an error."""
    now = scene(view)
    found = [_switch(now, view, s) for s in _told_once(view.all(SXid))]
    yield from mark_shared(found)
    if not found and (clear := all_clear(view, "SXid")):
        yield clear


def _told_once(facts: Sequence[SXid]) -> Iterator[SXid]:
    """Fabric Manager's log repeats what the kernel's log says; the kernel's line stands."""
    kernel = [s for s in facts if FABRIC_MANAGER not in s.line]
    yield from kernel
    for copy in facts:
        if FABRIC_MANAGER in copy.line and not any(_same(copy, s) for s in kernel):
            yield copy


def _same(one: SXid, other: SXid) -> bool:
    alike = (one.code, one.pci, one.link) == (other.code, other.pci, other.link)
    near = one.at is None or other.at is None or abs(one.at - other.at) <= SAME_LOSS
    return alike and near and same_node(one.node, other.node)


def _switch(now: Scene, view: View, fact: SXid) -> Finding:
    where = now.when(fact.at)
    entry = sxid(fact.code)
    part, strength = _switch_part(view, fact, where)
    name = entry.name.replace("_", " ") if entry else "an error that is not known here"
    word = {True: "fatal", False: "not fatal", None: "severity not printed"}[fact.fatal]
    link = f", link {fact.link}" if fact.link is not None else ""
    return Finding(
        node=fact.node,
        subject=f"nvswitch {fact.pci}",
        role=part,
        strength=strength,
        at=fact.at,
        says=f"SXid {fact.code} ({word}{link}): {name}"
        + (f"; {WHEN_WORDS[where]}" if where in WHEN_WORDS else ""),
        quote=fact.line,
        source="fabric manager" if FABRIC_MANAGER in fact.line else SOURCE,
        spots=(Spot(node=fact.node),),
        subtype="nvswitch",
        action=_switch_action(part, strength),
    )


def _switch_part(view: View, fact: SXid, where: When) -> tuple[Role, Strength]:
    """The printed word counts; where there is none, the class of the Fabric Manager guide."""
    entry = sxid(fact.code)
    guide = entry.guide if entry else None
    if fact.code == SWITCH_ECHO and not fact.fatal and _gpu_fault_near(view, fact):
        return Role.CONSEQUENCE, Strength.WEAK
    fatal = fact.fatal or (fact.fatal is None and guide == "always-fatal")
    if not fatal:
        return Role.CONTEXT, Strength.WEAK
    if where is When.TEARDOWN:
        return Role.CONSEQUENCE, Strength.STRONG
    if where is When.HISTORY:
        return Role.HOUSEKEEPING, Strength.STRONG
    if where is When.EARLIER:
        return Role.CONTEXT, Strength.STRONG
    if entry is None:  # the driver's word alone: said, and never enough for a drain
        return Role.ROOT, Strength.WEAK
    # Fabric Manager's stamps have no zone: what it says alone is sure of no window
    sure = where is When.CAUSE and fact.fatal and FABRIC_MANAGER not in fact.line
    return Role.ROOT, Strength.DECISIVE if sure else Strength.STRONG


def _switch_action(part: Role, strength: Strength) -> str:
    """A switch that the driver itself calls dead: resetting GPUs leaves the fabric broken."""
    if part is not Role.ROOT:
        return "none"
    return "reboot_node" if strength is Strength.DECISIVE else "check_fabric"


def _gpu_fault_near(view: View, fact: SXid) -> bool:
    return any(
        same_node(x.node, fact.node)
        and (x.at is None or fact.at is None or abs(x.at - fact.at) <= SAME_LOSS)
        for x in view.all(Xid)
    )
