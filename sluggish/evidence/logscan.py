"""The window reader of big logs: head, tail and the regions around known strings.

A log of any size is read once from end to end for fixed strings; what comes back is text of at
most about `budget` bytes. Memory stays bounded whatever the log holds.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sluggish.evidence.decode import decode
from sluggish.evidence.logsource import Source, bytes_source, file_source
from sluggish.evidence.needles import Tally, fast, scan

WHOLE = 2 << 20
"""A log up to this size is read as it is."""
HEAD = 512 << 10
TAIL = 1 << 20
BUDGET = 8 << 20
"""Bytes of matched regions; head and tail come on top."""
EACH = 400
"""Places kept of one string: the first and the last ones, because onset and end matter."""
BACK = 600
AHEAD = 1_800
"""Context before and behind a place, bytes: a few lines."""
GAP_MARK = "[... "
"""Begins the line that stands where bytes were left out."""
SLOW_MARK = "slow scan"
"""Stands in that line where the scan went without hyperscan."""
UNSEARCHED = "bytes not searched"
"""Stands in that line where nobody looked for the strings either."""
SLICED = 24 << 20
"""A text of slices up to this size is not cut a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What was read of a log."""

    text: str
    bytes_total: int
    """Of the unpacked log."""
    bytes_read: int
    """Of them in `text`."""
    matched_lines: int = 0
    """Lines in `text` that hold one of the strings; 0 where the whole log was taken."""
    capped: bool = False
    """True where a string stood more often than is kept."""
    slow_road: bool = False
    """True where the scan went without hyperscan."""
    whole: bool = True
    """True where nothing was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Region:
    start: int
    end: int
    places: tuple[int, ...] = ()
    """Offsets behind a needle, ascending."""


def excerpt(
    log: str | os.PathLike[str] | bytes | Source,
    needles: Sequence[bytes],
    *,
    ahead: Mapping[bytes, int] | None = None,
    whole: int = WHOLE,
    head: int = HEAD,
    tail: int = TAIL,
    budget: int = BUDGET,
    each: int = EACH,
    base: int = 0,
) -> Excerpt:
    """Read a log (a path, its bytes, or a `Source`; gzip is unpacked) into bounded text.

    `ahead` gives needles that need more bytes behind them than usual, e.g. tracebacks. `base` is
    the offset in the whole log at which this one begins: for the offsets that are told.
    OSError where the file cannot be read; damage inside a gzip stream ends the text there.
    """
    source = log if isinstance(log, Source) else _source(log)
    if source.size is not None and source.size <= max(whole, SLICED):
        data = b"".join(source.read([(0, source.size)]))
        if source.size <= whole or _has_slices(data):
            return Excerpt(text=decode(data), bytes_total=len(data), bytes_read=len(data))
    needles = tuple(dict.fromkeys(needle for needle in needles if needle))
    tallies, total = scan(source, needles, each)
    if total <= whole:
        data = b"".join(source.read([(0, total)]))
        return Excerpt(text=decode(data), bytes_total=total, bytes_read=len(data))
    reach = [max(AHEAD, (ahead or {}).get(needle, 0)) for needle in needles]
    ends = [_Region(start=0, end=min(head, total)), _Region(start=max(0, total - tail), end=total)]
    regions, thinned = _within(tallies, reach, ends, total, budget + head + tail, each)
    pieces = list(_snapped(source, regions))
    return Excerpt(
        text="".join(_joined(pieces, total, base)),
        bytes_total=total,
        bytes_read=sum(len(data) for _, data, _ in pieces),
        matched_lines=sum(lines for _, _, lines in pieces),
        capped=thinned or any(tally.full for tally in tallies),
        slow_road=not fast(),
        whole=False,
    )


def _source(log: str | os.PathLike[str] | bytes) -> Source:
    return bytes_source(log) if isinstance(log, bytes) else file_source(log)


def _within(
    tallies: Sequence[Tally],
    reach: Sequence[int],
    ends: list[_Region],
    total: int,
    budget: int,
    each: int,
) -> tuple[list[_Region], bool]:
    """Regions that fit the budget: every string gives up its middle places alike."""
    keep = each
    while True:
        found = [
            _Region(start=max(0, at - BACK), end=min(total, at + ahead), places=(at,))
            for tally, ahead in zip(tallies, reach, strict=True)
            for at in {*tally.first[:keep], *list(tally.last)[-keep:]}
        ]
        regions = _merged([*ends, *found])
        if keep <= 1 or sum(region.end - region.start for region in regions) <= budget:
            return regions, keep < each
        keep = keep * 2 // 3


def _merged(regions: list[_Region]) -> list[_Region]:
    out: list[_Region] = []
    start = end = -1
    places: list[int] = []
    for region in sorted(regions, key=lambda region: region.start):
        if region.start > end:
            if end >= 0:
                out.append(_Region(start=start, end=end, places=tuple(sorted(places))))
            start, end, places = region.start, region.end, []
        end = max(end, region.end)
        places.extend(region.places)
    out.append(_Region(start=start, end=end, places=tuple(sorted(places))))
    return out


def _snapped(source: Source, regions: list[_Region]) -> Iterator[tuple[int, bytes, int]]:
    """Offset, bytes and number of matched lines of each region, cut at line ends.

    A line too long for its region stays cut: a 200 MB line is shown around its matches.
    """
    spans = [(region.start, region.end) for region in regions]
    for region, data in zip(regions, source.read(spans), strict=False):
        first = region.places[0] - region.start if region.places else len(data)
        last = region.places[-1] - region.start if region.places else 0
        cut = 0
        if region.start:
            newline = data.find(b"\n", 0, max(0, data.rfind(b"\n", 0, first) + 1))
            cut = newline + 1
        stop = data.rfind(b"\n", last)
        stop = len(data) if stop < 0 or region is regions[-1] else stop + 1
        lines = {data.rfind(b"\n", 0, at - region.start) for at in region.places}
        yield region.start + cut, data[cut:stop], len(lines)


def _joined(pieces: list[tuple[int, bytes, int]], total: int, base: int) -> Iterator[str]:
    how = f" ({SLOW_MARK})" * (not fast())
    for (at, data, _), (after, _, _) in pairwise([*pieces, (total, b"", 0)]):
        yield decode(data)
        left_out = after - at - len(data)
        if left_out > 0:
            ended = "" if data.endswith(b"\n") else "\n"
            following = f"next is byte {base + after}"
            yield f"{ended}{GAP_MARK}{left_out} bytes not read{how}, {following} ...]\n"


def unsearched(count: int, following: int) -> str:
    """The line for bytes that nobody looked at."""
    return f"{GAP_MARK}{count} {UNSEARCHED}, next is byte {following} ...]\n"


# [... 123456 bytes not read, next is byte 234567 ...]      [... 99 bytes not searched, next ... ]
_SLICES = re.compile(
    rb"^" + re.escape(GAP_MARK.encode()) + rb"\d{1,18} bytes not [a-z]{4,8}"
    rb"(?: \([a-z ]{1,20}\))?, next is byte \d{1,18} \.\.\.\]$",
    re.MULTILINE,
)


def _has_slices(data: bytes) -> bool:
    """Whether a live look has cut this text already."""
    return bool(_SLICES.search(data))
