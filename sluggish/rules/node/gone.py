"""PROC-GONE: the process of a rank is no longer there."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from sluggish.causes import Family, Phase
from sluggish.correlate.jobsense import in_job, on_nodes, ranks_words, split_seen
from sluggish.correlate.procs import deltas
from sluggish.facts.collective import RankRecord
from sluggish.facts.derived import Look, Onset, PhaseFact
from sluggish.facts.host import NodeIdentity, ProcessDelta, RankProcess
from sluggish.facts.log import LogSign, NcclInit
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import Job, NodeState, current
from sluggish.rules.node.reboot import booted_late

SKEW = timedelta(seconds=60)
"""A line from before the job's start is another run's."""
ZOMBIE = "is a zombie"
ENDED_SHARE = 0.5
"""With more ranks gone than this the job has ended or is being ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Missing:
    node: str
    rank: int | None
    pid: int | None
    how: str


@rule(
    "PROC-GONE",
    family=Family.PROCESS,
    needs=(RankProcess,),
    wants=(NcclInit, RankRecord, LogSign, NodeIdentity, NodeState, Job, Look, Onset, PhaseFact),
)
def proc_gone(view: View) -> Iterator[Finding]:
    """The process of a rank has ended or is a zombie while the others are still there."""
    look, onset = view.one(Look), view.one(Onset)
    moved = [d for d in deltas(view.all(RankProcess)) if in_job(d.node, look)]
    alive = [d for d in moved if d.role == "rank" and not d.gone and d.state not in ("Z", "X")]
    missing = list(_missing(view, moved, alive))
    if missing:
        whole = len(missing) + len(alive)
        over = len(missing) > ENDED_SHARE * whole and len(missing) > 1
        torn = onset is not None and onset.teardown_at is not None
        refused = {s.rank for s in view.all(LogSign) if s.kind == "gloo_size_mismatch"}
        job = current(view.all(Job))
        torn = torn or (job is not None and job.state == "COMPLETING")  # Slurm ends it just now
        torn = torn or any(m.rank in refused for m in missing)  # Gloo ends whom its peer overfills
        role = Role.CONTEXT if over else Role.CONSEQUENCE if torn else Role.ROOT
        if role is Role.ROOT and _starting(view):  # never seen: not started is as likely as gone
            yield from _findings([m for m in missing if m.pid is None], len(alive), Role.CONTEXT)
            missing = [m for m in missing if m.pid is not None]
        lost = booted_late(view)  # a reboot takes every process with it
        with_node = [m for m in missing if m.node in lost]
        yield from _findings(with_node, len(alive), Role.CONSEQUENCE)
        yield from _findings([m for m in missing if m.node not in lost], len(alive), role)
    elif alive:
        seen, blind = split_seen(look, lambda node: any(d.node == node for d in alive))
        if seen:
            yield Finding(
                node=None,
                subject="job",
                role=Role.ALL_CLEAR,
                strength=Strength.STRONG,
                says=f"{len(alive)} rank processes are there {on_nodes(seen, blind)}",
                source="processes",
            )


def _starting(view: View) -> bool:
    phase = view.one(PhaseFact)
    return phase is not None and phase.phase is Phase.START_UP


def _missing(
    view: View, moved: list[ProcessDelta], alive: list[ProcessDelta]
) -> Iterator[_Missing]:
    seen: set[tuple[str, int | None]] = set()
    cut = {gap.node for gap in view.gaps(RankProcess)}  # what is not listed there may well live
    for gone in (*_visible(view, moved), *_by_pid(view, moved), *_by_count(view, moved, alive)):
        if gone.node in cut and gone.how != ZOMBIE:
            continue
        if (gone.node, gone.rank) not in seen:
            seen.add((gone.node, gone.rank))
            yield gone


def _visible(view: View, moved: list[ProcessDelta]) -> Iterator[_Missing]:
    """A rank that is a zombie, or that left between the two samples."""
    claims: dict[tuple[str | None, int | None], list[RankProcess]] = {}
    for process in view.all(RankProcess):
        if not process.inherited_rank:
            claims.setdefault((process.node, process.rank), []).append(process)
    for delta in moved:
        if delta.gone and _is_helper(delta, claims.get((delta.node, delta.rank), [])):
            continue
        if delta.role == "rank" and delta.node and (delta.gone or delta.state in ("Z", "X")):
            how = "left during the look" if delta.gone else ZOMBIE
            yield _Missing(node=delta.node, rank=delta.rank, pid=delta.pid, how=how)


def _is_helper(gone: ProcessDelta, claims: list[RankProcess]) -> bool:
    """A short command of the script that starts a rank carries the rank's number too.

    It is one where a busier process of the number is still there, or the next of its kind is.
    """
    first = [p for p in claims if p.sample != "b"]
    second = [p for p in claims if p.sample == "b"]
    me = next((p for p in first if p.pid == gone.pid), None)
    if me is None:
        return False
    main = max(first, key=lambda p: (p.cpu_s or 0.0, p.rss_bytes or 0))
    if main.pid != me.pid and any(p.pid == main.pid for p in second):
        return True
    return any((p.name, p.ppid) == (me.name, me.ppid) and p.pid != me.pid for p in second)


def _by_pid(view: View, moved: list[ProcessDelta]) -> Iterator[_Missing]:
    """A pid that NCCL or a recorder named, on a node whose processes were read.

    Only where another named pid of that node is found: in a container's pid namespace the
    numbers cannot be compared. Only the last run's lines: a later line of a rank replaces it.
    """
    look = view.one(Look)
    start = look.job_started_at if look else None
    named: dict[int, tuple[str, int]] = {}
    world = max((line.world_size for line in view.all(NcclInit)), default=0)
    for init in view.all(NcclInit):
        old = start is not None and init.at is not None and init.at < start - SKEW
        if init.node and init.pid and init.world_size == world and not old:
            named[init.rank] = (init.node, init.pid)
    for record in view.all(RankRecord):
        if record.node and record.pid:
            named[record.rank] = (record.node, record.pid)
    there = {(d.node, d.pid) for d in moved}
    comparable = {node for node, pid in named.values() if (node, pid) in there}
    for rank, (node, pid) in sorted(named.items()):
        if node in comparable and (node, pid) not in there:
            yield _Missing(node=node, rank=rank, pid=pid, how="is no longer there")


def _by_count(
    view: View, moved: list[ProcessDelta], alive: list[ProcessDelta]
) -> Iterator[_Missing]:
    """Numbered ranks with a hole: the world's size is known and every node was read."""
    look = view.one(Look)
    if look is None or not look.world_size or not look.nodes:
        return
    cut = {gap.node for gap in view.gaps(RankProcess)}
    if not all(view.saw(RankProcess, node) and node not in cut for node in look.nodes):
        return
    here = {d.rank: d.node for d in alive if d.rank is not None}
    holes = [rank for rank in range(look.world_size) if rank not in here]
    if not here or len(holes) * 2 > look.world_size or look.world_size % len(look.nodes):
        return
    per_node = look.world_size // len(look.nodes)
    for rank in holes:
        near = [node for other, node in here.items() if other // per_node == rank // per_node]
        node = near[0] if near and len(set(near)) == 1 else None
        if node is None:
            taken = set(here.values())
            free = [n for n in look.nodes if n not in taken]
            node = free[0] if len(free) == 1 else None
        if node is not None:
            yield _Missing(node=node, rank=rank, pid=None, how="is not there")


def _findings(missing: list[_Missing], alive: int, role: Role) -> Iterator[Finding]:
    by_node: dict[str, list[_Missing]] = {}
    for one in missing:
        by_node.setdefault(one.node, []).append(one)
    for node, mine in by_node.items():
        who = ranks_words(m.rank for m in mine) or f"pid {mine[0].pid}"
        yield Finding(
            node=node,
            subject=who,
            role=role,
            strength=Strength.STRONG,
            says=f"the process of {who} {mine[0].how}; {alive} others are",
            source="processes",
            spots=tuple(Spot(rank=m.rank, node=node, pid=m.pid, doing=m.how) for m in mine),
            subtype="exit",
        )
