"""JOB-STATE: what Slurm says of the job."""

from collections.abc import Iterator
from dataclasses import replace

from sluggish.causes import Family
from sluggish.facts.derived import Look
from sluggish.facts.host import RankProcess
from sluggish.facts.log import SlurmMessage
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.job import Job, current

ALIVE = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT"}
WAITING = {
    "PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT",
    "RESV_DEL_HOLD", "REVOKED",
}  # fmt: skip
ENDED = {
    "COMPLETED": "completed", "CANCELLED": "cancelled", "TIMEOUT": "time_limit",
    "DEADLINE": "time_limit", "FAILED": "failed", "BOOT_FAIL": "failed", "LAUNCH_FAILED": "failed",
    "PREEMPTED": "cancelled",
}  # fmt: skip
ELSEWHERE = {"NODE_FAIL", "OUT_OF_MEMORY"}
"""Heard by NODE-DOWN and MEM-STEP."""


OF_A_LOG = {
    "cancelled": "cancelled", "time_limit": "time_limit", "preempted": "cancelled",
    "requeued": "requeued",
}  # fmt: skip
"""What a line in the job's own log says of its end."""

OF_AN_EXIT = {
    "0:53": "a batch script that did not start: mostly its StdOut or WorkDir cannot be written "
    "on the first node",
}
"""Slurm's own codes that nobody knows by heart. 0:53: measured with Slurm 22.05."""


@rule("JOB-STATE", family=Family.SLURM, needs=(Job, SlurmMessage), wants=(RankProcess, Look))
def job_state(view: View) -> Iterator[Finding]:
    """Slurm says that the job waits, has ended, or runs.

    Waiting and a good end are the whole answer. FAILED, TIMEOUT and CANCELLED say how it ended,
    not why: they are weak, so that a cause stands before them. RUNNING proves no progress.
    """
    jobs = view.all(Job)
    job = current(jobs)
    if job is None and not jobs:
        yield from _by_log(view)
    if job is None or not job.state or len({j.id.split("+")[0] for j in jobs}) > 1:
        return
    state = job.state.upper()
    if state == "COMPLETING" and _has_ended_well(view, job):
        left = "no process of it is left on its nodes, which are not free yet (an epilog, mostly)"
        found = _finding(job, "completed", Strength.STRONG)
        yield replace(found, says=f"{found.says}: {left}")
    elif state in ALIVE or state == "COMPLETING":
        yield _running(job, state)
    elif state in WAITING:
        requeued = bool(job.restarts) or state.startswith("REQUEUE") or _was_requeued(jobs)
        yield _finding(job, "requeued" if requeued else "pending", Strength.DECISIVE)
    elif state in ENDED:
        well = state == "COMPLETED"
        yield _finding(job, ENDED[state], Strength.DECISIVE if well else Strength.WEAK)
    elif state not in ELSEWHERE:
        yield _finding(job, "failed", Strength.WEAK)


def _by_log(view: View) -> Iterator[Finding]:
    """slurmstepd's own line; the last one tells, and only where nobody asked Slurm itself."""
    told = [m for m in view.all(SlurmMessage) if m.kind in OF_A_LOG]
    for message in told[-1:]:
        words = {
            "time_limit": "at its time limit",
            "preempted": "for another job (preemption)",
            "requeued": "to run it again",
        }.get(message.kind, "by somebody, or with its step")
        yield Finding(
            node=None, subject="job", role=Role.CONTEXT, strength=Strength.WEAK, at=message.at,
            says=f"Slurm ended it {words}: that says how it ended, not why it stood",
            quote=message.line, source="job log", subtype=OF_A_LOG[message.kind],
        )  # fmt: skip


def _has_ended_well(view: View, job: Job) -> bool:
    """COMPLETING hides how it ended; a time limit too ends with 0:0, but then it is the reason."""
    look = view.one(Look)
    if look is None or not look.nodes:
        return False
    seen = all(view.saw(RankProcess, node) for node in look.nodes)
    return seen and not view.all(RankProcess) and job.exit_code == "0:0" and not job.reason


def _was_requeued(jobs: tuple[Job, ...]) -> bool:
    return any(job.state == "REQUEUED" for job in jobs)


def _running(job: Job, state: str) -> Finding:
    again = f", restarted {job.restarts} times" if job.restarts else ""
    ending = state == "COMPLETING"
    return Finding(
        node=None,
        subject="job",
        role=Role.CONTEXT if ending else Role.ALL_CLEAR,
        strength=Strength.STRONG,
        at=job.started_at,
        says=f"Slurm says {state}{again}" + ("" if ending else " (which proves no progress)"),
        source=job.source or "Slurm",
    )


def _finding(job: Job, subtype: str, strength: Strength) -> Finding:
    parts = [f"Slurm says {job.state}"]
    if job.reason:
        parts.append(f"reason {job.reason}" if not job.reason.startswith("by ") else job.reason)
    if job.exit_code and subtype not in ("pending", "requeued"):
        told = OF_AN_EXIT.get(job.exit_code, "")
        parts.append(f"exit code {job.exit_code}" + (f" ({told})" if told else ""))
    if job.restarts:
        parts.append(f"restarted {job.restarts} times")
    return Finding(
        node=None,
        subject="job",
        role=Role.ROOT,
        strength=strength,
        at=job.ended_at,
        says=", ".join(parts),
        source=job.source or "Slurm",
        subtype=subtype,
    )
