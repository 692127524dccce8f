"""What a GPU has done over the last minute, against its own learned level: no absolute watts.

spin: 100 % busy, and its power low and flat: inside a collective that does not end.
parked: 0 % busy with the job's memory on it: the host side does not send it work.
flat: busy and flat at a level that is not low; moving: everything else.

A level alone proves nothing: memory-bound code runs at 100 % and 22 % of the limit. So the level is
compared with what this GPU showed while its job moved. Parts of the limit: on H100, A100, B300 a
spin stands at 0.17 to 0.25 of it, training at 0.5 and more (public captures, NCCL issue #1967).
"""

import msgspec

from sluggish.watch.sample import Gpu

FLAT = 0.03
"""Spread of the power over the window, in parts of the limit, without the highest and lowest."""
LOW = 0.35
"""Of the way from the floor to the moving level."""
OF_LEVEL = 0.6
"""Of the moving level: a job that draws half of the limit spins at half of its own level."""
LOW_UNKNOWN = 0.30
"""Of the limit, where the job has not been seen moving."""
HIGH = 0.45
"""Of the limit: flat at such a level is work, e.g. at the power cap."""
PARKED_ABOVE = 0.10
BUSY, IDLE = 95.0, 2.0
"""Per cent."""
MEM_BUSY = 10.0
EMPTIED = 0.5
"""Of the memory in use while it moved."""
MISSED = 3
CONTEXT_MIB = 600.0
"""Below this no program holds the GPU."""
SMOOTH = 0.02
"""Weight of a new window in the learned level: some ten minutes at 5 s."""
TYPICAL_LIMIT_W = 700.0

UNKNOWN, UNUSED, GONE, MOVING, SPIN, PARKED, STEADY = (
    "unknown", "unused", "gone", "moving", "spin", "parked", "flat",
)  # fmt: skip


class Track(msgspec.Struct, frozen=True, array_like=True):
    """One GPU's window, and what was learned of it."""

    util: tuple[float, ...] = ()
    power: tuple[float, ...] = ()
    mem_util: float | None = None
    limit_w: float | None = None
    memory_mib: float | None = None
    level_w: float | None = None
    """Median power while it moved."""
    floor_w: float | None = None
    """Lowest power with a program on it."""
    full_mib: float = 0.0
    """Memory in use while it moved."""
    shape: str = UNKNOWN
    missed: int = 0
    """Samples in which the node's other GPUs were there and this one was not."""


def absent(track: Track) -> Track:
    """Without a row: gone after a few, for a sample may come in the middle of the rows."""
    missed = track.missed + 1
    shape = GONE if missed >= MISSED else track.shape
    return msgspec.structs.replace(track, missed=missed, shape=shape)


def advance(track: Track, gpu: Gpu, length: int) -> Track:
    """The track with one more sample; `length` samples are a window."""
    if gpu.util is None or gpu.power_w is None:
        return msgspec.structs.replace(track, shape=UNKNOWN)
    memory = gpu.memory_mib
    held = memory is None or memory > CONTEXT_MIB
    floor = track.floor_w
    if held:
        floor = gpu.power_w if floor is None else min(floor, gpu.power_w)
    track = Track(
        util=(*track.util, gpu.util)[-length:],
        power=(*track.power, gpu.power_w)[-length:],
        mem_util=gpu.mem_util,
        limit_w=gpu.limit_w or track.limit_w,
        memory_mib=memory,
        level_w=track.level_w,
        floor_w=floor,
        full_mib=track.full_mib,
    )
    shape = _shape(track, length)
    level = track.level_w
    now = sorted(track.power)[len(track.power) // 2]
    limit = track.limit_w or TYPICAL_LIMIT_W
    high = shape == STEADY and now >= HIGH * limit
    # from idle to a spin is a movement too: the first level is one that no spin has
    known = level is not None or now >= LOW_UNKNOWN * limit
    uneven = shape == MOVING and len(track.power) == length and not _flat(track)
    if high or (uneven and known):
        level = now if level is None else level + SMOOTH * (now - level)
    full = max(track.full_mib, memory or 0.0) if shape == MOVING else track.full_mib
    return msgspec.structs.replace(track, shape=shape, level_w=level, full_mib=full)


def emptied(track: Track) -> bool:
    """The program that moved has given its memory back: it ended, or begins anew."""
    return track.memory_mib is not None and track.memory_mib < EMPTIED * track.full_mib


def capped(track: Track) -> bool:
    """Flat at a level that no spin has: work at the power cap, or a kernel without end."""
    if track.shape != STEADY or not track.power:
        return False
    power = sorted(track.power)[len(track.power) // 2]
    return power >= HIGH * (track.limit_w or TYPICAL_LIMIT_W)


def _shape(track: Track, length: int) -> str:
    held = track.memory_mib is None or track.memory_mib > CONTEXT_MIB
    if not held and max(track.util) <= IDLE:
        return UNUSED
    if len(track.power) < length:
        # half a window is enough to see that it moves, and not to see that it does not
        return MOVING if len(track.power) * 2 >= length and not _flat(track) else UNKNOWN
    spare = len(track.util) // 12
    busy = sum(u < BUSY for u in track.util) <= spare
    idle = max(track.util) <= IDLE  # one burst a minute is a slow loader's work
    if not _flat(track) or not (busy or idle):
        return MOVING
    limit = track.limit_w or TYPICAL_LIMIT_W
    power = sorted(track.power)[length // 2]
    floor = track.floor_w if track.floor_w is not None else 0.10 * limit
    if idle:
        return PARKED if power <= floor + PARKED_ABOVE * limit else STEADY
    if track.mem_util is not None and track.mem_util > MEM_BUSY:
        return STEADY
    if track.level_w is None:
        return SPIN if power <= LOW_UNKNOWN * limit else STEADY
    low = max(floor + LOW * max(0.0, track.level_w - floor), OF_LEVEL * track.level_w)
    return SPIN if power <= low else STEADY


def _flat(track: Track) -> bool:
    power = sorted(track.power)
    if len(power) >= 6:
        power = power[1:-1]
    return power[-1] - power[0] <= FLAT * (track.limit_w or TYPICAL_LIMIT_W)
