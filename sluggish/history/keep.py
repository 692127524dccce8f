"""Writing to the ledger and reading it, each in a child with a deadline: nothing here hangs.

A record that could not be made is a line to show, never an error: the verdict does not need it.
"""

import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from sluggish.causes import Cause
from sluggish.history import ledger_file
from sluggish.history.model import Alert, Entry, Ledger, Named
from sluggish.hostlist import expand, fold
from sluggish.reach.command import run
from sluggish.reach.state import folders
from sluggish.text import is_node_name, safe
from sluggish.verdict.model import Diagnosis

FILE = "history.db"
WRITE_S = 4.0
"""Longer than one writer waits for another; the exit of a look is held no longer than this."""
READ_S = 30.0
"""Ten times what tens of thousands of looks at a hundred nodes each take: a machine is busy."""
DEAD = "its storage does not answer"
CAP_BYTES = 1 << 30
LONG = 1 << 16
"""A list of nodes folds to less; other texts are cut when they are written."""
_CHILD = (
    "import sys; sys.path.append(sys.argv[1]); from sluggish.history.ledger import main; main()"
)
_ROOT = str(Path(__file__).parents[2])
MOST_NODES_TOLD = 8
"""Culprits whose record is looked up: more of them are no matter of one node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What came of a record."""

    problem: str | None = None
    """Why it was not made, one line; None where it lies on the disk."""
    notes: tuple[str, ...] = ()
    about: Mapping[str, tuple[Entry, ...]]
    """Earlier looks at jobs that ran on the nodes that this verdict names."""


class NoLedger(ValueError):
    """Why the ledger was not read, one line with its path."""


class _Told(msgspec.Struct):
    """The child's answer."""

    problem: str | None = None
    notes: tuple[str, ...] = ()
    about: dict[str, tuple[Entry, ...]] = {}
    entries: tuple[Entry, ...] = ()
    parts: dict[str, str] = {}
    """Numbers of entries, `1,2,3`."""
    alerts: tuple[Alert, ...] = ()


def place(env: Mapping[str, str], *, db: str | None, state_dir: str | None) -> Path:
    """Where the ledger lies: as set, else in the first state directory and nowhere else.

    A second ledger on another disk, for a day on which the first could not be written, would
    split every count. NoLedger where there is no home directory.
    """
    if db:
        return Path(db).expanduser()
    first = folders(env, state_dir)[0]
    if first.parent == Path("/var/tmp"):
        raise NoLedger("no home directory for the ledger: name one with history_db")
    return first / FILE


def record_diagnosis(
    diagnosis: Diagnosis, path: Path, *, job: str | None = None, timeout_s: float = WRITE_S
) -> Kept:
    """Write a live look down; a second time is no second record. Never raises.

    `job`: its id where Slurm did not say it. The diagnosis is read and not changed.
    """
    entry = entry_of(diagnosis, job)
    if entry is None:
        return Kept(problem=f"{path}: not recorded: no job or no time of the look", about={})
    named = list(dict.fromkeys(c.node for c in entry.culprits if c.node))
    nodes = [node for node in diagnosis.summary.nodes if is_node_name(node)] + named
    asked: dict[str, Any] = {"entry": entry, "nodes": nodes, "about": named[:MOST_NODES_TOLD]}
    told = _ask(path, "entry", asked, timeout_s)
    problem = told.problem and f"{path}: not recorded: {told.problem}"
    return Kept(problem=problem, notes=told.notes, about=told.about)


def record_alert(alert: Alert, path: Path, *, timeout_s: float = WRITE_S) -> Kept:
    """Write an alert of the watcher down. Never raises."""
    clean = replace(
        alert,
        job=safe(alert.job, 40),
        started=alert.started and _second(alert.started),
        at=_second(alert.at),
        nodes=safe(alert.nodes, LONG),
        says=safe(alert.says),
    )
    told = _ask(path, "alert", {"alert": clean}, timeout_s)
    problem = told.problem and f"{path}: not recorded: {told.problem}"
    return Kept(problem=problem, notes=told.notes, about={})


def read_ledger(
    path: Path,
    *,
    since: datetime | None = None,
    node: str | None = None,
    timeout_s: float = READ_S,
) -> Ledger:
    """What was written since then, of all nodes or of one. NoLedger in one line."""
    # not %Y: it writes the year 300 with three digits, and texts are compared
    after = f"{since.astimezone(UTC).replace(tzinfo=None).isoformat()[:19]}Z" if since else None
    told = _ask(path, "read", {"since": after, "node": node}, timeout_s)
    if told.problem:
        hint = "; or it is very large: give --since" * told.problem.startswith("no answer")
        raise NoLedger(f"{path}: {told.problem}{hint}")
    alerts = tuple(alert for alert in told.alerts if node is None or _has(alert.nodes, node))
    read = {entry.id for entry in told.entries}
    parts = {name: tuple(filter(read.__contains__, _ids(ids))) for name, ids in told.parts.items()}
    return Ledger(entries=told.entries, parts=parts, alerts=alerts, notes=told.notes)


def _ids(text: str) -> tuple[int, ...]:
    return msgspec.json.decode(f"[{text}]", type=tuple[int, ...])


def _has(nodes: str, node: str) -> bool:
    try:
        return node in expand(nodes)
    except ValueError:
        return False


def entry_of(diagnosis: Diagnosis, job: str | None = None) -> Entry | None:
    """The record of a diagnosis; None where job or time is not known. Text is made safe here."""
    known, verdict = diagnosis.job, diagnosis.verdict
    name = known.id if known else job
    if not name or diagnosis.taken_at is None:
        return None
    return Entry(
        job=safe(name, 40),
        started=_second(known.started_at) if known and known.started_at else None,
        at=_second(diagnosis.taken_at),
        name=_text(known.name) if known else None,
        user=_text(known.user) if known else None,
        cause=verdict.cause,
        subtype=verdict.subtype,
        confidence=verdict.confidence.level,
        shared=verdict.shared,
        gpu_hours=_lost(diagnosis),
        nodes=fold(node for node in diagnosis.summary.nodes if is_node_name(node)),
        culprits=tuple(
            Named(
                node=culprit.node if culprit.node and is_node_name(culprit.node) else None,
                rank=_number(culprit.rank),
                gpu_index=_number(culprit.gpu_index),
                gpu_pci=_text(culprit.gpu_pci),
                hca=_text(culprit.hca),
            )
            for culprit in verdict.culprits
        ),
    )


def _lost(diagnosis: Diagnosis) -> float | None:
    """The verdict's count goes up to the look; a job that ended before it held nothing since."""
    verdict, now = diagnosis.verdict, diagnosis.taken_at
    cost, onset = verdict.cost_gpu_hours, verdict.onset
    if cost is None or not math.isfinite(cost) or verdict.cause == Cause.PROGRESSING:
        return None
    ended = diagnosis.job.ended_at if diagnosis.job else None
    if onset is None or now is None or ended is None or ended >= now or now <= onset.latest:
        return cost
    share = (ended - onset.latest) / (now - onset.latest)
    return round(cost * max(share, 0.0), 2)


def _second(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(microsecond=0)


def _text(text: str | None) -> str | None:
    return None if text is None else safe(text, 100)


def _number(number: int | None) -> int | None:
    return number if number is not None and abs(number) < 1 << 63 else None


def _ask(path: Path, do: str, asked: dict[str, Any], timeout_s: float) -> _Told:
    """The child's answer, or what became of it as the problem."""
    try:
        question = msgspec.json.encode({"do": do, "path": os.path.abspath(path), **asked})
        with os.fdopen(os.memfd_create("question"), "wb+") as file:  # no disk, it may be full
            file.write(question)
            file.seek(0)
            argv = (sys.executable, "-I", "-S", "-c", _CHILD, _ROOT)
            ran = run(argv, timeout_s, cap_bytes=CAP_BYTES, stdin=file.fileno())
    except (OSError, ValueError, TypeError) as problem:
        unnamed = isinstance(problem, UnicodeEncodeError)
        return _Told(problem="its path is no UTF-8" if unnamed else ledger_file.words(problem))
    if ran.error in ("timeout", "stuck"):
        return _Told(problem=f"no answer in {timeout_s:.0f} s: {DEAD}")
    try:
        return _safe(msgspec.json.decode(ran.stdout, type=_Told))
    except msgspec.MsgspecError as problem:
        last = (ran.stderr.strip().splitlines() or [""])[-1]
        why = ran.error or last or f"not understood: {problem}"
        return _Told(problem=safe(why, 300))


def _safe(told: _Told) -> _Told:
    """A ledger that others may write holds what they wrote."""
    return _Told(
        problem=told.problem and safe(told.problem),
        notes=tuple(safe(note) for note in told.notes),
        about={safe(node): _clean(entries) for node, entries in told.about.items()},
        entries=_clean(told.entries),
        parts={safe(node): ids for node, ids in told.parts.items()},
        alerts=tuple(_shown(alert) for alert in told.alerts),
    )


def _clean(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    return tuple(
        entry if _is_plain(entry) and all(map(_is_plain, entry.culprits)) else _escaped(entry)
        for entry in entries
    )


def _escaped(entry: Entry) -> Entry:
    return replace(_shown(entry), culprits=tuple(_shown(culprit) for culprit in entry.culprits))


_TEXTS = {
    kind: attrgetter(*(each.name for each in fields(kind) if "str" in str(each.type)))
    for kind in (Entry, Named, Alert)
}


def _is_plain(record: Entry | Named | Alert) -> bool:
    """Whether nothing in it needs to be escaped, as in nearly all of them: then nothing is made."""
    texts = _TEXTS[type(record)](record)
    return all(text is None or (text.isascii() and text.isprintable()) for text in texts)


def _shown(record: Any) -> Any:
    """The same with every text of it safe to print."""
    texts = {each.name: getattr(record, each.name) for each in fields(record)}
    long = {name: safe(text, LONG) for name, text in texts.items() if isinstance(text, str)}
    return replace(record, **long)
