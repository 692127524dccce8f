"""`sacct -P` (or `-p`) with its header line -> Job, one a run of a job.

With `-D` a requeued job has several rows of the same id, oldest first: only there do the nodes of
a failed run remain (seen on 22.05: scontrol and squeue forget them at the requeue).
"""

from dataclasses import replace

from sluggish.job import Job, Step
from sluggish.slurmtext.fields import gpus, nodes, number, seconds, when, word
from sluggish.text import is_node_name

Row = dict[str, str]


def runs(text: str, utc_offset_s: int) -> tuple[Job, ...]:
    """Jobs in the order of the rows, steps attached. Raises ValueError without a header."""
    header, lines = _table(text)
    jobs: list[Job] = []
    for line in lines:
        row = _row(header, line)
        job_id, dot, _ = row["JobID"].partition(".")
        if not dot:
            jobs.append(_job(row, utc_offset_s))
            continue
        for place in range(len(jobs) - 1, -1, -1):
            if jobs[place].id == job_id:
                step = _step(row, utc_offset_s)
                jobs[place] = replace(jobs[place], steps=(*jobs[place].steps, step))
                break
    return tuple(jobs)


def _table(text: str) -> tuple[list[str], list[str]]:
    """The header's columns and the rows below it."""
    lines = [line for line in text.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        columns = [column.strip() for column in line.split("|")]
        if "JobID" in columns and "State" in columns:
            return columns, lines[place + 1 :]
    raise ValueError("expected sacct's header line with JobID and State")


def _row(header: list[str], line: str) -> Row:
    """Columns by name; a `|` inside a job's name is given back to the name."""
    cells = line.split("|")
    extra = len(cells) - len(header)
    if extra > 0 and "JobName" in header:
        at = header.index("JobName")
        cells[at : at + extra + 1] = ["|".join(cells[at : at + extra + 1])]
    if len(cells) != len(header):
        raise ValueError(f"expected {len(header)} columns as in the header, found {len(cells)}")
    return dict(zip(header, cells, strict=True))


def _job(row: Row, utc_offset_s: int) -> Job:
    state, reason = _state(row)
    node_list = nodes(row.get("NodeList"))
    num_nodes = number(row.get("NNodes")) or len(node_list) or None
    total = gpus(row.get("AllocTRES"))
    failed = (row.get("FailedNode") or "").strip()
    return Job(
        id=row["JobID"],
        raw_id=word(row.get("JobIDRaw")) or row["JobID"],
        source="sacct",
        name=word(row.get("JobName")),
        user=word(row.get("User")),
        state=state,
        reason=reason,
        nodes=node_list,
        num_nodes=num_nodes,
        gpus_per_node=total // num_nodes if total and num_nodes else None,
        submitted_at=when(row.get("Submit"), utc_offset_s),
        started_at=when(row.get("Start"), utc_offset_s),
        ended_at=when(row.get("End"), utc_offset_s),
        time_limit_s=seconds(row.get("Timelimit")),
        exit_code=word(row.get("ExitCode")),
        partition=word(row.get("Partition")),
        restarts=number(row.get("Restarts")),
        failed_node=failed if is_node_name(failed) else None,
        stdout_path=word(row.get("StdOut")),
        stderr_path=word(row.get("StdErr")),
        work_dir=word(row.get("WorkDir")),
    )


def _step(row: Row, utc_offset_s: int) -> Step:
    return Step(
        id=row["JobID"],
        name=word(row.get("JobName")),
        state=_state(row)[0],
        exit_code=word(row.get("ExitCode")),
        started_at=when(row.get("Start"), utc_offset_s),
        ended_at=when(row.get("End"), utc_offset_s),
        nodes=nodes(row.get("NodeList")) or None,
        tasks=number(row.get("NTasks")),
    )


def _state(row: Row) -> tuple[str, str | None]:
    """`CANCELLED by 5001` -> state and who; a row without a state is not sacct's."""
    text = row["State"].strip()
    if not text:
        raise ValueError("expected a State in every row of sacct")
    state, _, rest = text.partition(" ")
    reason = word(row.get("Reason"))
    return state.rstrip("+"), rest if rest.startswith("by ") else reason
