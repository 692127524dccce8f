"""The probes, in the order in which a report lists them. Adding one is a module and a line here.

`PROBES` is made when it is first asked for: a look at dumps alone needs one probe of the twenty,
and all of them take as long to load as 40 dumps to read.
"""

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    PROBES: tuple[ModuleType, ...]


def __getattr__(name: str) -> tuple[ModuleType, ...]:
    if name != "PROBES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = _all()
    return found


def _all() -> tuple[ModuleType, ...]:
    from sluggish.probes import (
        fabric_manager,
        flight_recorder,
        gpu_bus,
        gpu_samples,
        ib_counters,
        ib_ports,
        ibdiagnet,
        ibdiags,
        ibstat,
        ibstatus,
        ibv_devinfo,
        identity,
        imex,
        job_log,
        kernel_log,
        memory,
        mounts,
        nccl_ras,
        nvidia_smi,
        rank_procs,
        sacct,
        slingshot,
        slurm_job,
        slurm_node,
        sockets,
        squeue,
        stacks,
        topology,
    )

    return (
        slurm_job,
        slurm_node,
        sacct,
        squeue,
        identity,
        kernel_log,
        nvidia_smi,
        gpu_samples,
        gpu_bus,
        imex,
        fabric_manager,
        ibstat,
        ibstatus,
        ibv_devinfo,
        ib_ports,
        ib_counters,
        slingshot,
        rank_procs,
        memory,
        mounts,
        sockets,
        job_log,
        flight_recorder,
        nccl_ras,
        stacks,
        topology,
        ibdiagnet,
        ibdiags,
    )
