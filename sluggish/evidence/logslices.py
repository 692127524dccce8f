"""A log of any size in slices: its late part searched first, then the rest while time is left."""

import os
import time
from collections.abc import Mapping, Sequence

from sluggish.evidence.logscan import BUDGET, excerpt, unsearched
from sluggish.evidence.logsource import part_source

LATE = 64 << 20
"""Bytes at the end that are searched whatever it takes: there stands what stopped."""
LINE = 64 << 10
"""A part begins at the line's begin where it lies within so many bytes."""


def slices(
    file: int, size: int, needles: Sequence[bytes], ahead: Mapping[bytes, int], seconds: float
) -> str:
    """Head, tail and the lines around the needles of an open file, with the offsets of each slice.

    What the time did not suffice for is said in a line of its own.
    """
    until = time.monotonic() + seconds
    cut = _line_start(file, max(0, size - LATE))
    room = BUDGET // 2 if cut else BUDGET
    source = part_source(file, cut, size)
    late = excerpt(source, needles, ahead=ahead, base=cut, budget=room)
    if cut == 0:
        return late.text
    source = part_source(file, 0, cut, until)
    early = excerpt(source, needles, ahead=ahead, tail=0, budget=room)
    left = cut - early.bytes_total
    ended = "" if early.text.endswith("\n") else "\n"
    return early.text + ended + (unsearched(left, cut) if left > 0 else "") + late.text


def _line_start(file: int, at: int) -> int:
    if at == 0:
        return 0
    newline = os.pread(file, LINE, at).find(b"\n")
    return at + newline + 1 if newline >= 0 else at
