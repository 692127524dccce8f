"""Lines that appear while the probes still run: facts as they arrive, marked preliminary."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from sluggish.catalog import xid as catalog
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.fabric import FabricEvent, NcclTrouble, Port
from sluggish.facts.gpu import GpuTrouble, SmiFailure, SXid, Xid
from sluggish.facts.host import HungTask, Mount, OomKill, RankProcess
from sluggish.facts.log import LogSign, ProcessExit, Progress, PythonError, SlurmMessage
from sluggish.job import Job, NodeState, lost_run
from sluggish.report.words import age, clock, folded, lasting
from sluggish.text import safe

WATCHDOG_S = 600
"""PyTorch's default timeout of a collective on NCCL (torch/distributed/constants.py, 2.2 on)."""
NEWS = timedelta(hours=2)
"""An event older than this before the look is history until the diagnosis says otherwise."""
BAD_STATES = ("DOWN", "FAIL", "ERROR", "UNKNOWN")
BAD_FLAGS = ("NOT_RESPONDING", "DRAIN", "FAIL", "REBOOT_ISSUED", "POWERED_DOWN")


def of_job(job: Job, now: datetime) -> Iterator[str]:
    """One line that says what Slurm knows of the job, and one for steps that failed."""
    words = [f"job {job.id}"]
    words += [safe(job.name, 40)] if job.name else []
    words += [f"of {safe(job.user, 40)}"] if job.user else []
    words += [job.state] if job.state else []
    if job.nodes:
        words.append(f"on {len(job.nodes)} node{'s' * (len(job.nodes) != 1)} {folded(job.nodes)}")
    if job.started_at and job.started_at <= now:
        end = job.ended_at if job.ended_at and job.ended_at < now else now
        ran = (end - job.started_at).total_seconds()
        words.append(f"for {lasting(ran)}")
        if job.time_limit_s and end is now:
            left = job.time_limit_s - ran
            words.append(f"({lasting(left)} left)" if left > 0 else "(past its time limit)")
    yield " ".join(words)
    for step in job.steps:
        failed = step.state in ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT")
        if failed or (step.exit_code or "0:0") != "0:0":
            how = step.state or "ended"
            yield f"step {safe(step.id, 40)} {how}, exit code {step.exit_code or 'not known'}"


def of_nodes(states: Iterable[NodeState], started_at: datetime | None) -> Iterator[str]:
    """Nodes that Slurm itself holds for bad, or that booted under the job."""
    same: dict[str, list[str]] = {}
    for state in states:
        said: list[str] = []
        if state.state in BAD_STATES:
            said.append(state.state)
        said += [flag for flag in state.flags if flag in BAD_FLAGS]
        if said and state.reason:
            said.append(f"({safe(state.reason, 60)})")
        if started_at and state.boot_at and state.boot_at > started_at:
            said.append(f"booted {clock(state.boot_at, started_at)}, after the job began")
        if said:
            same.setdefault(" ".join(said), []).append(state.node)
    for words, nodes in same.items():
        yield f"{folded(nodes)} {words}"


def of_lost(job: Job, runs: Sequence[Job], states: Iterable[NodeState]) -> Iterator[str]:
    """The run that a node's failure ended before this one, or before the job waits again."""
    lost = lost_run(runs, job)
    if lost is None:
        return
    when = f" at {lost.ended_at:%H:%M:%SZ}" if lost.ended_at else ""
    bad = [s.node for s in states if s.node in lost.nodes and s.state in BAD_STATES]
    who = [lost.failed_node] if lost.failed_node in lost.nodes else bad
    which = f": {folded(who)} {'failed' if lost.failed_node in lost.nodes else 'is down'}"
    yield f"its run before, on {folded(lost.nodes)}, ended NODE_FAIL{when}{which if who else ''}"


def of_others(others: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Other jobs on the job's nodes: whoever drains or reboots hits them too."""
    same: dict[tuple[str, ...], list[str]] = {}
    for node, jobs in others.items():
        if jobs:
            same.setdefault(tuple(jobs), []).append(node)
    for jobs, nodes in same.items():
        more = f" and {len(jobs) - 4} more" if len(jobs) > 4 else ""
        yield f"{folded(nodes)} also run job {', '.join(safe(j, 30) for j in jobs[:4])}{more}"


def of_log(facts: Sequence[object], now: datetime, mtime: datetime | None) -> Iterator[str]:
    """The log's tail: last progress and its age, the first trouble, what the watchdog will do."""
    steps = [f for f in facts if isinstance(f, Progress)]
    fired = [f for f in facts if isinstance(f, WatchdogTimeout)]
    last = max(steps, key=lambda f: (f.at is not None, f.at or now, f.order), default=None)
    at = last.at if last and last.at else mtime
    if last:
        what = f"step {last.step}" if last.step is not None else last.kind.replace("_", " ")
        when = f", {age(at, now)}" if at else ""
        yield f"log: last progress {what}{when}"
    elif mtime:
        yield f"log: no progress line in its tail; last written {age(mtime, now)}"
    trouble = min(_troubles(facts), default=None)
    if trouble:
        yield f"log: first trouble: {trouble[2]}"
    if fired:
        first = min((f.at for f in fired if f.at), default=None)
        when = f" ({clock(first, now)})" if first else ""
        yield f"log: the collectives' watchdog has already fired{when}: who prints it is no culprit"
    elif at and 60 < (quiet := (now - at).total_seconds()) < WATCHDOG_S:
        left = max(1, round((WATCHDOG_S - quiet) / 60))
        yield (
            f"log: the watchdog aborts in about {left} min, if its timeout is the default of "
            f"{WATCHDOG_S // 60} min"
        )


def _troubles(facts: Iterable[object]) -> Iterator[tuple[float, int, str]]:
    for fact in facts:
        words = _trouble(fact)
        if words:
            at = getattr(fact, "at", None)
            order = getattr(fact, "order", 0)
            yield (at.timestamp() if at else 0.0, order, words)


def _trouble(fact: object) -> str:
    rank = getattr(fact, "rank", None)
    who = f"rank {rank}: " if rank is not None else ""
    if isinstance(fact, PythonError):
        return f"{who}{safe(fact.type, 60)}: {safe(fact.message, 100)}"
    if isinstance(fact, NcclTrouble):
        return f"{who}NCCL {safe(fact.kind, 40)} {safe(fact.detail, 80)}".rstrip()
    if isinstance(fact, SlurmMessage):
        return f"{who}Slurm: {safe(fact.line, 120)}"
    if isinstance(fact, ProcessExit):
        how = f"signal {fact.signal}" if fact.signal else f"exit code {fact.exit_code}"
        return f"{who}a process ended by {how}" if (fact.signal or fact.exit_code) else ""
    if isinstance(fact, LogSign) and fact.kind in ("cuda_error", "worker_killed", "disk_full"):
        return f"{who}{fact.kind.replace('_', ' ')}: {safe(fact.line, 100)}"
    return ""


def decisive(facts: Iterable[object], now: datetime) -> Iterator[str]:
    """What one node's answer holds that an engineer wants to know at once, without the node."""
    found = Counter(words for fact in facts if (words := _decisive(fact, now)))
    for words, count in found.items():
        yield f"{words} ({count} times)" if count > 1 else words


def _decisive(fact: object, now: datetime) -> str:
    at = getattr(fact, "at", None)
    if at is not None and now - at > NEWS:
        return ""
    when = f" at {clock(at, now)}" if at else ""
    if isinstance(fact, Xid):
        known = catalog.xid(fact.code)
        if known is not None and known.hang == "no":
            return ""
        return f"Xid {fact.code} on GPU {safe(fact.pci, 20)}{when}"
    if isinstance(fact, SXid):
        return f"SXid {fact.code} on switch {safe(fact.pci, 20)}{when}" if fact.fatal else ""
    if isinstance(fact, GpuTrouble):
        return f"GPU trouble: {safe(fact.kind, 30).replace('_', ' ')}{when}"
    if isinstance(fact, SmiFailure):
        return f"nvidia-smi: {safe(fact.line or fact.kind, 80)}"
    if isinstance(fact, OomKill):
        return f"OOM killer took {safe(fact.process or 'a process', 30)}{when}"
    if isinstance(fact, HungTask):
        return f"{safe(fact.process, 30)} hangs in the kernel{when}"
    if isinstance(fact, FabricEvent):
        return f"{safe(fact.hca or 'HCA', 20)} {fact.kind.replace('_', ' ')}{when}"
    return _state(fact)


def _state(fact: object) -> str:
    if isinstance(fact, Port) and not fact.virtual and fact.state.lower() not in ("active", ""):
        return f"{safe(fact.hca, 20)}/{fact.port} is {safe(fact.state, 20)}"
    if isinstance(fact, Mount) and fact.answered is False:
        return f"mount {safe(fact.path, 60)} does not answer"
    if isinstance(fact, RankProcess) and fact.rank is not None and fact.state in ("T", "Z"):
        return f"rank {fact.rank} is {'stopped' if fact.state == 'T' else 'a zombie'}"
    return ""


def counts(total: int, answered: int, failures: Iterable[str]) -> str:
    """`12 answered, 1 refused, 3 waiting`: where the fan-out stands."""
    failed = Counter(failures)
    waiting = total - answered - sum(failed.values())
    words = [f"{answered} of {total} nodes answered"]
    words += [f"{count} {why}" for why, count in failed.most_common()]
    words += [f"{waiting} waiting"] if waiting > 0 else []
    return ", ".join(words)
