"""The steady middle of a log: step lines that differ only in their digits, thousands of them.

Of those only the first and the last ones become facts, so the others need not be read line by
line: a log of megabytes is otherwise seconds of work while somebody waits.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import groupby

FREQUENT = 4_100
"""Lines of one shape from which on it is worth while."""
FIRST = 100
"""The first lines of a shape that stay."""
LAST = 4_000
"""The newest lines of a shape that stay: more than ever become facts."""
BEGINNING = 4_000
"""The first lines of a log stay: they show what its launcher puts in front of each."""
EDGE = 2
"""Lines that stay on both sides of what is left out: readers look at neighbours."""
MOST_SHAPES = 64
WORTH_CHARS = 500_000

_PIECE = re.compile(r"[^\r\n]*[\r\n]?")
_NO_DIGITS = dict.fromkeys(range(ord("0"), ord("9") + 1))


def without_middle(text: str, is_step: Callable[[str], bool]) -> str:
    """The text less steady step lines that are neither among the first nor the last.

    `is_step` tells of one line of a shape whether it is a step of the whole job and nothing else;
    lines that name a rank are not: the last one of each rank counts.
    """
    if len(text) < WORTH_CHARS:
        return text
    pieces = _PIECE.findall(text)
    shapes = [piece.translate(_NO_DIGITS) for piece in pieces]
    examples = {shape: piece for piece, shape in zip(pieces, shapes, strict=True)}
    frequent = [s for s, n in Counter(shapes).most_common(MOST_SHAPES) if n >= FREQUENT]
    left = {shape: -LAST for shape in frequent if is_step(examples[shape].rstrip("\r\n"))}
    if not left:
        return text
    first = dict.fromkeys(left, FIRST)
    spare = [False] * len(pieces)
    for place in range(len(pieces) - 1, BEGINNING, -1):
        shape = shapes[place]
        if shape in left:
            left[shape] += 1
            spare[place] = left[shape] > 0
    for place, shape in enumerate(shapes):
        if first.get(shape, 0) > 0:
            first[shape] -= 1
            spare[place] = False
    kept: list[str] = []
    place = 0
    for out, run in groupby(spare):
        end = place + len(list(run))
        if out and end - place > 2 * EDGE:
            kept += pieces[place : place + EDGE]
            kept += pieces[end - EDGE : end]
        else:
            kept += pieces[place:end]
        place = end
    return "".join(kept)
