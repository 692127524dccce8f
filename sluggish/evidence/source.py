"""Item: one regular file of a folder or an archive, readable by windows; nothing else is opened."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sluggish.evidence.model import Unread

MAX_FILES = 200_000
"""1,024 nodes with 20 probes and 8,192 ranks with a dump are 30,000."""
MAX_DEPTH = 32
MAX_NAME = 4096
"""PATH_MAX of Linux; an archive can hold longer ones."""
SANE_YEARS = range(1990, 2200)
"""A time outside is a broken clock or an attack: unknown rather than believed."""

Read = Callable[[int, int], bytes]


class EvidenceError(ValueError):
    """The evidence cannot be opened; the text is one clear line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A file by its name inside what was given; `read(offset, length)` gives a window of it."""

    name: str
    """Relative, with `/`, e.g. `nodes/gpu-07/ibstat.txt`."""
    size: int
    read: Read
    file: str | None = None
    """A real file with exactly this content, where there is one."""
    mtime: datetime | None = None
    truncated: bool = False
    """The compressed stream ended early: this is the part that was complete."""
    packed: bool = False
    """It came out of an archive: an archive inside it is not opened."""


def time_of(seconds: float) -> datetime | None:
    """A file time as UTC; None for 0 (reproducible archives) and for nonsense."""
    if seconds <= 0:
        return None
    try:
        return sane(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, OSError, ValueError):
        return None


def sane(at: datetime | None) -> datetime | None:
    """The time in UTC (one without a zone is UTC); None outside of `SANE_YEARS`."""
    if at is None or at.year not in SANE_YEARS:
        return None
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def unreadable(name: str, problem: OSError) -> Unread:
    """A file that cannot be read, or no longer: it vanished, its disk is dying."""
    return Unread(path=name, why=f"not readable: {problem.strerror or problem}")


def open_regular(root: str, name: str) -> int:
    """A read-only descriptor of `root/name`, no component below `root` followed if it is a link.

    Raises OSError, also for what is not a regular file (a FIFO would block, a device may act).
    """
    *folders, last = name.split("/")
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(folder, flags, dir_fd=here)
            os.close(here)
            here = below
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        found = os.open(last, flags, dir_fd=here)
    finally:
        os.close(here)
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise OSError("not a regular file")
    return found


def window_of(root: str, name: str) -> Read:
    """Reads windows of `root/name`; the file is opened anew each time, never through a link."""

    def read(offset: int, length: int) -> bytes:
        found = open_regular(root, name)
        try:
            parts: list[bytes] = []
            while length > 0 and (part := os.pread(found, length, offset)):
                parts.append(part)
                offset, length = offset + len(part), length - len(part)
        finally:
            os.close(found)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    return read


def file_item(path: str) -> Item | Unread:
    """The Item of a file that the user named; a link that the user named himself is followed."""
    real = os.path.realpath(path)
    root, name = os.path.split(real)
    return _item(root, name, shown=os.path.basename(path.rstrip("/")) or name)


def folder_items(root: str) -> Iterator[Item | Unread]:
    """Every file below a folder in the order of names; links, FIFOs and devices are Unread."""
    count = 0
    for name in _names(root, "", 0):
        if isinstance(name, Unread):
            yield name
            continue
        count += 1
        if count > MAX_FILES:
            raise EvidenceError(f"{root}: more than {MAX_FILES} files")
        yield _item(root, name, shown=name)


def _names(root: str, prefix: str, depth: int) -> Iterator[str | Unread]:
    where = os.path.join(root, prefix)
    try:
        entries = sorted(os.scandir(where), key=lambda entry: entry.name)
    except OSError as problem:
        yield Unread(path=prefix or root, why=f"not readable: {problem.strerror}")
        return
    for entry in entries:
        name = f"{prefix}/{entry.name}" if prefix else entry.name
        if entry.is_symlink():
            yield Unread(path=name, why="a link: not followed")
        elif entry.is_dir(follow_symlinks=False):
            if depth >= MAX_DEPTH:
                yield Unread(path=name, why="folders too deep")
            else:
                yield from _names(root, name, depth + 1)
        elif entry.is_file(follow_symlinks=False):
            yield name
        else:
            yield Unread(path=name, why="not a regular file")


def _item(root: str, name: str, *, shown: str) -> Item | Unread:
    try:
        found = open_regular(root, name)
    except OSError as problem:
        return unreadable(shown, problem)
    info = os.fstat(found)
    os.close(found)
    return Item(
        name=shown,
        size=info.st_size,
        read=window_of(root, name),
        file=os.path.join(root, name),
        mtime=time_of(info.st_mtime),
    )
