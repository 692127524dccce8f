"""Files that belong to one rank each: what every rank will read, counted without a run."""

import glob
import gzip
import os
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from sluggish.evidence.source import EvidenceError
from sluggish.hostlist import fold_numbers
from sluggish.preflight import npy, table
from sluggish.preflight.counts import Counted
from sluggish.preflight.sources import MOST_RANKS, bad, by_rank, head_of

GZIP = b"\x1f\x8b"
CHUNK = 1 << 20
PACKED = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
}
_RANK = re.compile(r"rank[_.-]?0*(\d{1,7})(?!\d)", re.IGNORECASE)
_OF = re.compile(r"(\d{1,7})[_.-]?of[_.-]?(\d{1,7})", re.IGNORECASE)
_NUMBER = re.compile(r"(\d{1,7})(?!.*\d)")
_PARTS = re.compile(r"(\d+)")


class Readable(Protocol):
    """What gives bytes piece by piece."""

    def read(self, size: int, /) -> bytes: ...


def count_files(pattern: str) -> Counted:
    """Blocks a rank: lines, rows of an Arrow or Parquet file, or the length of an .npy array."""
    found = glob.glob(os.path.expanduser(pattern), recursive=True)
    files = sorted(
        # a link to nowhere is refused when it is opened: without it a rank would go uncounted
        (Path(name) for name in found if not os.path.isdir(name)),
        key=_natural,
    )
    if not files:
        hint = "; only folders: name the files in them, e.g. 'FOLDER/*'" * bool(found)
        raise EvidenceError(f"{pattern}: no file there{hint}")
    ranks, how = ranks_of(files)
    blocks: dict[int, int] = defaultdict(int)
    kinds: set[str] = set()
    for file, rank in zip(files, ranks, strict=True):
        count, kind = size_of(file)
        blocks[rank] += count
        kinds.add(kind)
    pairs = ((f"rank {rank}", rank, count) for rank, count in blocks.items())
    whole = by_rank(Path(pattern), pairs)
    return Counted(blocks=whole, source=pattern, how=f"{', '.join(sorted(kinds))}; {how}")


def ranks_of(files: Sequence[Path]) -> tuple[list[int], str]:
    """Whose file each is, and how that was known; `rank` in the name wins, then a number, then
    the order of the names."""
    named = [_RANK.findall(str(file)) for file in files]
    if all(named):
        ranks = [int(found[-1]) for found in named]
        return ranks, "rank from the names (rank_N)" + _several(ranks)
    by_part = _parts(files)
    if by_part is not None:
        return by_part, "rank from the names (N-of-M)"
    numbers = [int(found[1]) for file in files if (found := _NUMBER.search(file.stem))]
    if sorted(numbers) == list(range(len(files))):
        return numbers, "rank from the names (the last number)"
    how = "rank by the order of the names, one file a rank"
    return list(range(len(files))), how + _left_out(numbers, len(files))


def _parts(files: Sequence[Path]) -> list[int] | None:
    """`train-00001-of-00004`: EvidenceError where one of the four is missing."""
    found = [_OF.search(file.stem) for file in files]
    names = [(int(match[1]), int(match[2])) for match in found if match]
    if len(names) < len(files) or len({whole for _, whole in names}) != 1:
        return None
    numbers, whole = [number for number, _ in names], names[0][1]
    first = 0 if 0 in numbers else 1
    missing = sorted({*range(first, first + whole)} - {*numbers}) if whole < MOST_RANKS else []
    if missing:
        there = f"{len(files)} of {whole} files are there"
        raise bad(files[0], f"{there}, without {fold_numbers(missing)}"[:300])
    if sorted(numbers) != list(range(first, first + whole)):
        return None
    return [number - first for number in numbers]


def _left_out(numbers: Sequence[int], files: int) -> str:
    """Names that count from 0 or 1 and leave one out: a rank's file may be missing."""
    whole = set(numbers)
    if len(whole) < files or min(whole) > 1 or max(whole) >= 2 * files:
        return ""
    gaps = [number for number in range(min(whole), max(whole)) if number not in whole]
    return f"; no file has the number {fold_numbers(gaps)}" if gaps else ""


def _several(ranks: Sequence[int]) -> str:
    """An unequal number of files often means that a copy, or another's file, was counted too."""
    files = Counter(ranks).values()
    least, most = min(files), max(files)
    if most == 1:
        return ""
    return f", {most if least == most else f'{least} to {most}'} files a rank added up"


def _natural(file: Path) -> list[tuple[int, str]]:
    """part-2 stands before part-10."""
    return [(int(p), "") if p.isdigit() else (-1, p) for p in _PARTS.split(str(file))]


def size_of(file: Path) -> tuple[int, str]:
    """How much one file holds, and of what."""
    head = head_of(file)
    if table.is_table(head):
        return table.rows(file), "rows counted"
    try:
        with file.open("rb") as opened:
            if npy.is_npy(head):
                head = opened.read(npy.MOST_HEADER + 16)
                return npy.length(head, os.fstat(opened.fileno()).st_size), "array lengths counted"
            if head.startswith(GZIP):
                with gzip.open(opened) as unpacked:
                    return _lines(file, unpacked), "lines counted"
            packed = next((name for magic, name in PACKED.items() if head.startswith(magic)), None)
            if packed:
                raise bad(file, f"packed with {packed}: its lines cannot be counted here")
            return _lines(file, opened), "lines counted"
    except EvidenceError:
        raise
    except ValueError as problem:
        raise bad(file, str(problem)) from None
    except (OSError, EOFError, zlib.error) as problem:
        raise bad(file, f"cannot be read to its end: {problem}") from None


def _lines(file: Path, opened: Readable) -> int:
    """Lines with something in them, as readers of JSON lines count; the last may lack its break."""
    count, filled = 0, False
    while chunk := opened.read(CHUNK):
        if b"\0" in chunk:
            raise bad(file, "not a text of lines: it holds zero bytes")
        first, *rest = chunk.split(b"\n")
        filled = filled or bool(first.strip())
        for part in rest:
            count += filled
            filled = bool(part.strip())
    return count + filled
