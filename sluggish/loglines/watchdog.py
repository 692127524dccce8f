"""What c10d's watchdog, monitor, wrapper and Gloo print when a collective does not end.

PyTorch 1.10 to 2.13. Records are torn by other writers, wrapped by terminals in the middle of a
word and printed twice (error and `what():`): white space is taken out before fields are read, each
timeout is told once. Formats: pytorch `ProcessGroupNCCL.cpp`, `TraceUtils.h`,
`ProcessGroupWrapper.cpp`, gloo `transport/tcp`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from sluggish.facts.collective import (
    DumpPath,
    Fingerprint,
    LaggingRanks,
    QueuePosition,
    WatchdogTimeout,
)
from sluggish.facts.log import LogSign
from sluggish.loglines._desync import desync_lines
from sluggish.loglines.line import Line

NEEDLES: tuple[bytes, ...] = (
    b"WorkNCCL(",
    b"Watchdog caught",
    b"watchdog thread terminated",
    b"ast enqueued",
    b"detected by watchdog",
    b"lagging",
    b"joined but didn't finish",
    b"but didn't join",
    b"CollectiveFingerPrint",
    b"monitoredBarrier",
    b"Flight Recorder",
    b"dumping nccl trace",
    b"NCCLPG debug info",
    b"got stuck for",
    b"gloo/transport",
    b"possible GIL",
)

Told = (
    WatchdogTimeout | QueuePosition | LaggingRanks | Fingerprint | DumpPath | LogSign
)  # what parse() yields

JOINED = 6
"""Lines that one record may be spread over (seen: 3 at 75 columns)."""
LONGEST = 4000
"""Characters of a joined record that are read."""

# [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7753, OpType=ALLREDUCE,
#   NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600029 milliseconds before timing out.
# 1.10: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for ... (no SeqNum)
# old: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, TensorShape=[4], Timeout(ms)=1800000)
_WORK = re.compile(r"WorkNCCL\((?P<body>.{0,600}?)Timeout\(ms\)=(?P<timeout>\d{1,12})\)")
_RAN = re.compile(r"ranfor(\d{1,12})milliseconds")
_SEQ = re.compile(r"SeqNum=(\d{1,20})")
_NUMELS = re.compile(r"NumelIn=(\d{1,20}),NumelOut=(\d{1,20})")
_OP = re.compile(r"OpType=(\w{3,40})(?=,|\))")
_OPS = (
    "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "_ALLREDUCE_SPARSE", "ALLTOALL_BASE",
    "REDUCE_SCATTER", "ALLREDUCE_COALESCED", "ALLGATHER_COALESCED", "ALLREDUCE", "ALLGATHER",
    "BROADCAST", "ALLTOALL", "COALESCED", "BARRIER", "GATHER", "SCATTER", "REDUCE", "SEND", "RECV",
)  # fmt: skip
_NAMES = {
    "_ALLGATHER_BASE": "all_gather",
    "_REDUCE_SCATTER_BASE": "reduce_scatter",
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather (list)",
    "REDUCE_SCATTER": "reduce_scatter (list)",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
}
NO_NUMEL = 18446744073709551615  # printed for COALESCED

# [PG ID 6 PG GUID 623(PIPELINE_MODEL_PARALLEL_GROUP) Rank 13]     (2.5 on)
# [PG 0 (default_pg) Rank 3]   [PG 1 Rank 0]                       (2.2 to 2.4)
_GROUP = re.compile(
    r"\[PG(?:ID\d{1,9}PGGUID)?(?P<name>\w{1,80}?)(?:\((?P<desc>[^()\[\]]{0,120})\))?"
    r"Rank(?P<rank>\d{1,7})\]"
)
_RANK = re.compile(r"\[Rank(\d{1,7})\]")
_GLOBAL = re.compile(r"\[rank(\d{1,7})\]:")

# ... at work sequence id: 42 PG status: last enqueued work: 45, last completed work: 41   (2.6 on)
# Timeout at NCCL work: 2070, last enqueued NCCL work: 2082, last completed NCCL work: 2069.
# Last enqueued NCCL work: 2193, last completed NCCL work: 2193.     (dump signal, capital L)
_POSITION = re.compile(
    r"[Ll]astenqueued(?:NCCL)?work:(-?\d{1,20})"
    r"(?:.{0,80}?laststarted(?:NCCL)?work:-?\d{1,20}(?:\(\w{1,40}\))?)?"
    r".{0,80}?lastcompleted(?:(?:NCCL)?work:)?(-?\d{1,20})"
)
# ProcessGroupNCCL dumping nccl trace to /tmp/nccl_trace_rank_3
# Finished writing Flight Recorder debug info to /tmp/nccl_trace_rank_3
# Finished writing NCCLPG debug info to /tmp/nccl_trace_rank_3
_DUMP = re.compile(
    r"(?:dumping nccl trace|(?P<done>Finished writing (?:Flight Recorder|NCCLPG) debug info)) to "
    r"(?P<path>/\S{1,400})"
)
# [Rank 0]: Rank 2 failed to pass monitoredBarrier in 4000 ms        (also: Ranks 2, 3 failed)
# Rank 2 failed to pass monitoredBarrier in 4000 ms                  (1.8: without the reporter)
_BARRIER = re.compile(
    r"(?:\[Rank (?P<by>\d{1,7})\]: )?\bRanks? (?P<ranks>\d{1,7}(?:, ?\d{1,7}){0,4000}) failed to "
    r"pass monitoredBarrier"
)
# Rank 2 timed out in monitoredBarrier after 4000 ms.
_BARRIER_SELF = re.compile(r"Rank (\d{1,7}) timed out in monitoredBarrier after \d{1,12} ms")

# Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=1, OpType=ALLGATHER,
#   TensorShape=[4], ...), but Rank 1 is running collective: CollectiveFingerPrint(...)
# broken: `SequenceNumber=0OpType=REDUCE`, `195812480vs 51123456`
_FINGER = re.compile(
    r"Rank ?(?P<rank>\d{1,7}) ?is ?running ?collective: ?CollectiveFingerPrint\((?P<body>.{0,900}?)"
    r"(?=, ?but ?Rank ?\d|Collectives ?differ|$)",
    re.DOTALL,
)
_FINGER_OP = re.compile(r"OpType=(?P<op>\w{3,40})")
_FINGER_SEQ = re.compile(r"SequenceNumber=(\d{1,18})")
_FINGER_SHAPE = re.compile(r"TensorShape=\[(?P<shape>[\d, x\]\[]{0,200}?)\](?=, ?Tensor|\)|,? ?$)")
_ASPECTS = re.compile(r"differ in the following aspects:(.{0,300})")

_SIGNS: tuple[tuple[str, str], ...] = (
    ("got stuck for", "watchdog_stuck"),
    ("Heartbeat monitor timed out", "watchdog_stuck"),
    ("possible GIL induced hang", "gil"),
    ("Some NCCL operations have failed or timed out", "nccl_failed"),
    ("Observed flight recorder dump signal from another rank", "dump_signal_seen"),
    ("First PG on this rank to signal dumping", "dump_signal_first"),
    ("Connection closed by peer", "peer_closed"),
    ("Connection reset by peer", "peer_closed"),
    ("op.preamble.length <= op.nbytes", "gloo_size_mismatch"),
    ("Timed out waiting", "gloo_timeout"),
    ("Flight recorder dump in heartbeatMonitor timed out", "dump_timeout"),
)
_GLOO_SIGNS = ("peer_closed", "gloo_timeout", "gloo_size_mismatch")


def parse(lines: Iterable[Line]) -> Iterator[Told]:
    """Facts in the order of the log; a timeout that is printed again is told once."""
    rows = list(lines)
    seen: set[object] = set()
    used: set[int] = set()  # lines that were the rest of a record
    for index, line in enumerate(rows):
        for fact in _facts(rows, index, line, used):
            keys = _identities(fact)
            if not seen.intersection(keys[:1]):
                seen.update(keys)
                yield fact
    for fact in desync_lines(rows):
        yield fact


def _identities(fact: Told) -> list[object]:
    """The first one is the fact's own; the others stand for less complete copies of it."""
    if isinstance(fact, WatchdogTimeout):
        who = fact.rank if fact.rank is not None else ("in group", fact.group_rank)
        what = (fact.seq, fact.op, fact.numel_in, fact.numel_out)
        return [(who, what), (("in group", None), what)]
    if isinstance(fact, QueuePosition):
        return [replace(fact, at=None, order=0, line="")]
    if isinstance(fact, LogSign):
        return [(fact.kind, fact.rank, fact.node, fact.detail)]
    if isinstance(fact, DumpPath | Fingerprint):
        return [replace(fact, line="", at=None)]
    return [replace(fact, line="", at=None, order=0)]


def _facts(rows: list[Line], index: int, line: Line, used: set[int]) -> Iterator[Told]:
    text = line.text
    fresh = index not in used
    if fresh and ("WorkN" in text or "Watchdog" in text or "watchdog thread" in text):
        yield from _timeout(rows, index, line, used)
    if fresh and ("ast enqueued" in text or "detected" in text or "Timeout at NCCL" in text):
        yield from _position(rows, index, line, used)
    if "CollectiveFingerPrint" in text:
        yield from _fingerprint(rows, index, line)
    if "monitoredBarrier" in text:
        yield from _barrier(line)
    found = _DUMP.search(text[:LONGEST])
    if found:
        yield DumpPath(
            node=line.node,
            rank=line.rank,
            path=found["path"].rstrip(".,"),
            written=bool(found["done"]),
            at=line.at,
            line=line.raw[:400],
        )
    yield from _signs(line)


def _squeezed(rows: list[Line], index: int, enough: re.Pattern[str], used: set[int]) -> str:
    """The record that begins here, without white space; more lines until it is whole."""
    text = "".join(rows[index].text[:LONGEST].split())
    for step in range(1, JOINED):
        if enough.search(text) or index + step >= len(rows) or len(text) > LONGEST:
            break
        after = rows[index + step]
        if _begins_record(after.text) or not _same_writer(rows[index], after):
            break
        text += "".join(after.text[:LONGEST].split())
        used.add(index + step)
    return text


def _begins_record(text: str) -> bool:
    head = text.lstrip()[:80]
    return head.startswith(
        ("[rank", "[Rank ", "[E", "[W", "[I ", "Traceback", "  what()", "what()")
    )


def _same_writer(one: Line, other: Line) -> bool:
    if other.rank is None or one.rank is None:
        return True
    return one.rank == other.rank


_WHOLE_WORK = re.compile(
    r"WorkNCCL\(.{0,600}?Timeout\(ms\)=\d+\).{0,40}?(?:milliseconds|blockingwait|beforetimingout)"
)


def _timeout(rows: list[Line], index: int, line: Line, used: set[int]) -> Iterator[WatchdogTimeout]:
    text = _squeezed(rows, index, _WHOLE_WORK, used)
    for work in _WORK.finditer(text):
        before = text[max(0, work.start() - 400) : work.start()]
        after = text[work.end() : work.end() + 200]
        body = work["body"]
        sizes = _NUMELS.search(body)
        seq = _SEQ.search(body)
        ran = _RAN.search(after)
        group, group_rank = _group_of(before)
        yield WatchdogTimeout(
            node=line.node,
            rank=_global_rank(line, before),
            group_rank=group_rank,
            group=group,
            at=line.at,
            seq=int(seq[1]) if seq else None,
            op=_op(body),
            numel_in=_numel(sizes, 1),
            numel_out=_numel(sizes, 2),
            timeout_ms=int(work["timeout"]),
            ran_ms=int(ran[1]) if ran else None,
            pid=line.pid,
            order=line.order,
            line=line.raw[:400],
        )


def _numel(sizes: re.Match[str] | None, which: int) -> int | None:
    value = int(sizes[which]) if sizes else None
    return None if value == NO_NUMEL else value


def _op(body: str) -> str | None:
    """The operation; where another writer tore the field, a known word in what is left."""
    found = _OP.search(body)
    word = found[1] if found and found[1] in _OPS else None
    word = word or next((name for name in _OPS if name in body), None)
    if word is None:
        return found[1].lower() if found else None
    return _NAMES.get(word, word.lower().strip("_"))


def _group_of(before: str) -> tuple[str | None, int | None]:
    """(group, rank within it). `[Rank N]` alone is the rank within a group that is not named."""
    named = list(_GROUP.finditer(before))
    if named:
        found = named[-1]
        return found["desc"] or found["name"], int(found["rank"])
    bare = _RANK.findall(before)
    return None, int(bare[-1]) if bare else None


def _global_rank(line: Line, before: str) -> int | None:
    told = _GLOBAL.findall(before)
    return int(told[-1]) if told else line.rank


def _position(rows: list[Line], index: int, line: Line, used: set[int]) -> Iterator[QueuePosition]:
    text = _squeezed(rows, index, _POSITION, used)
    for found in _POSITION.finditer(text):
        group, group_rank = _group_of(text[: found.start()])
        yield QueuePosition(
            node=line.node,
            rank=_global_rank(line, text[: found.start()]),
            group_rank=group_rank,
            group=group,
            last_enqueued=int(found[1]),
            last_completed=int(found[2]),
            at=line.at,
            order=line.order,
            line=line.raw[:400],
        )


def _fingerprint(rows: list[Line], index: int, line: Line) -> Iterator[Fingerprint]:
    text = line.text[:LONGEST]
    for step in range(1, JOINED):
        if len(_FINGER.findall(text)) >= 2 or index + step >= len(rows):
            break
        if not _same_writer(line, rows[index + step]):
            break
        text += rows[index + step].text[:LONGEST]
    sides = list(_FINGER.finditer(text))
    if len(sides) < 2:
        return
    one, other = sides[0], sides[1]
    seq = _FINGER_SEQ.search(one["body"])
    aspects = _ASPECTS.search(text)
    yield Fingerprint(
        node=line.node,
        rank=int(one["rank"]),
        other_rank=int(other["rank"]),
        seq=int(seq[1]) if seq else None,
        op=_side(one["body"]),
        other_op=_side(other["body"]),
        aspects=aspects[1].strip() if aspects else "",
        at=line.at,
        line=line.raw[:400],
    )


def _side(body: str) -> str | None:
    """`all_gather [4]`: operation and shape of one fingerprint."""
    found = _FINGER_OP.search(body)
    if not found:
        return None
    name = _op(f"OpType={found['op']},")
    shape = _FINGER_SHAPE.search(body)
    return f"{name} [{shape['shape']}]" if shape else name


def _barrier(line: Line) -> Iterator[LaggingRanks]:
    found = _BARRIER.search(line.text[:LONGEST])
    if found is None:
        return
    yield LaggingRanks(
        node=line.node,
        ranks=tuple(sorted({int(r) for r in re.findall(r"\d+", found["ranks"])})),
        kind="monitored_barrier",
        reporter=int(found["by"]) if found["by"] else line.rank,
        op="monitored_barrier",
        at=line.at,
        order=line.order,
        line=line.raw[:400],
    )


def _signs(line: Line) -> Iterator[LogSign]:
    for words, kind in _SIGNS:
        if words not in line.text:
            continue
        if kind in _GLOO_SIGNS and "gloo" not in line.text:
            continue
        yield LogSign(
            node=line.node,
            rank=line.rank,
            at=line.at,
            kind=kind,
            order=line.order,
            line=line.raw[:400],
        )
