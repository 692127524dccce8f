"""Job, Step, Rank: what Slurm says of the job."""

from dataclasses import dataclass
from datetime import datetime


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


def current(jobs: tuple[Job, ...]) -> Job | None:
    """The run that the evidence is about: scontrol's record before sacct's, a later run before it.

    sacct lists the runs of a requeued job oldest first; scontrol only knows the last.
    """
    ordered = [*(j for j in jobs if j.source == "sacct"), *(j for j in jobs if j.source != "sacct")]
    alive = [job for job in ordered if job.state in ("RUNNING", "COMPLETING", "SUSPENDED")]
    return next(reversed(alive or ordered), None)
