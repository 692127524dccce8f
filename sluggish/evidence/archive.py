"""Archives: `.tar` and `.tar.gz` by content, extracted by name check, never onto given paths."""

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import IO, cast

from sluggish.evidence.model import Unread
from sluggish.evidence.source import MAX_FILES, MAX_NAME, EvidenceError, Item, time_of, unreadable
from sluggish.evidence.spool import CHUNK, Limits, Spool, Unzipped

BLOCK = 512
MAX_HEADER = 1 << 20
"""A long name or a pax header; real ones have some hundred bytes, and they are read whole."""
GZIP = b"\x1f\x8b"
_LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
OTHER_PACKERS = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"BZh": "packed with bzip2: unpack it first",
    b"\xfd7zXZ\0": "packed with xz: unpack it first",
    b"\x28\xb5\x2f\xfd": "packed with zstd: unpack it first",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it first",
}


def is_tar(head: bytes) -> bool:
    """Whether a file begins with a tar header (ustar and GNU write this magic)."""
    return head[257:262] == b"ustar"


def is_packed(item: Item) -> bool:
    """Whether `unpack` would find something else in it than itself."""
    head = item.read(0, BLOCK)
    return head[:2] == GZIP or is_tar(head)


def is_tar_inside(item: Item) -> bool:
    """Whether it is an archive, plain or zipped, rather than one zipped file."""
    head = item.read(0, BLOCK)
    return is_tar(head) or (head[:2] == GZIP and is_tar(_first(item, Limits())))


def is_archive(item: Item) -> bool:
    """The same for a file that may vanish meanwhile."""
    try:
        return is_tar_inside(item)
    except OSError:
        return False


def unpack(item: Item, limits: Limits | None = None) -> list[Item | Unread]:
    """What lies in a file: the members of an archive, or the file unzipped, or the file itself."""
    limits = limits or Limits()
    try:
        if item.packed and is_tar_inside(item):
            return [Unread(path=item.name, why="an archive in an archive: unpack it first")]
        head = item.read(0, BLOCK)
        if head[:2] == GZIP:
            return _unzip(item, limits)
        if is_tar(head):
            return list(_members(item, _Plain(item), limits))
    except EvidenceError as problem:
        return [Unread(path=item.name, why=str(problem))]
    except OSError as problem:
        return [unreadable(item.name, problem)]
    return [item]


def _unzip(item: Item, limits: Limits) -> list[Item | Unread]:
    if is_tar(_first(item, limits)):
        stream = Unzipped(read=item.read, size=item.size, limits=limits)
        return list(_members(item, _Zipped(stream), limits))
    stream = Unzipped(read=item.read, size=item.size, limits=limits)
    name = item.name.removesuffix(".gz")
    out = Spool(limits).keep(name, stream.chunks())
    if not out.size and not stream.complete:
        return [Unread(path=item.name, why="gzip data is damaged")]
    return [_like(out, item.mtime, truncated=not stream.complete)]


def _like(out: Item, mtime: datetime | None, *, truncated: bool) -> Item:
    return replace(out, mtime=mtime, truncated=truncated, packed=True)


def _first(item: Item, limits: Limits) -> bytes:
    return next(Unzipped(read=item.read, size=item.size, limits=limits).chunks(), b"")


class _Plain:
    """A tar as the sequential file that `tarfile` wants; remembers its last bytes."""

    def __init__(self, item: Item) -> None:
        self._item = item
        self._at = 0
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        out = self._item.read(self._at, size if size >= 0 else CHUNK)
        self._at += len(out)
        self.last = out or self.last
        return out


class _Zipped:
    """The same over a gzip stream."""

    def __init__(self, stream: Unzipped) -> None:
        self._chunks = stream.chunks()
        self._held = b""
        self.last = b""

    def read(self, size: int = -1) -> bytes:
        while len(self._held) < size:
            chunk = next(self._chunks, b"")
            if not chunk:
                break
            self._held += chunk
        out, self._held = self._held[:size], self._held[size:]
        self.last = out or self.last
        return out


class _CheckedHeader(tarfile.TarInfo):
    """tarfile reads name headers whole into memory: an absurd size is refused before that."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> tarfile.TarInfo:
        info = super().frombuf(buf, encoding, errors)
        if info.type in _LONG and info.size > MAX_HEADER:
            raise EvidenceError("a tar header of absurd size: not read")
        return info


def _members(item: Item, stream: _Plain | _Zipped, limits: Limits) -> Iterator[Item | Unread]:
    spool, seen, total = Spool(limits), set[str](), 0
    try:
        with tarfile.open(
            fileobj=cast(IO[bytes], stream), mode="r|", bufsize=CHUNK, tarinfo=_CheckedHeader
        ) as tar:
            for count, info in enumerate(tar):
                if count >= MAX_FILES:
                    raise EvidenceError(f"more than {MAX_FILES} members: the rest is not read")
                name = info.name.removeprefix("./")
                why = refusal(info, seen)
                if why:
                    yield Unread(path=f"{item.name}: {info.name}", why=why)
                if why is not None:
                    continue
                total += info.size
                if total > limits.total:
                    raise EvidenceError(
                        f"unpacks to more than {limits.total >> 20} MiB: the rest is not read"
                    )
                body = tar.extractfile(info)
                assert body is not None  # only links and devices have none
                kept = spool.keep(name, iter(_reader(body), b""))
                seen.add(name)
                yield _like(kept, time_of(info.mtime), truncated=False)
        if stream.last[-BLOCK:].strip(b"\0"):
            raise tarfile.ReadError("no end mark")
    except EvidenceError as problem:
        yield Unread(path=item.name, why=str(problem))
    except RecursionError:  # tarfile reads a chain of name headers by calling itself
        yield Unread(path=item.name, why="damaged archive: headers without end: not read further")
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as problem:
        why = f"truncated or damaged archive: complete files read: {len(seen)} ({problem})"
        yield Unread(path=item.name, why=why)


def _reader(body: IO[bytes]) -> Callable[[], bytes]:
    return lambda: body.read(CHUNK)


def refusal(info: tarfile.TarInfo, seen: set[str]) -> str | None:
    """Why a member is not read; "" for a folder, which is passed over; None if it is fine."""
    name = info.name.removeprefix("./")
    if info.isdir():
        return ""
    if name.startswith("/") or ".." in name.split("/") or "\0" in name or not name:
        return "its name leads out of the archive: not read"
    if len(name) > MAX_NAME:
        return "its name is too long: not read"
    if info.issym() or info.islnk():
        return "a link: not followed"
    if not info.isreg():
        return "not a regular file"
    if info.sparse is not None:
        return "a sparse file: not read"
    if name in seen:
        return "a second file of the same name: not read"
    return None
