"""The ledger's file: where it lies, whether it is one, its journal, its schema, its transactions.

The standard library alone: it runs in a child, see `ledger`.
"""

import os
import random
import re
import sqlite3
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

APPLICATION = 0x736C7567
"""Marks a SQLite file as a ledger (`PRAGMA application_id`): `slug`."""
BUSY_S = 2.5
"""Longer than any record takes: whoever holds the file so long hangs or was stopped."""
LOCAL = {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "ramfs", "overlay",
         "bcachefs", "jfs", "reiserfs", "nilfs2"}  # fmt: skip
"""File systems of one machine. WAL needs memory that all its users share, so it is for these alone
("Write-Ahead Logging", sqlite.org: it does not work over a network file system)."""

MIGRATIONS = (
    """
    CREATE TABLE entry (
        id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, started TEXT, at TEXT NOT NULL,
        name TEXT, user TEXT, cause TEXT NOT NULL, subtype TEXT, confidence TEXT,
        shared INTEGER NOT NULL, gpu_hours REAL, nodes TEXT NOT NULL, UNIQUE (job, at));
    CREATE TABLE culprit (
        entry INTEGER NOT NULL REFERENCES entry, node TEXT, rank INTEGER, gpu_index INTEGER,
        gpu_pci TEXT, hca TEXT);
    CREATE INDEX culprit_of ON culprit (entry);
    CREATE TABLE node (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
    CREATE TABLE part (
        node INTEGER NOT NULL REFERENCES node, entry INTEGER NOT NULL REFERENCES entry,
        PRIMARY KEY (node, entry)) WITHOUT ROWID;
    """,
    """
    CREATE TABLE alert (
        id INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, started TEXT, at TEXT NOT NULL,
        nodes TEXT NOT NULL, says TEXT NOT NULL, UNIQUE (job, at, says));
    CREATE INDEX entry_at ON entry (at);
    """,
)
"""Schema N is the first N of these; a step is never changed, only followed by another."""
SCHEMA = len(MIGRATIONS)
AWAY = "move it away: a new one is begun"
NO_LEDGER = f"not a ledger; if it was one, {AWAY}"


class Refused(Exception):
    """Why this file is not read or written, in one line."""


def opened(path: Path, notes: list[str], *, create: bool) -> sqlite3.Connection:
    """A connection to a ledger that this sluggish knows; Refused, OSError or sqlite3.Error.

    With `create` it is made where there is none, and brought to this schema; a reader takes an
    older one as it is.
    """
    kind = file_system(os.path.realpath(path), Path("/proc/self/mountinfo").read_text())
    local = kind in LOCAL
    new = not path.exists()
    if new and not create:
        raise Refused("no ledger there yet: the first live look begins one")
    if create:
        _make(path)
    head = _head(path)
    if not head and not create:
        raise Refused("an empty file, no ledger yet")
    if not local and (new or not create):
        notes.append(
            f"{path} lies on {kind or 'an unknown file system'}, not on a disk of this machine: "
            "kept with a rollback journal; several writers are as safe as its locks are"
        )
    try:
        return _ready(_connect(path, "rw"), head, local, create)
    except sqlite3.OperationalError as problem:
        # a disk that takes no write: what is there can still be read, if nothing is half done
        if create or not _closed_to_us(problem) or _half_done(path):
            raise
        return _ready(_connect(path, "ro&immutable=1"), head, local=True, create=False)


def _make(path: Path) -> None:
    """A private file; in a folder that a group may write, the group's."""
    if not path.parent.exists():
        os.makedirs(path.parent, mode=0o700, exist_ok=True)
    group = path.parent.stat().st_mode & stat.S_IWGRP
    with suppress(FileExistsError):
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        if group:  # SQLite gives its journal the mode of this file, whatever the umask
            os.fchmod(made, 0o660)
        os.close(made)


def _head(path: Path) -> bytes:
    """Its first bytes; nothing but a regular file is opened, a FIFO would wait for a writer."""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise Refused(
            f"{_KINDS.get(stat.S_IFMT(mode), 'no regular file')}, expected a ledger's file"
        )
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        head = file.read(20)
    if head and not head.startswith(b"SQLite format 3\0"):  # of a short one SQLite makes its own
        raise Refused(NO_LEDGER)
    return head


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    name = "".join(f"%{ord(c):02x}" if c in "%?#" else c for c in os.path.abspath(path))
    uri = f"file:{name}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)


def _closed_to_us(problem: sqlite3.Error) -> bool:
    return _code(problem) in (
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
    )


def _half_done(path: Path) -> bool:
    """Whether something written waits beside the file, to be taken in by who may write."""
    beside = (f"{path}-wal", f"{path}-journal")
    return any(os.path.exists(one) and os.path.getsize(one) for one in beside)


def _code(problem: sqlite3.Error) -> int:
    """SQLite's result code without its extension; 0 where the module itself complains."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF


def _ready(db: sqlite3.Connection, head: bytes, local: bool, create: bool) -> sqlite3.Connection:
    """Known as ours, in the journal mode of its place, for a writer brought to this schema."""
    db.text_factory = _text
    try:
        db.execute("PRAGMA trusted_schema = OFF")  # somebody else's file runs nothing here
        db.execute("PRAGMA cell_size_check = ON")
        if head[18:19] == b"\x02" and not local:
            # WAL's shared memory is never touched there: alone, then back to a journal
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            _journal(db, "delete")
            db.execute("PRAGMA locking_mode = NORMAL")
        _known(db, create)
        if not head and local:
            _journal(db, "wal")
        db.execute("PRAGMA synchronous = FULL")  # an answered record outlives the power, too
        if create and version(db) < SCHEMA:
            write(db, lambda: migrate(db))
    except BaseException:
        db.close()
        raise
    return db


def _journal(db: sqlite3.Connection, mode: str) -> None:
    """A change of the mode does not wait for others by itself."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            told = db.execute(f"PRAGMA journal_mode = {mode}").fetchone()[0]
        except sqlite3.OperationalError as problem:
            if _code(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.05)
            continue
        if told != mode and mode == "delete":
            raise Refused("in use on another machine in a mode that network storage cannot carry")
        return


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _known(db: sqlite3.Connection, create: bool) -> None:
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark != APPLICATION and (mark or tables):
        raise Refused("an SQLite file of another program")
    number = version(db)
    if number > SCHEMA:
        raise Refused(f"its schema {number} is newer than this sluggish, which reads up to "
                      f"{SCHEMA}")  # fmt: skip
    if (number < 1) == bool(tables):
        raise Refused(f"damaged: schema {number} with {tables} tables; {AWAY}")
    if not tables and not create:
        raise Refused("an empty database, no ledger yet")


def _text(data: bytes) -> str:
    """Whatever somebody else wrote there."""
    return data.decode("utf-8", "replace")


def migrate(db: sqlite3.Connection, to: int = SCHEMA) -> None:
    """Within a write transaction; another writer may have been first."""
    for number, step in enumerate(MIGRATIONS[:to], 1):
        if number > version(db):
            for statement in filter(str.strip, step.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")


def write(db: sqlite3.Connection, change: Callable[[], None]) -> None:
    """All of it or nothing; the write lock comes first, so that nobody waits for nobody."""
    _begin(db)
    try:
        change()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _begin(db: sqlite3.Connection) -> None:
    """SQLite's own waiting looks ten times a second: beside one who writes without a pause it
    finds the lock taken until it gives up."""
    until = time.monotonic() + BUSY_S
    db.execute("PRAGMA busy_timeout = 0")
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as problem:
            if _code(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.001, 0.01))
    db.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000:.0f}")


def file_system(path: str, mountinfo: str) -> str:
    """Type of the file system that holds this absolute path; of two mounts on a place, the last."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if len(fields) < 5 or not right:
            continue
        place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        inside = path == place or path.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= len(best):
            best, kind = place, right.split(" ")[0]
    return kind


def words(problem: Exception) -> str:
    """One line for what SQLite or the system says."""
    if isinstance(problem, OSError):
        return problem.strerror or str(problem)
    if isinstance(problem, UnicodeDecodeError):  # SQLite quotes what it found
        return f"damaged; {AWAY}"
    if not isinstance(problem, sqlite3.Error):
        return str(problem)
    name: str = getattr(problem, "sqlite_errorname", "")
    said = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "the disk refuses",
        sqlite3.SQLITE_READONLY: "read-only",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened or written",
        sqlite3.SQLITE_BUSY: f"held by another program for more than {BUSY_S:g} s",
        sqlite3.SQLITE_NOTADB: NO_LEDGER,
        sqlite3.SQLITE_CORRUPT: f"damaged; {AWAY}",
        sqlite3.SQLITE_ERROR: f"damaged ({' '.join(str(problem).split())}); {AWAY}",
    }.get(_code(problem), " ".join(str(problem).split()))
    return f"{said} ({name})" if name else said
