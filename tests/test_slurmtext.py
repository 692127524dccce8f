"""What the data cases of the Slurm probes cannot say: steps, runs, states, times."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.slurmtext.fields import gpus, number, seconds, when
from sluggish.slurmtext.job import jobs, steps
from sluggish.slurmtext.node import state_and_flags
from sluggish.slurmtext.sacct import runs

CASES = Path(__file__).parent / "probes"


def test_the_steps_beside_a_job_are_attached_to_it() -> None:
    (job,) = jobs((CASES / "slurm_job" / "version.txt").read_text(encoding="utf-8"), 0)
    assert [(s.id, s.name, s.nodes) for s in job.steps] == [
        ("9.extern", "extern", ("n1", "n2")),
        ("9.0", "bash", ("n1", "n2")),
    ]
    assert job.steps[1].started_at == datetime(2026, 11, 23, 14, 20, 12, tzinfo=UTC)


RECORD = (
    "JobId=7 JobName={name} UserId=alice(5001) GroupId=alice(5001) Priority=1{line} "
    "JobState=PENDING Reason=BeginTime{failed} Dependency=(null){line} Requeue=1 Restarts=1{line} "
    "NodeList={line} NumNodes=2{line} Comment={comment} WorkDir=/home/alice"
)
IMITATED = "x JobState=NODE_FAIL Reason=NodeDown FailedNode=gpu-99 Dependency=(null)"


@pytest.mark.parametrize("line", ["", "\n  "])
def test_the_failed_node_is_taken_from_its_own_place_alone(line: str) -> None:
    """From 23.11 on; it stays with the job that is started again. A user's text names nobody."""
    said = {"line": line, "name": "a", "comment": "none", "failed": ""}
    told = RECORD.format(**said | {"failed": " FailedNode=hgx-12"})
    assert [job.failed_node for job in jobs(told, 0)] == ["hgx-12"]
    for where in ("name", "comment"):
        assert [j.failed_node for j in jobs(RECORD.format(**said | {where: IMITATED}), 0)] == [None]
    hostile = RECORD.format(**said | {"failed": " FailedNode=$(reboot)"})
    assert [job.failed_node for job in jobs(hostile, 0)] == [None]


def test_accounting_names_the_failed_node_where_it_has_the_column() -> None:
    text = (
        "JobID|State|NodeList|FailedNode|JobName\n"
        "7|NODE_FAIL|n[1-2]|n2|a|b\n7.0|CANCELLED|n[1-2]||x\n7|RUNNING|n[3-4]||a|b\n"
    )
    assert [job.failed_node for job in runs(text, 0)] == ["n2", None]


def test_step_records_alone_are_read_too() -> None:
    text = "StepId=2.0 UserId=5001 State=RUNNING NodeList=node[01-02] Nodes=2 Name=a b Network="
    (step,) = steps(text, 0)
    assert (step.id, step.state, step.name, step.nodes) == (
        "2.0", "RUNNING", "a b", ("node01", "node02"),
    )  # fmt: skip


def test_the_steps_of_each_run_stay_with_their_run() -> None:
    first, second = runs((CASES / "sacct" / "faulty.txt").read_text(encoding="utf-8"), 0)
    assert [(s.state, s.nodes) for s in first.steps] == [("CANCELLED", ("gpu-07", "gpu-08"))]
    assert [(s.state, s.nodes) for s in second.steps] == [("CANCELLED", ("gpu-07", "gpu-09"))]


@pytest.mark.parametrize(
    ("text", "state", "flags"),
    [
        ("DOWN*", "DOWN", ("NOT_RESPONDING",)),
        ("DOWN*+DRAIN", "DOWN", ("DRAIN", "NOT_RESPONDING")),
        ("IDLE+DRAIN+NOT_RESPONDING", "IDLE", ("DRAIN", "NOT_RESPONDING")),
        ("MIXED@", "MIXED", ("REBOOT_REQUESTED",)),
        ("idle~", "IDLE", ("POWERED_DOWN",)),
        ("ALLOCATED$", "ALLOCATED", ("MAINTENANCE",)),
        ("MIXED-", "MIXED", ("PLANNED",)),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", ("CLOUD", "POWERED_DOWN")),
        ("DOWN#+INVALID_REG", "DOWN", ("INVALID_REG", "POWERING_UP")),
        ("MIXED", "MIXED", ()),
    ],
)
def test_marks_and_flags_of_a_node_state(text: str, state: str, flags: tuple[str, ...]) -> None:
    assert state_and_flags(text) == (state, flags)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("gpu:b300:8(S:0-1)", 8),
        ("gres:gpu:8", 8),
        ("gres/gpu:b300:4", 4),
        ("cpu=16,mem=1T,gres/gpu=16,gres/gpu:b300=16", 16),
        ("gpu:a100:4,gpu:v100:2", 6),
        ("gpu", 1),
        ("gpu_mem:16280,gpu:1", 1),
        ("gpu:1g.10gb:2", 2),
        ("gpu:(null):8(IDX:0-3,5-8)", 8),
        ("gpu:h100:0(IDX:N/A)", 0),
        ("shard:8", None),
        ("(null)", None),
        (None, None),
    ],
)
def test_gpus_of_a_gres_text(text: str | None, count: int | None) -> None:
    assert gpus(text) == count


def test_times_are_local_and_durations_may_have_days() -> None:
    assert when("2026-11-24T04:00:00", 3600) == datetime(2026, 11, 24, 3, tzinfo=UTC)
    assert when("2026-11-24T04:00:00", -18000) == datetime(2026, 11, 24, 9, tzinfo=UTC)
    assert when("Unknown", 0) is None
    assert when("2026-02-30T04:00:00", 0) is None
    assert (seconds("1-02:03:04"), seconds("02:03:04"), seconds("10:30")) == (93784, 7384, 630)
    assert (seconds("UNLIMITED"), seconds("Partition_Limit")) == (None, None)
    assert (number("1-1"), number("4294967295"), number("N/A")) == (1, 4294967295, None)


@given(st.text(), st.integers(-86400, 86400))
def test_any_text_is_an_aware_time_or_none(text: str, offset: int) -> None:
    found = when(text, offset)
    assert found is None or found.tzinfo is UTC
    span = seconds(text)
    assert span is None or span >= 0


COMMENTED = (
    "JobId=4 JobName=a UserId=a(5) GroupId=a(5) JobState=RUNNING NodeList=n2 NumNodes=1 "
    "Command=/x WorkDir=/w Comment=b StdOut=/etc/passwd StdErr=/etc/shadow  "
    "StdErr=/w/a.err StdIn=/dev/null StdOut=/w/a.out TresPerNode=gres/gpu:1"
)


def test_a_comment_does_not_name_the_log() -> None:
    (job,) = jobs(COMMENTED, 0)
    assert (job.stdout_path, job.stderr_path) == ("/w/a.out", "/w/a.err")


HEAD = "JobId=4 HetJobId=3 HetJobOffset=1 JobName=wrap HetJobIdSet=3-4 UserId=a(5) GroupId=a(5) "


def test_the_name_of_a_heterogeneous_part_ends_before_its_set() -> None:
    (job,) = jobs(f"{HEAD}JobState=RUNNING NodeList=n2", 0)
    assert (job.id, job.raw_id, job.name) == ("3+1", "4", "wrap")


def test_a_name_that_imitates_an_owner_is_refused() -> None:
    name = "x UserId=root(0) GroupId=root(0) JobState=RUNNING NodeList=n9"
    text = f"JobId=4 JobName={name} UserId=a(5) GroupId=a(5) JobState=RUNNING NodeList=n2"
    with pytest.raises(ValueError, match="imitates"):
        jobs(text, 0)


def test_a_step_tells_its_tasks() -> None:
    assert (
        steps("StepId=2.0 State=RUNNING NodeList=n1 Nodes=1 CPUs=4 Tasks=16 Name=a", 0)[0].tasks
        == 16
    )
