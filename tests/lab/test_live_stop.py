"""Ctrl-C at every stage of a look: what came is kept and judged, and nobody sees a traceback."""

import subprocess
from collections.abc import Iterator

import pytest

from . import cluster, live
from .cluster import Lab

STAGES = {
    "saving evidence to ": False,
    " of alice RUNNING on 2 nodes": True,
    "  log: ": True,
    "  by ssh: ": True,
    "asking 2 nodes": True,
    "2 of 2 nodes answered": True,
    "evidence saved: ": True,
}
"""A line, and whether from then on there is something to keep."""


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[str]:
    wrap = "--wrap 'srun sh -c \"echo step 1 loss 2.0; sleep 900\"'"
    ask = f"cd; sbatch --parsable -N2 --ntasks-per-node=1 --gres=gpu:1 {wrap}"
    number = lab.sh("login", ask, "alice").strip()
    said = ["grep", "-q", "step 1", f"/home/alice/slurm-{number}.out"]
    cluster.wait_for(lambda: lab.exec("login", said).returncode == 0, 60, "no step")
    yield number
    lab.sh("login", f"scancel {number}")


@pytest.mark.parametrize("line", STAGES)
def test_what_has_come_by_then_is_kept(lab: Lab, job: str, line: str) -> None:
    argv = ["diagnose", "--job", job, "--transport", "ssh", "--window", "2", "--json"]
    process = live.sluggish(lab, argv, "alice")
    notes = ""
    try:
        assert process.stderr is not None
        for said in process.stderr:
            notes += said.decode()
            if line in notes:
                break
        own = ["pkill", "-INT", "-u", "alice", "-f", f"sluggish diagnose --job {job}"]
        lab.exec("login", own, check=True)
        out, rest = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it hangs: {notes}") from None
    finally:
        cluster.end(process)
    notes += rest.decode()
    assert "Traceback" not in notes, notes
    # pressed in the last moment it may be too late: then it has simply ended
    assert process.returncode == 130 or (line == "evidence saved: " and out), notes
    if STAGES[line]:
        saved = [one.split()[-1] for one in notes.splitlines() if "evidence saved: " in one]
        assert len(notes.split("evidence saved: ")) == 2, (notes, saved)
        path = notes.partition("evidence saved: ")[2].split()[0]
        assert lab.path("login", path).is_file()
    left = ["sh", "-c", f"ls -d /home/alice/.local/state/sluggish/{job}/.sluggish-*"]
    assert lab.exec("login", left).returncode != 0, "its spool is still there"
