"""Pure: what an earlier job left behind on a node: processes of no job, GPU memory of nobody."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluggish.facts.gpu import Gpu, GpuProcess
from sluggish.facts.store import Facts
from sluggish.preflight.node_setup import JobProcesses, UserProcess
from sluggish.preflight.remark import FAIL, WARN, Remark
from sluggish.rules.gpu.leftover import HELD_MIB
from sluggish.text import safe

SYSTEM = ("Xorg", "gnome", "nvidia-cuda-mps", "dcgm", "nv-hostengine", "nvsm", "gdm")
"""Programs that hold a GPU by their nature."""
MOST = 4
FRESH_S = 10
"""A process that is younger may have started between two questions of one look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slurm:
    """What one node tells of processes."""

    jobs: Mapping[int, str]
    ages: Mapping[int, int]
    sure: bool

    def is_nobodys(self, pid: int) -> bool:
        """Whether it is certain that no job owns it."""
        return self.sure and pid not in self.jobs and self.ages.get(pid, 0) >= FRESH_S


_NOTHING = _Slurm(jobs={}, ages={}, sure=False)


def leftover(facts: Facts, job: str | None) -> Iterator[Remark]:
    """Remarks on every node; without Slurm's word on processes nothing fails a node."""
    told = {
        t.node: _Slurm(jobs=dict(t.jobs), ages=dict(t.ages), sure=t.sure or bool(t.jobs))
        for t in facts.all(JobProcesses)
        if t.node
    }
    for gpu in facts.all(Gpu):
        if gpu.node and gpu.processes_listed and not gpu.mig:
            yield from _on_gpu(gpu.node, gpu, told.get(gpu.node, _NOTHING), job)
    yield from _programs(facts, told)


def _on_gpu(node: str, gpu: Gpu, slurm: _Slurm, job: str | None) -> Iterator[Remark]:
    name = f"gpu {gpu.index}" if gpu.index is not None else f"gpu {gpu.pci}"
    for process in gpu.processes:
        owner = slurm.jobs.get(process.pid)
        graphics = (process.kind or "C").upper() == "G"
        if not graphics and not _is_system(process) and (owner is None or owner != job):
            yield _process(node, name, process, owner, slurm.is_nobodys(process.pid))
    if not gpu.processes and (gpu.memory_used_mib or 0) >= HELD_MIB:
        held = f"{(gpu.memory_used_mib or 0) / 1024:.0f} GiB are held and no process is listed"
        yield Remark(node=node, area=name, state=FAIL, rule="GPU-LEFTOVER",
                     says=f"{name}: {held}: left by one that ended badly")  # fmt: skip


def _process(node: str, gpu: str, process: GpuProcess, owner: str | None, nobodys: bool) -> Remark:
    who = f"pid {process.pid} ({safe(process.name or 'unknown', 40)})"
    holds = f"holds {process.memory_mib or 0:,} MiB"
    if owner is not None:
        says = f"{gpu}: {who} of job {owner} {holds}: the node is shared"
        return Remark(node=node, area=gpu, state=WARN, says=says, rule="GPU-LEFTOVER")
    big = (process.memory_mib or 0) >= HELD_MIB
    whose = "of no Slurm job" if nobodys else "of no job that could be seen"
    return Remark(
        node=node,
        area=gpu,
        state=FAIL if nobodys and big else WARN,
        says=f"{gpu}: {who}, {whose}, {holds}",
        rule="GPU-LEFTOVER",
    )


def _is_system(process: GpuProcess) -> bool:
    return any(word in (process.name or "") for word in SYSTEM)


def _programs(facts: Facts, told: Mapping[str, _Slurm]) -> Iterator[Remark]:
    """Training programs of users outside every job; they take processors and memory."""
    strays: dict[str, list[UserProcess]] = defaultdict(list)
    for process in facts.all(UserProcess):
        if process.node and told.get(process.node, _NOTHING).is_nobodys(process.pid):
            strays[process.node].append(process)
    for node, found in strays.items():
        shown = ", ".join(f"{p.name} pid {p.pid} (uid {p.uid})" for p in found[:MOST])
        more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
        says = f"processes of no Slurm job: {safe(shown, 300)}{more}"
        yield Remark(node=node, area="processes", state=WARN, says=says)
