"""The job's stdout and stderr: NCCL, PyTorch, Python, Slurm and the training loop in one text.

What it shows: whatever the ranks and their launcher printed. Privileges: those of the job's
owner, or group read on the file. Cost: one read of the file; a big one is read by windows
(`sluggish/evidence/logscan.py`). Traps: file order is not time order, a block-buffered process
prints 30 min late (Lightning-AI/pytorch-lightning #20434); keep-alive lines keep the file's time
fresh while training is dead (bigscience tr11 chronicles); the ranks that print the timeout are
the victims.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sluggish.evidence.logscan import GAP_MARK, SLOW_MARK, UNSEARCHED
from sluggish.facts.log import (
    EarlierFailure,
    LogSign,
    LogSpan,
    ProcessExit,
    Progress,
    PythonError,
    SlurmMessage,
    Version,
)
from sluggish.facts.origin import Origin
from sluggish.loglines import launch, readers, training
from sluggish.loglines.line import Line
from sluggish.loglines.prefix import lines
from sluggish.loglines.runs import failed_nodes, split_runs
from sluggish.loglines.stamps import zone_of
from sluggish.loglines.steady import without_middle

ID = "job_log"
COMMAND = 'cat "$SLUGGISH_JOB_LOG"'
BINARY = False

FACTS: tuple[type, ...] = (
    LogSpan, Progress, PythonError, ProcessExit, SlurmMessage, EarlierFailure, LogSign, Version,
    *readers.FACTS,
)  # fmt: skip

NEEDLES: tuple[bytes, ...] = (*readers.NEEDLES, UNSEARCHED.encode())
"""Fixed strings around which a big log is read."""
AHEAD: dict[bytes, int] = {b"Traceback (most recent call last)": 24_000}
"""Bytes wanted behind a string: a traceback of some ranks, mixed."""

STEPS_A_RANK = 64
STEPS_IN_ALL = 2_000
FIRST_STEPS = 50
STEADY = ("step", "evaluation", "bar")
"""Kinds of progress of which only the first and the last become facts."""
MOST_OF_A_KIND = 20_000
"""Facts kept of any other type of one log; the first and the last halves."""

# What speaks for a job log: one strong word, or some lines of a training loop.
_STRONG = re.compile(
    rb"NCCL (?:INFO|WARN|version)|WorkNCCL\(|ProcessGroupNCCL|Traceback \(most recent call last\)"
    rb"|\[rank\d{1,6}\]:|slurmstepd: |srun: (?:error|Job|Force|Terminating|Step)"
    rb"|torch\.distributed|torch/distributed|failed \(exitcode: |elastic\.multiprocessing"
    rb"|\*\*\*\*\* Running training|CUDA out of memory|slurm_script: line|noticed that process rank"
    rb"|pyxis: import|: init_process_group\b"
    rb"|DataLoader worker \(pid|elapsed time per iteration|CUDA error: |RuntimeError: "
    rb"|terminate called after throwing an instance of|gloo/transport/"
    rb"|OutOfMemoryError|store based barrier|ncclUnhandledCudaError|ncclInternalError"
    rb"|Some NCCL operations have failed|\[c10d\]|\[[EWIF] (?:socket|ProcessGroup\w{1,12})\.cpp:"
    rb"|(?:mpirun|mpiexec|nvidia-container-cli|pyxis|enroot): [a-z]|UCX {2}(?:ERROR|WARN)"
    rb"|exits with return code = |: Out Of Memory|encountered in worker|DataLoader timed out"
    rb"|JAX distributed service|oordination service agent|XlaRuntimeError|UCX {2}ERROR"
    rb"|has lost communication with a remote daemon|Transport retry count exceeded on"
    rb"|, but didn't join collective #|joined but didn't finish collective #"
)
# OSError: [Errno 116] Stale file handle: '/data/a.arrow'       (the end of a traceback, alone)
_RAISED = re.compile(
    rb"(?m)^(?:\[rank\d{1,6}\]: ?|\d{1,6}: )?(?:[a-z_]\w{0,60}\.){0,8}(?!Lustre)[A-Z]\w{1,60}"
    rb"(?:Error|Exception|Timeout): \S"
)
# 34%|###4      | 3412/10000 [2:11:05<4:13:02,  2.30s/it]      a bar with its times: one is enough
_BAR = re.compile(rb"%\|[^|\n]{0,400}\| ?\d{1,12}/\d{1,12} \[\d{1,4}:\d\d|\b[\d.]{1,12} sec/step\b")
_LOOP = re.compile(
    rb"(?i)%\|[^|\n]{0,400}\| ?\d+/\d+ \[|\b(?:epoch|step|iter(?:ation)?)\b[ :=#\[(]{0,4}\d+"
    rb"|\bloss\b|\bcheckpoint|\btok(?:ens)?/s|it/s\b|s/it\b|\bep \d+ train"
)
# What is surely another probe's text: a kernel log that quotes a process, a tool's output.
_NOT_OURS = re.compile(
    rb"\A\s{0,8}(?:\{|<\?xml|%!|JobId=|NodeName=|CA '|hca_id:|Infiniband device|==> |Process \d+: )"
    rb"|\A[^\n]{0,80}\bkernel: |\A\[ {0,8}\d{1,9}\.\d{1,6}\] |\A\[ {0,6}\+"
    rb"|\A\[[A-Z][a-z]{2} [A-Z][a-z]{2} "
    rb"|\A\d{4}-\d\d-\d\dT[\d:,.+-]{10,30} (?:\S+ kernel: |NVRM|mlx5|pci)|\A=+NVSMI LOG=+"
    rb"|\A\s{0,8}Thread [\d(]|\ACurrent thread 0x|\AJobID\|"
)
# {"log":"...\\n","stream":"stderr","time":"..."}    (docker's json-file, and what exporters write)
_JSON_LINES = re.compile(
    rb'\A\s{0,8}\{[^\n]{0,2000}?"(?:log|message|msg|textPayload|MESSAGE)" ?: ?"'
)
LEAST_LOOP_LINES = 3


def sniff(head: bytes) -> bool:
    """Whether this is what a training job prints."""
    text = head.lstrip(b"\xef\xbb\xbf")
    if _NOT_OURS.match(text) and not _JSON_LINES.match(text):
        return False
    if b"NCCL RAS client" in text[:4096] or (
        b"Job summary" in text and b"Communicators..." in text
    ):
        return False
    if _STRONG.search(text) or _RAISED.search(text) or _BAR.search(text):
        return True
    loop = sum(1 for line in re.split(rb"[\r\n]", text)[:4_000] if _LOOP.search(line[:2_000]))
    return loop >= LEAST_LOOP_LINES


def parse(text: str, origin: Origin) -> Iterator[Any]:
    """Everything that the readers of log lines find. An empty log is legal: it spans nothing."""
    text, before = split_runs(text, origin.ended, zone_of(origin))
    for node, told in failed_nodes(before):
        yield EarlierFailure(node=node, line=told)
    fewer = without_middle(text, partial(_only_a_step, origin=origin))
    cleaned = _with_ranks(list(lines(fewer, origin)))
    zone = zone_of(origin)
    yield _span(text, cleaned, origin)
    yield from _calm(training.parse(cleaned))
    yield from _at_most(launch.parse(cleaned, zone))
    for read in readers.READERS:
        yield from _at_most(read(cleaned))


def _only_a_step(text: str, origin: Origin) -> bool:
    """Whether all that a line tells is a step of the job, of no rank or node in particular."""
    found = list(lines(text, origin))
    if len(found) != 1 or found[0].node != origin.node:
        return False
    line = found[0]
    if any(told is not None for told in (line.rank, line.local_rank, line.task, line.pid)):
        return False
    steps = list(training.parse(found))
    others = (fact for read in readers.READERS for fact in read(found))
    return (
        len(steps) == 1
        and steps[0].kind in STEADY
        and steps[0].rank is None
        and not list(launch.parse(found, zone_of(origin)))
        and not list(others)
    )


# 3: gpu-07:4182:4369 [3] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 3 nranks 16 ...
_RANK_OF = re.compile(r"\brank (?P<rank>\d{1,6}) nranks (?P<size>\d{1,6})\b")


def _with_ranks(cleaned: list[Line]) -> list[Line]:
    """Where `srun --label` was used with one rank a task, the label is the rank.

    The lines must prove it: those that carry both must always agree.
    """
    tasks = {line.task for line in cleaned if line.task is not None}
    if len(tasks) < 2:
        return cleaned
    told = [
        (line.task, line.rank)
        for line in cleaned
        if line.task is not None and line.rank is not None
    ]
    if not told:
        found = [(line, m) for line in cleaned if line.task is not None
                 and "nranks" in line.text and (m := _RANK_OF.search(line.text))]  # fmt: skip
        world = max((int(m["size"]) for _, m in found), default=0)
        told = [(line.task, int(m["rank"])) for line, m in found if int(m["size"]) == world]
    if not told or any(task != rank for task, rank in told):
        return cleaned
    return [
        replace(line, rank=line.task) if line.rank is None and line.task is not None else line
        for line in cleaned
    ]


# [... 123456 bytes not read, next is byte 234567 ...]       by sluggish/evidence/logscan.py
# [... 123456 bytes not searched ...]                        by the script on a node
_LEFT_OUT = re.compile(
    rf"^{re.escape(GAP_MARK)}(?P<n>\d{{1,18}}) bytes not (?P<how>read|searched)"
    rf"(?P<slow> \({SLOW_MARK}\))?(?:, next is byte \d{{1,18}})? \.\.\.\]$",
    re.MULTILINE,
)


def _span(text: str, cleaned: Sequence[Line], origin: Origin) -> LogSpan:
    times = [line.at for line in cleaned if line.at is not None]
    left_out = list(_LEFT_OUT.finditer(text)) if GAP_MARK in text else []
    marks = sum(gap.end() - gap.start() + 1 for gap in left_out)
    read = max(0, len(text.encode("utf-8", "replace")) - marks)
    return LogSpan(
        node=origin.node,
        path=origin.path,
        bytes_total=read + sum(int(gap["n"]) for gap in left_out),
        bytes_read=read,
        first_at=_edge(times, min),
        last_at=_edge(times, max),
        mtime=origin.mtime,
        bytes_unsearched=sum(int(gap["n"]) for gap in left_out if gap["how"] == "searched"),
        slow_road=any(gap["slow"] for gap in left_out),
        nccl_debug=_debug_level(text),
    )


def _edge(times: list[datetime], pick: Callable[[list[datetime]], datetime]) -> datetime | None:
    return pick(times) if times else None


def _debug_level(text: str) -> str | None:
    """INFO where its lines are there; the version line comes with WARN already."""
    if " NCCL INFO " in text:
        return "INFO"
    return "WARN" if " NCCL WARN " in text or "NCCL version " in text else None


def _calm(found: Iterable[Progress]) -> Iterator[Progress]:
    """Progress in the order of the log: all rare marks, and of steps the first and the last.

    A log with ten million step lines must not become ten million facts.
    """
    first: list[Progress] = []
    by_rank: dict[object, deque[Progress]] = {}
    latest: deque[Progress] = deque(maxlen=STEPS_IN_ALL)
    marks: deque[Progress] = deque(maxlen=MOST_OF_A_KIND)
    for fact in found:
        if fact.kind not in STEADY:
            marks.append(fact)
            continue
        if len(first) < FIRST_STEPS:
            first.append(fact)
        latest.append(fact)
        if fact.rank not in by_rank and len(by_rank) >= MOST_OF_A_KIND:
            continue
        by_rank.setdefault(fact.rank, deque(maxlen=STEPS_A_RANK)).append(fact)
    kept = {id(fact): fact for fact in (*first, *latest, *marks)}
    kept |= {id(fact): fact for rank in by_rank.values() for fact in rank}
    yield from sorted(kept.values(), key=lambda fact: fact.order)


def _at_most(found: Iterable[Any]) -> Iterator[Any]:
    """The first half and the last half of the limit, for each type of fact."""
    half = MOST_OF_A_KIND // 2
    given: dict[type, int] = {}
    late: dict[type, deque[Any]] = {}
    for fact in found:
        kind: type = type(fact)
        given[kind] = given.get(kind, 0) + 1
        if given[kind] <= half:
            yield fact
        else:
            late.setdefault(kind, deque(maxlen=half)).append(fact)
    for facts in late.values():
        yield from facts
