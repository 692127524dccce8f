"""A node dies under jobs that Slurm then starts again: the run that was lost, and the new one."""

import time
from collections.abc import Iterator

import pytest

from . import cluster, live
from .cluster import Lab
from .live import Told

DEAD = "node03"


@pytest.fixture(scope="module")
def lost(machine: None) -> Iterator[tuple[Lab, str, str]]:
    """A lab whose node03 has died: a job that can only wait for it, and one that runs elsewhere."""
    lab = cluster.up(4, True, hcas=1, slurmd_timeout=5)
    try:
        spare = _submit(lab, "-N1 -w node04 --exclusive")
        moves = _submit(lab, "-N3")
        waits = _submit(lab, "-N2 -w node02,node03")
        for job in (spare, moves, waits):
            _running(lab, job)
        lab.sh("login", f"scancel {spare}", "alice")
        lab.crash(DEAD)
        ask = ["sacct", "-D", "-n", "-X", "-P", "-o", "JobID,State", "-j", f"{moves},{waits}"]
        both = [f"{job}|NODE_FAIL" for job in (moves, waits)]
        cluster.wait_for(
            lambda: set(both) <= set(lab.exec("login", ask).stdout.split()), 90, "no NODE_FAIL"
        )
        cluster.wait_for(lambda: _state(lab, waits) == "PENDING", 60, f"{waits} does not wait")
        yield lab, moves, waits
    finally:
        lab.down()


def _submit(lab: Lab, ask: str) -> str:
    sbatch = "sbatch --parsable --requeue --open-mode=append --gres=gpu:1"
    return lab.sh("login", f"cd; {sbatch} {ask} --wrap 'srun sleep 900'", "alice").strip()


def _running(lab: Lab, job: str) -> None:
    step = ["scontrol", "show", "step", f"{job}.0"]
    cluster.wait_for(lambda: lab.exec("ctl", step).returncode == 0, 200, f"{job} has no step")


def _state(lab: Lab, job: str) -> str:
    return lab.sh("ctl", f"scontrol -o show job {job} | grep -o 'JobState=[A-Z_]*'")[9:].strip()


def _look(lab: Lab, job: str, user: str | None) -> Told:
    argv = ["diagnose", "--job", job, "--transport", "ssh", "--window", "1", "--json"]
    return live.told(live.sluggish(lab, argv, user), time.monotonic())


@pytest.mark.parametrize("user", [None, "alice"])
def test_a_job_that_waits_again_is_told_by_the_run_that_was_lost(
    lost: tuple[Lab, str, str], user: str | None
) -> None:
    lab, _, waits = lost
    told = _look(lab, waits, user)
    assert (told.verdict, told.places) == ("node_down/node_fail", [(DEAD, None)]), told.document
    assert "asking 2 nodes (node[02-03])" in told.notes, told.notes
    says = [found["says"] for found in told.document["findings"]]
    assert any("waits to be started again" in one for one in says), says
    assert not told.drains


def test_the_job_that_runs_again_is_not_judged_by_the_run_before_it(
    lost: tuple[Lab, str, str],
) -> None:
    """Its log is appended to: it still names the node that failed under the first run."""
    lab, moves, _ = lost
    lab.sh("ctl", f"scontrol update jobid={moves} starttime=now")  # else it waits two minutes
    nodes = "node[01-02,04]"
    cluster.wait_for(lambda: _state(lab, moves) == "RUNNING", 60, f"{moves} is not started again")
    _running(lab, moves)
    told = _look(lab, moves, "alice")
    assert f"asking 3 nodes ({nodes})" in told.notes, told.notes
    assert "its run before, on node[01-03], ended NODE_FAIL at " in told.notes, told.notes
    assert told.document["verdict"]["cause"] != "node_down", told.document["verdict"]
    assert told.places == []
    says = [found["says"] for found in told.document["findings"] if found["rule"] == "NODE-DOWN"]
    (before,) = [one for one in says if one.startswith("the run before this one, on node[01-03]")]
    assert before.endswith(f": {DEAD} failed"), says
    assert told.document["job"]["state"] == "RUNNING"
