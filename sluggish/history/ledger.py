"""What stands in the ledger: one transaction a record, one read. A program of its own.

Opening a file of dead storage hangs and cannot be killed, so whoever prints a verdict never opens
it: `keep` runs this as a child with a deadline. Hence the standard library alone. One JSON object
on stdin, one on stdout; what went wrong is its `problem`, one line.
"""

import json
import math
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sluggish.history.ledger_file import AWAY, Refused, opened, version, words, write

SKEW = timedelta(minutes=5)
"""Collectors' clocks differ by less; a newer record than this tells of a clock that was set."""
MOST_ABOUT = 500
"""Looks that are searched for the last failed jobs of one node."""

ENTRY = ("job", "started", "at", "name", "user", "cause", "subtype", "confidence", "shared",
         "gpu_hours", "nodes")  # fmt: skip
CULPRIT = ("node", "rank", "gpu_index", "gpu_pci", "hca")
ALERTS_FROM = 2
"""The schema that has a table of them."""
MOST_TEXT = 1 << 16
"""What this program writes is cut shorter."""
_AT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
ALERT = ("job", "started", "at", "nodes", "says")


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """What `asked["do"]` says, on the ledger at `asked["path"]`.

    `entry` and `alert` answer after the commit: what was answered is on the disk.
    """
    path, notes = Path(asked["path"]), list[str]()
    if asked["do"] == "read":
        with closing(opened(path, notes, create=False)) as db:
            return {"notes": notes, **read(db, asked.get("since"), asked.get("node"), notes)}
    with closing(opened(path, notes, create=True)) as db:
        if asked["do"] == "alert":
            write(db, lambda: add_alert(db, asked["alert"]))
            return {"notes": notes}
        about: dict[str, list[dict[str, Any]]] = {}

        def add() -> None:
            """What is told of the nodes is of the same moment: the look itself is not in it."""
            for node in asked["about"]:
                about[node] = _entries(db, *_of_node(node), notes)
            add_entry(db, asked["entry"], asked["nodes"], notes)

        write(db, add)
        return {"notes": notes, "about": about}


def add_entry(
    db: sqlite3.Connection, entry: dict[str, Any], nodes: list[str], notes: list[str]
) -> None:
    """A look at a job; one that is there already (job and time) is left as it is."""
    newest = db.execute("SELECT max(at) FROM entry").fetchone()[0]
    if _is_time(newest) and _time(newest) - _time(entry["at"]) > SKEW:
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


def read(
    db: sqlite3.Connection, since: str | None, node: str | None, notes: list[str]
) -> dict[str, Any]:
    """Everything since then, of one node or of all, as it stands at one moment.

    `parts`: for each node that a verdict ever named, the entries in which it took part, as one
    text: `1,2,3`.
    """
    db.execute("BEGIN")
    bad = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if bad != "ok":
        told = " ".join(bad.removeprefix("*** in database main ***").split())
        raise Refused(f"damaged: {told}; {AWAY}")
    where, values = ("at >= ?", [since or ""]) if not node else _of_node(node, since or "", -1)
    return {
        "entries": _entries(db, where, values, notes),
        "parts": _parts(db, since or "", node),
        "alerts": _alerts(db, since or "", notes),
    }


def _parts(db: sqlite3.Connection, since: str, node: str | None) -> dict[str, str]:
    """Joined by SQLite: the numbers of 20,000 looks at 128 nodes are 2.5 million."""
    first, last = db.execute("SELECT min(id), max(id) FROM entry WHERE at >= ?", [since]).fetchone()
    if first is None:
        return {}
    which = "= ?" if node else "IN (SELECT node FROM culprit WHERE node IS NOT NULL)"
    ids = (
        "SELECT group_concat(CAST(entry AS INTEGER)) FROM part "
        "WHERE part.node = node.id AND entry BETWEEN ? AND ?"
    )
    rows = db.execute(
        f"SELECT name, ({ids}) AS ids FROM node WHERE name {which}",
        [first, last, *([node] if node else [])],
    )
    return {name: told for name, told in rows if told is not None}


def _alerts(db: sqlite3.Connection, since: str, notes: list[str]) -> list[dict[str, Any]]:
    if version(db) < ALERTS_FROM:
        return []
    rows = db.execute(
        f"SELECT {', '.join(ALERT)} FROM alert WHERE at >= ? ORDER BY id", [since]
    ).fetchall()
    found: list[dict[str, Any]] = [
        dict(zip(ALERT, row, strict=True)) for row in rows if is_sound(ALERT, row)
    ]
    _left_out(notes, len(rows) - len(found))
    return found


def _of_node(node: str, since: str = "", most: int = MOST_ABOUT) -> tuple[str, list[Any]]:
    """Its last looks."""
    return (
        "id IN (SELECT entry.id FROM part JOIN node ON node.id = part.node JOIN entry "
        "ON entry.id = part.entry WHERE node.name = ? AND at >= ? ORDER BY entry.id DESC LIMIT ?)",
        [node, since, most],
    )


def _entries(
    db: sqlite3.Connection, where: str, values: list[Any], notes: list[str]
) -> list[dict[str, Any]]:
    """In the order of writing, which no clock can turn."""
    keys, damaged = ("id", *ENTRY), 0
    found: dict[int, dict[str, Any]] = {}
    for row in db.execute(f"SELECT {', '.join(keys)} FROM entry WHERE {where} ORDER BY id", values):
        if is_sound(keys, row):
            found[row[0]] = dict(zip(keys, row, strict=True), culprits=[])
        else:
            damaged += 1
    for row in db.execute(
        f"SELECT entry, {', '.join(CULPRIT)} FROM culprit WHERE entry IN "
        f"(SELECT id FROM entry WHERE {where}) ORDER BY rowid",
        values,
    ):
        if row[0] in found and is_sound(CULPRIT, row[1:]):
            found[row[0]]["culprits"].append(dict(zip(CULPRIT, row[1:], strict=True)))
        elif row[0] in found:
            damaged += 1
    _left_out(notes, damaged)
    return [{**entry, "shared": bool(entry["shared"])} for entry in found.values()]


def _left_out(notes: list[str], damaged: int) -> None:
    if damaged:
        told = "1 record is" if damaged == 1 else f"{damaged} records are"
        notes.append(f"{told} damaged and left out: somebody else wrote there")


def is_sound(keys: Sequence[str], row: Sequence[Any]) -> bool:
    """Whether each value is what its column is for: SQLite keeps bytes in a column of text."""
    return all(
        (value is None and key in MAY_LACK)
        or (value is not None and _FITS.get(key, _is_text)(value))
        for key, value in zip(keys, row, strict=True)
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT


def _is_whole(value: Any) -> bool:
    return isinstance(value, int)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < math.inf


def _is_time(value: Any) -> bool:
    with suppress(ValueError):
        return isinstance(value, str) and bool(_time(value))
    return False


MAY_LACK = {"started", "name", "user", "subtype", "confidence", "gpu_hours", *CULPRIT}
_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("id", "shared", "rank", "gpu_index"), _is_whole),
    **dict.fromkeys(("started", "at"), _is_time),
    "gpu_hours": _is_amount,
}


def _time(text: str) -> datetime:
    if not _AT.fullmatch(text):
        raise ValueError(f"no time: {text[:40]!r}")
    return datetime.fromisoformat(text)


def main() -> None:
    try:
        told = json.dumps(answer(json.load(sys.stdin)))
    except (Refused, sqlite3.Error, OSError, ValueError, TypeError, OverflowError) as problem:
        told = json.dumps({"problem": words(problem)})
    sys.stdout.write(told)


if __name__ == "__main__":
    main()
