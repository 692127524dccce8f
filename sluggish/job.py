"""Job, Step, Rank: what Slurm says of the job."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
"""States of a job that has no nodes now and may be started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a job, e.g. `48213.0`; `nodes` is None where Slurm did not print them."""

    id: str
    name: str | None = None
    state: str | None = None
    exit_code: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    nodes: tuple[str, ...] | None = None
    tasks: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as Slurm describes it. A field is None where Slurm (or the evidence) does not tell."""

    id: str
    """Also `123_4` (array) and `123+0` (heterogeneous)."""
    raw_id: str | None = None
    """The plain number that Slurm keeps for it; differs from `id` for arrays and het jobs."""
    source: str = ""
    """`scontrol` or `sacct`. Several sacct jobs of one id are its runs, oldest first."""
    name: str | None = None
    user: str | None = None
    state: str | None = None
    """Slurm's word without flags, e.g. `RUNNING`, `NODE_FAIL`."""
    reason: str | None = None
    nodes: tuple[str, ...] = ()
    num_nodes: int | None = None
    num_tasks: int | None = None
    gpus_per_node: int | None = None
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    time_limit_s: int | None = None
    exit_code: str | None = None
    partition: str | None = None
    requeue: bool | None = None
    restarts: int | None = None
    failed_node: str | None = None
    """The node whose failure ended a run, as Slurm's own record names it (23.11 on).

    It stays with the job when that is started again: then it is of an earlier run.
    """
    stdout_path: str | None = None
    stderr_path: str | None = None
    work_dir: str | None = None
    command: str | None = None
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """A node as `scontrol show node` describes it. Times are UTC."""

    node: str
    state: str
    """Base state, e.g. `MIXED`, `DOWN`, `IDLE`."""
    flags: tuple[str, ...] = ()
    """E.g. `DRAIN`, `NOT_RESPONDING` (also printed as a `*`), `REBOOT_ISSUED`."""
    reason: str | None = None
    reason_by: str | None = None
    reason_at: datetime | None = None
    boot_at: datetime | None = None
    slurmd_start_at: datetime | None = None
    gpus: int | None = None
    real_memory_mib: int | None = None
    free_memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A job that holds a part of these nodes, as `squeue` lists it; the looked-at job too."""

    id: str
    """As users write it: `3_2`, `6+1`."""
    raw_id: str
    uid: int | None = None
    user: str | None = None
    state: str = ""
    nodes: tuple[str, ...] = ()


def current(jobs: tuple[Job, ...]) -> Job | None:
    """The run that the evidence is about: scontrol's record before sacct's, a later run before it.

    sacct lists the runs of a requeued job oldest first; scontrol only knows the last. A job that
    waits to be started again because a node failed is looked at for the run that failed.
    """
    ordered = [*(j for j in jobs if j.source == "sacct"), *(j for j in jobs if j.source != "sacct")]
    alive = [job for job in ordered if job.state in ("RUNNING", "COMPLETING", "SUSPENDED")]
    last = next(reversed(alive or ordered), None)
    if last is None or "+" not in last.id:
        lost = lost_run(jobs, last) if last and last.state in WAITS else None
        return lost or last
    base = last.id.partition("+")[0]
    parts = {
        job.id: job
        for job in alive or ordered
        if job.id.startswith(f"{base}+") and job.source == last.source
    }
    return _whole(base, [parts[name] for name in sorted(parts, key=_offset)])


def lost_run(jobs: Iterable[Job], job: Job) -> Job | None:
    """The run before this one, where a node's failure ended it; it carries the node if known."""
    before = [
        run
        for run in jobs
        if run is not job
        and run.source == "sacct"
        and run.id == job.id
        and run.nodes
        and run.state not in ("RUNNING", "COMPLETING", "SUSPENDED")
        and (job.state in WAITS or _began_before(run, job))
    ]
    last = before[-1] if before else None
    if last is None or last.state != "NODE_FAIL":
        return None
    return replace(last, failed_node=last.failed_node or job.failed_node)


def ends_before(jobs: Sequence[Job]) -> tuple[datetime, ...]:
    """When the runs before the current one ended, in accounting's words."""
    job = current(tuple(jobs))
    return tuple(
        run.ended_at
        for run in jobs
        if job and run.ended_at and run.source == "sacct" and _began_before(run, job)
    )


def _began_before(run: Job, job: Job) -> bool:
    return bool(run.started_at and job.started_at and run.started_at < job.started_at)


def _offset(job_id: str) -> int:
    offset = job_id.partition("+")[2]
    return int(offset) if offset.isascii() and offset.isdigit() else 0


def _whole(base: str, parts: list[Job]) -> Job:
    """A heterogeneous job out of its parts: the leader's words, everybody's nodes and steps."""
    if len(parts) == 1:
        return parts[0]
    gpus = {part.gpus_per_node for part in parts}
    return replace(
        parts[0],
        id=base,
        nodes=tuple(dict.fromkeys(node for part in parts for node in part.nodes)),
        num_nodes=_sum(part.num_nodes for part in parts),
        num_tasks=_sum(part.num_tasks for part in parts),
        gpus_per_node=gpus.pop() if len(gpus) == 1 else None,
        steps=tuple(step for part in parts for step in part.steps),
    )


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = list(numbers)
    return sum(n for n in known if n is not None) if None not in known else None
