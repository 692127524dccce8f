"""A new line of a node's kernel as an event, by the reader and the words of the live look."""

from datetime import UTC, datetime, timedelta

from sluggish.catalog import xid as catalog
from sluggish.facts.fabric import FabricEvent
from sluggish.facts.gpu import GpuTrouble, SXid, Xid
from sluggish.facts.host import HungTask, OomKill
from sluggish.facts.origin import Origin
from sluggish.probes import kernel_log
from sluggish.report.live import decisive
from sluggish.watch.state import Event

KINDS: tuple[tuple[type, str], ...] = (
    (Xid, "xid"), (SXid, "sxid"), (GpuTrouble, "gpu trouble"), (OomKill, "oom"),
    (HungTask, "hung task"), (FabricEvent, "port"),
)  # fmt: skip
STOPS = ("xid", "sxid", "gpu trouble", "oom")
"""Kinds that stop a job by themselves. A port may flap, and a task may wait for storage."""


def events(text: str, *, job: str, node: str, at: float, boot_at: float | None) -> list[Event]:
    """What the line says; nothing for one that no reader knows, or that is older than the watch.

    An Xid that blames the program or follows on another is told as such: no cause by itself.
    """
    now = datetime.fromtimestamp(at, UTC)
    boot = datetime.fromtimestamp(boot_at, UTC) if boot_at is not None else now
    origin = Origin(node=node, taken_at=now, boot_at=boot)
    try:
        facts = [f for f in kernel_log.parse(text + "\n", origin) if type(f) in dict(KINDS)]
    except ValueError:
        return []
    found: list[Event] = []
    for fact in facts:
        told = getattr(fact, "at", None)
        if told is not None and boot_at is not None and now - told > timedelta(seconds=120):
            continue
        for words in decisive([fact], now):
            kind = dict(KINDS)[type(fact)]
            if isinstance(fact, Xid) and not cause(fact.code):
                kind = "xid of a program"
            found.append(Event(kind=kind, at=at, job=job, node=node, says=words))
    return found


def cause(code: int) -> bool:
    """Whether this Xid stops a job by itself."""
    known = catalog.xid(code)
    return known is not None and known.hang == "cause"
