"""The objects of a flight-recorder dump -> RankRecord and GroupHead, in a few passes of C speed.

Formats 2.1 to 2.11, any backend's prefix. Keys and their meaning: pytorch
`FlightRecorderDetail.hpp`; what Gloo records was seen with torch 2.13.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sluggish.facts.collective import Collective, Group, GroupHead, RankRecord
from sluggish.facts.origin import Origin
from sluggish.probes.flight_recorder.groups import check_rank, groups_of, status_of

PENDING_KEPT = (
    32  # operations a rank and group: a waiter may have queued a thousand behind the first
)
RECENT_KEPT = 3
NEWEST = 64  # entries at the end that are asked for times; the ring is written oldest first
ARRIVALS_KEPT = 16
MAX_DIMS = 64  # of a tensor, as PyTorch limits itself

_P2P = re.compile(r"(send|recv) (\d+)\s*(?:->|<-)\s*(\d+)\Z")  # `send 1->2`, `recv 2<-1`
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|/torch/")

Entry = dict[str, Any]


def read_dump(
    dump: dict[str, Any], origin: Origin, rank: int, left_out: int = 0
) -> list[RankRecord | GroupHead]:
    """Facts of one rank. ValueError where the objects are not those of a flight recorder.

    `left_out`: finished entries that were not loaded; ValueError where the record ids disagree.
    """
    try:
        return _read(dump, origin, rank, left_out)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as what:
        raise ValueError(
            f"expected entries of a flight recorder: {type(what).__name__} {what}"
        ) from None


def _read(
    dump: dict[str, Any], origin: Origin, rank: int, left_out: int
) -> list[RankRecord | GroupHead]:
    told: Any = dump.get("entries") or []
    if not isinstance(told, list):
        raise ValueError("expected a list of entries")
    entries: list[Entry] = told
    _modernise(entries)
    backend = _prefix(entries[-1]) if entries else ""
    gloo = backend == "gloo"
    p2p, last, unfinished = _sorted_out(entries)
    plain = [e for e in entries if not e["is_p2p"]] if p2p else entries
    first, newest = (entries[0]["record_id"], entries[-1]["record_id"]) if entries else (0, -1)
    wrapped = first > 0 or bool(entries and _was_reset(entries[0]))
    only_active = newest - first + 1 != len(entries) + left_out
    if left_out and only_active:
        raise ValueError("expected record ids without a hole")
    groups = groups_of(dump, last)
    check_rank(groups, rank, gloo)
    status = status_of(dump)
    tops = _tops(plain, {e["pg_id"]: e for e in plain} if p2p else last, p2p, gloo)
    posted = _posted_texts(p2p)
    pending = _pending(entries, unfinished, gloo, only_active, status)
    tail = entries[-NEWEST:]
    record = RankRecord(
        rank=rank,
        node=origin.node,
        version=str(dump.get("version", "")),
        backend=backend,
        library=str(dump.get("comm_lib_version") or ""),
        entries=len(entries) + left_out,
        wrapped=wrapped and not only_active,
        timing=any(e.get("time_discovered_started_ns") for e in tail),
        taken_at=origin.taken_at,
        last_created_at=_moment(int(max((e["time_created_ns"] for e in tail), default=0))),
        path=origin.path,
        only_active=only_active,
        first_created_at=_moment(int(entries[0]["time_created_ns"])) if entries else None,
    )
    facts: list[RankRecord | GroupHead] = [record]
    nth_lost = wrapped or only_active
    for local, group in groups.items():
        facts.append(
            _head(rank, local, group, status, tops, pending, posted, nth_lost, origin.path)
        )
    return facts


def _was_reset(e: Entry) -> bool:
    """Whether operations went before the first record: `reset` numbers records anew, not these."""
    return int(e["record_id"]) == 0 and max(int(e["collective_seq_id"]), int(e["p2p_seq_id"])) > 1


def _sorted_out(entries: list[Entry]) -> tuple[list[Entry], dict[Any, Entry], list[int]]:
    """Sends and receives, the last entry a local group id, the places of what is not completed.

    In one pass: entries lie all over memory, so that every pass waits for it again.
    """
    p2p: list[Entry] = []
    last: dict[Any, Entry] = {}
    unfinished: list[int] = []
    for place, e in enumerate(entries):
        if e["is_p2p"]:
            p2p.append(e)
        last[e["pg_id"]] = e
        if e["state"] != "completed":
            unfinished.append(place)
    return p2p, last, unfinished


def _head(
    rank: int,
    local: Any,
    group: Group,
    status: dict[str, tuple[int, int]],
    tops: dict[Any, "_Top"],
    pending: dict[Any, list[Entry]],
    posted: dict[Any, dict[str, int]],
    nth_lost: bool,
    path: str,
) -> GroupHead:
    top = tops.get(local, _Top())
    enqueued, completed = top.enqueued, top.completed
    texts = posted.get(local, {})
    told = status.get(str(local)) if local is not None else None
    if told is not None and not texts:  # p2p and collectives share these fields
        enqueued = told[0] if enqueued is None else max(enqueued, told[0])
        completed = told[1] if completed is None else max(completed, told[1])
    return GroupHead(
        rank=rank,
        group=group,
        last_enqueued=enqueued,
        last_completed=completed,
        pending=tuple(_collective(e, group, nth_lost) for e in pending.get(local, ())),
        recent=tuple(_collective(e, group, nth_lost, frames=False) for e in _recent(top)),
        posted=() if nth_lost else tuple(sorted(texts.items())),
        arrivals=_arrivals(top.recent_many),
        path=path,
        p2p=bool(texts),
    )


def _recent(top: "_Top") -> list[Entry]:
    """Last finished operations in program order, the last send or receive among them."""
    last = [top.last_p2p] if top.last_p2p is not None else []
    return sorted([*top.recent, *last], key=lambda e: int(e["record_id"]))


class _Top:
    """How far one group came in the ring: collectives only."""

    __slots__ = ("completed", "enqueued", "last_p2p", "recent", "recent_many")

    def __init__(self) -> None:
        self.enqueued: int | None = None
        self.last_p2p: Entry | None = None
        self.completed: int | None = None
        self.recent: list[Entry] = []
        self.recent_many: list[Entry] = []


def _tops(
    plain: list[Entry], last: dict[Any, Entry], p2p: list[Entry], gloo: bool
) -> dict[Any, _Top]:
    """Per local group id: highest collective posted and finished, and the last finished ones."""
    tops: dict[Any, _Top] = {}
    for local, e in last.items():
        tops.setdefault(local, _Top()).enqueued = int(e["collective_seq_id"])
    missing = set(tops)
    for e in reversed(plain):
        if not missing:
            break
        if e["pg_id"] not in missing or not finished(e, gloo):
            continue
        top = tops[e["pg_id"]]
        if top.completed is None:
            top.completed = int(e["collective_seq_id"])
        top.recent_many.append(e)
        if len(top.recent_many) >= ARRIVALS_KEPT:
            missing.discard(e["pg_id"])
    for top in tops.values():
        top.recent_many.reverse()
        top.recent = top.recent_many[-RECENT_KEPT:]
    ended = {_batch(e) for e in p2p if e["state"] == "completed"}  # inner ones stay "scheduled"
    for e in p2p:
        if _batch(e) in ended and e["input_sizes"]:
            tops.setdefault(e["pg_id"], _Top()).last_p2p = e
    return tops


def finished(e: Entry, gloo: bool) -> bool:
    """Completed. On Gloo the state never moves, there `retired` tells (it may also mean failed)."""
    return e["state"] == "completed" or (gloo and bool(e["retired"]))


def _modernise(entries: list[Entry]) -> None:
    """Give entries of older formats the keys that they lack; `is_p2p` came with 2.3."""
    if not entries or ("is_p2p" in entries[0] and "collective_seq_id" in entries[0]):
        return
    sends: dict[Any, Any] = {}  # local group id -> p2p number of a batch that may be open
    for e in entries:
        local, number = e.get("pg_id", 0), e.get("p2p_seq_id", 0)
        p2p = bool(_P2P.search(e["profiling_name"]))
        closes = e["profiling_name"].endswith("coalesced") and sends.get(local) == number
        e.setdefault("is_p2p", p2p or closes)
        sends[local] = number if p2p else None
        e.setdefault("collective_seq_id", e.get("seq_id", 0))
        for key, value in (("p2p_seq_id", 0), ("pg_id", 0), ("retired", False)):
            e.setdefault(key, value)
        for key in ("input_sizes", "output_sizes"):
            e.setdefault(key, [])


def _pending(
    entries: list[Entry],
    places: list[int],
    gloo: bool,
    only_active: bool,
    status: dict[str, tuple[int, int]],
) -> dict[Any, list[Entry]]:
    """Unfinished operations (those at `places`) per local group id, in order, coalesced folded."""
    open_ = [entries[i] for i in places]
    if gloo:
        open_ = [e for e in open_ if not e["retired"]]
    if not open_:
        return {}
    open_.sort(key=lambda e: int(e["record_id"]))
    sizeless = [e for e in entries[places[0] :] if not e["input_sizes"]]
    closers = {_batch(e): e for e in sizeless if e["profiling_name"].endswith("coalesced")}
    inner = {_batch(e) for e in open_ if closers.get(_batch(e)) is not e}
    found: dict[Any, list[Entry]] = {}
    for e in open_:
        closer = closers.get(_batch(e))
        if closer is e and _batch(e) in inner:
            continue  # the closing entry only carries the state of its inner ones
        if closer is not None and closer is not e:
            if finished(closer, gloo):
                continue  # inner entries have no events: they stay "scheduled" for ever
            e = {**e, "state": closer["state"]}
        elif closer is None and only_active and _behind(e, status):
            continue  # its closing entry was finished, so this dump left it out
        kept = found.setdefault(e["pg_id"], [])
        if len(kept) < PENDING_KEPT or (closer is not None and _batch(kept[-1]) == _batch(e)):
            kept.append(e)
    return {local: _merge_coalesced(kept) for local, kept in found.items()}


def _batch(e: Entry) -> tuple[Any, bool, Any]:
    p2p = e["is_p2p"]
    return e["pg_id"], p2p, e["p2p_seq_id"] if p2p else e["collective_seq_id"]


def _behind(e: Entry, status: dict[str, tuple[int, int]]) -> bool:
    """Whether the group has finished more.

    Where sends are used beside collectives the status mixes them: then only the sends are
    compared, which go in batches as a rule.
    """
    told = status.get(str(e["pg_id"]))
    if told is None:
        return False
    sends = int(e["p2p_seq_id"])
    if e["is_p2p"]:
        return sends <= told[1]
    return sends == 0 and int(e["collective_seq_id"]) <= told[1]


def _merge_coalesced(kept: list[Entry]) -> list[Entry]:
    """Collectives of one sequence number become one entry with all their sizes."""
    merged: list[Entry] = []
    for e in kept:
        last = merged[-1] if merged else None
        if last is None or e["is_p2p"] or _batch(last) != _batch(e):
            merged.append(e)
            continue
        names = last["profiling_name"].split(" + ")
        if e["profiling_name"] not in names:
            names.append(e["profiling_name"])
        merged[-1] = {
            **last,
            "profiling_name": " + ".join(names),
            "input_sizes": [*last["input_sizes"], *e["input_sizes"]],
            "output_sizes": [*last["output_sizes"], *e["output_sizes"]],
        }
    return merged


def _posted_texts(p2p: list[Entry]) -> dict[Any, dict[str, int]]:
    """Per local group id: each send and recv text and how often it stands in the ring."""
    posted: dict[Any, dict[str, int]] = {}
    for e in p2p:
        if not e["profiling_name"].endswith("coalesced"):
            texts = posted.setdefault(e["pg_id"], {})
            name = _bare(e["profiling_name"])
            texts[name] = texts.get(name, 0) + 1
            e["_nth"] = texts[name]
    return posted


def _collective(e: Entry, group: Group, nth_lost: bool, *, frames: bool = True) -> Collective:
    name = _bare(e["profiling_name"])
    p2p = e["is_p2p"]
    dtypes = e.get("input_dtypes") or e.get("output_dtypes") or ()
    nth = e.get("_nth")
    return Collective(
        seq=int(e["p2p_seq_id"] if p2p else e["collective_seq_id"]),
        op=name,
        in_sizes=_sizes(e["input_sizes"]),
        out_sizes=_sizes(e["output_sizes"]),
        dtypes=tuple(str(d) for d in dict.fromkeys(dtypes)),
        state=str(e["state"]),
        enqueued_at=_moment(int(e["time_created_ns"])),
        frame=user_frame(e.get("frames") or ()) if frames else None,
        order=int(e["record_id"]),
        peer=_peer(name, group.ranks) if p2p else None,
        nth=int(nth) if nth is not None and not nth_lost else None,
    )


def _sizes(sizes: Any) -> tuple[tuple[int, ...], ...]:
    found = tuple(tuple(int(n) for n in dims) for dims in sizes)
    check_sizes(found)
    return found


def check_sizes(sizes: tuple[tuple[int, ...], ...]) -> None:
    """ValueError for what is no tensor: products of such numbers take minutes."""
    if any(len(dims) > MAX_DIMS or any(not 0 <= n < 1 << 63 for n in dims) for dims in sizes):
        raise ValueError("expected tensors of at most 64 dimensions, each below 2^63")


def _peer(name: str, ranks: tuple[int, ...]) -> int | None:
    """Global rank of the other end: names carry group ranks (`send 1->2`: the second number)."""
    found = _P2P.search(name)
    if not found:
        return None
    index = int(found[3])
    return ranks[index] if index < len(ranks) else (index if not ranks else None)


def _arrivals(many: list[Entry]) -> tuple[int, ...]:
    flat: list[int] = []
    for e in many:
        done = int(e.get("time_discovered_completed_ns") or 0)
        begun, ran = int(e["time_created_ns"]), e.get("duration_ms")
        if done and isinstance(ran, int | float) and 0 < ran < 1e9:
            begun = done - int(ran * 1e6)  # with timing on: when its kernel began, not the CPU
        flat += (int(e["collective_seq_id"]), begun, done)
    return tuple(flat)


def user_frame(frames: Any) -> str | None:
    """Innermost frame that is not of a library, else the innermost: `file:line in function`."""
    first = None
    for frame in frames:
        if not isinstance(frame, dict):
            return None
        told = f"{frame.get('filename')}:{frame.get('line')} in {frame.get('name')}"
        first = first or told
        if not _LIBRARY.search(str(frame.get("filename"))):
            return told
    return first


@lru_cache(maxsize=4096)
def _bare(name: str) -> str:
    """`nccl:_reduce_scatter_base` -> `_reduce_scatter_base`, also of each merged one."""
    return " + ".join(part.split(":", 1)[-1].lower() for part in name.split(" + "))


def _prefix(e: Entry) -> str:
    name = str(e["profiling_name"])
    return name.split(":", 1)[0].lower() if ":" in name else ""


def _moment(ns: int) -> datetime | None:
    """Epoch nanoseconds, to the microsecond."""
    if not 0 < ns < 253_402_300_799_000_000_000:
        return None
    return datetime.fromtimestamp(ns // 1_000_000_000, UTC).replace(
        microsecond=ns // 1000 % 1_000_000
    )
