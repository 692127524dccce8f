"""The probes, in the order in which a report lists them. Adding one is a module and a line here."""

from types import ModuleType

from sluggish.probes import (
    flight_recorder,
    gpu_bus,
    gpu_samples,
    ib_counters,
    ib_ports,
    ibstat,
    ibstatus,
    ibv_devinfo,
    identity,
    job_log,
    kernel_log,
    memory,
    mounts,
    nccl_ras,
    nvidia_smi,
    rank_procs,
    sacct,
    slurm_job,
    slurm_node,
    stacks,
)

PROBES: tuple[ModuleType, ...] = (
    slurm_job,
    slurm_node,
    sacct,
    identity,
    kernel_log,
    nvidia_smi,
    gpu_samples,
    gpu_bus,
    ibstat,
    ibstatus,
    ibv_devinfo,
    ib_ports,
    ib_counters,
    rank_procs,
    memory,
    mounts,
    job_log,
    flight_recorder,
    nccl_ras,
    stacks,
)
