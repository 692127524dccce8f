"""Pure: which record, run, step and nodes the look is about, out of Slurm's answers."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sluggish.job import Job, Neighbour, Step, current, lost_run
from sluggish.slurmtext.fields import records
from sluggish.slurmtext.job import jobs
from sluggish.slurmtext.sacct import runs
from sluggish.text import safe

ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")
WELL = ("COMPLETED", "PENDING")
_ID = re.compile(r"(\d{1,10})(?:_(\d{1,9})|\+(\d{1,9}))?(?:\.(\d{1,9}))?\Z", re.ASCII)
_STEP_NUMBER = re.compile(r"\.(\d{1,9})(?:\+\d{1,9})?\Z", re.ASCII)
_ROW_ID = re.compile(r"^(\d+(?:_\d+|\+\d+)?)[.|]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobId:
    """A job as users write it: `123`, `123_4` (array), `123+0` (heterogeneous), `123.0` (step)."""

    job: str
    step: str | None = None
    """The number behind the dot: the user says which step is the training."""

    def __str__(self) -> str:
        return f"{self.job}.{self.step}" if self.step else self.job

    @property
    def base(self) -> str:
        return re.split(r"[_+]", self.job)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The record that is meant, and the text of it and its steps alone."""

    job: Job | None = None
    job_text: str = ""
    step_text: str = ""
    parts: int = 1
    """Of a heterogeneous job; its steps are printed under the leader alone (seen on 22.05)."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What accounting tells: the job's runs, oldest first, and where the last real one ran."""

    runs: tuple[Job, ...] = ()
    nodes: tuple[str, ...] = ()
    nodes_from: str = ""
    owners: frozenset[tuple[int, str | None]] = frozenset()
    text: str = ""
    notes: tuple[str, ...] = ()


def job_id(text: str) -> JobId:
    """Raises ValueError in one line where this is no job id."""
    match = _ID.match(text.strip())
    if not match:
        raise ValueError(
            f"{safe(text, 40)!r} is no job id: write 123, 123_4 (array task), 123+0 (part of a "
            "heterogeneous job) or 123.0 (step)"
        )
    whole = text.strip().partition(".")[0]
    return JobId(job=whole, step=match[4])


def from_scontrol(asked: JobId, job_text: str, step_text: str) -> Choice:
    """The record of `scontrol -o show job`; several for one id are array tasks or het parts."""
    parts = records(job_text, "JobId=")
    try:
        found = [(job, part) for part in parts for job in jobs(part, 0)]
    except ValueError as problem:
        notes = (f"scontrol show job: {safe(str(problem), 160)}",) if parts else ()
        return Choice(notes=notes)
    mine, notes = _meant(asked, [job for job, _ in found])
    texts = [part for job, part in found if job in mine]
    ids = {name for job in mine for name in (job.id, job.raw_id)}
    own = [s for s in records(step_text, "StepId=") if _step_of(s) in ids]
    whole = "\n".join([*texts, *own])
    job = current(jobs(whole, 0)) if texts else None
    return Choice(
        job=job, job_text="\n".join(texts) + "\n" * bool(texts),
        step_text="\n".join(own) + "\n" * bool(own), parts=max(1, len(mine)), notes=notes,
    )  # fmt: skip


def _step_of(record: str) -> str:
    return record.removeprefix("StepId=").split(" ")[0].partition(".")[0]


def _meant(asked: JobId, found: Sequence[Job]) -> tuple[list[Job], tuple[str, ...]]:
    """One record, or all living parts of a het job; array tasks are never mixed."""
    exact = [job for job in found if job.id == asked.job]
    if "_" in asked.job or "+" in asked.job:
        return exact, ()
    parts = [job for job in found if "+" in job.id and job.id.startswith(f"{asked.job}+")]
    if parts:
        return parts, (f"job {asked.job} is heterogeneous: {len(parts)} parts taken as one",)
    tasks = [job for job in found if job.id.startswith(f"{asked.job}_")]
    if not tasks:
        own = exact or [job for job in found if job.raw_id == asked.job] or list(found[-1:])
        return own, ()
    alive = [job for job in tasks if job.state in ALIVE]
    failed = [job for job in tasks if job.state not in (*ALIVE, *WELL)]
    one = (alive or failed or tasks)[0]
    if len(tasks) == 1 and not exact:
        return [one], ()
    return [one], (
        f"{asked.job} is an array of {len(tasks)} tasks that Slurm lists, {len(alive)} of them "
        f"running: {one.id} is looked at; ask for another as {asked.job}_N",
    )


def training_step(job: Job, wanted: str | None = None) -> Step | None:
    """The step that the user named, else the numeric one with most tasks; of equals the first."""
    numeric = [step for step in job.steps if _number(step) is not None]
    if wanted is not None:
        return _whole([step for step in numeric if _number(step) == int(wanted)])
    going = [step for step in numeric if step.state in (None, *ALIVE)] or numeric
    of_number: dict[tuple[str, int | None], list[Step]] = {}
    for step in going:
        of_number.setdefault((step.id.partition(".")[0], _number(step)), []).append(step)
    return max(
        filter(None, map(_whole, of_number.values())),
        key=lambda s: (s.tasks or 0, len(s.nodes or ()), -(_number(s) or 0)),
        default=None,
    )


def _whole(parts: Sequence[Step]) -> Step | None:
    """`3.0+0` and `3.0+1` are one launch (`srun a : b`) that Slurm 22.05 lists in two rows."""
    first = next(iter(parts), None)
    if first is None or "+" not in first.id.partition(".")[2]:
        return first
    return replace(
        first,
        id=first.id.rpartition("+")[0],
        nodes=tuple(dict.fromkeys(node for part in parts for node in part.nodes or ())) or None,
        tasks=sum(part.tasks or 0 for part in parts) or None,
    )


def _number(step: Step) -> int | None:
    """`7.0` -> 0, `7.0+1` (a part of a heterogeneous step) -> 0; None for batch, extern, TBD."""
    match = _STEP_NUMBER.search(step.id)
    return int(match[1]) if match else None


def nodes_of(job: Job | None, step: Step | None, parts: int = 1) -> tuple[tuple[str, ...], str]:
    """The training step's nodes, else the job's; and where they come from.

    Of a heterogeneous job with several parts the job's: its step is printed with the leader's only.
    """
    if job is None:
        return (), ""
    if step and step.nodes and parts == 1:
        return step.nodes, f"step {step.id}"
    return job.nodes, f"job {job.id}" if job.nodes else ""


def of_job(told: Iterable[Neighbour], asked: JobId, job: Job | None) -> tuple[Neighbour, ...]:
    """The rows of squeue that are this job: `squeue -j 6+1` lists every part."""
    listed = list(told)
    if job is None or job.id == asked.base:
        exact = [one for one in listed if asked.job in (one.id, one.raw_id)]
        parts = [one for one in listed if one.id.startswith(f"{asked.job}+")]
        return tuple(parts or exact)
    return tuple(one for one in listed if one.id == job.id or one.raw_id == job.raw_id)


def het_parts(mine: Sequence[Neighbour]) -> dict[str, int]:
    """Node -> the number of the heterogeneous job's part on it, from rows such as `6+1`."""
    numbered = [(one, one.id.partition("+")[2]) for one in mine]
    return {
        node: int(part)
        for one, part in numbered
        if part.isascii() and part.isdigit()
        for node in one.nodes
    }


def number_of(job: Job) -> str:
    """Slurm's plain number; of a part of a heterogeneous job the leader's, as its ranks have it."""
    leader, plus, _ = job.id.partition("+")
    return leader if plus else job.raw_id or job.id


def from_queue(mine: Sequence[Neighbour]) -> Job | None:
    """A job of which only squeue's columns can be believed."""
    if len(mine) != 1:
        return None
    one = mine[0]
    return Job(id=one.id, raw_id=one.raw_id, source="squeue", user=one.user, state=one.state,
               nodes=one.nodes, num_nodes=len(one.nodes) or None)  # fmt: skip


def wants_accounting(job: Job | None) -> bool:
    """Unknown to slurmctld, started more than once, or ended: it is not asked without need."""
    return job is None or bool(job.restarts) or job.state not in (*ALIVE, "PENDING", "CONFIGURING")


def from_accounting(asked: JobId, job: Job | None, text: str) -> Past:
    """The runs of `sacct -D`; for a bare array id those of one task."""
    try:
        found = runs(text, 0)
    except ValueError:
        return Past()
    name = job.id if job else asked.job
    mine = [one for one in found if name in (one.id, one.raw_id) or one.id.startswith(f"{name}+")]
    notes: tuple[str, ...] = ()
    if not mine:
        chosen, notes = _meant(asked, found)
        ids = {one.id for one in chosen}
        mine = [one for one in found if one.id in ids]
    placed = [one for one in mine if one.nodes]
    last = current(tuple(placed))
    step = training_step(last, asked.step) if last else None
    merged = last is not None and last.id not in {one.id for one in placed}
    nodes, origin = nodes_of(last, step, 2 if merged else 1)
    if last and origin:
        ended = f"ended {last.ended_at:%H:%M:%SZ}" if last.ended_at else "has not ended"
        origin = f"accounting: the run that {ended} ({last.state}), {origin}"
    ids = {one.id for one in mine}
    return Past(
        runs=tuple(mine),
        nodes=nodes,
        nodes_from=origin,
        owners=_owners(text, ids),
        text=_rows_of(text, ids),
        notes=notes,
    )


def looked_at(job: Job | None, runs: Sequence[Job]) -> Job | None:
    """The run that ran on the nodes which are asked: this one, else the last that had nodes."""
    if job is None or job.nodes:
        return job
    return next((run for run in reversed(runs) if run.nodes), job)


def lost_nodes(job: Job | None, runs: Sequence[Job]) -> tuple[str, ...]:
    """The nodes of the run before this one, where a node's failure ended it."""
    lost = lost_run(runs, job) if job else None
    return lost.nodes if lost else ()


def _rows_of(text: str, ids: set[str]) -> str:
    """The header and the rows of these jobs."""
    kept: list[str] = []
    for line in text.splitlines():
        match = _ROW_ID.match(line)
        if line.startswith("JobID|") or (match and match[1] in ids):
            kept.append(line)
    return "\n".join(kept) + "\n" * bool(kept)


def _owners(text: str, ids: set[str]) -> frozenset[tuple[int, str | None]]:
    """Who ran them, by the UID column, which stands before every free text."""
    lines = text.splitlines()
    header = next((line.split("|") for line in lines if line.startswith("JobID|")), [])
    if "UID" not in header:
        return frozenset()
    found: set[tuple[int, str | None]] = set()
    for line in lines:
        cells = line.split("|")
        if cells[0] in ids and len(cells) >= len(header) and cells[header.index("UID")].isdigit():
            user = cells[header.index("User")] if "User" in header else ""
            found.add((int(cells[header.index("UID")]), user or None))
    return frozenset(found)


def others(
    told: Iterable[Neighbour], nodes: Sequence[str], job: Job | None
) -> dict[str, tuple[Neighbour, ...]]:
    """Node -> the jobs on it that are not this one."""
    base = re.split(r"[_+]", job.id)[0] if job else None
    foreign = [
        one
        for one in told
        if not job or (one.raw_id != job.raw_id and not one.id.startswith(f"{base}+"))
    ]
    return {node: tuple(one for one in foreign if node in one.nodes) for node in nodes}


def hides_jobs(settings: Mapping[str, str], uid: int | None = None) -> str:
    """Why other people's jobs cannot be listed; empty where they can."""
    private = re.split(r"[,\s]+", settings.get("PrivateData", ""))
    who = os.getuid() if uid is None else uid
    if "jobs" in private and who != 0:
        return "PrivateData=jobs: other users' jobs on these nodes cannot be seen"
    return ""


def failed_steps(job: Job | None, past: Sequence[Job] = ()) -> tuple[Step, ...]:
    """Numeric steps that ended with something else than 0."""
    seen = (*(job.steps if job else ()), *(step for one in past for step in one.steps))
    bad = {s.id: s for s in seen if s.state and s.state not in (*ALIVE, *WELL)}
    return tuple(s for s in bad.values() if _number(s) is not None)
