"""`scontrol show job` and `scontrol show step`, multi-line or `-o`, Slurm 20.11 to 25.11."""

import re
from dataclasses import replace

from sluggish.job import Job, Step
from sluggish.slurmtext.fields import fields, gpus, nodes, number, records, seconds, when, word
from sluggish.text import is_node_name

NOT_STARTED = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"}
"""StartTime of these is a plan, not an event."""
ALIVE = {"RUNNING", "SUSPENDED", "CONFIGURING", "STAGE_OUT", "STOPPED", "SIGNALING", "RESIZING"}
"""EndTime of these is start + limit, not an event."""

# `JobName=a NodeList=b UserId=alice(5001) GroupId=...`: a name may look like other fields
# `JobName=a HetJobIdSet=3-4 UserId=...` (seen on 22.05)
_NAME = re.compile(
    r" JobName=(.{0,1100}?)(?=(?:\s{1,8}HetJobIdSet=\S{1,100})?"
    r"\s{1,8}UserId=[^\s()]{1,64}\(\d{1,10}\)\s{1,8}GroupId=)",
    re.DOTALL,
)
# two of them in a record: somebody named a job like the fields of another user's
_OWNER = re.compile(r"\sUserId=[^\s()]{1,64}\(\d{1,10}\)\s{1,8}GroupId=")
# `Command=/x/train.sh --cfg A=b WorkDir=/x`; from 25.11 on `SubmitLine=` stands between them
_COMMAND = re.compile(r"(?:^|\s)Command=(.{0,4000}?)(?=\s{1,8}(?:SubmitLine|WorkDir)=)", re.DOTALL)
# `SubmitLine=sbatch --comment a StdOut=x run.sh WorkDir=/x`
_SUBMIT_LINE = re.compile(r"\sSubmitLine=.{0,8000}?(?=\s{1,8}WorkDir=)", re.DOTALL)
# `JobState=NODE_FAIL Reason=NodeDown FailedNode=hgx-12 Dependency=(null)`; a comment, which may
# hold the same, comes later
_FAILED_NODE = re.compile(
    r"\sJobState=\S{1,40}\s{1,8}Reason=\S{0,400}\s{1,8}FailedNode=(\S{1,255})"
)
_ANY_STATE = re.compile(r"\sJobState=")
_OWN_LINE = re.compile(
    r"^(Command|SubmitLine|WorkDir|StdErr|StdIn|StdOut"
    r"|Comment|AdminComment|SystemComment|Extra)=",
    re.ASCII,
)
# `  Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:h100:8(IDX:0-7)`: one a group of like nodes (-d)
_HELD = re.compile(r"\sCPU_IDs=\S{0,4000}\s{1,8}Mem=\d{1,20}\s{1,8}GRES=(\S{0,4000})", re.ASCII)


def jobs(text: str, utc_offset_s: int) -> tuple[Job, ...]:
    """Every job record of the text, with the steps that are printed beside them.

    Raises ValueError where there is no record, or a record without a state.
    """
    told: dict[str, Job] = {}
    for record in records(_without_steps(text), "JobId="):
        job = _job(record, utc_offset_s)
        told.setdefault(job.raw_id or job.id, job)  # a later one stands in a comment of the first
    if not told:
        raise ValueError("expected records that begin with JobId=")
    found = told.values()
    of_job: dict[str, list[Step]] = {}
    for step in steps(text, utc_offset_s):
        of_job.setdefault(step.id.partition(".")[0], []).append(step)
    return tuple(_with_steps(job, of_job) for job in found)


def steps(text: str, utc_offset_s: int) -> tuple[Step, ...]:
    """Every `StepId=` record of `scontrol show step`."""
    return tuple(_step(record, utc_offset_s) for record in records(text, "StepId="))


def _without_steps(text: str) -> str:
    """Cut the step records away, so that they do not become values of the job before them."""
    kept: list[str] = []
    keep = True
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("StepId=", "JobId=")):
            keep = stripped.startswith("JobId=")
        if keep:
            kept.append(line)
    return "\n".join(kept)


def _job(record: str, utc_offset_s: int) -> Job:
    name, values = _values(record)
    state = (word(values.get("JobState")) or "").split("+")[0].split(" ")[0]
    raw_id = values.get("JobId", "").split(" ")[0]
    if not state or not raw_id:
        raise ValueError("expected JobId= and JobState= in every record")
    num_nodes = number(values.get("NumNodes"))
    return Job(
        id=_id(values, raw_id),
        raw_id=raw_id,
        source="scontrol",
        name=word(name),
        user=(word(values.get("UserId")) or "").split("(")[0] or None,
        state=state,
        reason=word(values.get("Reason")),
        nodes=nodes(values.get("NodeList")),
        num_nodes=num_nodes,
        num_tasks=number(values.get("NumTasks")),
        gpus_per_node=_gpus_per_node(record, values, num_nodes),
        submitted_at=when(values.get("SubmitTime"), utc_offset_s),
        started_at=None if state in NOT_STARTED else when(values.get("StartTime"), utc_offset_s),
        ended_at=None
        if state in NOT_STARTED | ALIVE
        else when(values.get("EndTime"), utc_offset_s),
        time_limit_s=seconds(values.get("TimeLimit")),
        exit_code=word(values.get("ExitCode")),
        partition=word(values.get("Partition")),
        requeue={"1": True, "0": False}.get(values.get("Requeue", "")),
        restarts=number(values.get("Restarts")),
        failed_node=_failed_node(record),
        stdout_path=word(values.get("StdOut")),
        stderr_path=word(values.get("StdErr")),
        work_dir=word(values.get("WorkDir")),
        command=word(values.get("Command")),
    )


def _failed_node(record: str) -> str | None:
    """Only where it stands in its own place: no free text of the user's names a node."""
    _, rest = _cut(_NAME, record)
    at = _ANY_STATE.search(rest)
    match = _FAILED_NODE.match(rest, at.start()) if at else None
    return match[1] if match and is_node_name(match[1]) else None


def _values(record: str) -> tuple[str | None, dict[str, str]]:
    """The job's name, and the other fields. Name and command may hold what looks like fields."""
    if len(_OWNER.findall(record)) > 1:
        raise ValueError("expected one UserId= in a job's record: a name or comment imitates one")
    name, rest = _cut(_NAME, record)
    own = [line for line in rest.splitlines()[1:] if _OWN_LINE.match(line)]
    command = None
    if not own:
        command, rest = _cut(_COMMAND, rest)
        rest = _SUBMIT_LINE.sub("", rest, count=1)
    values = fields("\n".join(line for line in rest.splitlines() if line not in own))
    if not own:  # free text that stands before them, a comment, may imitate them
        _, mark, end = rest.rpartition(" StdErr=")
        values |= {
            k: v for k, v in fields(mark + end).items() if k in ("StdErr", "StdIn", "StdOut")
        }
    for line in own:
        key, _, value = line.partition("=")
        values[key] = value
    if command is not None:
        values["Command"] = command
    return name or values.get("JobName"), values


def _cut(pattern: re.Pattern[str], record: str) -> tuple[str | None, str]:
    """What the pattern holds, and the record without it."""
    match = pattern.search(record)
    return (match[1], record[: match.start()] + record[match.end() :]) if match else (None, record)


def _id(values: dict[str, str], raw_id: str) -> str:
    """As users write it: `3_2`, `6+1`; the pending tail of an array keeps the plain id."""
    array, task = values.get("ArrayJobId"), values.get("ArrayTaskId", "")
    if array and task.isascii() and task.isdigit():
        return f"{array}_{task}"
    het, offset = values.get("HetJobId"), values.get("HetJobOffset", "")
    if het and offset.isascii() and offset.isdigit():
        return f"{het}+{offset}"
    return raw_id


def _gpus_per_node(record: str, values: dict[str, str], num_nodes: int | None) -> int | None:
    """What each node gave, else what was asked for; None where the nodes gave unlike numbers."""
    held = {gpus(group) for group in _HELD.findall(record)}
    if len(held) > 1:
        return None
    asked = next(iter(held), None) or gpus(values.get("TresPerNode"))
    if asked:
        return asked
    total = gpus(values.get("AllocTRES")) or gpus(values.get("TRES")) or gpus(values.get("ReqTRES"))
    return total // num_nodes if total and num_nodes and total % num_nodes == 0 else None


def _step(record: str, utc_offset_s: int) -> Step:
    values = fields(record)
    return Step(
        id=values.get("StepId", "").split(" ")[0],
        name=word(values.get("Name")),
        state=word(values.get("State")),
        started_at=when(values.get("StartTime"), utc_offset_s),
        nodes=nodes(values.get("NodeList")) or None,
        tasks=number(values.get("Tasks")),
    )


def _with_steps(job: Job, of_job: dict[str, list[Step]]) -> Job:
    ids = dict.fromkeys((job.id, job.raw_id))
    own = tuple(step for name in ids for step in of_job.get(name or "", ()))
    return replace(job, steps=own) if own else job
