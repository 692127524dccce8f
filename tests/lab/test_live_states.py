"""Jobs that Slurm has ended or is ending: an epilog, an unkillable process, a node that died."""

import time
from collections.abc import Iterator

import pytest

from . import cluster, live, storage
from .cluster import Lab
from .live import Told

EPILOG = "#!/bin/sh\nwhile [ -e /run/lab/hold-epilog ]; do sleep 0.2; done\n"


@pytest.fixture(scope="module")
def states(machine: None) -> Iterator[Lab]:
    """Nodes that are called down soon, and an epilog that a test can hold."""
    more = "Epilog=/run/lab/epilog\nUnkillableStepTimeout=600\n"
    lab = cluster.up(3, hcas=2, slurmd_timeout=6, slurm_conf=more)
    epilog = lab.path("ctl", "/run/lab/epilog")
    epilog.write_text(EPILOG)
    epilog.chmod(0o755)
    yield lab
    lab.down()


def submit(lab: Lab, nodes: str, program: str, *more: str) -> str:
    """alice's job with a task on each node; returns when its step runs."""
    lab.wait_until_free(90, nodes)
    lab.path("login", "/home/alice/task").write_text(program)
    ask = ["sbatch", "--parsable", "-D", "/home/alice", "-w", nodes, "--ntasks-per-node=1", *more]
    count = str(nodes.count(",") + 1)
    wrap = ["-N", count, "--gres=gpu:1", "--wrap", "srun sh /home/alice/task"]
    number = lab.exec("login", [*ask, *wrap], "alice", check=True).stdout.strip()
    step = ["scontrol", "show", "step", f"{number}.0"]
    cluster.wait_for(lambda: lab.exec("ctl", step).returncode == 0, 60, "no step")
    return number


def state(lab: Lab, job: str) -> str:
    words = lab.exec("ctl", ["scontrol", "-o", "show", "job", job]).stdout.split()
    return next((word[9:] for word in words if word.startswith("JobState=")), "")


def wait_state(lab: Lab, job: str, wanted: str) -> None:
    cluster.wait_for(lambda: state(lab, job) == wanted, 60, f"{job} does not become {wanted}")


def look(lab: Lab, job: str) -> Told:
    argv = ["diagnose", "--job", job, "--transport", "ssh", "--window", "2", "--json"]
    return live.told(live.sluggish(lab, argv, None), time.monotonic())


def rules(told: Told) -> dict[str, str]:
    return {found["rule"]: found["says"] for found in told.document["findings"]}


def ruled_out(told: Told) -> list[str]:
    return [one["cause"] for one in told.document["verdict"]["ruled_out"]]


def test_an_epilog_that_does_not_end_is_no_hang_of_the_ranks(states: Lab) -> None:
    hold = states.path("ctl", "/run/lab/hold-epilog")
    hold.touch()
    try:
        job = submit(states, "node01,node02", "sleep 4\n")
        wait_state(states, job, "COMPLETING")
        told = look(states, job)
    finally:
        hold.unlink()
    wait_state(states, job, "COMPLETED")
    assert (told.verdict, told.code, told.places) == ("not_running/completed", 19, [])
    assert "no process of it is left on its nodes" in rules(told)["JOB-STATE"]
    assert not told.drains


def test_an_unkillable_process_holds_the_node_and_is_named(states: Lab) -> None:
    path = storage.mount(states, "node02")
    states.sh("node02", f"echo some >{path}/alice/file")
    storage.hang(states, "node02")
    try:
        wait = f"[ $(hostname) = node02 ] && cat {path}/alice/file\nsleep 900\n"
        job = submit(states, "node01,node02", wait)
        stuck = ["sh", "-c", "grep -l '^State:.D' /proc/[0-9]*/status"]
        cluster.wait_for(lambda: states.exec("node02", stuck).returncode == 0, 20, "nobody in D")
        states.sh("ctl", f"scancel {job}")
        wait_state(states, job, "COMPLETING")
        gone = ["sh", "-c", "pgrep -u alice -f 'sleep 900'"]
        cluster.wait_for(lambda: states.exec("node01", gone).returncode == 1, 30, "node01 lives")
        told = look(states, job)
    finally:
        storage.unmount(states, "node02")
    assert (told.verdict, told.places) == ("data_stall/storage", [("node02", 1)])
    assert rules(told)["JOB-STATE"] == "Slurm says COMPLETING"
    assert "in state D" in rules(told)["NODE-UNKILLABLE"]
    assert "cannot be killed" in rules(told)["NODE-UNKILLABLE"]
    assert "not_running" not in ruled_out(told)
    assert not any(f"scancel {job}" in step["commands"] for step in told.document["remedies"])


def test_a_job_that_slurm_ended_for_a_dead_node_names_the_node(states: Lab) -> None:
    job = submit(states, "node01,node02,node03", "sleep 900\n", "--no-requeue")
    states.crash("node03")
    try:
        wait_state(states, job, "NODE_FAIL")
        told = look(states, job)
    finally:
        states.boot("node03")
    assert (told.verdict, told.places, told.code) == ("node_down/node_fail", [("node03", None)], 18)
    assert "unreachable" in told.gaps
    assert "not_running" not in ruled_out(told)
    assert not any(f"scancel {job}" in step["commands"] for step in told.document["remedies"])
