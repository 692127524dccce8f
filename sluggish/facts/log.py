"""Facts of the job's log: progress, exceptions, exits, marks."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpan:
    """What was read of one log and what it covers."""

    node: str | None
    path: str
    bytes_total: int
    bytes_read: int
    bytes_unsearched: int = 0
    """Of those not read: in which nobody looked for known words either."""
    first_at: datetime | None = None
    last_at: datetime | None = None
    mtime: datetime | None = None
    slow_road: bool = False
    """True where the fast scanner was missing."""
    nccl_debug: str | None = None
    """WARN or INFO where lines of that level were seen; None: no NCCL line at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A line that shows the training loop moving."""

    node: str | None
    rank: int | None
    at: datetime | None
    step: int | None = None
    total_steps: int | None = None
    epoch: int | None = None
    step_time_s: float | None = None
    loss: float | None = None
    kind: str = "step"
    """step, epoch_end, checkpoint_start, checkpoint_end, evaluation, evaluation_start,
    evaluation_end, training_done, init, data_exhausted."""
    order: int = 0
    """Position in its log."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonError:
    """The end of a Python traceback."""

    node: str | None
    rank: int | None
    at: datetime | None
    type: str
    message: str
    frame: str | None = None
    """Innermost frame of the user's own code, `file:line in function`."""
    pid: int | None = None
    order: int = 0
    """Position in its log: orders errors that carry no time."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """A launcher, Slurm or the kernel says that a rank's process ended."""

    node: str | None
    rank: int | None
    at: datetime | None
    pid: int | None = None
    local_rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    source: str = ""
    """torchrun, srun, slurmstepd, mpirun, ray, sacct."""
    oom: bool = False
    task: int | None = None
    """Task of the step, where Slurm says it: the rank only if each rank is a task of its own."""
    order: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmMessage:
    """slurmstepd, srun and slurmd lines in a job log."""

    node: str | None
    at: datetime | None
    kind: str
    """cancelled, time_limit, node_failure, oom, preempted, requeued, step_aborted, unkillable,
    launch_failed, other."""
    job_id: str | None = None
    rank: int | None = None
    order: int = 0
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierFailure:
    """srun named this node as failed in an earlier run of the job; of this run it says nothing."""

    node: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclInit:
    """NCCL's communicator init line: where a rank lives."""

    node: str | None
    rank: int
    world_size: int
    pid: int | None
    at: datetime | None = None
    cuda_device: int | None = None
    nvml_device: int | None = None
    pci: str | None = None
    comm: str | None = None
    complete: bool = False
    """False: the START line only."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclSetting:
    """NCCL says that one of its settings was taken from the environment."""

    node: str | None
    pid: int | None
    rank: int | None
    name: str
    value: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that the log prints."""

    node: str | None
    rank: int | None
    component: str
    """nccl, torch, cuda, driver, python, nccl_plugin."""
    version: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSign:
    """A line of known meaning that is none of the above."""

    node: str | None
    rank: int | None
    at: datetime | None
    kind: str
    """E.g. memlock, shm_full, duplicate_gpu, rendezvous_wait, rendezvous_timeout, store_timeout,
    worker_killed, cuda_error, launch_flags, compile, disk_full, peer_closed."""
    detail: str = ""
    order: int = 0
    line: str = ""
