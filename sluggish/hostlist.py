"""Expand and fold Slurm's node lists: `gpu[03-05,09]` <-> gpu03, gpu04, gpu05, gpu09.

Takes every shape that Slurm prints: ranges, padding, several brackets (also adjacent ones), text
after a bracket. Like `scontrol show hostnames`, `a[01-3]` is padded as its lower bound is.
Unlike it, unbalanced brackets are refused (scontrol prints half a name with exit code 0).
"""

import re
from collections.abc import Iterable
from itertools import pairwise, product

LIMIT = 100_000
"""More names than this are a mistake or an attack, not a cluster."""
NOTHING = {"", "(null)", "None assigned", "None", "N/A", "Unknown", "n/a"}
"""What Slurm prints where there is no list."""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_BAD = re.compile(r"[\s\x00-\x1f\x7f\[\],]")
_DIGITS = re.compile(r"([0-9]+)")
_MAX_DIGITS = 9


def expand(text: str) -> list[str]:
    """Names in order, duplicates kept, as `scontrol show hostnames` does; [] for `(null)`.

    Raises ValueError for unbalanced or nested brackets, bad ranges, and lists beyond `LIMIT`.
    """
    text = text.strip()
    if text in NOTHING:
        return []
    names: list[str] = []
    for item in _split(text):
        names.extend(_expand_one(item, LIMIT - len(names)))
    return names


def fold(names: Iterable[str]) -> str:
    """One short text for many names, `gpu[03-16],login1`; names are unique in it."""
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for name in dict.fromkeys(names):
        texts, numbers = _parts(name)
        groups.setdefault(texts, []).append(numbers)
    return ",".join(piece for texts, rows in groups.items() for piece in _fold_group(texts, rows))


def _split(text: str) -> list[str]:
    """Items between the commas that stand outside brackets; empty items are dropped."""
    items: list[str] = []
    start = depth = 0
    for at, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:at].strip())
            start = at + 1
        if depth not in (0, 1):
            raise ValueError("expected a host list, brackets do not match")
    if depth:
        raise ValueError("expected a host list, a bracket is not closed")
    items.append(text[start:].strip())
    return [item for item in items if item]


def _expand_one(item: str, room: int) -> list[str]:
    """One item, e.g. `rack[1-2]node[01-02]-ib`; the leftmost bracket turns slowest."""
    choices: list[list[str]] = []
    total = 1
    for place, piece in enumerate(re.split(r"[\[\]]", item)):
        values = _ranges(piece, room) if place % 2 else [piece]
        if not place % 2 and _BAD.search(piece):
            raise ValueError("expected a host list, a name has a blank or control character")
        total *= len(values)
        if total > room:
            raise ValueError(f"expected a host list of at most {LIMIT} names")
        choices.append(values)
    return ["".join(parts) for parts in product(*choices)]


def _ranges(text: str, room: int) -> list[str]:
    values: list[str] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        if not match:
            raise ValueError(f"expected a range such as 01-16, found {part[:20]!r}")
        low, high = match[1], match[2] or match[1]
        count = int(high) - int(low) + 1
        if count < 1:
            raise ValueError(f"expected a rising range, found {part[:20]!r}")
        if count + len(values) > room:
            raise ValueError(f"expected a host list of at most {LIMIT} names")
        values.extend(str(n).zfill(len(low)) for n in range(int(low), int(high) + 1))
    return values


def _parts(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Text and number pieces; a name that brackets could not give back is one text."""
    pieces = _DIGITS.split(name)
    if _BAD.search(name) or any(len(number) > _MAX_DIGITS for number in pieces[1::2]):
        return (name,), ()
    return tuple(pieces[0::2]), tuple(pieces[1::2])


def _fold_group(texts: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterable[str]:
    """Names of one shape: the number that varies most goes into brackets."""
    if not rows[0]:
        yield "".join(texts)
        return
    columns = len(rows[0])
    turning = max(range(columns), key=lambda c: (len({row[c] for row in rows}), c))
    buckets: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        buckets.setdefault(row[:turning] + row[turning + 1 :], []).append(row[turning])
    for rest, numbers in buckets.items():
        filled = [*rest[:turning], _brackets(numbers), *rest[turning:]]
        yield texts[0] + "".join(f + t for f, t in zip(filled, texts[1:], strict=True))


def _brackets(numbers: list[str]) -> str:
    """`['03', '04', '09']` -> `[03-04,09]`; a single number stays bare."""
    if len(numbers) == 1:
        return numbers[0]
    ordered = sorted(numbers, key=lambda s: (int(s), len(s)))
    runs = [[ordered[0]]]
    for before, here in pairwise(ordered):
        low = runs[-1][0]
        if int(here) == int(before) + 1 and here == str(int(here)).zfill(len(low)):
            runs[-1].append(here)
        else:
            runs.append([here])
    return "[" + ",".join(r[0] if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs) + "]"


def fold_numbers(numbers: Iterable[int]) -> str:
    """`0-2,4-15`: ranks as people write them."""
    parts: list[str] = []
    run: list[int] = []
    for number in [*sorted(set(numbers)), None]:
        if number is not None and run and number == run[-1] + 1:
            run.append(number)
            continue
        if run:
            parts.append(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]))
        run = [number] if number is not None else []
    return ",".join(parts)
