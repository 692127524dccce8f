"""NVLinks that are down on one GPU and not on those beside it; part of GPU-FABRIC."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from sluggish.facts.derived import Place
from sluggish.facts.gpu import Gpu, GpuLinks
from sluggish.findings import Finding, Role, Spot, Strength, View
from sluggish.rules.gpu.common import is_others, spot, subject

ENOUGH_GPUS = 4
"""Fewer say nothing: two boards with a bridge, or one of two, are built so."""
FEW = 0.25
"""Both ends of a link without a switch between them are two of eight; more is how it was built."""


def link_findings(view: View) -> Iterator[Finding]:
    """A lost link is a hint: links that still train say `<inactive>` too.

    Sources: awslabs' notes on NVLink of B300 (compare the number of links over a node's GPUs);
    NVIDIA/NVSentinel issues 1481 and 1701 (A100 without a bridge, 214 of 288 nodes at boot).
    """
    groups: dict[tuple[str | None, bool], list[GpuLinks]] = defaultdict(list)
    for one in view.all(GpuLinks):
        if one.active is not None:
            groups[one.node, one.uuid is None].append(one)
    for same in groups.values():
        yield from _short_of(view, same)
    for one in view.all(GpuLinks):
        yield from _recoveries(view, one)


def _short_of(view: View, gpus: Sequence[GpuLinks]) -> Iterator[Finding]:
    """Those with fewer links than nearly all the others of their node, which lack none."""
    usual, _ = Counter(one.active for one in gpus).most_common(1)[0]
    odd = [one for one in gpus if one.active != usual]
    whole = [one for one in gpus if one.active == usual and not one.inactive]
    if not usual or len(gpus) < ENOUGH_GPUS or len(whole) + len(odd) < len(gpus):
        return
    if len(odd) > FEW * len(gpus) or any((one.active or 0) > usual for one in odd):
        return
    # boards are bridged by pairs: one alone among an odd number of others cannot be built so
    if any(not one.active for one in odd) and (len(odd) > 1 or len(whole) % 2 == 0):
        return
    for one in odd:
        which = ", ".join(map(str, one.inactive[:4]))
        down = f" (link {which} inactive)" if which else ""
        yield _finding(
            view, one, Role.ROOT,
            f"{one.active} NVLinks{down}, the {len(whole)} GPUs beside it have {usual}",
        )  # fmt: skip


def _recoveries(view: View, one: GpuLinks) -> Iterator[Finding]:
    """Counted since the driver was loaded: when, nobody says."""
    if one.failed:
        told = ", ".join(f"link {link}: {count}" for link, count in one.failed[:4])
        says = f"NVLink recoveries that failed since the driver was loaded: {told}"
        yield _finding(view, one, Role.HOUSEKEEPING, says)
    elif one.recovered:
        told = ", ".join(f"link {link}: {count}" for link, count in one.recovered[:4])
        says = f"NVLink recoveries since the driver was loaded: {told}"
        yield _finding(view, one, Role.HOUSEKEEPING, says)


def _finding(view: View, one: GpuLinks, role: Role, says: str) -> Finding:
    gpu = next((g for g in view.all(Gpu) if _is(one, g)), None)
    place = Spot(node=one.node, gpu_index=one.index, gpu_uuid=one.uuid)
    if gpu is not None:
        place = spot(gpu, view.all(Place))
    if gpu is not None and is_others(view, gpu):
        role = Role.HOUSEKEEPING
    return Finding(
        node=one.node,
        subject=subject(one.index, None),
        role=role,
        strength=Strength.WEAK,
        says=says,
        source="nvidia-smi",
        spots=(place,),
        subtype="nvlink",
        action="check_fabric",
    )


def _is(one: GpuLinks, gpu: Gpu) -> bool:
    if gpu.node != one.node:
        return False
    if one.uuid and gpu.uuid:
        return one.uuid == gpu.uuid
    return one.index is not None and one.index == gpu.index
