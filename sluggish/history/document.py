"""The ledger as one JSON document; docs/history.schema.json describes it."""

from datetime import datetime

import msgspec

from sluggish import __version__
from sluggish.history.model import Alert, Entry, Ledger, Named
from sluggish.history.summary import (
    Loss,
    Record,
    convicted,
    failed,
    losses,
    records,
    runs,
)

SCHEMA = 1
"""Number of this format; it goes up when a key changes its meaning or goes."""


class Look(msgspec.Struct, kw_only=True):
    """A look at a job; `convicted`: the nodes at fault, none for a fault that no node has."""

    at: datetime
    job: str
    started: datetime | None
    name: str | None
    user: str | None
    cause: str
    subtype: str | None
    confidence: str | None
    failed: bool
    shared: bool
    gpu_hours: float | None
    nodes: str
    culprits: tuple[Named, ...]
    convicted: list[str]


class Document(msgspec.Struct, kw_only=True):
    """What `sluggish history --json` prints."""

    schema: int = SCHEMA
    tool_version: str = __version__
    ledger: str
    since: datetime | None
    node: str | None
    jobs: int
    failed: int
    nodes: tuple[Record, ...]
    losses: tuple[Loss, ...]
    looks: list[Look]
    alerts: tuple[Alert, ...]
    notes: tuple[str, ...]


def document(ledger: Ledger, path: str, since: datetime | None, node: str | None) -> str:
    """One JSON document with a newline at its end."""
    found = runs(ledger.entries)
    told = Document(
        ledger=path,
        since=since,
        node=node,
        jobs=len(found),
        failed=sum(run.failed for run in found),
        nodes=records(found, ledger.parts),
        losses=losses(found),
        looks=[_look(entry) for entry in ledger.entries],
        alerts=ledger.alerts,
        notes=ledger.notes,
    )
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode() + "\n"


def _look(entry: Entry) -> Look:
    same = {name: getattr(entry, name) for name in Look.__struct_fields__ if hasattr(entry, name)}
    return Look(**same, failed=failed(entry), convicted=sorted(convicted(entry)))
