"""Leave out of a pickled dump what cannot change its facts, before it is loaded.

A ring holds thousands of finished collectives; the facts need the first entry, the newest ones,
the last finished ones of each group, and all that is unfinished or point-to-point. Unpickling is
nearly all of the time that a dump takes, so the rest is cut out of the bytes.

An entry is left out only where its bytes show one entry, a collective, finished, of a group that
has enough later ones, and none that closes a coalesced batch: its inner entries never finish and
stay, and it tells of them. What is in doubt stays. The reader compares the record ids with the
number left out and loads the whole dump where they disagree. Entries are told apart by the opcodes
that PyTorch's pickler (pytorch `torch/csrc/jit/serialization/pickler.cpp`) and Python's write for a
string seen before; dumps of other writers are loaded whole.
"""

import re
from itertools import chain

WORTH_BYTES = 32_768  # a smaller dump is loaded sooner than it is looked through
CLOSERS = 16  # names that end so, of operations and of functions in frames
REFERENCES = 8  # of the newest objects that are referred to: where they were first written

_BINGET = re.compile(rb"h(.)", re.DOTALL)
_LONG_BINGET = re.compile(rb"j(...)\x00", re.DOTALL)  # below 2^24
_NAME_END = re.compile(rb"\n[A-Za-z_][\w.]*\n")
_MODULE = re.compile(rb"[ci][A-Za-z_][\w.]*\Z")  # the opcodes GLOBAL and INST: module, name
_LONGEST_MODULE = 256
_FALSE_END_NEW = b"\x89u}"  # NEWFALSE SETITEMS EMPTY_DICT: an entry ends, another begins


def thinned(data: bytes, newest: int, each: int) -> tuple[bytes, int]:
    """A pickle with fewer entries and how many were left out; `data` itself and 0 in doubt.

    Kept are the first entry, the `newest` ones and the last `each` finished ones of each group.
    """
    if len(data) < WORTH_BYTES or data[:2] != b"\x80\x02" or _code(data):
        return data, 0
    is_p2p, group = _get(data, b"is_p2p"), _get(data, b"pg_id")
    after_group, finished = _get(data, b"process_group"), _finished(data)
    closers = _closers(data)
    if not (is_p2p and group and after_group and finished) or closers is None:
        return data, 0
    apart = is_p2p + _FALSE_END_NEW
    parts = data.split(apart)
    newer = len(parts) - newest
    kept = _kept(parts, newer, group + b"K", after_group, finished, closers, each)
    later = apart.join(chain((parts[i] for i in kept), parts[max(newer, 0) :]))
    head = _head(data, apart, later)
    kept = [i for i in kept if i > head]
    left_out = newer - head - 1 - len(kept)
    if left_out <= 0:
        return data, 0
    return apart.join([*parts[: head + 1], *(parts[i] for i in kept), *parts[newer:]]), left_out


def _code(data: bytes) -> bool:
    """Whether something in it may be the name of a class: then the loader shall see and refuse."""
    ends = (found.start() for found in _NAME_END.finditer(data))
    return any(_MODULE.search(data, max(0, at - _LONGEST_MODULE), at) for at in ends)


def _kept(
    parts: list[bytes],
    newer: int,
    group: bytes,
    after: bytes,
    finished: bytes,
    closers: list[bytes],
    each: int,
) -> list[int]:
    """Places of the older entries that must stay, the first one apart."""
    seen: dict[int, int] = {}  # local group id -> finished ones that stay
    kept: list[int] = []
    length, end = len(group), len(group) + 1 + len(after)
    for place in range(newer - 1, 0, -1):
        part = parts[place]
        at = part.find(group)
        if (
            at >= 0
            and part[at + length + 1 : at + end] == after
            and part.count(finished) == 1
            and not (closers and any(closer in part for closer in closers))
        ):
            local = part[at + length]
            count = seen.get(local, 0)
            if count >= each:
                continue
            seen[local] = count + 1
        kept.append(place)
    kept.reverse()
    return kept


def _finished(data: bytes) -> bytes:
    """The bytes of a finished entry, as `finished` of the entries has it; empty if not known."""
    if data.find(b"gloo:", 0, data.find(b"is_p2p")) >= 0:  # its state never moves
        retired = _get(data, b"retired")
        return retired and retired + b"\x88"
    state, completed = _get(data, b"state"), _get(data, b"completed")
    return state + completed if state and completed else b""


def _closers(data: bytes) -> list[bytes] | None:
    """Bytes of which one stands in each entry that closes a coalesced batch; None if not known."""
    at = data.find(b"coalesced")
    if at < 0:
        return []
    name = _get(data, b"profiling_name")
    found: set[bytes] = set()
    while at >= 0 and len(found) <= CLOSERS:
        refers = _reference(data, at + len(b"coalesced"))
        if refers:
            found.add(name + refers)
        at = data.find(b"coalesced", at + 1)
    if not name or len(found) > CLOSERS:
        return None
    return [b"coalesced", *(closer for closer in found if closer in data)]


def _get(data: bytes, word: bytes) -> bytes:
    """The opcode that refers to a string which was memoised where it first stood; empty if not."""
    text = b"X%c\x00\x00\x00%b" % (len(word), word)
    at = data.find(text)
    if at < 0:
        return b""
    return _reference(data, at + len(text))


def _reference(data: bytes, end: int) -> bytes:
    """The opcode that refers to the string that ended here; empty where it was not memoised."""
    if data[end : end + 1] == b"q":
        return b"h" + data[end + 1 : end + 2]
    return b"j" + data[end + 1 : end + 5] if data[end : end + 1] == b"r" else b""


def _head(data: bytes, apart: bytes, later: bytes) -> int:
    """The last of the first parts that must all stay: `later` ones refer to what they wrote."""
    found = {*_BINGET.findall(later), *_LONG_BINGET.findall(later)}
    last = _last_index(data)
    indices = (int.from_bytes(raw, "little") for raw in found)
    real = sorted((index for index in indices if index <= last), reverse=True)
    puts = (b"q%c" % i if i < 256 else b"r" + i.to_bytes(4, "little") for i in real[:REFERENCES])
    return data.count(apart, 0, max((data.find(put) for put in puts), default=0) + 1)


def _last_index(data: bytes) -> int:
    """The memo's last index where it stands at the end, as PyTorch has it: more is no reference."""
    if data[-3:-2] == b"q":
        return data[-2]
    return int.from_bytes(data[-5:-1], "little") if data[-6:-5] == b"r" else len(data) // 8
