"""Bounded unpacking: what comes out of a compressed stream, small in memory, large on disk."""

import os
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sluggish.evidence.source import EvidenceError, Item, Read, window_of

CHUNK = 1 << 20
FEED = 64 << 10
"""Packed bytes at a time: zlib copies what it did not use, once for each of many small members."""
IN_MEMORY = 4 << 20
"""Larger files go to a temporary folder, so that a log of gigabytes is read by windows."""
MAX_TOTAL = 16 << 30
"""Bytes out of one archive or compressed file."""
MAX_RATIO = 250
"""Text logs pack 10- to 60-fold; zeros 1,000-fold."""
FREE_BYTES = 64 << 20
"""Below this a high ratio is harmless."""
KEEP_FREE = 1 << 30
"""Bytes that stay free on the disk of the temporary folder."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may come out of a compressed stream."""

    total: int = MAX_TOTAL
    ratio: int = MAX_RATIO
    free: int = FREE_BYTES


@dataclass(slots=True)
class Unzipped:
    """A gzip stream as it is read: counts, refuses to swell, and remembers how it ended."""

    read: Read
    size: int
    limits: Limits = field(default_factory=Limits)
    taken: int = 0
    given: int = 0
    complete: bool = False
    """True once the last member's checksum was seen."""

    def chunks(self) -> Iterator[bytes]:
        """Unpacked chunks; ends quietly where the stream ends or breaks, see `complete`."""
        machine = zlib.decompressobj(wbits=31)
        feed = b""
        while True:
            if not feed:
                feed = self.read(self.taken, FEED)
                self.taken += len(feed)
            ended = not feed  # what the machine still holds comes out even so
            try:
                out = machine.decompress(feed, CHUNK)
            except zlib.error:
                self.complete = False
                return
            self.given += len(out)
            self._check()
            if out:
                yield out
            elif ended:
                return
            feed = machine.unconsumed_tail
            if machine.eof and not ended:
                self.complete = True
                feed = machine.unused_data.lstrip(b"\0")  # tape padding
                if feed[:2] != b"\x1f\x8b"[: len(feed)]:
                    return
                if feed:
                    machine, self.complete = zlib.decompressobj(wbits=31), False

    def _check(self) -> None:
        if self.given > self.limits.total:
            raise EvidenceError(f"unpacks to more than {self.limits.total >> 20} MiB: not read")
        if self.given > self.limits.free and self.given > self.limits.ratio * max(self.taken, 1):
            raise EvidenceError(f"unpacks more than {self.limits.ratio}-fold: not read")


class _Room:
    """A temporary folder that goes away with the last Item that lies in it."""

    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="sluggish-")
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(slots=True)
class Spool:
    """Keeps unpacked files: small ones in memory, large ones in a private temporary folder."""

    limits: Limits = field(default_factory=Limits)
    _room: _Room | None = None
    _count: int = 0

    def keep(self, name: str, chunks: Iterator[bytes]) -> Item:
        """An Item with everything that `chunks` gives."""
        held: list[bytes] = []
        size = 0
        for chunk in chunks:
            held.append(chunk)
            size += len(chunk)
            if size > IN_MEMORY:
                return self._on_disk(name, held, chunks)
        content = b"".join(held)
        return Item(name=name, size=size, read=_window(content), packed=True)

    def _on_disk(self, name: str, held: list[bytes], chunks: Iterator[bytes]) -> Item:
        room = self._room = self._room or _Room()
        self._count += 1
        inside = str(self._count)
        path = os.path.join(room.path, inside)
        with open(path, "xb") as out:
            for chunk in held:
                out.write(chunk)
            held.clear()
            for count, chunk in enumerate(chunks):
                if count % 64 == 0 and shutil.disk_usage(room.path).free < KEEP_FREE:
                    raise EvidenceError(f"no room in {tempfile.gettempdir()} to unpack {name}")
                out.write(chunk)
            size = out.tell()
        read = _holding(room, window_of(room.path, inside))
        return Item(name=name, size=size, read=read, file=path, packed=True)


def _window(content: bytes) -> Read:
    return lambda offset, length: content[offset : offset + max(length, 0)]


def _holding(room: _Room, read: Read) -> Callable[[int, int], bytes]:
    def with_room(offset: int, length: int) -> bytes:
        assert room  # the folder lives as long as this function
        return read(offset, length)

    return with_room
