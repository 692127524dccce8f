"""Which process is a rank, and which only inherits its parent's environment."""

from collections.abc import Iterable
from dataclasses import replace

from sluggish.facts.host import RankProcess

WRAPPERS = {
    "sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "env", "time", "numactl", "taskset",
    "stdbuf", "nice", "tini", "dumb-init", "nsys", "ncu", "strace", "gdb", "apptainer",
    "singularity", "starter", "starter-suid", "enroot", "enroot-nsenter", "slurmstepd",
    "slurm_script", "srun", "mpirun", "orterun", "prted", "uv", "conda", "micromamba",
}  # fmt: skip
"""They carry the rank's environment and only wait for it."""
LAUNCHERS = (
    "torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate launch",
    "accelerate.commands.launch", "deepspeed.launcher", "torchx",
)  # fmt: skip
"""SLURM_PROCID of these counts nodes, not ranks."""

# source of a global rank -> its local rank and world size, most trusted first
SOURCES = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "", "PMI_SIZE"),
    ("PMIX_RANK", "", ""),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)

Claim = tuple[str, int]


def with_inheritance(found: Iterable[RankProcess]) -> list[RankProcess]:
    """Fill rank, local rank, world size; mark those who have them from a parent that is the rank.

    A shell or container starter above the rank hands the rank down; it is marked as well.
    """
    listed = list(found)
    by_pid = {process.pid: process for process in listed}
    step = _training_step(listed)
    claims = {process.pid: _claim(process, step) for process in listed}
    return [_filled(process, by_pid, claims) for process in listed]


def _training_step(listed: Iterable[RankProcess]) -> int | None:
    """The step with most tasks, of equals the first: a shell or a look in the job is one too."""
    found: list[tuple[int, int]] = []
    for process in listed:
        env = dict(process.env)
        step = _whole(env.get("SLURM_STEP_ID"))
        if step is not None:
            found.append((-(_whole(env.get("SLURM_NTASKS")) or 0), step))
    return min(found)[1] if found else None


def _claim(process: RankProcess, step: int | None) -> Claim | None:
    """Source and number of the rank that the environment gives, or None."""
    env = dict(process.env)
    for source, _, _ in SOURCES:
        number = _whole(env.get(source))
        if number is None:
            continue
        if source == "SLURM_PROCID" and not _is_task(process, env, step):
            return None
        return source, number
    return None


def _is_task(process: RankProcess, env: dict[str, str], training: int | None) -> bool:
    """SLURM_PROCID is a rank only in the training step, and not in a launcher of ranks."""
    step = _whole(env.get("SLURM_STEP_ID"))
    launcher = any(word in process.cmdline for word in LAUNCHERS)
    return (
        step is not None and step == training and not launcher
    )  # the batch step and others count from 2^32 down


def _filled(
    process: RankProcess, by_pid: dict[int, RankProcess], claims: dict[int, Claim | None]
) -> RankProcess:
    claim = claims[process.pid]
    if claim is None:
        return process
    env = dict(process.env)
    local, world = next((lo, wo) for source, lo, wo in SOURCES if source == claim[0])
    return replace(
        process,
        rank=claim[1],
        rank_source=claim[0],
        local_rank=_whole(env.get(local)),
        world_size=_whole(env.get(world)),
        inherited_rank=_inherits(process, by_pid, claims) or _hands_down(process, by_pid, claims),
    )


def _inherits(
    process: RankProcess, by_pid: dict[int, RankProcess], claims: dict[int, Claim | None]
) -> bool:
    """Whether some ancestor that is no wrapper claims the same rank from the same source."""
    seen = {process.pid}
    above = process.ppid
    while above in by_pid and above not in seen:
        seen.add(above)
        parent = by_pid[above]
        if claims[above] != claims[process.pid]:
            return False
        if not _is_wrapper(parent):
            return True
        above = parent.ppid
    return False


def _hands_down(
    process: RankProcess, by_pid: dict[int, RankProcess], claims: dict[int, Claim | None]
) -> bool:
    """Whether a wrapper has a child that claims the same rank: then the child is the rank."""
    return _is_wrapper(process) and any(
        child.ppid == process.pid and claims[child.pid] == claims[process.pid]
        for child in by_pid.values()
    )


def _is_wrapper(process: RankProcess) -> bool:
    return process.name in WRAPPERS


def _whole(text: str | None) -> int | None:
    """A rank or a count of ranks: beyond a million it is none."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 6 else None
