"""Which record, run, step, nodes and files are meant, on text in the form that Slurm prints."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.origin import Origin
from sluggish.job import Job, current
from sluggish.probes import topology
from sluggish.reach import pick
from sluggish.reach.slurm import look
from sluggish.slurmtext import logpath, site
from sluggish.slurmtext.queue import rows

HEAD = "UserId=alice(5001) GroupId=alice(5001) MCS_label=N/A"


def record(job: str, state: str, nodes: str, extra: str = "") -> str:
    return f"JobId={job} {extra}JobName=a {HEAD} JobState={state} Restarts=0 NodeList={nodes}\n"


@pytest.mark.parametrize(
    ("text", "job", "step", "base"),
    [
        ("123", "123", None, "123"),
        ("123_4", "123_4", None, "123"),
        ("123+0", "123+0", None, "123"),
        (" 123.7 ", "123", "7", "123"),
        ("123_4.0", "123_4", "0", "123"),
    ],
)
def test_a_job_id_as_users_write_it(text: str, job: str, step: str | None, base: str) -> None:
    found = pick.job_id(text)
    assert (found.job, found.step, found.base) == (job, step, base)


@pytest.mark.parametrize("text", ["", "12a", "1_2_3", "1;reboot", "-v", "1_[1-3]", "1.batch", "٣"])
def test_what_is_no_job_id_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match="no job id"):
        pick.job_id(text)


@given(st.text(max_size=30))
def test_any_text_is_a_job_id_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert set(pick.job_id(text).job) <= set("0123456789_+")


def test_the_pending_tail_of_an_array_is_not_taken_for_its_running_task() -> None:
    text = record("3", "PENDING", "(null)", "ArrayJobId=3 ArrayTaskId=3-9 ") + record(
        "5", "RUNNING", "n4", "ArrayJobId=3 ArrayTaskId=2 "
    )
    step = "StepId=3_2.0 UserId=5001 State=RUNNING NodeList=n4 Nodes=1 Tasks=8 Name=x\n"
    found = pick.from_scontrol(pick.job_id("3"), text, step)
    assert found.job is not None
    assert (found.job.id, found.job.raw_id, found.job.nodes) == ("3_2", "5", ("n4",))
    assert found.job_text.count("JobName=") == 1
    assert "ask for another" in found.notes[0]


def test_the_step_with_most_tasks_trains_and_a_named_one_wins() -> None:
    text = record("7", "RUNNING", "n[1-4]")
    lines = "".join(
        f"StepId=7.{n} State={state} NodeList={where} Nodes=1 CPUs=1 Tasks={tasks} Name=x\n"
        for n, state, where, tasks in (
            ("extern", "RUNNING", "n[1-4]", 4), ("batch", "RUNNING", "n1", 1),
            ("TBD", "PENDING", "n1", 999), ("0", "RUNNING", "n[1-2]", 16),
            ("1", "RUNNING", "n[3-4]", 16), ("2", "RUNNING", "n3", 1),
        )
    )  # fmt: skip
    job = pick.from_scontrol(pick.job_id("7"), text, lines).job
    assert job is not None
    step = pick.training_step(job)
    assert step is not None
    assert pick.nodes_of(job, step) == (("n1", "n2"), "step 7.0")
    named = pick.training_step(job, "2")
    assert named is not None
    assert named.id == "7.2"


SACCT = "JobID|JobIDRaw|State|NodeList|Start|End|ExitCode|Reason|User|UID|JobName\n"


def test_the_failed_run_of_a_requeued_job_has_the_nodes() -> None:
    job = Job(id="2", raw_id="2", source="scontrol", state="PENDING", restarts=1)
    text = SACCT + (
        "2|2|NODE_FAIL|n[1-2]|2026-11-24T01:00:00|2026-11-24T03:10:00|0:0|None|alice|5001|a|b\n"
        "2.0|2.0|CANCELLED|n[1-2]|2026-11-24T01:00:00|2026-11-24T03:10:00|0:15||||x\n"
        "2|2|PENDING|None assigned|Unknown|Unknown|0:0|None|alice|5001|a|b\n"
        "21|21|RUNNING|n9|2026-11-24T01:00:00|Unknown|0:0|None|eve|666|x\n"
    )
    past = pick.from_accounting(pick.job_id("2"), job, text)
    assert past.nodes == ("n1", "n2")
    assert past.nodes_from.startswith("accounting: the run that ended 03:10:00Z (NODE_FAIL)")
    assert past.owners == {(5001, "alice")}
    assert "eve" not in past.text
    assert past.text.count("\n") == 4


def test_accounting_is_asked_only_where_it_is_needed() -> None:
    wants = {
        state: pick.wants_accounting(Job(id="1", state=state, restarts=0))
        for state in ("RUNNING", "PENDING", "COMPLETING", "FAILED", "NODE_FAIL")
    }
    assert wants == {"RUNNING": False, "PENDING": False, "COMPLETING": False, "FAILED": True,
                     "NODE_FAIL": True}  # fmt: skip
    assert pick.wants_accounting(Job(id="1", state="RUNNING", restarts=2))
    assert pick.wants_accounting(None)


def test_other_jobs_on_a_node_are_not_this_one_nor_its_parts() -> None:
    told = rows(
        "JOBID|JOBID|UID|USER|STATE|NODELIST\n6+0|6|1|a|RUNNING|n1\n6+1|7|1|a|RUNNING|n2\n"
        "8_2|9|2|b|RUNNING|n[2-3]\n"
    )
    found = pick.others(told, ("n1", "n2"), Job(id="6", raw_id="6"))
    assert {node: [one.id for one in jobs] for node, jobs in found.items()} == {
        "n1": [], "n2": ["8_2"],
    }  # fmt: skip


def test_private_data_hides_jobs_from_all_but_root() -> None:
    settings = site.settings("PrivateData             = accounts,jobs\nMinJobAge = 300 sec\n")
    assert pick.hides_jobs(settings, uid=5001)
    assert not pick.hides_jobs(settings, uid=0)
    assert not pick.hides_jobs(site.settings("PrivateData = none"), uid=5001)
    assert site.seconds_of(settings["MinJobAge"]) == 300


def test_the_parts_of_one_het_job_are_one_and_runs_of_others_are_not() -> None:
    parts = [
        Job(id=f"6+{n}", source="scontrol", state="RUNNING", nodes=(f"n{n}",), num_nodes=1,
            num_tasks=8, gpus_per_node=8)
        for n in (0, 1, 10)
    ]  # fmt: skip
    whole = current((parts[1], parts[2], parts[0]))
    assert whole is not None
    assert (whole.id, whole.nodes, whole.num_tasks) == ("6", ("n0", "n1", "n10"), 24)
    assert current((parts[1],)) == parts[1]


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/home/a/%x-%j-%N.out", "/home/a/llm [[]70b-5-*.out"),
        ("/home/a/%A_%4a.log", "/home/a/3_0002.log"),
        ("%j.out", "/work/5.out"),
        ("/l/%u/100%%.%t", "/l/alice/100%.*"),
        ("/l/a*b[1].out", "/l/a[*]b[[]1].out"),
        ("/l/lit\\%j.out", "/l/lit%j.out"),
    ],
)
def test_slurms_patterns_become_globs(path: str, pattern: str) -> None:
    job = Job(id="3_2", raw_id="5", name="llm [70b", user="alice", work_dir="/work",
              stdout_path=path)  # fmt: skip
    assert logpath.patterns(job) == (pattern,)


def test_a_sites_patterns_keep_their_globs_and_values_do_not() -> None:
    job = Job(id="3_2", raw_id="5", name="a*b", user="alice", work_dir="/w[1]")
    site = ("/scratch/%u/%x-%j/rank*.log", "logs/%A_%a.[eo]*", "/l/%5j.log")
    assert logpath.of_site(site, job) == (
        "/scratch/alice/a[*]b-5/rank*.log", "/w[[]1]/logs/3_2.[eo]*", "/l/00005.log",
    )  # fmt: skip


def test_guessed_logs_carry_the_whole_number() -> None:
    job = Job(id="12", raw_id="12", work_dir="/w")
    assert "/w/logs/*12*.out" in logpath.guesses(job)
    assert logpath.matches(["/w/a-12.out", "/w/a-112.out", "/w/12_0.log"], job) == (
        "/w/a-12.out", "/w/12_0.log",
    )  # fmt: skip
    assert logpath.patterns(Job(id="1", stdout_path="/dev/null")) == ()


def test_leaves_come_from_the_lowest_switches() -> None:
    text = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] \n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n"
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
    )
    found = [one for one in topology.parse(text, Origin()) if one.level == 0]
    leaves = {node: one.name for one in found for node in one.nodes}
    assert leaves == {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": "/"}


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    view = look("5", timeout_s=2)
    assert any("no program scontrol" in note for note in view.notes)
    assert [(e.probe, e.error) for e in view.evidence] == [
        ("slurm_job", "not found"), ("sacct", "not found"),
    ]  # fmt: skip


def test_a_hanging_slurm_costs_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = programs(tmp_path, scontrol="exec /bin/sleep 60", squeue="exec /bin/sleep 60")
    monkeypatch.setenv("PATH", env["PATH"])
    before = len(os.listdir("/proc/self/fd"))
    view = look("5", timeout_s=0.3)
    assert view.evidence[0].error == "timeout"
    assert any("no answer in" in note for note in view.notes)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_parts_of_a_launch_with_a_colon_are_one_training_step() -> None:
    """Recorded on 22.05: `srun a : b` in a plain job."""
    form = "StepId=3.0+{} UserId=5001 State=RUNNING NodeList=node0{} Nodes=1 Tasks={} Name=sleep\n"
    batch = "StepId=3.batch UserId=5001 State=RUNNING NodeList=node03 Nodes=1 Tasks=1 Name=batch\n"
    text = batch + form.format(0, 3, 2) + form.format(1, 4, 6)
    found = pick.from_scontrol(pick.job_id("3"), record("3", "RUNNING", "node[03-05]"), text)
    assert found.job is not None
    step = pick.training_step(found.job)
    assert step is not None
    assert (step.id, step.tasks) == ("3.0", 8)
    assert pick.nodes_of(found.job, step) == (("node03", "node04"), "step 3.0")
    assert pick.training_step(found.job, "0") == step
    assert pick.training_step(found.job, "1") is None


def test_a_failed_part_of_a_launch_is_a_failed_step() -> None:
    text = "StepId=3.0+1 State=FAILED NodeList=n4 Nodes=1 Tasks=1 Name=a\n"
    found = pick.from_scontrol(pick.job_id("3"), record("3", "RUNNING", "n[3-4]"), text)
    assert [step.id for step in pick.failed_steps(found.job)] == ["3.0+1"]


def test_a_record_inside_a_comment_is_no_second_job() -> None:
    text = record("3", "RUNNING", "n3") + record("3", "FAILED", "n9")
    found = pick.from_scontrol(pick.job_id("3"), text, "")
    assert found.job is not None
    assert (found.job.state, found.job.nodes) == ("RUNNING", ("n3",))
