"""Process groups of a dump: local ids, names and members, and how far each came."""

from functools import lru_cache
from typing import Any

import msgspec

from sluggish.facts.collective import Group

MAX_RANK = 1 << 20
Entry = dict[str, Any]


def check_rank(groups: dict[Any, Group], rank: int, gloo: bool) -> None:
    """A dump holds only groups of its own rank: a file name that says another rank is wrong.

    Gloo's table is one entry that the last group overwrote, so it tells nothing.
    """
    for group in () if gloo else groups.values():
        if group.ranks and rank not in group.ranks:
            raise ValueError(
                f"the file's name says rank {rank}, which is not in the dump's group {group.name}"
            )


def groups_of(dump: dict[str, Any], last: dict[Any, Entry]) -> dict[Any, Group]:
    """Local group id -> group. Only the entries (the last one of each id) join ids to names."""
    config = dump.get("pg_config") or {}
    if not isinstance(config, dict):
        raise ValueError("expected pg_config to be a table")
    groups: dict[Any, Group] = {}
    for local, e in last.items():
        told = e.get("process_group")
        name, desc = (str(told[0]), str(told[1])) if told else (str(local), "")
        row = config.get(name) or {}
        groups[local] = make_group(name, desc or str(row.get("desc", "")), row.get("ranks"))
    used = {g.name for g in groups.values()}
    rest = [name for name in config if name not in used and name]
    spare = [local for local in status_of(dump) if not any(str(k) == local for k in groups)]
    for name, local in _by_creation(rest, spare):
        row = config[name]
        groups[local] = make_group(str(name), str(row.get("desc", "")), row.get("ranks"))
    return groups


def _by_creation(names: list[Any], locals_: list[str]) -> list[tuple[Any, Any]]:
    """Groups without an entry: local ids count creation on this rank, so do numbered names."""
    numbered = all(str(n).isdecimal() for n in names) and all(i.isdecimal() for i in locals_)
    if len(names) == len(locals_) and (numbered or len(names) == 1):
        pairs = zip(sorted(names, key=lambda n: int(n) if numbered else 0), locals_, strict=True)
        return [(name, int(local)) for name, local in pairs if local.isdecimal()]
    return [(name, ("unjoined", name)) for name in names]


def status_of(dump: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Local id -> (last enqueued, last completed). JSON writes the numbers as strings."""
    told = dump.get("pg_status") or {}
    if not isinstance(told, dict):
        raise ValueError("expected pg_status to be a table")
    rows = {
        str(k): (
            int(row.get("last_enqueued_collective", -1)),
            int(row.get("last_completed_collective", -1)),
        )
        for k, row in told.items()
    }
    if all(k.isdecimal() for k in rows):
        return dict(sorted(rows.items(), key=lambda item: int(item[0])))
    return rows


def make_group(name: str, desc: str, ranks: Any) -> Group:
    """A group; ranks as the recorder writes them (`"[0, 1]"`) or as a list."""
    if not isinstance(ranks, str):
        ranks = str(list(ranks)) if isinstance(ranks, (list, tuple)) else ""
    return _interned(name, "" if desc == "undefined" else desc, ranks)


@lru_cache(maxsize=65536)
def _interned(name: str, desc: str, ranks: str) -> Group:
    """One object a group over all files: 8,192 ranks share one membership."""
    return Group(name=name, desc=desc, ranks=_members(ranks))


@lru_cache(maxsize=65536)
def _members(ranks: str) -> tuple[int, ...]:
    if not ranks.strip():
        return ()
    try:
        members = msgspec.json.decode(ranks.encode(), type=list[int])
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError("expected ranks as a list of numbers") from None
    if any(not 0 <= r < MAX_RANK for r in members):
        raise ValueError(f"expected ranks below {MAX_RANK}")
    return tuple(members)
