"""The window of one GPU as numbers, and which look belongs to which GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

from sluggish.catalog.gpu_models import model
from sluggish.facts.gpu import Gpu, GpuSample

Key = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The window of one GPU as numbers."""

    util: list[float]
    memory_util: list[float]
    power: list[float]
    clock: list[float]
    memory: list[int]
    limit: float | None
    limit_source: str


def series_of(samples: list[GpuSample], gpu: Gpu | None) -> Series:
    """Numbers only. The enforced limit goes before the catalogue's default of the model."""
    limits = [s.power_limit_w for s in samples if s.power_limit_w]
    known = model(gpu.name) if gpu else None
    limit, source = (limits[-1], "nvidia-smi") if limits else (None, "")
    if limit is None and gpu and gpu.power_limit_w:
        limit, source = gpu.power_limit_w, "nvidia-smi"
    if limit is None and known:
        limit, source = known.limit_w, "catalogue"
    return Series(
        util=[s.utilisation_pct for s in samples if s.utilisation_pct is not None],
        memory_util=[
            s.memory_utilisation_pct for s in samples if s.memory_utilisation_pct is not None
        ],
        power=[s.power_w for s in samples if s.power_w is not None],
        clock=[
            s.sm_clock_mhz / s.max_sm_clock_mhz
            for s in samples
            if s.sm_clock_mhz is not None and s.max_sm_clock_mhz
        ],
        memory=[s.memory_used_mib for s in samples if s.memory_used_mib is not None],
        limit=limit,
        limit_source=source,
    )


def key_of(one: GpuSample | Gpu) -> Key:
    """What tells this GPU from the others of the look."""
    return keys_of(one)[0]


def keys_of(one: GpuSample | Gpu) -> list[Key]:
    """PCI address first: masked captures share one uuid, and an index starts at 0 in a cgroup."""
    keys: list[Key] = []
    if one.pci:
        keys.append((one.node, one.pci))
    if one.uuid and one.uuid.strip("GPU-0"):
        keys.append((one.node, one.uuid))
    if one.index is not None and not keys:
        keys.append((one.node, f"#{one.index}"))
    return keys or [(one.node, "?")]


def by_index(sample: GpuSample, gpus: Sequence[Gpu]) -> Gpu | None:
    """dmon prints an index only; it is nvidia-smi's own order on that node."""
    if sample.pci or sample.uuid or sample.index is None:
        return None
    found = [g for g in gpus if g.node == sample.node and g.index == sample.index]
    return found[0] if len(found) == 1 else None


def as_sample(gpu: Gpu) -> GpuSample:
    """nvidia-smi's one look as a window of one sample."""
    return GpuSample(
        node=gpu.node,
        at=gpu.at,
        index=gpu.index,
        pci=gpu.pci,
        uuid=gpu.uuid,
        utilisation_pct=gpu.utilisation_pct,
        memory_utilisation_pct=gpu.memory_utilisation_pct,
        power_w=gpu.power_w,
        power_limit_w=gpu.power_limit_w,
        sm_clock_mhz=gpu.sm_clock_mhz,
        max_sm_clock_mhz=gpu.max_sm_clock_mhz,
        memory_used_mib=gpu.memory_used_mib,
        throttle=gpu.throttle,
    )
