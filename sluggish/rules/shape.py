"""HANG-SPIN, HANG-SPLIT, HANG-PARKED: power and utilisation say that a job hangs, never why.

None of them is ever a cause: the same picture is made by a desync, an NVLink fault, a mismatched
HCA set, a library bug, a loader that waits and a checkpoint that is written. All are context.
"""

from collections.abc import Iterator
from dataclasses import replace

from sluggish.causes import Family
from sluggish.correlate.shape import STRONG_SECONDS
from sluggish.facts.derived import Place
from sluggish.facts.gpu import GpuShape, JobShape
from sluggish.findings import Finding, Role, Rule, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.text import safe

MOST_NAMED = 16


@rule("HANG-SPIN", family=Family.KERNEL, needs=(JobShape,), wants=(GpuShape, Place))
def hang_spin(view: View) -> Iterator[Finding]:
    """All GPUs are at 100 % with low, flat power: everybody waits inside a collective."""
    shape = view.one(JobShape)
    if shape is None:
        return
    if shape.shape == "spin":
        says = f"all {shape.gpus} GPUs at 100 % and {_watts(view, 'spin')}: waiting, not computing"
        yield _said(view, shape, says, ())
    elif shape.shape == "moving":
        busy = dict(shape.counts).get("moving", 0)
        says = f"{busy} GPUs compute: utilisation and power move (a weak sign of progress)"
        yield replace(_said(view, shape, says, ()), role=Role.ALL_CLEAR)
    yield from _ghosts(view)


@rule("HANG-SPLIT", family=Family.KERNEL, needs=(JobShape,), wants=(GpuShape, Place))
def hang_split(view: View) -> Iterator[Finding]:
    """Most GPUs wait at 100 % while a few sit at 0 %: somebody waits elsewhere."""
    shape = view.one(JobShape)
    if shape is None or shape.shape != "split":
        return
    spin = dict(shape.counts).get("spin", 0)
    spots = tuple(_spot(view, odd) for odd in shape.odd[:MOST_NAMED])
    names = ", ".join(_name(view, odd) for odd in shape.odd[:4])
    more = f" and {len(shape.odd) - 4} more" if len(shape.odd) > 4 else ""
    empty = sum(1 for odd in shape.odd if odd.state == "empty")
    what = " without a process" if empty == len(shape.odd) else ""
    says = f"{spin} GPUs at 100 % and {_watts(view, 'spin')}: waiting; at 0 %{what}: {names}{more}"
    yield _said(view, shape, says, spots)


@rule("HANG-PARKED", family=Family.KERNEL, needs=(JobShape,), wants=(GpuShape, Place))
def hang_parked(view: View) -> Iterator[Finding]:
    """All GPUs are at 0 % with the job's processes on them: everybody waits on the host side."""
    shape = view.one(JobShape)
    if shape is None or shape.shape != "parked":
        return
    parked = dict(shape.counts).get("parked", 0)
    says = f"{parked} GPUs at 0 % and {_watts(view, 'parked')}: nothing computes, the hosts wait"
    yield _said(view, shape, says, ())


def _said(view: View, shape: JobShape, says: str, spots: tuple[Spot, ...]) -> Finding:
    """Weak below a minute of samples; never more than one sign in any case."""
    shapes = [s for s in view.all(GpuShape) if s.state != "unknown"]
    looks = min((s.samples for s in shapes), default=0)
    says += f", {shape.seconds:.0f} s seen" if shape.seconds else ", one look"
    if shape.blind_nodes:
        says += f"; not seen on {fold(shape.blind_nodes)}"
    strong = shape.seconds >= STRONG_SECONDS and looks >= 10 and not shape.blind_nodes
    return Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT,
        strength=Strength.STRONG if strong else Strength.WEAK,
        says=says,
        source="GPU samples",
        spots=spots,
    )


def _ghosts(view: View) -> Iterator[Finding]:
    """Blackwell's busy counter may stay at 100 % after a killed kernel: no hang, no fault."""
    for shape in view.all(GpuShape):
        if shape.state == "ghost":
            yield Finding(
                node=shape.node,
                subject=_short(shape),
                role=Role.HOUSEKEEPING,
                strength=Strength.WEAK,
                says="100 % busy without a process and at idle power: a stale counter",
                source="GPU samples",
                spots=(_spot(view, shape),),
            )


def _watts(view: View, state: str) -> str:
    """`170-195 W of 1100 W`, over the GPUs in this state."""
    powers = [s for s in view.all(GpuShape) if s.state == state and s.power_w is not None]
    if not powers:
        return "unknown power"
    low = min(s.power_w or 0 for s in powers)
    high = max(s.power_w or 0 for s in powers)
    watts = f"{low:.0f} W" if round(low) == round(high) else f"{low:.0f}-{high:.0f} W"
    limits = {s.power_limit_w for s in powers if s.power_limit_w}
    return f"{watts} of {limits.pop():.0f} W" if len(limits) == 1 else watts


def _short(shape: GpuShape) -> str:
    return f"gpu {shape.index if shape.index is not None else shape.pci or '?'}"


def _name(view: View, shape: GpuShape) -> str:
    place = _place(view, shape)
    where = f"{safe(shape.node, 80)} " if shape.node else ""
    return f"{where}{_short(shape)}" + (f" (rank {place.rank})" if place else "")


def _place(view: View, shape: GpuShape) -> Place | None:
    for place in view.all(Place):
        if place.node != shape.node:
            continue
        if place.gpu_pci and shape.pci:
            if place.gpu_pci == shape.pci:
                return place
        elif place.gpu_index is not None and place.gpu_index == shape.index:
            return place
    return None


def _spot(view: View, shape: GpuShape) -> Spot:
    place = _place(view, shape)
    return Spot(
        node=shape.node,
        gpu_index=shape.index,
        gpu_uuid=shape.uuid,
        gpu_pci=shape.pci,
        rank=place.rank if place else None,
        pid=place.pid if place else None,
    )


RULES: tuple[Rule, ...] = (hang_spin, hang_split, hang_parked)
