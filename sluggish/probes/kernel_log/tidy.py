"""From lines to events: repeats are folded, parts of one OOM kill joined, echoes dropped.

Why: a dying process prints one Xid 45 a channel (dozens), an ECC storm tens of thousands of 95;
a lost GPU is told three ways. Episodes of 5 s are those of the Delta study of GPU errors.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sluggish.facts.gpu import GpuTrouble, SXid, Xid
from sluggish.facts.host import KernelTrouble, OomKill, PcieError
from sluggish.probes.kernel_log.nvidia import is_follow_up

EPISODE = timedelta(seconds=5)
SAME_LOSS = timedelta(minutes=5)
"""A loss told without the word Xid is the same one as an Xid 79 of that GPU this near."""
OOM_PARTS = timedelta(seconds=60)
"""The report, the kill and the reaper of one OOM kill lie within this."""
T = TypeVar("T")


def tidy(facts: Iterable[Any]) -> list[Any]:
    """The events of a log, in the order of their first lines."""
    items = list(facts)
    items = _drop_follow_ups(items)
    items = _fold(items, Xid, _xid_key, EPISODE)
    items = _fold(items, SXid, lambda s: (s.node, s.pci, s.code, s.link, s.fatal), EPISODE)
    items = _fold(items, PcieError, lambda p: (p.node, p.pci, p.severity), EPISODE)
    items = _fold(items, GpuTrouble, lambda t: (t.node, t.pci, t.kind), SAME_LOSS)
    items = _once(items, EPISODE * 12)
    items = _join_oom(items)
    return _drop_known_losses(items)


def near(one: datetime | None, other: datetime | None, span: timedelta) -> bool:
    """Whether two times lie within `span`; lines without a time count as near."""
    return one is None or other is None or abs(one - other) <= span


def _xid_key(fact: Xid) -> Hashable:
    return (
        fact.node, fact.pci, fact.code, fact.pid, fact.caused_by, fact.recovery, fact.unit,
        fact.fatal, fact.link, fact.intrinfo, fact.status,
    )  # fmt: skip


def _fold(
    items: list[Any], kind: type[T], key: Callable[[T], Hashable], span: timedelta
) -> list[Any]:
    """Lines of one key become one fact while each follows the last one within `span`."""
    kept: list[Any] = []
    open_at: dict[Hashable, tuple[int, datetime | None]] = {}
    counts: dict[int, int] = {}
    for item in items:
        if isinstance(item, kind):
            name = key(item)
            at: datetime | None = item.at  # type: ignore[attr-defined]
            place, last = open_at.get(name, (None, None))
            if place is not None and near(last, at, span):
                counts[place] = counts.get(place, 1) + 1
                if isinstance(item, PcieError) and "pcieport" in kept[place].line:
                    kept[place] = replace(kept[place], line=item.line)  # it names the driver
                open_at[name] = (place, at or last)
                continue
            open_at[name] = (len(kept), at)
        kept.append(item)
    for place, count in counts.items():
        kept[place] = replace(kept[place], count=count)
    return kept


def _once(items: list[Any], span: timedelta) -> list[Any]:
    """Thermal and log-keeping lines come once a CPU: the first of a minute is kept."""
    last: dict[Hashable, datetime | None] = {}
    kept: list[Any] = []
    for item in items:
        if isinstance(item, KernelTrouble) and item.kind in ("thermal", "other", "mce"):
            name = (item.node, item.kind)
            if name in last and near(last[name], item.at, span):
                continue
            last[name] = item.at
        kept.append(item)
    return kept


def _drop_follow_ups(items: list[Any]) -> list[Any]:
    """Severity and Data lines of an SXid whose first line is there."""
    heads: set[Hashable] = set()
    kept: list[Any] = []
    for item in items:
        if isinstance(item, SXid):
            name = (item.node, item.pci, item.code)
            if is_follow_up(item) and name in heads:
                continue
            heads.add(name)
        kept.append(item)
    return kept


def _drop_known_losses(items: list[Any]) -> list[Any]:
    """A GPU lost without the word Xid, where an Xid 79 tells the same loss."""
    losses = [x for x in items if isinstance(x, Xid) and x.code == 79]
    return [item for item in items if not (isinstance(item, GpuTrouble) and _known(item, losses))]


def _known(item: GpuTrouble, losses: list[Xid]) -> bool:
    return item.kind in ("fallen_off", "gpu_lost") and any(
        item.pci in (None, loss.pci) and near(item.at, loss.at, SAME_LOSS) for loss in losses
    )


def _join_oom(items: list[Any]) -> list[Any]:
    """The parts of each OOM kill become one fact in the place of the first part."""
    kept: list[Any] = []
    places: list[int] = []
    for item in items:
        if isinstance(item, OomKill):
            place = next(_partners(kept, places, item), None)
            if place is not None:
                kept[place] = _merged(kept[place], item)
                continue
            places.append(len(kept))
        kept.append(item)
    return kept


def _partners(kept: list[Any], places: list[int], item: OomKill) -> Iterator[int]:
    """Earlier parts of the same kill: the same pid, or the last report that named no pid yet."""
    for place in reversed(places[-8:]):
        earlier: OomKill = kept[place]
        if not near(earlier.at, item.at, OOM_PARTS):
            return
        same = item.pid is not None and earlier.pid == item.pid
        if same or (_nameless(earlier) and (item.pid is not None or item.cgroup_path is None)):
            yield place


def _nameless(part: OomKill) -> bool:
    """A report that has not told its victim: the child may be killed in the parent's place."""
    return part.pid is None or "or sacrifice child" in part.line


def _merged(first: OomKill, second: OomKill) -> OomKill:
    told = second if second.pid is not None else first
    return OomKill(
        node=first.node,
        at=first.at or second.at,
        pid=told.pid,
        process=told.process or first.process,
        cgroup=first.cgroup if first.cgroup is not None else second.cgroup,
        cgroup_path=first.cgroup_path or second.cgroup_path,
        job_id=first.job_id or second.job_id,
        rss_bytes=second.rss_bytes or first.rss_bytes,
        line=second.line if "Killed process" in second.line else first.line,
    )
