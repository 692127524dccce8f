"""The ledger on the screen and as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from sluggish import __version__
from sluggish.history.model import Alert, Ledger, Named
from sluggish.history.summary import (
    LAST,
    REPEAT,
    Loss,
    Record,
    Run,
    convicted,
    failed,
    losses,
    offenders,
    record,
    records,
    runs,
    share,
    verdict_of,
)
from sluggish.hostlist import fold
from sluggish.text import counted

WIDTH = 100
HEADS = ("LOOKED AT", "JOB", "VERDICT", "SURE", "  GPU-H", "CULPRIT")
MOST_RUNS = 20
MOST_ALERTS = 10
MOST_OFFENDERS = 20
COLUMNS = ("kind", "at", "job", "started", "name", "user", "cause", "subtype", "confidence",
           "failed", "shared", "gpu_hours", "nodes", "culprits", "convicted", "says")  # fmt: skip


def table(ledger: Ledger) -> str:
    """CSV: one row a look, and one an alert."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    for entry in ledger.entries:
        guilty = fold(sorted(convicted(entry)))
        told = {"kind": "look", "failed": failed(entry), "convicted": guilty}
        told["culprits"] = "; ".join(where(culprit) for culprit in entry.culprits)
        rows.writerow([_cell(told.get(name, getattr(entry, name, ""))) for name in COLUMNS])
    for alert in ledger.alerts:
        rows.writerow(
            ["alert", *(_cell(getattr(alert, name, "")) for name in COLUMNS[1:])]
        )  # fmt: skip
    return out.getvalue()


def _cell(value: object) -> str:
    """A spreadsheet must not run what a job is called."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def screen(ledger: Ledger, path: str) -> str:
    """Who comes back, what it cost, the last jobs and alerts."""
    found = runs(ledger.entries)
    bad = sum(run.failed for run in found)
    return _joined(
        f"sluggish {__version__}  history: {counted(len(found), 'job', 'jobs')}, {bad} failed, "
        f"{counted(len(ledger.alerts), 'alert', 'alerts')}, {_span(ledger)}",
        f"ledger {path}",
        "",
        f"CAME BACK: at fault in {REPEAT} or more of the last {LAST} failed jobs it was in "
        "(context, never proof)",
        *_offenders(offenders(records(found, ledger.parts))),
        "",
        "GPU-HOURS LOST, BY CAUSE",
        *_losses(losses(found)),
        "",
        f"LAST JOBS (of {len(found)}; --csv and --json list every look)",
        *_aligned([list(HEADS), *(_row(run) for run in reversed(found[-MOST_RUNS:]))]),
        *_alerts(ledger.alerts),
    )


def screen_of(node: str, ledger: Ledger) -> str:
    """One node: its record, and each job that it was in."""
    mine = runs(ledger.entries)
    told = record(node, mine)
    rows = [[_role(node, run), *_row(run, node)] for run in reversed(mine)]
    return _joined(
        f"{node}: {share(told)} (context, never proof)",
        f"in {counted(told.jobs, 'job', 'jobs')} of the ledger, {told.failed} failed; named "
        f"without being at fault in {told.named} of the last {told.window}",
        "",
        *_aligned([["HERE", *HEADS], *rows]),
        *_alerts(ledger.alerts),
    )


def _joined(*lines: str) -> str:
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _alerts(alerts: Sequence[Alert]) -> Iterator[str]:
    if alerts:
        yield ""
        yield f"LAST ALERTS (of {len(alerts)})"
        rows = [[_when(a.at), a.job, a.nodes[:30], a.says[:60]] for a in alerts[-MOST_ALERTS:]]
        yield from _aligned(rows[::-1])


def _offenders(found: Sequence[Record]) -> Iterator[str]:
    if not found:
        yield "  none"
    rows = [
        [
            one.node,
            f"{one.convicted} of {one.window} failed",
            f"in {counted(one.jobs, 'job', 'jobs')}",
            f"last {_when(one.last)}" if one.last else "",
            ", ".join(f"{name} {count}" for name, count in one.verdicts),
        ]
        for one in found[:MOST_OFFENDERS]
    ]
    yield from _aligned(rows)
    if len(found) > MOST_OFFENDERS:
        yield f"  and {len(found) - MOST_OFFENDERS} more (--json lists all)"


def _losses(found: Sequence[Loss]) -> list[str]:
    rows = [
        [
            loss.cause,
            f"{loss.gpu_hours:10.1f}",
            counted(loss.jobs, "job", "jobs")
            + (f", {loss.unknown} without a known onset" * bool(loss.unknown)),
        ]
        for loss in found
    ]
    return _aligned(rows) or ["  none"]


def _row(run: Run, here: str = "") -> list[str]:
    """`here`: the node that need not be named again."""
    seen = run.verdict
    culprits = [where(replace(c, node=None) if c.node == here else c) for c in seen.culprits]
    more = f" and {len(culprits) - 1} more" if len(culprits) > 1 else ""
    hours = f"{run.gpu_hours:7.1f}" if run.gpu_hours is not None else ""
    return [_when(seen.at), seen.job, verdict_of(seen), seen.confidence or "none", hours,
            "".join(culprits[:1]) + more]  # fmt: skip


def _role(node: str, run: Run) -> str:
    if node in convicted(run.verdict):
        return "AT FAULT"
    named = any(culprit.node == node for culprit in run.verdict.culprits)
    return "named" if named else "was in"


def where(culprit: Named) -> str:
    """`gpu-07 GPU 3 rank 3`."""
    parts = [culprit.node or "", culprit.hca or ""]
    if culprit.gpu_index is not None:
        parts.append(f"GPU {culprit.gpu_index}")
    elif culprit.gpu_pci:
        parts.append(culprit.gpu_pci)
    if culprit.rank is not None:
        parts.append(f"rank {culprit.rank}")
    return " ".join(part for part in parts if part)


def _when(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}Z"


def _span(ledger: Ledger) -> str:
    """First and last day by the clocks, which may have been set."""
    days = [one.at for one in (*ledger.entries, *ledger.alerts)]
    return f"{min(days):%Y-%m-%d} to {max(days):%Y-%m-%d}" if days else "empty"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return [line if len(line.rstrip()) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines]
