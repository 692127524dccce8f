"""Which record, run, step, nodes and files are meant, on text in the form that Slurm prints."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.job import Job, current
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
    assert site.leaves(text) == {"n1": "leaf1", "n2": "leaf1", "n3": "leaf2", "n4": "leaf2"}


def programs(folder: Path, **scripts: str) -> dict[str, str]:
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder), "HOME": "/"}


def test_a_machine_without_slurm_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    view = look("5", timeout_s=2)
    assert view.silent
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
