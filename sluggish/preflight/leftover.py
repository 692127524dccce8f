"""Pure: what an earlier job left behind on a node: processes of no job, GPU memory of nobody."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.facts.gpu import Gpu, GpuProcess
from sluggish.facts.store import Facts
from sluggish.preflight.node_setup import JobProcesses, UserProcess
from sluggish.preflight.remark import FAIL, WARN, Remark
from sluggish.rules.gpu.leftover import HELD_MIB
from sluggish.text import safe

SYSTEM = ("Xorg", "gnome", "nvidia-cuda-mps", "dcgm", "nv-hostengine", "nvsm", "gdm")
"""Programs that hold a GPU by their nature."""
MOST = 4


def leftover(facts: Facts, job: str | None) -> Iterator[Remark]:
    """Remarks on every node; without Slurm's word on processes nothing fails a node."""
    jobs: dict[str, dict[int, str]] = {}
    sure: set[str] = set()
    for told in facts.all(JobProcesses):
        if told.node:
            jobs[told.node] = dict(told.jobs)
            sure |= {told.node} if told.sure or told.jobs else set()
    gpus: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in facts.all(Gpu):
        if gpu.node and gpu.processes_listed and not gpu.mig:
            gpus[gpu.node].append(gpu)
    for node, mine in gpus.items():
        yield from _on_gpus(node, mine, jobs.get(node, {}), node in sure, job)
    yield from _programs(facts, jobs, sure)


def _on_gpus(
    node: str, gpus: list[Gpu], jobs: dict[int, str], sure: bool, job: str | None
) -> Iterator[Remark]:
    for gpu in gpus:
        name = f"gpu {gpu.index}" if gpu.index is not None else f"gpu {gpu.pci}"
        for process in gpu.processes:
            if (process.kind or "C").upper() == "G" or _is_system(process):
                continue
            owner = jobs.get(process.pid)
            if owner is not None and owner == job:
                continue
            yield _process(node, name, process, owner, sure)
        if not gpu.processes and (gpu.memory_used_mib or 0) >= HELD_MIB:
            held = f"{(gpu.memory_used_mib or 0) / 1024:.0f} GiB are held and no process is listed"
            yield Remark(node=node, area=name, state=FAIL, rule="GPU-LEFTOVER",
                         says=f"{name}: {held}: left by one that ended badly")  # fmt: skip


def _process(node: str, gpu: str, process: GpuProcess, owner: str | None, sure: bool) -> Remark:
    who = f"pid {process.pid} ({safe(process.name or 'unknown', 40)})"
    holds = f"holds {process.memory_mib or 0:,} MiB"
    if owner is not None:
        says = f"{gpu}: {who} of job {owner} {holds}: the node is shared"
        return Remark(node=node, area=gpu, state=WARN, says=says, rule="GPU-LEFTOVER")
    big = (process.memory_mib or 0) >= HELD_MIB
    whose = "of no Slurm job" if sure else "of no job that could be seen"
    return Remark(
        node=node,
        area=gpu,
        state=FAIL if sure and big else WARN,
        says=f"{gpu}: {who}, {whose}, {holds}",
        rule="GPU-LEFTOVER",
    )


def _is_system(process: GpuProcess) -> bool:
    return any(word in (process.name or "") for word in SYSTEM)


def _programs(facts: Facts, jobs: dict[str, dict[int, str]], sure: set[str]) -> Iterator[Remark]:
    """Training programs of users outside every job; they take processors and memory."""
    strays: dict[str, list[UserProcess]] = defaultdict(list)
    for process in facts.all(UserProcess):
        if process.node in sure and process.pid not in jobs.get(process.node, {}):
            strays[process.node].append(process)
    for node, found in strays.items():
        shown = ", ".join(f"{p.name} pid {p.pid} (uid {p.uid})" for p in found[:MOST])
        more = f" and {len(found) - MOST} more" if len(found) > MOST else ""
        says = f"processes of no Slurm job: {safe(shown, 300)}{more}"
        yield Remark(node=node, area="processes", state=WARN, says=says)
