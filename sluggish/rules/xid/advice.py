"""Which action a GPU fault wants: the driver's own word first, then the catalogue.

Order (NVIDIA open kernel modules, catalogue): Xid 154 and nvidia-smi's recovery action outrank the
table, except after the loss of the GPU, which only a reboot can mend.
"""

from collections.abc import Iterable

from sluggish.catalog.xid import recovery_action
from sluggish.correlate.xidrole import OFF_BUS, RECOVERY, role
from sluggish.facts.gpu import Gpu, Xid

RESET_NEEDS_ANSWER = frozenset({62, 119, 120})
"""After these a reset works only while nvidia-smi still answers and no process hangs in it."""
DRAIN_AND_RESET = 4
"""Recovery action that waits for the work on the GPU to end: a contained error."""


def announced(xids: Iterable[Xid], fact: Xid) -> int | None:
    """The last recovery action that the driver announced for this GPU from this line on."""
    later = [
        x.recovery
        for x in xids
        if x.code == RECOVERY and x.pci == fact.pci and x.recovery is not None
        and x.node == fact.node
        and (x.at is None or fact.at is None or x.at >= fact.at)
    ]  # fmt: skip
    return later[-1] if later else None


def action(
    fact: Xid,
    number: int | None,
    gpu: Gpu | None,
    *,
    contained: bool,
    codes: set[int],
    wedged: bool,
) -> str:
    """The word that the remedies key on. `wedged`: nvidia-smi hangs or did not answer there."""
    if fact.code == OFF_BUS:
        return "reboot_node"
    if 64 in codes or (gpu is not None and gpu.remap_failed):
        return "rma"
    asked = _asked(number, gpu, contained=contained)
    if asked is None:
        asked = "reset_gpu" if fact.reset_hint else role(fact).action
    if contained and asked == "reset_gpu" and not fact.reset_hint and number is None:
        asked = "restart_app"
    if asked == "reset_gpu" and wedged and codes & RESET_NEEDS_ANSWER:
        return "reboot_node"
    return asked


def _asked(number: int | None, gpu: Gpu | None, *, contained: bool) -> str | None:
    """What 154, or else nvidia-smi, asks for; None where neither asks."""
    if number == 0:
        return "restart_app"  # the driver took its demand back
    if number is not None:
        known = recovery_action(number)
        if contained and number == DRAIN_AND_RESET:
            return "restart_app"
        return known.action if known else None
    words = (gpu.recovery_action or "").lower() if gpu else ""
    if "reboot" in words:
        return "reboot_node"
    if "reset" in words or "flr" in words:
        return "restart_app" if contained and "drain" in words else "reset_gpu"
    return None


def recovery_words(number: int | None) -> str:
    """`; the driver asks for: Node Reboot Required`, or nothing."""
    if number is None:
        return ""
    if number == 0:
        return "; the driver has since taken back its request"
    known = recovery_action(number)
    return f"; the driver asks for: {known.words[0] if known else f'action {number}'}"
