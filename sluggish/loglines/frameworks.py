"""What JAX/XLA, Megatron and NVRx say of ranks that do not come, come late, or talk unseen.

Sources: openxla `xla/tsl/distributed_runtime/coordination/coordination_service.cc` and
`xla/service/rendezvous.cc`; Megatron-LM `core/README_STRAGGLER.md`; nvidia-resiliency-ext
`fault_tolerance/rank_monitor_server.py` and its straggler callback.
"""

import re
from collections.abc import Iterable, Iterator

from sluggish.facts.collective import LaggingRanks
from sluggish.facts.log import LogSign
from sluggish.loglines.line import Line

NEEDLES: tuple[bytes, ...] = (
    b"reached the barrier", b"task names:", b"/job:jax_worker", b"coordination service",
    b"JAX distributed service", b"join the rendezvous", b"joined the rendezvous",
    b"Thread is unstuck!", b"subsequent heartbeat", b"initial heartbeat", b"has been open for",
    b"Was out of section", b"STRAGGLER DETECTION WARNING", b"MxEtpt/Rnk", b"NVSHMEM", b"nvshmem",
    b"DeepEP", b"deep_ep", b"ustom allreduce", b"ustom all-reduce", b"ustom_all_reduce",
    b"apturing CUDA graph", b"apturing cudagraph", b"CUDA graph captur",
)  # fmt: skip

TASKS = 64  # lines of task names behind "timed out task names:" (XLA prints 20 at most)
NEAR = 4  # lines in which the parts of a barrier's message follow one another
SLOW_SHARE = 0.7  # NVRx's own threshold of a relative score, used for Megatron's estimate too

# DEADLINE_EXCEEDED: Barrier timed out. Id: [Init]Wait_for_all_tasks_to_register::0. This usually
#   happens because a task triggered the barrier too early or too slowly. ...
# # of tasks that reached the barrier: 15/16.
# The first task at the barrier: /job:jax_worker/replica:0/task:0. Some timed out task names:
# /job:jax_worker/replica:0/task:11
_BARRIER = re.compile(r"Barrier timed out\. (?:Barrier_)?[Ii]d: (?P<id>\S{1,200}?)\.? ")
_REACHED = re.compile(r"of tasks that reached the barrier: (?P<came>\d{1,7})/(?P<all>\d{1,7})")
_NAMES = re.compile(r"[Tt]imed out task names:")
_TASK = re.compile(r"/job:\w{1,40}/(?:replica:\d{1,6}/)?task:(?P<task>\d{1,7})")
# UNAVAILABLE: Task /job:jax_worker/replica:0/task:5 heartbeat timeout. This indicates that ...
_HEARTBEAT = re.compile(
    r"/job:\w{1,40}/(?:replica:\d{1,6}/)?task:(?P<task>\d{1,7}) heartbeat timeout"
)
# Terminating process because the JAX distributed service detected fatal errors. ...
_ENDS = re.compile(r"because the (?:JAX distributed|coordination) service detected")
# [id=3] This thread has been waiting for `first call to collective operation 7; run_id=12` for 20
#   seconds and may be stuck. Expected 8 threads to join the rendezvous, but not all of them ...
# ... may be stuck. All 8 threads joined the rendezvous, however the leader has not marked ...
_XLA = re.compile(
    r"been waiting for `(?P<name>[^`]{1,300})` for (?P<s>\d{1,9}) ?seconds and may be ?stuck\. "
    r"(?:Expected (?P<expected>\d{1,6})|All (?P<all>\d{1,6})) threads"
)
_XLA_GIVES_UP = re.compile(
    r"Termination timeout for `(?P<name>[^`]{1,300})` of (?P<s>\d{1,9}) seconds exceeded"
)
# [WARNING] [RankMonitorServer:5] Did not get subsequent heartbeat. Waited 171.92 seconds.
# Section 'step' has been open for 612.08 seconds. Timeout is 600.00 seconds.
# Was out of section for 601.00 seconds. Timeout is 600.00 seconds.
_NVRX = re.compile(
    r"Did not get (?:subsequent|initial) heartbeat\. Waited [\d.]{1,12} seconds"
    r"|Section '[^']{1,80}' has been open for [\d.]{1,12} seconds\. Timeout is [\d.]{1,12}"
    r"|Was out of section for [\d.]{1,12} seconds\. Timeout is [\d.]{1,12}"
)
_MONITOR = re.compile(r"\[RankMonitorServer:(?P<rank>\d{1,7})\]")
# STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {5, 13}
# ... Affected ranks: {StragglerId(rank=5, node='gpu-07')}
_STRAGGLERS = re.compile(
    r"STRAGGLER DETECTION WARNING: Some GPUs? (?P<how>have worse relative performance"
    r"|performance dropped)\. Affected ranks: [\[{(](?P<ranks>.{1,2000})"
)
_RANK_NUMBER = re.compile(r"rank=(\d{1,7})")
_BARE_NUMBER = re.compile(r"(?:^|[\s,\[{])(\d{1,7})(?=[\s,\]}]|$)")
# | MnRtt/Rnk: 3453.08ms/8 | ... | MnEtpt/Rnk: 120.02TF/3 | MxEtpt/Rnk: 297.32TF/8
_ETPT = re.compile(
    r"MnEtpt/Rnk: (?P<low>[\d.]{1,12})TF/(?P<rank>\d{1,7}) \| "
    r"MxEtpt/Rnk: (?P<high>[\d.]{1,12})TF/\d{1,7}"
)
_UNSEEN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("NVSHMEM or DeepEP", re.compile(r"(?i)\bnvshmem|\bdeep_?ep\b")),
    ("a custom all-reduce", re.compile(r"(?i)\bcustom[ _-]all-?_?reduce")),
    ("CUDA graphs", re.compile(r"(?i)capturing (?:the )?(?:CUDA ?graph|cudagraph)"
                               r"|CUDA ?graph captur")),
)  # fmt: skip
_OFF = re.compile(r"(?i)disabl|not (?:available|installed|found|supported|used)|without|unavailable"
                  r"|fail|=\s?(?:0|false)\b")  # fmt: skip
"""A line that says that the thing is not there."""


def parse(lines: Iterable[Line]) -> Iterator[LaggingRanks | LogSign]:
    """Facts in the order of the log; each said once."""
    rows = list(lines)
    told: set[tuple[object, ...]] = set()
    for index, line in enumerate(rows):
        for fact in _facts(rows, index, line):
            key = _identity(fact)
            if key not in told:
                told.add(key)
                yield fact


def _identity(fact: LaggingRanks | LogSign) -> tuple[object, ...]:
    if isinstance(fact, LaggingRanks):
        return "lagging", fact.op, fact.ranks
    return "sign", fact.kind, fact.detail, fact.rank


def _facts(rows: list[Line], index: int, line: Line) -> Iterator[LaggingRanks | LogSign]:
    text = line.text[:4000]
    if "arrier" in text and "timed out" in text and (found := _BARRIER.search(text + " ")):
        yield _barrier(rows, index, line, found["id"])
    if "task:" in text and (found := _HEARTBEAT.search(text)):
        yield _sign(line, "jax_heartbeat", f"task {found['task']}", int(found["task"]))
    if "detected" in text and _ENDS.search(text):
        yield _sign(line, "jax_ended", "ended because another task failed")
    if "seconds" in text:
        yield from _waits(line, text)
    if "unstuck" in text and "Thread is unstuck!" in text:
        yield _sign(line, "xla_unstuck", "")
    if "STRAGGLER DETECTION" in text and (found := _STRAGGLERS.search(text)):
        for rank in _ranks_in(found["ranks"]):
            yield _sign(line, "nvrx_straggler", f"GPUs {found['how']}", rank)
    if "MxEtpt" in text and (found := _ETPT.search(text)):
        yield from _megatron(line, found)
    yield from _unseen(line, text)


def _sign(line: Line, kind: str, detail: str, rank: int | None = None) -> LogSign:
    return LogSign(
        node=line.node,
        rank=line.rank if rank is None else rank,
        at=line.at,
        kind=kind,
        detail=detail[:300],
        order=line.order,
        line=line.raw[:400],
    )


def _barrier(rows: list[Line], index: int, line: Line, name: str) -> LaggingRanks | LogSign:
    """Who did not come to a barrier of the coordination service, where these are the few."""
    block = " ".join(row.text[:4000] for row in rows[index : index + NEAR])
    reached = _REACHED.search(block)
    names = _NAMES.search(block)
    tasks = {int(task) for task in _TASK.findall(block[names.end() :])} if names else set[int]()
    for row in rows[index + NEAR : index + TASKS] if names else ():
        found = _TASK.match(row.text.strip())
        if not found:
            break
        tasks.add(int(found["task"]))
    count = f"{reached['came']} of {reached['all']} tasks came" if reached else "not all came"
    missing = int(reached["all"]) - int(reached["came"]) if reached else None
    few = missing is not None and reached is not None and 2 * missing < int(reached["all"])
    if not tasks or not few:
        return _sign(line, "jax_barrier", f"barrier {name}: {count}")
    return LaggingRanks(
        node=line.node,
        ranks=tuple(sorted(tasks)),
        kind="jax_barrier",
        reporter=line.rank,
        expected=int(reached["all"]) if reached else None,
        op=f"barrier {name} ({count})"[:300],
        at=line.at,
        order=line.order,
        line=line.raw[:400],
    )


def _waits(line: Line, text: str) -> Iterator[LogSign]:
    if found := _XLA.search(text):
        who = "all threads came, the leader does not go on" if found["all"] else "a thread is late"
        kind = "xla_all_joined" if found["all"] else "xla_rendezvous"
        yield _sign(line, kind, f"{_operation(found['name'])}: {who}")
    elif found := _XLA_GIVES_UP.search(text):
        yield _sign(line, "xla_gave_up", f"{_operation(found['name'])} after {found['s']} s")
    elif found := _NVRX.search(text):
        monitor = _MONITOR.search(text)
        rank = int(monitor["rank"]) if monitor else None
        yield _sign(line, "nvrx_timeout", found[0], rank)


def _operation(name: str) -> str:
    """Without the run's number: ranks of one run count it differently."""
    return name.split("; run_id=", 1)[0]


def _ranks_in(text: str) -> list[int]:
    inside = re.split(r"[\]}]", text, maxsplit=1)[0]
    found = _RANK_NUMBER.findall(inside) or _BARE_NUMBER.findall(inside)
    return sorted({int(n) for n in found})


def _megatron(line: Line, found: re.Match[str]) -> Iterator[LogSign]:
    try:
        low, high = float(found["low"]), float(found["high"])
    except ValueError:
        return
    if high > 0 and low < SLOW_SHARE * high:
        detail = f"estimated {low:.0f} TFLOP/s, the fastest {high:.0f}"
        yield _sign(line, "megatron_straggler", detail, int(found["rank"]))


def _unseen(line: Line, text: str) -> Iterator[LogSign]:
    """Traffic that neither the recorder nor RAS sees: once a kind, whoever says it."""
    for what, form in _UNSEEN:
        if form.search(text) and not _OFF.search(text):
            yield LogSign(
                node=None, rank=None, at=line.at, kind="unseen_traffic", detail=what,
                order=line.order, line=line.raw[:400],
            )  # fmt: skip
