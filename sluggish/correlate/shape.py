"""Shape: what utilisation and power over the window say. THAT a job hangs, never why.

One GPU spins (100 %, low flat power), is parked (0 %), or moves; measured against its own power
limit, since a watt that is idle for one board is work for another. Ten one-second samples are
weak evidence: a checkpoint, an evaluation or a loader wait looks the same for as long as it lasts.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median

from sluggish.correlate.gpu_series import (
    Key,
    Series,
    as_sample,
    by_index,
    key_of,
    keys_of,
    series_of,
)
from sluggish.facts.derived import Look
from sluggish.facts.gpu import Gpu, GpuSample, GpuShape, JobShape
from sluggish.facts.store import Facts

# Thresholds: field numbers of spinning and working boards (docs/rules/HANG-SPIN.md).
SPIN_UTIL_PCT = 95
SPIN_POWER_SHARE = 0.30
"""Spin sits at 0.17-0.25 of the limit on A100, H100, B300; training at 0.5 and more."""
SPIN_SPREAD_SHARE = 0.03
SPIN_MEMORY_PCT = 5
"""Memory-bound code shows 100 % at a quarter of the limit too, but its memory is busy."""
SPIN_CLOCK_SHARE = 0.9
PARKED_UTIL_PCT = 2
PARKED_POWER_SHARE = 0.28
"""Floor with a context on Hopper (0.18) plus a tenth of the limit."""
PARKED_MEMORY_CHANGE = 0.01
STEADY_SHARE = 0.95
"""Share of the samples for which a condition must hold."""
GHOST_MEMORY_MIB = 1024
"""A process in a collective holds more; a busy counter that is stuck holds nothing."""
STRONG_SECONDS = 60
"""A window at least this long is more than a glance; it stays one sign of one family."""


def derive_shapes(facts: Facts) -> Iterator[GpuShape | JobShape]:
    """One GpuShape a GPU and one JobShape; nothing where no GPU was looked at."""
    looks = facts.all(Look)
    found = tuple(gpu_shapes(facts.all(GpuSample), facts.all(Gpu)))
    yield from found
    if found:
        yield job_shape(found, looks[0] if looks else None)


def gpu_shapes(samples: Sequence[GpuSample], gpus: Sequence[Gpu]) -> Iterator[GpuShape]:
    """Shapes from the samples; where a GPU has none, nvidia-smi's single look stands in."""
    series: dict[Key, list[GpuSample]] = {}
    for sample in samples:
        series.setdefault(key_of(sample), []).append(sample)
    described = {key: gpu for gpu in gpus for key in keys_of(gpu)}
    for key, one in series.items():
        yield _shape(one, described.get(key) or by_index(one[0], gpus))
    sampled = {key for one in series.values() for sample in one for key in keys_of(sample)}
    for gpu in gpus:
        if not sampled.intersection(keys_of(gpu)) and not gpu.errors:
            yield _shape([as_sample(gpu)], gpu)


def job_shape(shapes: Iterable[GpuShape], look: Look | None) -> JobShape:
    """The picture of the whole job. Ghosts and GPUs without a process never count as spinning."""
    all_shapes = _of_the_job(tuple(shapes), look)
    known = [s for s in all_shapes if s.state != "unknown"]
    counts: dict[str, int] = {}
    for shape in all_shapes:
        counts[shape.state] = counts.get(shape.state, 0) + 1
    seen = {s.node for s in known}
    blind = tuple(n for n in (look.nodes if look else ()) if n not in seen)
    spin, parked = counts.get("spin", 0), counts.get("parked", 0)
    empty, moving = counts.get("empty", 0), counts.get("moving", 0)
    odd = tuple(s for s in known if s.state in ("parked", "empty"))
    kind = _kind(spin, parked, empty, moving)
    return JobShape(
        shape=kind,
        gpus=len(known),
        counts=tuple(sorted(counts.items())),
        odd=odd if kind == "split" else (),
        seconds=min((s.seconds for s in known), default=0.0),
        blind_nodes=blind,
    )


def _of_the_job(shapes: tuple[GpuShape, ...], look: Look | None) -> tuple[GpuShape, ...]:
    """On a shared node an empty GPU may be nobody's: only as many as the job has can be missed."""
    share = look.gpus_per_node if look else None
    if share is None:
        return shapes
    on_node: dict[str | None, int] = {}
    for shape in shapes:
        on_node[shape.node] = on_node.get(shape.node, 0) + 1
    return tuple(s for s in shapes if s.state != "empty" or on_node[s.node] <= share)


def _kind(spin: int, parked: int, empty: int, moving: int) -> str:
    total = spin + parked + empty + moving
    if total == 0:
        return "unknown"
    if moving and moving >= STEADY_SHARE * (spin + parked + moving):
        return "moving"
    if moving:
        return "mixed"
    if spin and spin == total:
        return "spin"
    if spin > parked + empty:
        return "split"
    if parked and not spin:
        return "parked"
    return "mixed" if spin else "unknown"


def _shape(samples: list[GpuSample], gpu: Gpu | None) -> GpuShape:
    first = samples[0]
    s = series_of(samples, gpu)
    state, why = _state(s, gpu)
    times = [sample.at for sample in samples if sample.at is not None]
    return GpuShape(
        node=first.node,
        index=first.index if first.index is not None else (gpu.index if gpu else None),
        state=state,
        pci=first.pci or (gpu.pci if gpu else None),
        uuid=first.uuid or (gpu.uuid if gpu else None),
        samples=len(samples),
        seconds=(max(times) - min(times)).total_seconds() if times else 0.0,
        utilisation_pct=median(s.util) if s.util else None,
        power_w=median(s.power) if s.power else None,
        power_limit_w=s.limit,
        limit_source=s.limit_source,
        power_spread_w=max(s.power) - min(s.power) if s.power else None,
        why=why,
    )


def _state(s: Series, gpu: Gpu | None) -> tuple[str, str]:
    if gpu is not None and gpu.mig:
        return "unknown", "MIG: utilisation is not measured, power is of the whole board"
    if not s.util:
        return "unknown", "no utilisation was printed"
    if _most(u <= PARKED_UTIL_PCT for u in s.util):
        return _idle(s, gpu)
    if not _most(u >= SPIN_UTIL_PCT for u in s.util):
        return "moving", ""
    if not s.power or s.limit is None:
        return "unknown", "100 % busy, but no power or no power limit to compare with"
    if _is_ghost(s, gpu):
        return "ghost", "100 % busy without a process: the busy counter is stale"
    return ("spin" if _is_flat_and_low(s, s.limit) else "moving"), ""


def _idle(s: Series, gpu: Gpu | None) -> tuple[str, str]:
    if s.power and s.limit and median(s.power) > PARKED_POWER_SHARE * s.limit:
        return "unknown", "0 % busy at high power: the two do not fit together"
    if gpu is not None and gpu.processes_listed and not gpu.processes:
        if not s.memory and gpu.memory_used_mib is None:
            return "unknown", "0 % busy, no process is listed and its memory use is not printed"
        if _holds_little(s, gpu):
            return "empty", ""
    if s.memory and max(s.memory) - min(s.memory) > PARKED_MEMORY_CHANGE * max(s.memory):
        return "moving", ""  # memory that changes is work between two samples
    return "parked", ""


def _is_flat_and_low(s: Series, limit: float) -> bool:
    spread = max(s.power) - min(s.power)
    quiet_memory = not s.memory_util or median(s.memory_util) <= SPIN_MEMORY_PCT
    full_clock = not s.clock or median(s.clock) >= SPIN_CLOCK_SHARE
    low = median(s.power) <= SPIN_POWER_SHARE * limit
    return low and spread <= SPIN_SPREAD_SHARE * limit and quiet_memory and full_clock


def _is_ghost(s: Series, gpu: Gpu | None) -> bool:
    """Blackwell's busy counter can stay at 100 % after a killed kernel, with nobody on the GPU."""
    return (
        gpu is not None
        and gpu.processes_listed
        and not gpu.processes
        and _holds_little(s, gpu)
        and s.limit is not None
        and median(s.power) <= SPIN_POWER_SHARE * s.limit
    )


def _holds_little(s: Series, gpu: Gpu) -> bool:
    used = max(s.memory) if s.memory else gpu.memory_used_mib
    return used is not None and used < GHOST_MEMORY_MIB


def _most(conditions: Iterable[bool]) -> bool:
    held = list(conditions)
    return sum(held) >= STEADY_SHARE * len(held)
