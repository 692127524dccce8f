"""The ledger's file: its schema, one transaction a record, one read. A program of its own.

Opening a file of dead storage hangs and cannot be killed, so whoever prints a verdict never opens
it: `keep` runs this file as a child with a deadline. Hence the standard library alone. One JSON
object on stdin, one on stdout; what went wrong is its `problem`, one line.
"""

import json
import os
import re
import sqlite3
import stat
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

APPLICATION = 0x736C7567
"""Marks a SQLite file as a ledger (`PRAGMA application_id`): `slug`."""
BUSY_S = 5.0
"""Longer than any record takes: whoever holds the file so long hangs or was stopped."""
SKEW = timedelta(minutes=5)
"""Collectors' clocks differ by less; a newer record than this tells of a clock that was set."""
MOST_ABOUT = 500
"""Looks that are searched for the last failed jobs of one node."""
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

ENTRY = ("job", "started", "at", "name", "user", "cause", "subtype", "confidence", "shared",
         "gpu_hours", "nodes")  # fmt: skip
CULPRIT = ("node", "rank", "gpu_index", "gpu_pci", "hca")
ALERT = ("job", "started", "at", "nodes", "says")


class Refused(Exception):
    """Why this file is not read or written, in one line."""


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What `asked["do"]` says, on the ledger at `asked["path"]`.

    `entry` and `alert` answer after the commit: what was answered is on the disk.
    """
    path, notes = Path(asked["path"]), list[str]()
    if asked["do"] == "read":
        with closing(opened(path, notes, create=False)) as db:
            return {"notes": notes, **read(db, asked.get("since"), asked.get("node"))}
    with closing(opened(path, notes, create=True)) as db:
        if asked["do"] == "alert":
            write(db, lambda: add_alert(db, asked["alert"]))
            return {"notes": notes}
        about: dict[str, list[dict[str, Any]]] = {}

        def add() -> None:
            """What is told of the nodes is of the same moment: the look itself is not in it."""
            about.update((node, _entries(db, *_of_node(node))) for node in asked["about"])
            add_entry(db, asked["entry"], asked["nodes"], notes)

        write(db, add)
        return {"notes": notes, "about": about}


def opened(path: Path, notes: list[str], *, create: bool) -> sqlite3.Connection:
    """A connection to a ledger of this schema; Refused, OSError or sqlite3.Error."""
    kind = file_system(os.path.realpath(path), Path("/proc/self/mountinfo").read_text())
    local = kind in LOCAL
    new = not path.exists()
    if new and not create:
        raise Refused("no ledger there yet")
    if create:
        _make(path)
    if not local and (new or not create):
        notes.append(
            f"{path} lies on {kind or 'an unknown file system'}, not on a disk of this machine: "
            "kept with a rollback journal; several writers are as safe as its locks are"
        )
    head = _head(path)
    try:
        return _ready(_connect(path, "rw"), head, local)
    except sqlite3.OperationalError as problem:
        # a disk that takes no write: what is there can still be read, if nothing is half done
        if create or not _closed_to_us(problem) or _half_done(path):
            raise
        return _ready(_connect(path, "ro&immutable=1"), head, local=True)


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
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refused("not a regular file")
        return file.read(20)


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


def _ready(db: sqlite3.Connection, head: bytes, local: bool) -> sqlite3.Connection:
    """Known as ours, in the journal mode of its place, brought to this schema."""
    try:
        db.execute("PRAGMA trusted_schema = OFF")  # somebody else's file runs nothing here
        db.execute("PRAGMA cell_size_check = ON")
        if head[18:19] == b"\x02" and not local:
            # WAL's shared memory is never touched there: alone, then back to a journal
            db.execute("PRAGMA locking_mode = EXCLUSIVE")
            _journal(db, "delete")
            db.execute("PRAGMA locking_mode = NORMAL")
        _known(db)
        if not head and local:
            _journal(db, "wal")
        db.execute("PRAGMA synchronous = FULL")  # an answered record outlives the power, too
        if _version(db) < SCHEMA:
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


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _known(db: sqlite3.Connection) -> None:
    mark = db.execute("PRAGMA application_id").fetchone()[0]
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if mark != APPLICATION and (mark or tables):
        raise Refused("an SQLite file of another program")
    version = _version(db)
    if version > SCHEMA:
        raise Refused(f"its schema {version} is newer than this sluggish, which reads up to "
                      f"{SCHEMA}")  # fmt: skip


def migrate(db: sqlite3.Connection, to: int = SCHEMA) -> None:
    """Within a write transaction; another writer may have been first."""
    for number, step in enumerate(MIGRATIONS[:to], 1):
        if number > _version(db):
            for statement in filter(str.strip, step.split(";")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {number}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")


def write(db: sqlite3.Connection, change: Callable[[], None]) -> None:
    """All of it or nothing; the write lock comes first, so that nobody waits for nobody."""
    db.execute("BEGIN IMMEDIATE")
    try:
        change()
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def add_entry(
    db: sqlite3.Connection, entry: dict[str, Any], nodes: list[str], notes: list[str]
) -> None:
    """A look at a job; one that is there already (job and time) is left as it is."""
    newest = db.execute("SELECT max(at) FROM entry").fetchone()[0]
    if newest and _time(newest) - _time(entry["at"]) > SKEW:
        notes.append(f"a record of {newest} is there, after this look of {entry['at']}: a clock "
                     "was set; the order of writing counts")  # fmt: skip
    marks = ", ".join("?" * len(ENTRY))
    done = db.execute(
        f"INSERT OR IGNORE INTO entry ({', '.join(ENTRY)}) VALUES ({marks})",
        [entry[key] for key in ENTRY],
    )
    if not done.rowcount:
        return
    number = done.lastrowid
    db.executemany(
        f"INSERT INTO culprit (entry, {', '.join(CULPRIT)}) VALUES (?, ?, ?, ?, ?, ?)",
        [[number, *(culprit[key] for key in CULPRIT)] for culprit in entry["culprits"]],
    )
    db.executemany("INSERT OR IGNORE INTO node (name) VALUES (?)", [[node] for node in nodes])
    db.executemany(
        "INSERT OR IGNORE INTO part SELECT id, ? FROM node WHERE name = ?",
        [[number, node] for node in nodes],
    )


def add_alert(db: sqlite3.Connection, alert: dict[str, Any]) -> None:
    db.execute(
        f"INSERT OR IGNORE INTO alert ({', '.join(ALERT)}) VALUES (?, ?, ?, ?, ?)",
        [alert[key] for key in ALERT],
    )


def read(db: sqlite3.Connection, since: str | None, node: str | None) -> dict[str, Any]:
    """Everything since then, of one node or of all, as it stands at one moment.

    `parts`: for each node that a verdict ever named, the entries in which it took part.
    """
    db.execute("BEGIN")
    bad = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if bad != "ok":
        raise Refused(f"damaged: {bad}; move it away: a new one is begun")
    where, values = ("at >= ?", [since or ""]) if not node else _of_node(node, since or "", -1)
    names = "SELECT DISTINCT node FROM culprit WHERE node IS NOT NULL"
    parts: dict[str, list[int]] = {}
    for name, entry in db.execute(
        "SELECT node.name, entry.id FROM part JOIN node ON node.id = part.node JOIN entry "
        f"ON entry.id = part.entry WHERE at >= ? "
        f"AND (node.name = ? OR ? IS NULL AND node.name IN ({names}))",
        [since or "", node, node],
    ):
        parts.setdefault(name, []).append(entry)
    alerts = db.execute(
        f"SELECT {', '.join(ALERT)} FROM alert WHERE at >= ? ORDER BY id", [since or ""]
    )
    return {
        "entries": _entries(db, where, values),
        "parts": parts,
        "alerts": [dict(zip(ALERT, row, strict=True)) for row in alerts],
    }


def _of_node(node: str, since: str = "", most: int = MOST_ABOUT) -> tuple[str, list[Any]]:
    """Its last looks."""
    return (
        "id IN (SELECT entry.id FROM part JOIN node ON node.id = part.node JOIN entry "
        "ON entry.id = part.entry WHERE node.name = ? AND at >= ? ORDER BY entry.id DESC LIMIT ?)",
        [node, since, most],
    )


def _entries(db: sqlite3.Connection, where: str, values: list[Any]) -> list[dict[str, Any]]:
    """In the order of writing, which no clock can turn."""
    rows = db.execute(f"SELECT id, {', '.join(ENTRY)} FROM entry WHERE {where} ORDER BY id", values)
    found = {row[0]: dict(zip(("id", *ENTRY), row, strict=True), culprits=[]) for row in rows}
    for row in db.execute(
        f"SELECT entry, {', '.join(CULPRIT)} FROM culprit WHERE entry IN "
        f"(SELECT id FROM entry WHERE {where}) ORDER BY rowid",
        values,
    ):
        found[row[0]]["culprits"].append(dict(zip(CULPRIT, row[1:], strict=True)))
    return [{**entry, "shared": bool(entry["shared"])} for entry in found.values()]


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


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
    if not isinstance(problem, sqlite3.Error):
        return str(problem)
    name: str = getattr(problem, "sqlite_errorname", "")
    said = {
        sqlite3.SQLITE_FULL: "the disk is full",
        sqlite3.SQLITE_IOERR: "the disk refuses",
        sqlite3.SQLITE_READONLY: "read-only",
        sqlite3.SQLITE_CANTOPEN: "cannot be opened or written",
        sqlite3.SQLITE_BUSY: f"held by another program for more than {BUSY_S:.0f} s",
        sqlite3.SQLITE_NOTADB: "not a ledger; if it was one, move it away: a new one is begun",
        sqlite3.SQLITE_CORRUPT: "damaged; move it away: a new one is begun",
    }.get(_code(problem), " ".join(str(problem).split()))
    return f"{said} ({name})" if name else said


def main() -> None:
    try:
        told = answer(json.load(sys.stdin))
    except (Refused, sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as problem:
        told = {"problem": words(problem)}
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
