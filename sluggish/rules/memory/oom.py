"""MEM-OOM: the kernel's OOM killer took a process of the job."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.correlate.jobsense import (
    in_job,
    job_ids,
    missing_ranks,
    on_nodes,
    rank_of_pid,
    ranks_words,
    share,
    split_seen,
)
from sluggish.correlate.window import When, when
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import CgroupMemory, HostMemory, KernelSpan, OomKill, RankProcess
from sluggish.facts.log import LogSign, LogSpan, NcclInit, ProcessExit, SlurmMessage
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import Job
from sluggish.rules.memory.killed import by_unknown

JOB_PROGRAMS = re.compile(r"python|pt_main|pt_data_w|torchrun|ray::|deepspeed|slurm_script")
"""Names under which training runs; a kill of anything else is another program's trouble."""
# .../job_48213/step_0/user/task_3: the task's number on its node
_TASK = re.compile(r"/task_(\d{1,4})\Z")
# /kubepods.slice/kubepods-burstable.slice/pod1/aa      /system.slice/docker-3f2a.scope
_CONTAINER = re.compile(r"kubepods|docker|libpod|containerd|crio|lxc|garden")
_CGROUP_JOB = re.compile(r"/job_(\d{1,12})(?:/|\Z)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of the job when a kill is judged."""

    ids: frozenset[str]
    ranks: dict[tuple[str | None, int], int]
    holes: dict[str | None, dict[int, int]]
    """Node -> local rank -> rank of ranks that are no longer there."""
    look: Look | None
    onset: Onset | None


@rule(
    "MEM-OOM",
    family=Family.KERNEL,
    needs=(OomKill, CgroupMemory, ProcessExit, LogSign),
    wants=(
        KernelSpan, HostMemory, RankProcess, NcclInit, Job, Look, Onset, SlurmMessage,
        WatchdogTimeout, LogSpan,
    ),
)  # fmt: skip
def mem_oom(view: View) -> Iterator[Finding]:
    """The kernel kills a process of the job because memory is full."""
    processes = view.all(RankProcess)
    known = _Known(
        ids=job_ids(view.all(Job), processes),
        ranks=rank_of_pid(processes, view.all(NcclInit)),
        holes=missing_ranks(processes, view.one(Look)),
        look=view.one(Look),
        onset=view.one(Onset),
    )
    found = list(_of_kills(view.all(OomKill), known))
    roots = {f.node for f in found if f.role is Role.ROOT}
    found += [f for f in _of_counters(view.all(CgroupMemory), known) if f.node not in roots]
    if not any(f.role is Role.ROOT for f in found):
        found += by_unknown(view)
    yield from found
    if not any(f.role is Role.ROOT for f in found):
        yield from _all_clear(view, known.look)


def _of_kills(kills: tuple[OomKill, ...], known: _Known) -> Iterator[Finding]:
    """One finding for the kills of one node that play the same part."""
    groups: dict[tuple[str | None, Role, Strength], list[OomKill]] = {}
    for kill in kills:
        if in_job(kill.node, known.look):
            groups.setdefault((kill.node, *_part(kill, known)), []).append(kill)
    root_nodes = {node for node, role, _ in groups if role is Role.ROOT}
    for (node, role, strength), mine in groups.items():
        first = min(mine, key=lambda k: (k.at is None, k.at.timestamp() if k.at else 0.0))
        kind = "cgroup_oom" if _is_cgroup(first) else "host_oom"
        yield Finding(
            node=node,
            subject=f"pid {first.pid}" if first.pid else "job",
            role=role,
            strength=strength,
            at=first.at,
            says=_says(mine, role, kind, known),
            quote=first.line,
            source="kernel",
            spots=tuple(_spot(kill, known) for kill in mine),
            subtype=kind,
            shared=role is Role.ROOT and len(root_nodes) > 1,
        )


def _part(kill: OomKill, known: _Known) -> tuple[Role, Strength]:
    """Role and strength of one kill: whose process it was, then when."""
    mine = _is_jobs(kill, known)
    if mine is False:
        return Role.CONTEXT, Strength.WEAK
    place = when(kill.at, known.look, known.onset)
    if place in (When.HISTORY, When.EARLIER):
        return Role.CONTEXT, Strength.WEAK
    if place in (When.AFTERMATH, When.TEARDOWN):
        return Role.CONSEQUENCE, Strength.WEAK
    sure = mine is True and place is When.CAUSE
    return Role.ROOT, Strength.DECISIVE if sure else Strength.STRONG


def _is_jobs(kill: OomKill, known: _Known) -> bool | None:
    """Whether the killed process was the job's; None where only its name speaks for it."""
    if kill.job_id and known.ids:
        return kill.job_id in known.ids
    if kill.pid is not None and (kill.node, kill.pid) in known.ranks:
        return True
    if kill.cgroup_path and not kill.job_id and not _CONTAINER.search(kill.cgroup_path):
        return False  # a service's or a login session's cgroup
    if kill.job_id:
        return None  # some job's, and the look knows no id
    return None if JOB_PROGRAMS.search(kill.process or "") else False


def _is_cgroup(kill: OomKill) -> bool:
    return kill.cgroup if kill.cgroup is not None else kill.job_id is not None


def _says(kills: list[OomKill], role: Role, kind: str, known: _Known) -> str:
    names = ", ".join(dict.fromkeys(k.process for k in kills if k.process)) or "a process"
    full = "a memory cgroup was full" if kind == "cgroup_oom" else "host memory was full"
    count = f"{len(kills)} processes ({names})" if len(kills) > 1 else names
    who = ranks_words(_rank(kill, known) for kill in kills)
    text = f"OOM killer took {count}{f' of {who}' if who else ''}: {full}"
    if role is not Role.CONTEXT:
        return text
    if kills[0].job_id and known.ids and kills[0].job_id not in known.ids:
        return f"{text} (job {kills[0].job_id}, not this one)"
    if _is_jobs(kills[0], known) is False:
        return f"{text} (not a process of the job)"
    return f"{text} (long before the stall)"


def _rank(kill: OomKill, known: _Known) -> int | None:
    """By its pid; else, for a main process, the rank of its node that is no longer there."""
    if kill.pid is not None and (kill.node, kill.pid) in known.ranks:
        return known.ranks[kill.node, kill.pid]
    holes = known.holes.get(kill.node, {})
    if (kill.process or "").startswith("pt_data") or _is_jobs(kill, known) is False:
        return None
    task = _TASK.search(kill.cgroup_path or "")
    if task and int(task[1]) in holes:
        return holes[int(task[1])]
    return next(iter(holes.values())) if len(holes) == 1 else None


def _spot(kill: OomKill, known: _Known) -> Spot:
    rank, doing = _rank(kill, known), "killed by the OOM killer"
    return Spot(node=kill.node, rank=rank, pid=kill.pid, doing=doing)


def _of_counters(groups: tuple[CgroupMemory, ...], known: _Known) -> Iterator[Finding]:
    """`oom_kill` of the job's cgroup counts since the job began; the times are not told."""
    worst: dict[str | None, CgroupMemory] = {}
    before: dict[tuple[str | None, str], int] = {}
    for group in groups:
        match = _CGROUP_JOB.search(group.path)
        foreign = bool(match and known.ids and match[1] not in known.ids)
        if group.sample == "a" and group.oom_kills is not None:
            before[group.node, group.path] = group.oom_kills
        if not match or foreign or not group.oom_kills or not in_job(group.node, known.look):
            continue
        best = worst.get(group.node)
        if best is None or (group.oom_kills, len(group.path)) >= (
            best.oom_kills or 0,
            len(best.path),
        ):
            worst[group.node] = group
    for node, group in worst.items():
        earlier = before.get((node, group.path), group.oom_kills or 0)
        now = (group.oom_kills or 0) > earlier
        gone = list(known.holes.get(node, {}).values())
        rank = gone[0] if len(gone) == 1 else None
        yield Finding(
            node=node,
            subject="job" if rank is None else f"rank {rank}",
            role=Role.ROOT,
            strength=Strength.DECISIVE if now else Strength.STRONG,
            says=f"the job's memory cgroup counts {group.oom_kills} oom-kill since it was made"
            + (", one during the look" if now else " (time not told)"),
            quote=group.path,
            source="cgroup",
            spots=(Spot(node=node, rank=rank, doing="a process was killed by the OOM killer"),),
            subtype="cgroup_oom",
            shared=len(worst) > 1,
        )


def _all_clear(view: View, look: Look | None) -> Iterator[Finding]:
    """Clean only where a kernel log was read, and as far back as it reaches."""
    in_part = {s.node for s in view.all(KernelSpan) if s.filtered}
    in_part -= {s.node for s in view.all(KernelSpan) if not s.filtered}
    seen, blind = split_seen(look, lambda node: view.saw(OomKill, node) and node not in in_part)
    if not seen:
        return
    start = look.job_started_at if look else None
    late = [n for n in seen if not _reaches(view.all(KernelSpan), n, look)]
    since = "since job start " if start and not late else "in the kernel log "
    used = _used(view.all(HostMemory))
    says = f"no oom-kill {since}{on_nodes(seen, blind)}"
    if late and start:
        says += f"; the log does not cover the job on {on_nodes(late, [])[3:]}"
    yield Finding(
        node=None,
        subject="job",
        role=Role.ALL_CLEAR,
        strength=Strength.STRONG,
        says=f"{says}, host memory {used} used" if used else says,
        source="kernel",
    )


def _reaches(spans: tuple[KernelSpan, ...], node: str, look: Look | None) -> bool:
    mine = [s for s in spans if s.node == node and not s.filtered]
    start = look.job_started_at if look else None
    if start is None:
        return False
    return any(s.from_boot or (s.first_at is not None and s.first_at <= start) for s in mine)


def _used(samples: tuple[HostMemory, ...]) -> str | None:
    """The fullest host's share."""
    shares = [
        (m.total_bytes - m.available_bytes, m.total_bytes)
        for m in samples
        if m.total_bytes and m.available_bytes is not None
    ]
    return share(*max(shares, key=lambda pair: pair[0] / pair[1])) if shares else None
