"""Blocks a rank out of a file that somebody wrote: CSV, JSON, JSON lines, .npy, Arrow, Parquet.

The kind is known by the content, never by the name. Whatever is not in shape is an EvidenceError
with file and row: a count that was guessed would say "even" of a job that hangs.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sluggish.evidence.source import EvidenceError
from sluggish.hostlist import fold_numbers
from sluggish.preflight import npy, table
from sluggish.text import safe

MOST_BYTES = 64 << 20
"""A table of a million ranks has less than half."""
MOST_RANKS = 1_000_000
MOST_DIGITS = 15
RANK = "rank"
BLOCKS = ("blocks", "samples", "count", "rows", "sequences", "items", "n")
"""Names under which people write how much a rank has; the first that is there is taken."""

Pair = tuple[str, Any, Any]
"""Where it stands (`row 3`), the rank and its blocks as they are written."""


def read_counts(path: Path) -> tuple[int, ...]:
    """Blocks by rank, from 0 on without a hole."""
    if table.is_table(head_of(path)):
        return by_rank(path, _of_columns(path, table.columns(path, (RANK, *BLOCKS))))
    data = _bytes(path)
    if npy.is_npy(data):
        return by_rank(path, _of_array(path, data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise bad(path, f"byte {problem.start}: not UTF-8 text, .npy, Arrow or Parquet") from None
    if not text.strip():
        raise bad(path, "empty")
    if text.lstrip()[:1] in ("{", "["):
        return by_rank(path, _of_json(path, text))
    return by_rank(path, _of_csv(path, text))


def bad(path: Path, what: str) -> EvidenceError:
    """One line: which file, and what is wrong where."""
    return EvidenceError(f"{path}: {what}")


def head_of(path: Path) -> bytes:
    """Its first bytes, by which its kind is known; only regular files are opened."""
    try:
        if not path.exists():
            raise bad(path, "no such file")
        if not path.is_file():
            raise bad(path, "not a file")
        with path.open("rb") as file:
            return file.read(16)
    except OSError as problem:
        raise bad(path, f"cannot be read: {problem.strerror or problem}") from None


def _bytes(path: Path) -> bytes:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise bad(path, f"more than {MOST_BYTES >> 20} MB for one number a rank")
        return path.read_bytes()
    except OSError as problem:
        raise bad(path, f"cannot be read: {problem.strerror or problem}") from None


def by_rank(path: Path, pairs: Iterable[Pair]) -> tuple[int, ...]:
    """Every rank once and none missing: a rank that nobody counted could be the short one."""
    found: dict[int, int] = {}
    at: dict[int, str] = {}
    for where, rank_text, blocks_text in pairs:
        rank = _whole(path, where, "rank", rank_text)
        if rank in found:
            raise bad(path, f"{where}: rank {rank} stands in {at[rank]} already")
        if rank >= MOST_RANKS:
            raise bad(path, f"{where}: rank {rank}: more than {MOST_RANKS:,} ranks")
        found[rank] = _whole(path, where, "blocks", blocks_text)
        at[rank] = where
    if not found:
        raise bad(path, "no rank in it")
    missing = [rank for rank in range(max(found) + 1) if rank not in found]
    if missing:
        raise bad(path, f"ranks go up to {max(found)}, without {fold_numbers(missing)}"[:300])
    return tuple(found[rank] for rank in range(len(found)))


def _whole(path: Path, where: str, what: str, value: Any) -> int:
    """A count as people write it: 30835, "30835", "30,835", 30835.0; nothing below 0."""
    text = str(value).strip().replace(",", "").replace("_", "")
    text = text.removesuffix(".0")
    if (
        isinstance(value, bool)
        or not (text.isascii() and text.isdigit())
        or len(text) > MOST_DIGITS
    ):
        raise bad(path, f"{where}: {what} {safe(repr(value), 40)} is no whole number from 0 on")
    return int(text)


def _of_csv(path: Path, text: str) -> Iterator[Pair]:
    """`rank,blocks` with that header, or two bare numbers a row; also with ; or tabs."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = next((d for d in "\t;," if d in first), None)
    if delimiter is None:
        raise bad(path, f"row 1: expected rank,blocks, found {safe(repr(first), 60)}")
    try:
        # the row's own number: blank lines and quoted line breaks are counted as they stand
        reader = csv.reader(io.StringIO(text, newline=None), delimiter=delimiter, strict=True)
        rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except csv.Error as problem:
        raise bad(path, f"not a table: {problem}") from None
    if not rows:
        raise bad(path, "no rank in it")
    line, head = rows[0]
    rank, blocks = 0, 1
    if not all(cell.strip().isdigit() for cell in head[:2]):
        rank, blocks = _columns(path, f"row {line}", head)
        rows = rows[1:]
    elif any(cell.strip() for cell in head[2:]):
        raise bad(path, f"row {line}: expected rank,blocks, found {len(head)} columns")
    wide = len(head)
    for line, row in rows:
        # 30,888 without quotes is two cells: 30 blocks on every rank would look even
        if len(row) <= max(rank, blocks) or any(cell.strip() for cell in row[wide:]):
            raise bad(path, f"row {line}: expected {wide} columns, found {len(row)}")
        yield f"row {line}", row[rank], row[blocks]


def _columns(path: Path, where: str, head: Sequence[str]) -> tuple[int, int]:
    names = [name.strip().lower() for name in head]
    blocks = next((names.index(name) for name in BLOCKS if name in names), None)
    if RANK not in names or blocks is None:
        told = safe(", ".join(head), 80)
        raise bad(path, f"{where}: expected the columns rank and blocks, found {told}")
    return names.index(RANK), blocks


def _of_json(path: Path, text: str) -> Iterator[Pair]:
    """`{"0": 9}`, `[9, 8]`, `[{"rank": 0, "blocks": 9}]`, or such objects line by line."""
    try:
        document = json.loads(text, parse_int=_number, object_pairs_hook=_once)
    except RecursionError:
        raise bad(path, "JSON nested too deep") from None
    except EvidenceError as problem:
        raise bad(path, str(problem)) from None
    except ValueError as problem:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for _, line in lines):
            raise bad(path, f"not JSON: {problem}") from None
        yield from _of_lines(path, lines)
        return
    if isinstance(document, dict) and not _is_record(document):
        for rank, blocks in document.items():
            yield f"key {safe(repr(rank), 30)}", rank, blocks
        return
    for number, item in enumerate(document if isinstance(document, list) else [document]):
        where = f"entry {number}"
        yield _record(path, where, item) if isinstance(item, dict) else (where, number, item)


def _number(digits: str) -> int | str:
    """What is too long for a count stays text: Python refuses it in words of its own."""
    return int(digits) if len(digits) <= MOST_DIGITS else digits


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; of a key that stands twice the last would win in silence."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise EvidenceError(f"key {safe(repr(key), 30)} stands twice")
        found[key] = value
    return found


def _of_lines(path: Path, lines: Iterable[tuple[int, str]]) -> Iterator[Pair]:
    for number, line in lines:
        try:
            item = json.loads(line, parse_int=_number, object_pairs_hook=_once)
        except EvidenceError as problem:
            raise bad(path, f"line {number}: {problem}") from None
        except (ValueError, RecursionError):
            raise bad(path, f"line {number}: not JSON: {safe(repr(line), 60)}") from None
        yield _record(path, f"line {number}", item)


def _is_record(item: dict[str, Any]) -> bool:
    return RANK in {name.strip().lower() for name in item}


def _record(path: Path, where: str, item: dict[str, Any]) -> Pair:
    names = list(item)
    rank, blocks = _columns(path, where, names)
    return where, item[names[rank]], item[names[blocks]]


def _of_array(path: Path, data: bytes) -> Iterator[Pair]:
    """One number a rank in their order, or two columns: rank and blocks."""
    try:
        shape, values = npy.integers(data)
    except ValueError as problem:
        raise bad(path, str(problem)) from None
    if len(shape) == 1:
        for rank, blocks in enumerate(values):
            yield f"entry {rank}", rank, blocks
        return
    if len(shape) != 2 or shape[1] != 2:
        raise bad(path, f"expected one number a rank or rows of rank and blocks, found {shape}")
    for row in range(shape[0]):
        yield f"row {row}", values[2 * row], values[2 * row + 1]


def _of_columns(path: Path, told: dict[str, list[Any]]) -> Iterator[Pair]:
    rank, blocks = _columns(path, "its columns", list(told))
    columns = list(told.values())
    for row, (number, count) in enumerate(zip(columns[rank], columns[blocks], strict=True)):
        yield f"row {row}", number, count
