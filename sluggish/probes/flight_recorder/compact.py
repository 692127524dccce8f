"""The compact form of a dump: its facts as JSON, about 2 KB a rank instead of 0.7 MB.

Written where dumps arrive (or on a node), read like a dump. Group members are folded to ranges.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from sluggish.facts.collective import Collective, Group, GroupHead, RankRecord
from sluggish.facts.origin import Origin
from sluggish.probes.flight_recorder.entries import check_sizes
from sluggish.probes.flight_recorder.groups import MAX_RANK, make_group

MAX_MEMBERS = 4 * MAX_RANK
_TIMES = {
    kind: tuple(f.name for f in fields(kind) if "datetime" in str(f.type))
    for kind in (RankRecord, GroupHead, Collective)
}
_MARK = b'{"sluggish_flight_recorder":1,'
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")


def is_compact(head: bytes) -> bool:
    """Whether a file begins like the compact form."""
    return head.startswith(_MARK)


def write_compact(facts: Iterable[RankRecord | GroupHead]) -> bytes:
    """One rank's facts as compact JSON; `read_compact` gives the same facts back."""
    groups: dict[tuple[str, str, tuple[int, ...]], int] = {}
    records: list[Any] = []
    heads: list[Any] = []
    for fact in facts:
        if isinstance(fact, RankRecord):
            records.append(fact)
            continue
        key = (fact.group.name, fact.group.desc, fact.group.ranks)
        index = groups.setdefault(key, len(groups))
        heads.append([index, replace(fact, group=Group(name="", ranks=()))])
    table = [[name, desc, fold(ranks)] for name, desc, ranks in groups]
    body = {"groups": table, "records": records, "heads": heads}
    return _MARK + msgspec.json.encode(body)[1:]


def read_compact(content: bytes, origin: Origin) -> Iterator[RankRecord | GroupHead]:
    """The facts that were written; the path is that of now."""
    try:
        told = msgspec.json.decode(content)
        records = msgspec.convert(told["records"], list[RankRecord], strict=False)
        table = [_group(str(n), str(d), str(r)) for n, d, r in told["groups"]]
        if sum(len(group.ranks) for group in table) > MAX_MEMBERS:
            raise ValueError(f"expected at most {MAX_MEMBERS} members of groups")
        heads = msgspec.convert(told["heads"], list[tuple[int, GroupHead]], strict=False)
        facts = [replace(r, path=origin.path, node=r.node or origin.node) for r in records]
        placed = [replace(h, group=table[i], path=origin.path) for i, h in heads]
        for fact in (*facts, *placed, *(c for h in placed for c in (*h.pending, *h.recent))):
            _check(fact)
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError) as problem:
        raise ValueError(f"expected a compact flight recorder dump: {problem}") from None
    yield from facts
    yield from placed


def _check(fact: RankRecord | GroupHead | Collective) -> None:
    """A time without a zone cannot be compared; a rank or size beyond all machines is none."""
    for name in _TIMES[type(fact)]:
        at: datetime | None = getattr(fact, name)
        if at is not None and at.tzinfo is None:
            raise ValueError(f"expected a zone in {name}")
    if isinstance(fact, Collective):
        check_sizes((*fact.in_sizes, *fact.out_sizes))
    elif not 0 <= fact.rank < MAX_RANK:
        raise ValueError(f"expected ranks below {MAX_RANK}")


@lru_cache(maxsize=65536)
def _group(name: str, desc: str, folded: str) -> Group:
    """One object a group over all files, as `make_group` has it for dumps."""
    return make_group(name, desc, list(unfold(folded)))


def fold(ranks: tuple[int, ...]) -> str:
    """`(0, 1, 2, 5)` -> `0-2,5`; order is kept."""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and parts[-1][1] + 1 == rank:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in parts)


def unfold(text: str) -> Iterator[int]:
    """`0-2,5` -> 0 1 2 5. ValueError for anything else."""
    count = 0
    for part in text.split(",") if text else ():
        found = _RANGE.match(part)
        if not found:
            raise ValueError("expected ranges of ranks like 0-7,12")
        first, last = int(found[1]), int(found[2] or found[1])
        count += last - first + 1
        if last >= MAX_RANK or count > MAX_RANK:
            raise ValueError(f"expected ranks below {MAX_RANK}")
        yield from range(first, last + 1)
