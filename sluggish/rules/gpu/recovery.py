"""GPU-RECOVERY and GPU-FABRIC: what the driver itself asks for, and the NVLink fabric's state."""

from collections.abc import Iterator, Sequence

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, GpuLinks, SmiFailure, Xid
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.gpu.common import all_clear, is_others, mark_shared, on_nodes, spot, subject
from sluggish.rules.gpu.links import link_findings

FALLEN_OFF = 79
"""After it no reset reaches the card, whatever the driver asks for."""
_SENSORS = ("fan", "draw", "limit", "temp", "power", "voltage")
"""A field of these that cannot be read is a sensor's trouble first."""


@rule("GPU-RECOVERY", family=Family.KERNEL, needs=(Gpu, SmiFailure), wants=(Xid, Look, Place))
def gpu_recovery(view: View) -> Iterator[Finding]:
    """The driver asks for a recovery action on a GPU, or cannot read the GPU any more."""
    found: list[Finding] = []
    for gpu in view.all(Gpu):
        found += _action(view, gpu)
        found += _unreadable(view, gpu)
    found += _by_word(view)
    yield from mark_shared(found)
    known = [g for g in view.all(Gpu) if g.recovery_action is not None]
    if known and not found:
        nodes = {g.node for g in known}
        says = f"no recovery action asked for on {len(known)} GPUs{on_nodes(nodes)}"
        yield all_clear(view, says, "nvidia-smi", nodes)


def _action(view: View, gpu: Gpu) -> Iterator[Finding]:
    words = (gpu.recovery_action or "none").strip()
    told = _read_action(words)
    if told is None:
        return
    role, strength, action = told
    if action == "reset_gpu" and _fell_off(view, gpu):
        action = "reboot_node"
    if is_others(view, gpu):
        role = Role.HOUSEKEEPING
    yield _finding(view, gpu, role, strength, f"GPU recovery action: {words}", "", action)


def _read_action(words: str) -> tuple[Role, Strength, str] | None:
    """The words differ by driver (`Reset`, `PF FLR`, `OS Reboot`): key on what they contain."""
    lower = words.lower()
    if lower in ("none", "no", ""):
        return None
    if "reboot" in lower:
        return Role.ROOT, Strength.DECISIVE, "reboot_node"
    if "drain" in lower and "reset" in lower:  # contained error: works on, reset when idle
        return Role.HOUSEKEEPING, Strength.STRONG, "reset_gpu"
    if "drain" in lower:  # stop the peer-to-peer jobs and read again: no reset is asked for yet
        return Role.ROOT, Strength.STRONG, "check_fabric"
    if "imex" in lower:
        return Role.ROOT, Strength.STRONG, "recover_imex"
    if "reset" in lower or "flr" in lower:
        return Role.ROOT, Strength.DECISIVE, "reset_gpu"
    return Role.ROOT, Strength.WEAK, "contact_support"


def _unreadable(view: View, gpu: Gpu) -> Iterator[Finding]:
    """`Unknown Error` and the like: how much it says depends on who else cannot be read."""
    bad = [e for e in gpu.errors if "gpu is lost" not in e.lower()]
    if not bad:
        return
    reset = next((e for e in bad if _is_reset(e)), None)
    told = (Role.ROOT, Strength.DECISIVE, bad) if reset else _told(gpu, bad, view.all(Gpu))
    if told is None:
        return
    role, strength, odd = told
    if role is Role.ROOT and is_others(view, gpu):
        role = Role.HOUSEKEEPING
    says = (
        "the GPU requires a reset"
        if reset
        else f"nvidia-smi cannot read {len(odd)} field{'s' if len(odd) != 1 else ''} of this GPU"
    )
    yield _finding(view, gpu, role, strength, says, reset or odd[0], "reset_gpu")


def _told(
    gpu: Gpu, bad: list[str], everyone: Sequence[Gpu]
) -> tuple[Role, Strength, list[str]] | None:
    """A field that most GPUs cannot read is the model's or the driver's; a whole node's is weak."""
    measured = [e for e in bad if not any(s in e.partition(":")[0] for s in _SENSORS)]
    if len(everyone) == 1:  # a model without that sensor prints so all its life
        return (Role.ROOT, Strength.WEAK, bad) if measured else None
    mates = [g for g in everyone if g.node == gpu.node]
    few = [e for e in bad if 2 * _share(e, everyone) <= len(everyone)]
    own = [e for e in few if len(mates) == 1 or _share(e, mates) < len(mates)]
    if own:
        weak = not any(e in measured for e in own)
        return Role.ROOT, Strength.WEAK if weak else Strength.STRONG, own
    node_s = [e for e in few if e in measured]
    if node_s:
        return Role.ROOT, Strength.WEAK, node_s
    return (Role.CONTEXT, Strength.WEAK, measured) if measured else None


def _share(error: str, gpus: Sequence[Gpu]) -> int:
    """How many of these GPUs print this error in this field."""
    return sum(error in g.errors for g in gpus)


def _is_reset(error: str) -> bool:
    """`GPU requires reset` is asked of each GPU by itself, also where all are asked."""
    return "reset" in error.rpartition(": ")[2].lower()


def _by_word(view: View) -> Iterator[Finding]:
    for failure in view.all(SmiFailure):
        if failure.kind == "reset_required":
            yield Finding(
                node=failure.node,
                subject=subject(None, failure.pci),
                role=Role.ROOT,
                strength=Strength.DECISIVE if failure.pci else Strength.STRONG,
                says="the GPU requires a reset",
                quote=failure.line,
                source="nvidia-smi",
                spots=(Spot(node=failure.node, gpu_pci=failure.pci),),
                subtype="xid",
                action="reset_gpu",
            )


def _fell_off(view: View, gpu: Gpu) -> bool:
    return any(
        x.code == FALLEN_OFF and x.node == gpu.node and x.pci.lower() == gpu.pci
        for x in view.all(Xid)
    )


def _finding(
    view: View, gpu: Gpu, role: Role, strength: Strength, says: str, quote: str, action: str
) -> Finding:
    return Finding(
        node=gpu.node,
        subject=subject(gpu.index, gpu.pci),
        role=role,
        strength=strength,
        says=says,
        quote=quote,
        source="nvidia-smi",
        spots=(spot(gpu, view.all(Place)),),
        subtype="xid",
        action=action,
    )


@rule("GPU-FABRIC", family=Family.KERNEL, needs=(Gpu, GpuLinks), wants=(Look, Place))
def gpu_fabric(view: View) -> Iterator[Finding]:
    """A GPU is not registered in the NVLink fabric, reports trouble of it, or has lost links."""
    known = [g for g in view.all(Gpu) if g.fabric_state is not None]
    bad = [g for g in known if _fabric_trouble(g)]
    # every GPU alike since its start: a fabric that is not set up has not stopped this job
    everywhere = len(bad) == len(known) and len({g.node for g in known}) > 1
    found = [_fabric(view, gpu, everywhere) for gpu in bad]
    found += link_findings(view)
    yield from mark_shared(found)
    if known and not any(f.role is Role.ROOT for f in found):
        nodes = {g.node for g in known}
        says = f"NVLink fabric complete on {len(known)} GPUs{on_nodes(nodes)}"
        yield all_clear(view, says + "; switches not checked", "nvidia-smi", nodes)


def _fabric_trouble(gpu: Gpu) -> str | None:
    """All links can be Active while the fabric is not up: state and status must both be good."""
    state = (gpu.fabric_state or "").lower()
    status = (gpu.fabric_status or "success").lower()
    if state == "completed" and status == "success":
        return ", ".join(gpu.fabric_trouble) or None
    return f"state {gpu.fabric_state}, status {gpu.fabric_status or 'not printed'}"


def _fabric(view: View, gpu: Gpu, everywhere: bool) -> Finding:
    training = (gpu.fabric_state or "").lower() in ("in progress", "not started")
    weak = everywhere or training or is_others(view, gpu)
    return Finding(
        node=gpu.node,
        subject=subject(gpu.index, gpu.pci),
        role=Role.HOUSEKEEPING if is_others(view, gpu) else Role.ROOT,
        strength=Strength.WEAK if weak else Strength.STRONG,
        says=f"NVLink fabric: {_fabric_trouble(gpu)}",
        source="nvidia-smi",
        spots=(spot(gpu, view.all(Place)),),
        subtype="nvlink",
        action="reset_nvlink_domain",
    )
