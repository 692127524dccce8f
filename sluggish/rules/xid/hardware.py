"""GPU-XID: a GPU of the job reported a fault that can stop a job.

Judged by burst, window and place. Only a line in the cause window is decisive; a line after the
stall began can still tell of it late (an NVSwitch fault was silent for 15 minutes, a dead GSP is
seen when somebody asks), so it stays possible; one from tear-down or from before the job is not.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from sluggish.catalog.xid import decode_xid74, xid
from sluggish.causes import Family
from sluggish.correlate.bursts import SILENCE, after_pmu_failure, bursts, is_follower
from sluggish.correlate.window import When
from sluggish.correlate.xidrole import CONTAINED_ECC, OFF_BUS, SPREADING_ECC, XidRole, role
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Burst, Gpu, SmiFailure, SXid, Xid
from sluggish.facts.host import HungTask, KernelSpan, RankProcess
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.xid.advice import action, announced, recovery_words
from sluggish.rules.xid.common import (
    SOURCE,
    WHEN_WORDS,
    Scene,
    all_clear,
    culprit_pid,
    gpu_at,
    is_others,
    mark_shared,
    same_node,
    scene,
    spot,
    standing,
    subject,
)

SUBTYPES = {"ecc": "ecc", "nvlink": "nvlink", "gsp": "gsp"}
MILD_LINK_BITS = frozenset({"secondary", "corrected_threshold_only", "ignore"})
"""Xid 74 with only these bits follows something else or says nothing (vendor's RAS catalogue)."""
LATE_KINDS = frozenset({"bus", "gsp", "nvlink", "other"})
"""Faults that may be seen only after they stopped the job; a contained ECC error is not."""
_WANTS = (Gpu, SXid, SmiFailure, HungTask, RankProcess, KernelSpan, Look, Onset, Place)


@rule("GPU-XID", family=Family.KERNEL, needs=(Xid,), wants=_WANTS)
def gpu_xid(view: View) -> Iterator[Finding]:
    """The kernel log of a node shows a GPU fault that can stop a job."""
    now = scene(view)
    found = [f for burst in bursts(view.all(Xid)) for f in _of_burst(view, now, burst)]
    found = mark_shared(_victims_of_other_nodes(_latest_history(found)))
    yield from found
    if not any(f.role is Role.ROOT for f in found):
        others = [x for x in view.all(Xid) if now.when(x.at) is not When.HISTORY]
        clear = all_clear(view, "Xid of a GPU fault" if others else "Xid")
        if clear:
            yield clear


def _of_burst(view: View, now: Scene, burst: Burst) -> Iterator[Finding]:
    root = burst.root
    if root is None and burst.named_cause is not None:
        yield from _lost_line(now, burst, burst.named_cause)
    if root is not None and _is_hardware(root, burst):
        for fact in (root, *_also_accused(burst, root)):
            yield _accuse(view, now, burst, fact)
    yield from _unhurried(now, burst, root)


def _is_hardware(fact: Xid, burst: Burst) -> bool:
    """Not the program's own fault: a 31 right after a 122 is hardware too."""
    if role(fact).hang == "cause_app":
        return fact.code == 31 and after_pmu_failure(fact, burst.xids)
    entry = xid(fact.code)
    return entry is not None and entry.fault != "application"


def _also_accused(burst: Burst, root: Xid) -> list[Xid]:
    """GPUs of the burst with a fault of their own, one line each."""
    found: dict[str, Xid] = {}
    for fact in burst.xids:
        if role(fact).hang == "cause" and not is_follower(fact, root):
            found.setdefault(fact.pci, fact)
    return list(found.values())


def _accuse(view: View, now: Scene, burst: Burst, fact: Xid) -> Finding:
    told = role(fact)
    where = now.when(fact.at)
    codes = {x.code for x in burst.xids if x.pci == fact.pci}
    contained = _is_contained(codes)
    part, strength = _part(view, now, burst, fact, told, where, contained)
    number = announced(view.all(Xid), fact)
    gpu = gpu_at(now, fact.node, fact.pci)
    says = _says(burst, fact, told, codes, contained)
    advice = action(
        fact, number, gpu, contained=contained, codes=codes, wedged=_wedged(view, fact.node)
    )
    if advice == "rma":
        says += "; the row remap failed"
    return Finding(
        node=fact.node,
        subject=subject(now, fact.node, fact.pci),
        role=part,
        strength=strength,
        at=fact.at,
        says=says + recovery_words(number) + _when_words(where) + _not_ours(now, fact),
        quote=fact.line,
        source=SOURCE,
        spots=(spot(now, fact.node, fact.pci, culprit_pid(fact)),),
        subtype="row_remap" if advice == "rma" else _subtype(fact, told),
        action="check_fabric" if told.peer else advice,
    )


def _part(
    view: View, now: Scene, burst: Burst, fact: Xid, told: XidRole, where: When, contained: bool
) -> tuple[Role, Strength]:
    """Which part the fault plays, by its window and by what else is known of the GPU."""
    strength = _strength(burst, fact, told, contained)
    if where is When.TEARDOWN or _echo_of_switch(view, fact):
        return Role.CONSEQUENCE, strength
    if where is When.HISTORY or is_others(now, fact.node, fact.pci):
        return Role.HOUSEKEEPING, strength
    still = standing(now, fact.node, fact.pci)
    if told.hang != "cause" and fact.code != 31:
        if where in (When.CAUSE, When.UNKNOWN):
            return Role.ROOT, Strength.WEAK if where is When.UNKNOWN else strength
        return Role.CONTEXT, strength
    if where is When.EARLIER:
        lasting = still or (still is None and fact.code == OFF_BUS)
        return (Role.ROOT, Strength.STRONG) if lasting else (Role.CONTEXT, strength)
    if where is When.AFTERMATH:
        late = still or told.kind in LATE_KINDS or not contained
        return (Role.ROOT, Strength.STRONG) if late else (Role.CONTEXT, strength)
    if where is When.UNKNOWN and not still:
        return Role.ROOT, _at_most(strength, Strength.STRONG)
    return Role.ROOT, strength


def _at_most(strength: Strength, limit: Strength) -> Strength:
    return limit if strength is Strength.DECISIVE else strength


def _strength(burst: Burst, fact: Xid, told: XidRole, contained: bool) -> Strength:
    if told.peer or fact.code == 31:
        return Strength.STRONG  # the culprit is at the other end; 31 after 122 is an inference
    if told.hang == "cause":
        return _link_strength(burst, fact) if fact.code == 74 else Strength.DECISIVE
    entry = xid(fact.code)
    grave = entry is not None and entry.severity in ("critical", "high")
    hard = entry is not None and entry.fault in ("hardware", "fabric")
    return Strength.STRONG if grave and hard and not told.downstream else Strength.WEAK


def _link_strength(burst: Burst, fact: Xid) -> Strength:
    """74 is retried and often survived; on two GPUs of a node it is the link itself."""
    bits = decode_xid74(fact.link_words)
    if bits and all(bit.kind in MILD_LINK_BITS for bit in bits):
        return Strength.WEAK
    ends = {x.pci for x in burst.xids if x.code == 74}
    return Strength.DECISIVE if len(ends) > 1 else Strength.STRONG


def _echo_of_switch(view: View, fact: Xid) -> bool:
    """A fatal NVSwitch error shows on the GPUs as Xid 74."""
    return fact.code == 74 and any(
        s.fatal
        and same_node(s.node, fact.node)
        and (s.at is None or fact.at is None or abs(s.at - fact.at) <= SILENCE)
        for s in view.all(SXid)
    )


def _is_contained(codes: set[int]) -> bool:
    return 94 in codes and not codes & SPREADING_ECC


def _wedged(view: View, node: str | None) -> bool:
    """Nobody saw nvidia-smi answer there, or a process hangs in the driver."""
    smi = any(same_node(f.node, node) and f.kind == "timeout" for f in view.all(SmiFailure))
    answers = any(same_node(gpu.node, node) for gpu in view.all(Gpu))
    inside = any(
        same_node(p.node, node) and p.state == "D" and any("[nvidia" in f for f in p.kernel_stack)
        for p in view.all(RankProcess)
    )
    return (
        smi
        or inside
        or not answers
        or any(
            same_node(t.node, node)
            and (t.process.startswith("nvidia") or any("[nvidia" in frame for frame in t.stack))
            for t in view.all(HungTask)
        )
    )


def _subtype(fact: Xid, told: XidRole) -> str:
    if fact.code == OFF_BUS:
        return "off_bus"
    return SUBTYPES.get(told.kind, "xid")


def _says(burst: Burst, fact: Xid, told: XidRole, codes: set[int], contained: bool) -> str:
    if contained and fact.code in CONTAINED_ECC:
        listed = ", ".join(str(c) for c in sorted(codes & CONTAINED_ECC))
        return (
            f"Xid {listed}: uncorrectable memory error, contained: only the process using that "
            "memory was stopped"
        )
    if fact.code == 31:
        return "Xid 31 right after Xid 122 on the same GPU: hardware, not the program"
    link = f" on link {fact.link}" if fact.link is not None else ""
    peer = ": the other end of the link failed" if told.peer else ""
    return f"Xid {fact.code}{link}: {told.meaning}{peer}{_crowd(burst, fact)}"


def _crowd(burst: Burst, fact: Xid) -> str:
    """`; followed by Xid 145 on 7 GPUs, Xid 45 on 8 GPUs`."""
    gpus: dict[int, set[str]] = {}
    for x in burst.xids:
        if x is not fact and x.code != fact.code and x.code != 154:
            gpus.setdefault(x.code, set()).add(x.pci)
    parts = [
        f"Xid {code} on {len(where)} GPU{'s' if len(where) != 1 else ''}"
        for code, where in sorted(gpus.items())
    ]
    return f"; followed by {', '.join(parts[:4])}" if parts else ""


def _when_words(where: When) -> str:
    return f"; {WHEN_WORDS[where]}" if where in WHEN_WORDS else ""


def _not_ours(now: Scene, fact: Xid) -> str:
    return "; no rank of this job uses that GPU" if is_others(now, fact.node, fact.pci) else ""


def _lost_line(now: Scene, burst: Burst, code: int) -> Iterator[Finding]:
    """The driver names a cause whose own line is no longer in the log."""
    fact = next(x for x in burst.xids if x.caused_by == code)
    entry = xid(code)
    where = now.when(fact.at)
    if entry is None or entry.hang != "cause" or where in (When.HISTORY, When.EARLIER):
        return
    yield Finding(
        node=fact.node,
        subject=subject(now, fact.node, fact.pci),
        role=Role.CONSEQUENCE if where is When.TEARDOWN else Role.ROOT,
        strength=Strength.STRONG,
        at=fact.at,
        says=f"Xid {fact.code} names Xid {code} as its cause ({entry.meaning}); "
        f"that line itself is not in the log{_when_words(where)}",
        quote=fact.line,
        source=SOURCE,
        spots=(spot(now, fact.node, fact.pci, fact.pid),),
        subtype="off_bus" if code == OFF_BUS else SUBTYPES.get(entry.kind, "xid"),
        action=entry.action,
    )


def _unhurried(now: Scene, burst: Burst, root: Xid | None) -> Iterator[Finding]:
    """Self-repair and unknown codes: told, never a cause. One line a GPU and code."""
    told: set[tuple[str, int]] = set()
    for fact in burst.xids:
        entry = xid(fact.code)
        keep = role(fact).hang == "no" if entry else True
        if not keep or (fact.pci, fact.code) in told or (root and fact.pci == root.pci and entry):
            continue
        told.add((fact.pci, fact.code))
        yield Finding(
            node=fact.node,
            subject=subject(now, fact.node, fact.pci),
            role=Role.HOUSEKEEPING
            if entry and entry.fault in ("hardware", "fabric")
            else Role.CONTEXT,
            strength=Strength.WEAK,
            at=fact.at,
            says=f"Xid {fact.code}: {entry.meaning if entry else 'a code that is not known here'}"
            + _when_words(now.when(fact.at)),
            quote=fact.line,
            source=SOURCE,
            spots=(spot(now, fact.node, fact.pci, None),),
            action=_idle_action(fact.code) if entry else None,
        )


def _idle_action(code: int) -> str:
    return "reset_gpu" if code == 63 else "none"


def _latest_history(found: list[Finding]) -> list[Finding]:
    """Of old and idle news one line a GPU and wording is enough: the last one, with its number."""
    quiet = (Role.HOUSEKEEPING, Role.CONTEXT)
    key = [(f.node, f.subject, f.says.split(":")[0]) if f.role in quiet else None for f in found]
    counts = Counter(k for k in key if k)
    last = {k: i for i, k in enumerate(key) if k}
    return [
        replace(f, says=f"{f.says} ({counts[k]} times)") if k and counts[k] > 1 else f
        for i, (f, k) in enumerate(zip(found, key, strict=True))
        if k is None or last[k] == i
    ]


def _victims_of_other_nodes(found: list[Finding]) -> list[Finding]:
    """In a domain that spans nodes one GPU loses a link and the others only report it."""
    links = [f for f in found if f.role is Role.ROOT and f.subtype == "nvlink"]
    sources = [f for f in links if f.strength is Strength.DECISIVE]
    out: list[Finding] = []
    for f in found:
        source = next((s for s in sources if f in links and _explains(s, f)), None)
        if source is None:
            out.append(f)
            continue
        says = f"{f.says}; downstream of the link fault on {source.node}"
        out.append(replace(f, role=Role.CONSEQUENCE, says=says))
    return out


def _explains(source: Finding, victim: Finding) -> bool:
    if source.node == victim.node or victim.strength is Strength.DECISIVE:
        return False
    return source.at is None or victim.at is None or abs(source.at - victim.at) <= SILENCE
