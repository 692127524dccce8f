"""The examples that use preflight: a prolog, a health check and a batch script, in a real Slurm."""

from pathlib import Path

import pytest

from . import cluster, sims
from .cluster import Lab
from .fit import PATIENT, healed, hold, leftover

EXAMPLES = "/opt/sluggish/examples"


@pytest.fixture
def folder(lab: Lab) -> Path:
    """A folder of alice's with a program that leaves a mark when it is started."""
    lab.sh("login", "cd; rm -rf fit && mkdir fit", "alice")
    path = lab.path("login", "/home/alice/fit")
    (path / "train.py").write_text("open('trained', 'w')\n")
    (path / "python").write_text('#!/bin/sh\nexec /opt/venv/bin/python "$@"\n')
    (path / "python").chmod(0o755)
    return path


def submit(lab: Lab, counts: str, folder: Path) -> str:
    """The state in which the example's job ends."""
    (folder / "counts.csv").write_text(counts)
    batch = (
        f"cd; cd fit && PATH=$PWD:$PATH {' '.join(PATIENT)} sbatch --parsable "
        f"--ntasks-per-node=1 -w node[01-02] --gpus-per-node=8 {EXAMPLES}/train.sbatch"
    )
    job = lab.sh("login", batch, "alice").strip()

    def ended() -> str:
        told = lab.exec("ctl", ["scontrol", "-o", "show", "job", job]).stdout
        state = told.partition("JobState=")[2].split(" ")[0]
        return "" if state in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING") else told

    told: list[str] = []
    cluster.wait_for(lambda: told.append(ended()) or told[-1], 100, f"job {job} does not end")
    return told[-1]


def test_the_batch_script_trains_where_all_is_fit(lab: Lab, folder: Path) -> None:
    told = submit(lab, "rank,blocks\n0,16\n1,16\n", folder)
    assert "JobState=COMPLETED" in told, [p.read_text() for p in folder.glob("*.out")]
    assert (folder / "trained").exists()


def test_the_batch_script_ends_before_it_trains_unevenly(lab: Lab, folder: Path) -> None:
    told = submit(lab, "rank,blocks\n0,16\n1,24\n", folder)
    assert "ExitCode=40:0" in told
    assert not (folder / "trained").exists()
    (out,) = folder.glob("*.out")
    assert "rank 0 leaves 1 step early" in out.read_text()


def test_the_batch_script_ends_on_a_node_that_is_unfit(lab: Lab, folder: Path) -> None:
    with healed(lab):
        sims.gpu_off_the_bus(lab, "node02", 3)
        told = submit(lab, "rank,blocks\n0,16\n1,16\n", folder)
        assert "ExitCode=40:0" in told, [p.read_text() for p in folder.glob("*.out")]
        assert not (folder / "trained").exists()


def alone(slurm_conf: str) -> Lab:
    return cluster.up(2, slurm_conf=slurm_conf)


def test_the_prolog_drains_for_failed_hardware_alone(machine: None) -> None:
    lab = alone(f"Prolog={EXAMPLES}/prolog.sh\nPrologFlags=Alloc\n")
    try:
        with leftover(lab, "node01") as pid:  # unfit, and no reason for a drain
            hold(lab, "node01", pid)
            run = ["srun", "-w", "node01", "--gres=gpu:8", "-t", "1", "true"]
            assert lab.exec("login", run, "alice").returncode == 0
        log = lab.path("node01", "/var/log/sluggish-preflight.log").read_text()
        assert "no hardware failed, so this is no failure here" in log

        sims.gpu_off_the_bus(lab, "node02", 3)
        lost = ["timeout", "20", "srun", "-w", "node02", "--gres=gpu:8", "true"]

        def drained() -> bool:  # a look that is too slow on a busy machine lets the job start
            lab.exec("login", lost, "alice")
            return "drain" in lab.state("node02")

        cluster.wait_for(drained, 80, "node02 is not drained")
        log = lab.path("node02", "/var/log/sluggish-preflight.log").read_text()
        assert "GPU-MISSING" in log
        assert "drain" not in lab.state("node01")
    finally:
        lab.down()


def test_the_health_check_drains_for_failed_hardware_alone(machine: None) -> None:
    lab = alone(
        f"HealthCheckProgram={EXAMPLES}/healthcheck.sh\nHealthCheckInterval=3\n"
        "HealthCheckNodeState=IDLE\n"
    )
    try:
        with leftover(lab, "node01") as pid:
            hold(lab, "node01", pid)
            sims.gpu_off_the_bus(lab, "node02", 3)
            cluster.wait_for(lambda: "drain" in lab.state("node02"), 40, "node02 is not drained")
            looked = lab.path("node01", "/var/log/sluggish-preflight.log")
            cluster.wait_for(lambda: "no hardware failed" in looked.read_text(), 40, "no look")
            assert lab.state("node01") == "idle"
        reason = lab.exec("ctl", ["scontrol", "-o", "show", "node", "node02"]).stdout
        assert "Reason=sluggish preflight: failed hardware" in reason
    finally:
        lab.down()
