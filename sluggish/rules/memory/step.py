"""MEM-STEP: Slurm says that a process of a step was killed for memory."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job, job_ids, rank_of_task
from sluggish.facts.derived import Look
from sluggish.facts.log import ProcessExit, SlurmMessage
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import Job, current


@rule(
    "MEM-STEP",
    family=Family.SLURM,
    needs=(SlurmMessage, ProcessExit, Job),
    wants=(Look,),
)
def mem_step(view: View) -> Iterator[Finding]:
    """Slurm counts an oom-kill in a step of the job, or ends the job as OUT_OF_MEMORY.

    slurmstepd prints at the end of the step, so the line's time is not the kill's: the time is
    not held against it.
    """
    look, ids = view.one(Look), job_ids(view.all(Job))
    messages = [m for m in view.all(SlurmMessage) if m.kind == "oom" and in_job(m.node, look)]
    exits = [e for e in view.all(ProcessExit) if e.oom and in_job(e.node, look)]
    for node in dict.fromkeys(x.node for x in (*messages, *exits)):
        yield from _of_node(node, messages, exits, ids, view)
    job = current(view.all(Job))
    if job and "OUT_OF_MEMORY" in (job.state, *(step.state for step in job.steps)):
        yield _finding(
            job.nodes[0] if len(job.nodes) == 1 else None,
            f"{job.source or 'Slurm'} says OUT_OF_MEMORY",
            f"{job.id} {job.state}",
            (),
        )


def _of_node(
    node: str | None,
    messages: list[SlurmMessage],
    exits: list[ProcessExit],
    ids: frozenset[str],
    view: View,
) -> Iterator[Finding]:
    jobs, look = view.all(Job), view.one(Look)
    mine = [m for m in messages if m.node == node and (not m.job_id or not ids or m.job_id in ids)]
    gone = [e for e in exits if e.node == node]
    if not mine and not gone:
        return
    line = (mine[0] if mine else gone[0]).line
    spots = tuple(
        Spot(
            node=node, rank=rank_of_task(e, jobs, look), pid=e.pid, doing="killed by the OOM killer"
        )
        for e in gone
    )
    yield _finding(node, "Slurm counts an oom-kill in a step of the job", line, spots)


def _finding(node: str | None, says: str, line: str, spots: tuple[Spot, ...]) -> Finding:
    return Finding(
        node=node,
        subject="job",
        role=Role.ROOT,
        strength=Strength.STRONG,
        says=says,
        quote=line,
        source="Slurm",
        spots=spots or (Spot(node=node, doing="a process was killed by the OOM killer"),),
        subtype="cgroup_oom",
    )
