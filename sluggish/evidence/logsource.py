"""Where a log's bytes come from: a file, bytes in memory, or a gzip stream, read in blocks."""

import gzip
import io
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

BLOCK = 1 << 20
"""Bytes a read: fits a core's second cache, so a block is scanned where it was copied to."""
GZIP_MAGIC = b"\x1f\x8b"
MAX_UNPACKED = 4 << 30
"""A gzip stream is read up to here: a bomb of zeros must end."""

Span = tuple[int, int]
Block = tuple[int, memoryview, int]
"""Offset of the view's first byte, the view, how many of its bytes the last block had already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One log. `read` gives the bytes of ascending spans; both may be called again."""

    size: int | None
    """None: a stream, known only after one pass."""
    blocks: Callable[[int], Iterator[Block]]
    """Blocks of the whole log; each repeats the last `overlap` bytes of the one before."""
    read: Callable[[Sequence[Span]], Iterator[bytes]]


def file_source(path: str | os.PathLike[str]) -> Source:
    """A file on disk; gzip is seen by its first bytes. OSError if it cannot be opened.

    It is read, never mapped: a file cut short or a dying disk must be an error, not a signal.
    """
    with open(path, "rb") as file:
        if file.read(2) == GZIP_MAGIC:
            return _gzip(lambda: open(path, "rb"))
        size = os.fstat(file.fileno()).st_size
    return _seekable(lambda: open(path, "rb", buffering=0), size)


def part_source(file: int, start: int, end: int, until: float = float("inf")) -> Source:
    """The bytes from `start` to `end` of an open file; at `until` (monotonic) blocks cease.

    Offsets are those within the part.
    """

    def window(offset: int, length: int) -> bytes:
        at = start + offset
        return os.pread(file, min(length, end - at), at) if at < end else b""

    whole = _seekable(lambda: _Windows(window, end - start), end - start)

    def blocks(overlap: int) -> Iterator[Block]:
        for block in whole.blocks(overlap):
            yield block
            if time.monotonic() > until:
                return

    return replace(whole, blocks=blocks)


def bytes_source(data: bytes) -> Source:
    """Bytes already in memory, packed or not."""
    if data[:2] == GZIP_MAGIC:
        return _gzip(lambda: io.BytesIO(data))
    return _seekable(lambda: io.BytesIO(data), len(data))


def window_source(window: Callable[[int, int], bytes], size: int) -> Source:
    """A log behind a function that gives `length` bytes from `offset`."""
    if window(0, 2) == GZIP_MAGIC:
        return _gzip(lambda: io.BufferedReader(_Windows(window, size)))
    return _seekable(lambda: _Windows(window, size), size)


class _Windows(io.RawIOBase):
    """The smallest file that gzip and the block reader can read from."""

    def __init__(self, window: Callable[[int, int], bytes], size: int) -> None:
        self.window, self.size, self.at = window, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = (0, self.at, self.size)[whence]
        self.at = base + offset
        return self.at

    def readinto(self, buffer: "Buffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.window(self.at, len(view))
        view[: len(data)] = data
        self.at += len(data)
        return len(data)


def _seekable(opened: Callable[[], io.RawIOBase | io.BytesIO], size: int) -> Source:
    def blocks(overlap: int) -> Iterator[Block]:
        with opened() as file:
            yield from _blocks(file.readinto, overlap, size)

    def read(spans: Sequence[Span]) -> Iterator[bytes]:
        with opened() as file:
            for start, end in spans:
                file.seek(start)
                yield _read_full(file, end - start)

    return Source(size=size, blocks=blocks, read=read)


def _read_full(file: io.RawIOBase | io.BytesIO, wanted: int) -> bytes:
    parts: list[bytes] = []
    while wanted > 0 and (part := file.read(wanted)):
        parts.append(part)
        wanted -= len(part)
    return b"".join(parts)


def _blocks(
    readinto: Callable[[memoryview], int | None], overlap: int, limit: int
) -> Iterator[Block]:
    buffer = bytearray(overlap + BLOCK)
    view = memoryview(buffer)
    kept = done = 0
    while done < limit:
        room = min(BLOCK, limit - done)
        got = readinto(view[kept : kept + room])
        if not got:
            return
        done += got
        filled = kept + got
        yield done - filled, view[:filled], kept
        keep = min(overlap, filled)
        buffer[:keep] = buffer[filled - keep : filled]
        kept = keep


def _gzip(opened: Callable[[], io.BufferedIOBase]) -> Source:
    def blocks(overlap: int) -> Iterator[Block]:
        with opened() as file, gzip.GzipFile(fileobj=file) as stream:
            yield from _blocks(_calm(stream), overlap, MAX_UNPACKED)

    def read(spans: Sequence[Span]) -> Iterator[bytes]:
        if not spans:
            return
        at = 0
        parts: list[bytes] = []
        done = iter(spans)
        start, end = next(done)
        for offset, view, had in blocks(0):
            at = offset + had
            while True:
                low, high = max(start, at), min(end, offset + len(view))
                if low < high:
                    parts.append(bytes(view[low - offset : high - offset]))
                if end > offset + len(view):
                    break
                yield b"".join(parts)
                parts = []
                following = next(done, None)
                if following is None:
                    return
                start, end = following
        yield b"".join(parts)

    return Source(size=None, blocks=blocks, read=read)


def _calm(stream: gzip.GzipFile) -> Callable[[memoryview], int]:
    """A damaged or cut stream ends where it breaks: what came before is evidence."""

    def readinto(view: memoryview) -> int:
        try:
            return stream.readinto(view)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return 0

    return readinto
