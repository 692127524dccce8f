"""PyTorch's flight recorder: the ring of the last collectives of one rank.

The dump is written by the rank itself at a timeout, or on demand (pipe, worker server); sluggish
only reads files that lie there. Reading costs the job nothing. Pickle (protocol 2, `<prefix><rank>`
without extension) or JSON (no frames, numbers of pg_status as strings, `entries` absent when
empty). A dump holds no rank, host, pid or job: the rank comes from the file's name.

Traps: "scheduled" does not mean "not on the GPU" (that needs timing); inner operations of a
coalesced group stay "scheduled" for ever; `pg_status` is keyed by the rank's local id and mixes
point-to-point and collective numbers; Gloo leaves pg_config useless and every state "scheduled",
and retires failed operations too; one name may stand for several groups; a dump can hold code
(refused). Sources: pytorch `FlightRecorderDetail.hpp`, seen with torch 2.13.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from sluggish.facts.collective import GroupHead, RankRecord
from sluggish.facts.origin import Origin
from sluggish.probes.flight_recorder.compact import is_compact, read_compact, write_compact
from sluggish.probes.flight_recorder.entries import ARRIVALS_KEPT, NEWEST, read_dump
from sluggish.probes.flight_recorder.thin import thinned
from sluggish.probes.flight_recorder.unpickle import MAX_BYTES, load, no_collector

ID = "flight_recorder"
COMMAND = ""  # files that the ranks wrote; collected, not printed by a command
FACTS: tuple[type, ...] = (RankRecord, GroupHead)
BINARY = True

_KEYS = (b"pg_config", b"pg_status", b"profiling_name", b"collective_seq_id", b"comm_lib_version")


def sniff(head: bytes) -> bool:
    """A pickle or JSON object that names the recorder's own keys near its beginning."""
    if is_compact(head):
        return True
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return sum(key in head for key in _KEYS) >= 2 or _bare_list(head)
    text = head.lstrip()[:1]
    if text == b"{":
        return sum(b'"' + key + b'"' in head for key in _KEYS) >= 2
    return False


def _bare_list(head: bytes) -> bool:
    """Format 1.x: a list of entries at top level."""
    return b"profiling_name" in head and b"time_created_ns" in head


def parse(content: bytes, origin: Origin) -> Iterator[RankRecord | GroupHead]:
    """One RankRecord and a GroupHead a process group. `refused: ...` for a hostile pickle."""
    if is_compact(content[:256]):
        yield from read_compact(content, origin)
        return
    with no_collector():
        facts = _quickly(content, origin) or _facts(_objects(content), origin)
    yield from facts


def _quickly(content: bytes, origin: Origin) -> list[RankRecord | GroupHead]:
    """The same facts from fewer entries; none where only the whole dump can tell."""
    fewer, left_out = thinned(content, NEWEST, ARRIVALS_KEPT)
    if not left_out:
        return []
    try:
        return _facts(load(fewer), origin, left_out)
    except ValueError:  # the whole dump is read, and says what is wrong with it
        return []


def _facts(dump: Any, origin: Origin, left_out: int = 0) -> list[RankRecord | GroupHead]:
    if _is_old(dump):
        raise ValueError("flight recorder format 1.x (a bare list, torch before 2.4): too old")
    if not isinstance(dump, dict) or not ("entries" in dump or "pg_config" in dump):
        raise ValueError("expected a flight recorder dump: a table with entries")
    version = str(dump.get("version", ""))
    if version.split(".")[0] != "2":
        raise ValueError(f"flight recorder format {version[:20] or 'unknown'}: 2.x is read")
    if origin.rank is None:
        raise ValueError("a dump holds no rank and the file's name does not end in one")
    return read_dump(dump, origin, origin.rank, left_out)


def compacted(content: bytes, origin: Origin) -> bytes | None:
    """A dump of any form in the compact one; None where it cannot be read."""
    try:
        return write_compact(parse(content, origin))
    except ValueError:
        return None


def _is_old(dump: Any) -> bool:
    """Before 2.0 the top level was the list of entries."""
    return isinstance(dump, list) and all(isinstance(e, dict) and "state" in e for e in dump[:3])


def _objects(content: bytes) -> Any:
    if content[:1] != b"\x80" and content[:64].lstrip()[:1] in (b"{", b"["):
        return _json(content)
    if not content:
        raise ValueError("expected a flight recorder dump: the file is empty")
    return load(content)


def _json(content: bytes) -> Any:
    if len(content) > 4 * MAX_BYTES:
        raise ValueError(f"refused: JSON of {len(content)} bytes")
    try:
        return msgspec.json.decode(content)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as problem:
        raise ValueError(f"expected whole JSON: {problem}") from None
