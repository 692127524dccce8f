"""The one writer of flight-recorder dumps: formats 2.1 to 2.11, any groups, any size.

A Recorder is fed the calls of one rank in order and hands out the dump that PyTorch would write.
Sources: torch/csrc/distributed/c10d/FlightRecorder{.hpp,.cpp,Detail.hpp} and ProcessGroupNCCL.cpp
of pytorch, and dumps recorded with torch 2.13.0+cpu.

    g = Group(name="0", desc="default_pg", ranks=tuple(range(16)))
    r = Recorder(rank=3, groups=(g,))
    call = r.collective(g, "_all_gather_base", [[1024]], [[16384]], at_ns=T)
    r.complete(call, at_ns=T + 9_000_000)
    r.collective(g, "all_reduce", [[1]], [[1]], at_ns=T + 10_000_000, dtype="Int")
    open("nccl_trace_rank_3", "wb").write(pickled(r.dump()))
    open("nccl_trace_rank_3.json", "wb").write(as_json(r.dump()))
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFIX = "nccl_trace_rank_"
VERSIONS = ("1.0", "2.1", "2.2", "2.3", "2.4", "2.5", "2.7", "2.9", "2.10", "2.11")
Sizes = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group: its name (a counter or a hash of the ranks), its words, its global ranks."""

    name: str
    desc: str
    ranks: tuple[int, ...]


def hashed_name(ranks: Iterable[int]) -> str:
    """The name that hashed naming gives a group: a digest of its ranks."""
    return hashlib.sha1("_".join(map(str, ranks)).encode(), usedforsecurity=False).hexdigest()


def mesh(shape: Sequence[int], names: Sequence[str], *, hashed: bool = False) -> tuple[Group, ...]:
    """All groups of a device mesh over ranks 0..N-1, row major: the world, then each dimension."""
    world = 1
    for extent in shape:
        world *= extent
    groups = [Group(name="0", desc="default_pg", ranks=tuple(range(world)))]
    stride = world
    for extent, name in zip(shape, names, strict=True):
        stride //= extent
        for first in range(world):
            if (first // stride) % extent == 0:
                ranks = tuple(first + k * stride for k in range(extent))
                label = hashed_name(ranks) if hashed else str(len(groups))
                groups.append(Group(name=label, desc=name, ranks=ranks))
    return tuple(groups)


@dataclass(slots=True)
class Call:
    """One recorded operation; the handle that complete() takes."""

    entry: dict[str, Any]
    group: Group
    seq: int
    inner: bool = False
    done: bool = False


# What Gloo's recorder calls these operations (seen in dumps of torch 2.13.0+cpu).
_GLOO_NAMES = {
    "_reduce_scatter_base": "all_reduce",
    "reduce_scatter": "all_reduce",
    "_all_gather_base": "all_gather",
    "all_reduce_barrier": "barrier",
}


@dataclass(slots=True, kw_only=True)
class Recorder:
    """The flight recorder inside one rank's process."""

    rank: int
    groups: tuple[Group, ...]
    """Those that this rank belongs to, in the order in which it created them: the local ids."""
    version: str = "2.10"
    backend: str = "nccl"
    timing: bool = False
    buffer_size: int = 2000
    library: str = "2.27.7"
    timeout_ms: int = 600_000
    thread: str = "pt_main_thread"
    first_record: int = 0
    first_seq: int = 0
    ring: deque[Call] = field(default_factory=deque)
    seq: dict[Group, int] = field(default_factory=dict)
    p2p_seq: dict[Group, int] = field(default_factory=dict)
    op_id: dict[Group, int] = field(default_factory=dict)
    status: dict[Group, list[int]] = field(default_factory=dict)
    records: int = 0

    def __post_init__(self) -> None:
        self.ring = deque(maxlen=self.buffer_size)
        self.groups = tuple(g for g in self.groups if self.rank in g.ranks)
        for g in self.groups:
            self.seq[g] = self.op_id[g] = self.first_seq
            self.p2p_seq[g] = 0
        self.records = self.first_record

    # -- calls ------------------------------------------------------------------------------

    def collective(
        self,
        group: Group,
        op: str,
        ins: Sizes,
        outs: Sizes,
        *,
        at_ns: int,
        dtype: str = "BFloat16",
        frames: Sequence[dict[str, Any]] = (),
    ) -> Call:
        """One collective enqueued; `op` as NCCL's recorder spells it, without the backend."""
        self.seq[group] += 1
        return self._issue(group, op, ins, outs, at_ns, dtype, frames, p2p=False)

    def coalesced(
        self, group: Group, op: str, inner: Sequence[tuple[Sizes, Sizes]], *, at_ns: int
    ) -> Call:
        """Several collectives in one group call: inner entries that never leave "scheduled", then
        the closing entry without sizes (format 2.7 on; before it, the closing entry alone)."""
        self.seq[group] += 1
        if _at_least(self.version, "2.7"):
            for ins, outs in inner:
                self._issue(group, op, ins, outs, at_ns, "BFloat16", (), p2p=False).inner = True
        names = {"_all_gather_base": "ALLGATHER_coalesced"}
        names["_reduce_scatter_base"] = "REDUCE_SCATTER_coalesced"
        return self._issue(group, names.get(op, "coalesced"), [], [], at_ns, None, (), p2p=False)

    def p2p(
        self,
        group: Group,
        kind: str,
        peer: int,
        size: Sequence[int],
        *,
        at_ns: int,
        frames: Sequence[dict[str, Any]] = (),
    ) -> Call:
        """A lone send or recv; names use ranks within the group, the size stands on both sides."""
        if self.backend == "gloo":
            raise ValueError("gloo records no send or recv")
        self.p2p_seq[group] += 1
        name = self._p2p_name(group, kind, peer)
        return self._issue(group, name, [size], [size], at_ns, "BFloat16", frames, p2p=True)

    def batch_p2p(
        self, group: Group, ops: Sequence[tuple[str, int, Sequence[int]]], *, at_ns: int
    ) -> Call:
        """batch_isend_irecv: inner entries without events, then `coalesced` which carries state."""
        self.p2p_seq[group] += 1
        for kind, peer, size in ops:
            name = self._p2p_name(group, kind, peer)
            self._issue(group, name, [size], [size], at_ns, "BFloat16", (), p2p=True).inner = True
        return self._issue(group, "coalesced", [], [], at_ns, None, (), p2p=True)

    def complete(
        self, call: Call, *, at_ns: int, failed: bool = False, ran_ns: int | None = None
    ) -> None:
        """The watchdog notices at `at_ns` that the call is over; its kernel had run for `ran_ns`.
        `failed` is Gloo's defect: an operation that ended in an exception is retired and counted
        as well."""
        if failed and self.backend != "gloo":
            raise ValueError("only gloo retires a failed operation")
        e, created = call.entry, call.entry["time_created_ns"]
        e["retired"] = call.done = True
        if self.backend != "gloo":
            e["state"] = "completed"
            e["time_discovered_completed_ns"] = at_ns
            if self.timing:
                e["time_discovered_started_ns"] = min(created + 100_000, at_ns)
                ran = at_ns - created if ran_ns is None else ran_ns
                e["duration_ms"] = round(ran / 1e6, 3)
        status = self.status[call.group]
        status[2] = call.seq
        if self.timing:
            status[1] = max(status[1], call.seq)

    def start(self, call: Call, *, at_ns: int) -> None:
        """The watchdog sees the kernel begin: only with timing on does anything change."""
        if self.timing and self.backend != "gloo":
            call.entry["state"] = "started"
            call.entry["time_discovered_started_ns"] = at_ns
            self.status[call.group][1] = call.seq

    # -- the dump ---------------------------------------------------------------------------

    def dump(self, *, only_active: bool = False) -> Any:
        """The object that PyTorch pickles: the top level, entries oldest first."""
        entries = [c.entry for c in self.ring if not (only_active and c.done)]
        if self.version.startswith("1."):  # the oldest form is a bare list
            return entries
        top: dict[str, Any] = {"version": self.version, "pg_config": self._pg_config()}
        if _at_least(self.version, "2.9"):
            top["comm_lib_version"] = "" if self.backend == "gloo" else self.library
        if _at_least(self.version, "2.3"):
            keys = ("last_enqueued_collective", "last_started_collective")
            keys += ("last_completed_collective",)
            top["pg_status"] = {
                str(self.groups.index(g)): dict(zip(keys, values, strict=True))
                for g, values in self.status.items()
            }
        top["entries"] = entries
        return top

    def _pg_config(self) -> dict[str, dict[str, str]]:
        if self.backend == "gloo":  # one key, the last group wins, no ranks once there are two
            ranks = [] if len(self.groups) > 1 else list(self.groups[0].ranks)
            return {"": {"name": "", "desc": "", "ranks": str(ranks)}}
        return {
            g.name: {"name": g.name, "desc": g.desc, "ranks": str(list(g.ranks))}
            for g in self.status  # known only once the communicator was first used
        }

    def _p2p_name(self, group: Group, kind: str, peer: int) -> str:
        me, other = group.ranks.index(self.rank), group.ranks.index(peer)
        return f"send {me}->{other}" if kind == "send" else f"recv {me}<-{other}"

    def _issue(
        self,
        group: Group,
        op: str,
        ins: Sizes,
        outs: Sizes,
        at_ns: int,
        dtype: str | None,
        frames: Sequence[dict[str, Any]],
        *,
        p2p: bool,
    ) -> Call:
        self.op_id[group] += 1
        seq = self.p2p_seq[group] if p2p else self.seq[group]
        self.status.setdefault(group, [-1, -1, -1])[0] = seq
        name = _GLOO_NAMES.get(op, op) if self.backend == "gloo" else op
        entry: dict[str, Any] = {
            "frames": list(frames),
            "record_id": self.records,
            "pg_id": self.groups.index(group),
            "process_group": (group.name, group.desc),
        }
        if _at_least(self.version, "2.9"):
            entry |= {"thread_name": self.thread, "thread_id": "140400289123200"}
        entry |= {
            "collective_seq_id": self.seq[group],
            "p2p_seq_id": self.p2p_seq[group],
            "op_id": self.op_id[group],
            "profiling_name": f"{self.backend}:{name}",
            "time_created_ns": at_ns,
            "input_sizes": [list(s) for s in ins],
        }
        types = _at_least(self.version, "2.3")
        if types:
            entry["input_dtypes"] = [dtype] * len(ins)
        entry["output_sizes"] = [list(s) for s in outs]
        if types:
            entry["output_dtypes"] = [dtype] * len(outs)
        entry |= {
            "state": "scheduled",
            "time_discovered_started_ns": None,
            "time_discovered_completed_ns": None,
            "retired": False,
        }
        if types:
            entry |= {"timeout_ms": self.timeout_ms, "is_p2p": p2p}
        self.records += 1
        call = Call(entry=entry, group=group, seq=seq)
        self.ring.append(call)
        return call


def _at_least(version: str, floor: str) -> bool:
    return tuple(map(int, version.split("."))) >= tuple(map(int, floor.split(".")))


def pickled(dump: Any) -> bytes:
    """The dump as torch pickles it: protocol 2, plain types only, shared frame objects."""
    return pickle.dumps(dump, protocol=2)


def as_json(dump: Any) -> bytes:
    """The dump as torch's JSON writer prints it: status as strings, 0 for a time that is not
    known, no frames, pairs as lists, and no key `entries` where there are none."""
    if isinstance(dump, list):
        return json.dumps([_json_entry(e) for e in dump]).encode()
    top = dict(dump)
    if "pg_status" in top:
        top["pg_status"] = {
            g: {k: str(v) for k, v in s.items()} for g, s in top["pg_status"].items()
        }
    top["entries"] = [_json_entry(e) for e in top["entries"]]
    if not top["entries"]:
        del top["entries"]
    return json.dumps(top).encode()


def _json_entry(entry: dict[str, Any]) -> dict[str, Any]:
    out = {k: v for k, v in entry.items() if k != "frames"}
    for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
        out[key] = out[key] or 0
    out["process_group"] = list(out["process_group"])
    return out


def frame(name: str, filename: str, line: int) -> dict[str, Any]:
    """One Python frame of a stack, innermost first in `frames`."""
    return {"name": name, "filename": filename, "line": line}
