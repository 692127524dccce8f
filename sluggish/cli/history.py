"""`sluggish history`: the ledger on the screen; and how a live look gets into it."""

import os
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sluggish.causes import EXIT_NOTHING
from sluggish.cli.screen import show
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.history import document, keep, table
from sluggish.history.model import Alert, Ledger
from sluggish.history.summary import context
from sluggish.text import is_node_name, safe
from sluggish.verdict.model import Diagnosis

_AGO = re.compile(r"(\d{1,5})([hdw])\Z", re.ASCII)
_HOURS = {"h": 1, "d": 24, "w": 168}


def run(
    config: Config,
    *,
    db: Path | None,
    node: str | None,
    since: str | None,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Print what is remembered; EXIT_NOTHING where that is nothing."""
    if as_json and as_csv:
        raise EvidenceError("give --json or --csv")
    if node is not None and not is_node_name(node):
        raise EvidenceError(f"--node {safe(node, 60)}: no node name")
    after = since_when(since, datetime.now(UTC)) if since else None
    try:
        path = db or place(config)
        ledger = keep.read_ledger(path, since=after, node=node)
    except keep.NoLedger as problem:
        raise EvidenceError(safe(str(problem))) from None
    tell(ledger.notes)
    if not ledger.entries and not ledger.alerts:
        tell([nothing(ledger, path, node, since)])
    name = safe(str(path), 200)
    if as_json:
        show(document.document(ledger, name, after, node))
    elif as_csv:
        show(table.table(ledger))
    elif ledger.entries or ledger.alerts:
        show(table.screen_of(node, ledger) if node else table.screen(ledger, name))
    return 0 if ledger.entries or ledger.alerts else EXIT_NOTHING


def nothing(ledger: Ledger, path: Path, node: str | None, since: str | None) -> str:
    """What there is nothing of."""
    what = f"no job with {node}" if node else "no job"
    return f"{safe(str(path), 200)}: {what} was looked at" + f" since {since}" * bool(since)


def since_when(text: str, now: datetime) -> datetime:
    """`12h`, `7d`, `4w` ago, or an ISO date or time (UTC without a zone). EvidenceError."""
    if ago := _AGO.match(text):
        return now - timedelta(hours=int(ago[1]) * _HOURS[ago[2]])
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise EvidenceError(
            f"--since {safe(text, 40)}: expected 12h, 7d, 4w, or a date such as 2026-11-24"
        ) from None


def place(config: Config) -> Path:
    """Where this site's ledger lies. keep.NoLedger where nothing is set and there is no home."""
    return keep.place(os.environ, db=config.history_db, state_dir=config.state.dir)


def remember(diagnosis: Diagnosis, config: Config, job: str, silent: Sequence[Path] = ()) -> None:
    """Write a live look down once its verdict is on the screen, and tell its nodes' records.

    On stderr, after the report: the record of a node is no evidence of this job, and the report
    says the same when its bundle is diagnosed again. `silent`: folders that gave no answer a
    moment ago; a ledger in one of them is not waited for once more.
    """
    try:
        path = place(config)
        if any(path.is_relative_to(folder) for folder in silent):
            tell([f"{path}: not recorded: {keep.DEAD}"])
            return
        kept = keep.record_diagnosis(diagnosis, path, job=job)
    except keep.NoLedger as problem:
        tell([f"not recorded: {problem}"])
        return
    known = diagnosis.job
    name, started = (known.id, known.started_at) if known else (job, None)
    told = [context(node, earlier, name, started) for node, earlier in kept.about.items()]
    tell([f"{line}; context, no proof" for line in told if line])
    tell([*kept.notes, *([kept.problem] if kept.problem else [])])


def remember_alert(alert: Alert, config: Config) -> None:
    """Write an alert of the watcher down; what hinders it is said on stderr."""
    try:
        kept = keep.record_alert(alert, place(config))
    except keep.NoLedger as problem:
        tell([f"not recorded: {problem}"])
        return
    tell([*kept.notes, *([kept.problem] if kept.problem else [])])


def tell(lines: list[str] | tuple[str, ...]) -> None:
    """Each on stderr, where there is one."""
    for line in lines:
        if sys.__stderr__ is not None:
            print(f"history: {safe(line, 600)}", file=sys.stderr)
