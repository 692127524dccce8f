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
from sluggish.preflight import npy, table
from sluggish.preflight.counts import Counted
from sluggish.preflight.sources import bad, by_rank, head_of

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
_OF = re.compile(r"(\d{1,7})[_.-]?of[_.-]?\d+", re.IGNORECASE)
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
    for pattern, says in ((_OF, "N-of-M"), (_NUMBER, "the last number")):
        found = [pattern.search(file.stem) for file in files]
        ranks = [int(match[1]) for match in found if match]
        if sorted(ranks) == list(range(len(files))):
            return ranks, f"rank from the names ({says})"
    return list(range(len(files))), "rank by the order of the names, one file a rank"


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
