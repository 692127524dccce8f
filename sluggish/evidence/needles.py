"""Finding fixed strings in blocks of a log: with hyperscan at disk speed, without it slowly."""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluggish.evidence.logsource import Source

try:
    import hyperscan
except ImportError:  # no wheel for this platform: the slower road is taken, and said
    hyperscan = None

MAX_ANCHORS = 32
"""Up to here hyperscan stays on its fastest engine (seen: 5 GB/s at 32 strings, 3.8 at 36)."""
SHORTEST_ANCHOR, LONGEST_ANCHOR = 5, 16
MOST_SHARED = 2 * MAX_ANCHORS
"""With more needles than this, common parts will not bring them under the limit."""
STRAY_LIMIT = 5_000
"""After so many anchors that were no needle, the needles themselves are searched."""
CROWDED = 500
"""Hits in one block from which it pays to look only once a block for needles already full."""

Report = Callable[[int, int], None]
"""Called with the number of an anchor and the offset behind it in the view."""
Find = Callable[[memoryview, Report], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A string that is searched, and the needles that contain it."""

    text: bytes
    needles: tuple[tuple[int, int], ...]
    """Number of the needle, bytes of it that follow the anchor."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """Where one needle was seen: the first ones and the last ones."""

    first: list[int] = field(default_factory=list[int])
    last: deque[int] = field(default_factory=deque[int])
    last_blocks: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    """Spans that hold at least one more, where only one hit a block was asked for."""
    full: bool = False


def fast() -> bool:
    """Whether hyperscan is there."""
    return hyperscan is not None


def plain_anchors(needles: Sequence[bytes]) -> tuple[Anchor, ...]:
    """Every needle is its own anchor."""
    return tuple(Anchor(text=text, needles=((i, 0),)) for i, text in enumerate(needles))


def shared_anchors(needles: Sequence[bytes], limit: int = MAX_ANCHORS) -> tuple[Anchor, ...]:
    """Fewer strings that cover all needles by what they have in common, longest parts first."""
    left = dict(enumerate(needles))
    anchors: list[Anchor] = []
    for length in range(LONGEST_ANCHOR, SHORTEST_ANCHOR - 1, -1):
        if len(left) + len(anchors) <= limit:
            break
        while (best := _most_shared(left, length)) and len(left) + len(anchors) > limit:
            numbers, gram = best
            anchors.append(_anchor(gram, numbers, needles))
            for number in numbers:
                del left[number]
    rest = (Anchor(text=text, needles=((i, 0),)) for i, text in left.items())
    return (*anchors, *rest)


def _most_shared(left: dict[int, bytes], length: int) -> tuple[list[int], bytes] | None:
    owners: dict[bytes, list[int]] = {}
    for number, text in left.items():
        for gram in {text[i : i + length] for i in range(len(text) - length + 1)}:
            owners.setdefault(gram, []).append(number)
    shared = [(len(numbers), gram) for gram, numbers in owners.items() if len(numbers) > 1]
    if not shared:
        return None
    _, gram = max(shared)
    return owners[gram], gram


def _anchor(gram: bytes, numbers: Sequence[int], needles: Sequence[bytes]) -> Anchor:
    behind = ((n, len(needles[n]) - needles[n].index(gram) - len(gram)) for n in numbers)
    return Anchor(text=gram, needles=tuple(behind))


def scan(source: Source, needles: Sequence[bytes], each: int) -> tuple[list[Tally], int]:
    """Every needle's first and last `each` places, and the number of bytes looked at.

    A place is the offset just behind the needle.
    """
    tallies = [Tally(last=deque(maxlen=each)) for _ in needles]
    if not needles:
        return tallies, sum(len(view) - had for _, view, had in source.blocks(0))
    hunt = _Hunt(needles, tallies, each, once=source.size is not None)
    total = 0
    for offset, view, had in source.blocks(max(map(len, needles)) - 1):
        hunt.block(offset, view, had)
        total = offset + len(view)
    for tally, needle in zip(tallies, needles, strict=True):
        _last_places(source, tally, needle, each)
    return tallies, total


class _Hunt:
    """The state of one pass: which anchors are searched, and how."""

    def __init__(
        self, needles: Sequence[bytes], tallies: list[Tally], each: int, once: bool
    ) -> None:
        self.needles, self.tallies, self.each, self.once = needles, tallies, each, once
        self.anchors = plain_anchors(needles)
        if MAX_ANCHORS < len(needles) <= MOST_SHARED:
            self.anchors = shared_anchors(needles)
        self.single: frozenset[int] = frozenset()
        self.find = _finder(self.anchors, self.single)
        self.strays = self.hits = 0

    def block(self, offset: int, view: memoryview, had: int) -> None:
        """Search one block; then see whether another way of searching fits the log better."""
        end = len(view)
        self.hits = 0

        def report(number: int, at: int) -> None:
            self.hits += 1
            found = False
            for needle, behind in self.anchors[number].needles:
                stop = at + behind
                text = self.needles[needle]
                if behind or len(text) != len(self.anchors[number].text):
                    start = stop - len(text)
                    if start < 0 or bytes(view[start:stop]) != text:
                        continue
                found = True
                if stop <= end and (had < stop or needle in self.single):
                    self._note(needle, offset, stop, end)
            self.strays += not found

        self.find(view, report)
        self._adapt()

    def _note(self, needle: int, offset: int, stop: int, end: int) -> None:
        tally = self.tallies[needle]
        if not tally.full:
            tally.first.append(offset + stop)
            tally.full = len(tally.first) >= self.each
        elif needle in self.single:
            span = (offset, offset + end)
            if not tally.last_blocks or tally.last_blocks[-1] != span:
                tally.last_blocks.append(span)
                if len(tally.last_blocks) > self.each:
                    tally.last_blocks.popleft()
        else:
            tally.last.append(offset + stop)

    def _adapt(self) -> None:
        shared = len(self.anchors) < len(self.needles)
        crowded = self.once and self.hits > CROWDED
        if shared and (self.strays > STRAY_LIMIT or crowded):
            self.anchors = plain_anchors(self.needles)
        elif not crowded:
            return
        if crowded:
            full = frozenset(i for i, tally in enumerate(self.tallies) if tally.full)
            if full == self.single and not shared:
                return
            self.single = full
        self.find = _finder(self.anchors, self.single)


def _finder(anchors: Sequence[Anchor], single: frozenset[int]) -> Find:
    """How to search: `single` are anchors (then equal to needles) of which one hit is enough."""
    if hyperscan is None:
        return _slow_finder(anchors, single)
    database: Any = hyperscan.Database()
    flags = [hyperscan.HS_FLAG_SINGLEMATCH if i in single else 0 for i in range(len(anchors))]
    texts = [anchor.text for anchor in anchors]
    database.compile(
        expressions=texts, ids=list(range(len(texts))), elements=len(texts), flags=flags,
        literal=True,
    )  # fmt: skip

    def find(view: memoryview, report: Report) -> None:
        def on_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            report(number, end)

        database.scan(view, match_event_handler=on_match)

    return find


def _slow_finder(anchors: Sequence[Anchor], single: frozenset[int]) -> Find:
    def find(view: memoryview, report: Report) -> None:
        block = bytes(view)
        for number, anchor in enumerate(anchors):
            for end in places(block, anchor.text):
                report(number, end)
                if number in single:
                    break

    return find


def places(block: bytes, text: bytes) -> Iterator[int]:
    """Offsets just behind every occurrence, overlapping ones too."""
    at = block.find(text)
    while at >= 0:
        yield at + len(text)
        at = block.find(text, at + 1)


def _last_places(source: Source, tally: Tally, needle: bytes, each: int) -> None:
    """Turn spans that hold some into the last places; older exact ones fill what is missing."""
    late: list[int] = []
    for span in reversed(tally.last_blocks):
        if len(late) >= each:
            break
        block = b"".join(source.read([span]))
        late = [span[0] + match.end() for match in re.finditer(re.escape(needle), block)] + late
    for at in late[-each:]:
        if not tally.last or at > tally.last[-1]:
            tally.last.append(at)
    tally.last_blocks.clear()
