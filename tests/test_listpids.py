"""`scontrol listpids` as the versions of Slurm print it, read by the node's own command.

The data cases print what a version prints, about processes that are really there and that nothing
but this list ties to the job.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin
from sluggish.probes import rank_procs

JOB = "48213"
CASES = sorted((Path(__file__).parent / "listpids").glob("*.yaml"))
ROLES = ("helper", "script", "rank0", "rank1", "child")
_STAND_IN = """#!/bin/sh
[ "$1 $2" = "listpids {job}" ] || exit 9
cat {folder}/prints
cat {folder}/complains >&2
exit {code}
"""


@pytest.fixture
def alive() -> Iterator[dict[str, int]]:
    """A process a role, of ours, in no job."""
    env = {"PATH": os.environ["PATH"]}
    processes = {
        role: subprocess.Popen(["sleep", "600"], env=env, stdin=subprocess.DEVNULL)
        for role in ROLES
    }
    yield {role: process.pid for role, process in processes.items()}
    for process in processes.values():
        process.kill()
        process.wait()


def ask(
    folder: Path, prints: str, complains: str, code: int, uid: int | None = None
) -> subprocess.CompletedProcess[str]:
    """The node's command with a scontrol that answers thus; the job is of `uid`, else ours."""
    (folder / "prints").write_text(prints)
    (folder / "complains").write_text(complains)
    scontrol = folder / "scontrol"
    scontrol.write_text(_STAND_IN.format(job=JOB, folder=folder, code=code))
    scontrol.chmod(0o755)
    env = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLUGGISH_JOB": JOB,
        "SLUGGISH_UID": str(os.getuid() if uid is None else uid),
        "SLUGGISH_SELF": "",
    }
    return subprocess.run(
        ["sh", "-c", rank_procs.COMMAND], env=env, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_processes_that_a_version_lists_are_the_job_s(
    case: Path, alive: dict[str, int], tmp_path: Path
) -> None:
    known = yaml.safe_load(case.read_text())
    text = known["prints"]
    for role, pid in alive.items():
        text = text.replace(f"{{{role}}}", str(pid))
    done = ask(tmp_path, text, known.get("complains", ""), known.get("exit_code", 0))
    found = [fact for fact in parsed(done.stdout) if fact.found_by == "listpids"]
    assert {fact.pid for fact in found} == {alive[role] for role in known["listed"]}
    # what nothing else ties to the job is not there; a slurmd that runs here would vouch for that
    assert done.returncode == 0 or (not found and "no slurmd is visible" in done.stderr), done


def parsed(text: str) -> list[RankProcess]:
    return list(rank_procs.parse(text, Origin(node="gpu-07"))) if text.strip() else []


def test_a_process_that_is_listed_and_cannot_be_seen_is_no_empty_node(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    text = f"PID JOBID STEPID LOCALID GLOBALID\n{gone.pid} {JOB} 0 0 8\n"
    done = ask(tmp_path, text, "", 0)
    assert (done.returncode, "are not visible here" in done.stderr) == (77, True), done


def test_only_what_is_left_of_the_batch_step_is_no_hidden_rank(tmp_path: Path) -> None:
    """A row of a step without number, whose process has just ended, tells of no rank."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    text = f"PID JOBID STEPID LOCALID GLOBALID\n{gone.pid} {JOB} batch 0 0\n"
    done = ask(tmp_path, text, "", 0)
    assert "are not visible here" not in done.stderr


def test_a_listed_process_that_is_not_the_owner_s_is_not_shown(
    alive: dict[str, int], tmp_path: Path
) -> None:
    """Slurm's list and the node's /proc are moments apart: a number may be another's by then."""
    text = f"PID JOBID STEPID LOCALID GLOBALID\n{alive['rank0']} {JOB} 0 0 8\n"
    done = ask(tmp_path, text, "", 0, uid=os.getuid() + 12345)
    assert parsed(done.stdout) == []
    assert done.returncode == 77, done
