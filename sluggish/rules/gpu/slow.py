"""SLOW-GPU: one GPU is held back while its peers are not."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, GpuSample
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.gpu.common import all_clear, mark_shared, on_nodes, subject

HARD_REASONS = frozenset({"hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
BAD_REASONS = HARD_REASONS | {"sw_thermal_slowdown"}
"""The power cap (`sw_power_cap`) is normal under load and no reason."""
HELD_SHARE = 0.6
"""Share of the busy samples in which a reason must stand: one flicker is no state."""
BUSY_PCT = 50
"""Clocks and link speed of an idle GPU are low by design; only busy samples count."""
CLOCK_SHARE = 0.8
"""Share of the peers' median clock; healthy boards of one job differ by a few per cent."""
LIMIT_SHARE = 0.95
FEW = 0.25
"""More GPUs (and nodes) than this share is a shift that has a shared cause: nobody is named."""
ENOUGH_PEERS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """One GPU under load."""

    node: str | None
    index: int | None
    pci: str | None
    uuid: str | None
    reasons: tuple[str, ...]
    clock: float | None
    limit: float | None
    generation: int | None
    width: int | None


@rule("SLOW-GPU", family=Family.KERNEL, needs=(GpuSample, Gpu), wants=(Look, Place))
def slow_gpu(view: View) -> Iterator[Finding]:
    """A GPU is throttled, clocked low or on a slower PCIe link while its peers are not."""
    loads = _loads(view)
    if len(loads) < ENOUGH_PEERS:
        return
    reasons = {i: told for i, load in enumerate(loads) if (told := _why(load, loads))}
    if not reasons:
        nodes = {load.node for load in loads}
        says = f"no GPU held back against its peers: {len(loads)} busy GPUs{on_nodes(nodes)}"
        yield all_clear(view, says, "nvidia-smi", nodes)
        return
    if not _few(reasons, loads):
        nodes = {loads[i].node for i in reasons}
        yield Finding(
            node=None,
            subject="job",
            role=Role.CONTEXT,
            strength=Strength.WEAK,
            says=f"{len(reasons)} of {len(loads)} busy GPUs are held back{on_nodes(nodes)}: "
            "a shared cause, no single one",
            source="nvidia-smi",
            shared=True,
        )
        return
    yield from mark_shared([_finding(view, loads[i], why) for i, why in reasons.items()])


def _loads(view: View) -> list[_Load]:
    gpus = {(g.node, g.pci or g.uuid or g.index): g for g in view.all(Gpu)}
    series: dict[tuple[str | None, str | int | None], list[GpuSample]] = {}
    for sample in view.all(GpuSample):
        if (sample.utilisation_pct or 0) >= BUSY_PCT and "gpu_idle" not in sample.throttle:
            key = (sample.node, sample.pci or sample.uuid or sample.index)
            series.setdefault(key, []).append(sample)
    out = [_load(samples, gpus.get(key)) for key, samples in series.items()]
    for key, gpu in gpus.items():
        if key not in series and (gpu.utilisation_pct or 0) >= BUSY_PCT and not _sampled(view, gpu):
            out.append(_load([], gpu))
    return out


def _sampled(view: View, gpu: Gpu) -> bool:
    """A GPU with samples is judged by them: its one look may stand before the window."""
    return any(s.node == gpu.node and s.pci == gpu.pci for s in view.all(GpuSample))


def _load(samples: list[GpuSample], gpu: Gpu | None) -> _Load:
    counts: dict[str, int] = {}
    for sample in samples:
        for reason in sample.throttle:
            counts[reason] = counts.get(reason, 0) + 1
    held = tuple(
        sorted(r for r, n in counts.items() if r in BAD_REASONS and n >= HELD_SHARE * len(samples))
    )
    if not samples and gpu:
        held = tuple(sorted(set(gpu.throttle) & BAD_REASONS))
    clocks = [s.sm_clock_mhz for s in samples if s.sm_clock_mhz]
    limits = [s.power_limit_w for s in samples if s.power_limit_w]
    one: GpuSample | Gpu | None = samples[0] if samples else gpu
    busy = gpu is not None and (gpu.utilisation_pct or 0) >= BUSY_PCT
    return _Load(
        node=one.node if one else None,
        index=one.index if one else None,
        pci=one.pci if one else None,
        uuid=one.uuid if one else None,
        reasons=held,
        clock=median(clocks) if clocks else (float(gpu.sm_clock_mhz or 0) or None if gpu else None),
        limit=limits[-1] if limits else (gpu.power_limit_w if gpu else None),
        generation=gpu.pcie_generation if gpu and busy else None,
        width=gpu.pcie_width if gpu and busy else None,
    )


def _why(load: _Load, loads: list[_Load]) -> list[tuple[Strength, str]]:
    """What holds this GPU back, each against the middle of all."""
    told: list[tuple[Strength, str]] = []
    if load.reasons:
        # the driver's own thermal limit costs a few per cent: a lower clock has to say so too
        hard = HARD_REASONS & set(load.reasons)
        words = "throttled: " + ", ".join(load.reasons)
        told.append((Strength.STRONG if hard else Strength.WEAK, words))
    clock = _middle([o.clock for o in loads])
    if load.clock and clock and load.clock < CLOCK_SHARE * clock:
        told.append((Strength.STRONG, f"SM clock {load.clock:.0f} MHz, peers {clock:.0f} MHz"))
    limit = _middle([o.limit for o in loads])
    if load.limit and limit and load.limit < LIMIT_SHARE * limit:
        told.append((Strength.WEAK, f"power limit {load.limit:.0f} W, peers {limit:.0f} W"))
    for name, mine, all_of in (
        ("generation", load.generation, [o.generation for o in loads]),
        ("width x", load.width, [o.width for o in loads]),
    ):
        usual = _middle([float(v) for v in all_of if v is not None])
        if mine is not None and usual is not None and mine < usual:
            told.append((Strength.STRONG, f"PCIe {name} {mine}, peers {usual:.0f}"))
    return told


def _middle(values: list[float] | list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return median(known) if len(known) >= ENOUGH_PEERS else None


def _few(reasons: dict[int, list[tuple[Strength, str]]], loads: list[_Load]) -> bool:
    """Few GPUs, or all of few nodes."""
    if len(reasons) <= max(1, FEW * len(loads)):
        return True
    nodes = {load.node for load in loads}
    hit = {loads[i].node for i in reasons}
    return len(hit) <= FEW * len(nodes)


def _finding(view: View, load: _Load, why: list[tuple[Strength, str]]) -> Finding:
    strong = any(strength is Strength.STRONG for strength, _ in why)
    rank = next(
        (p for p in view.all(Place) if p.node == load.node and p.gpu_pci == load.pci and load.pci),
        None,
    )
    place = Spot(
        node=load.node,
        gpu_index=load.index,
        gpu_uuid=load.uuid,
        gpu_pci=load.pci,
        rank=rank.rank if rank else None,
    )
    return Finding(
        node=load.node,
        subject=subject(load.index, load.pci),
        role=Role.ROOT,
        strength=Strength.STRONG if strong else Strength.WEAK,
        says="; ".join(words for _, words in why),
        source="nvidia-smi",
        spots=(place,),
        subtype="slow_gpu",
    )
