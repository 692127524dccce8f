"""Slurm's own way to the nodes: on a full job that hangs, as its owner, with one dead node."""

from collections.abc import Iterator

import pytest

from . import faults
from .cluster import Lab, wait_for

ALICE = 5001
SCRIPT = "hostname; id -un; echo gpus $CUDA_VISIBLE_DEVICES; echo zone $TZ; env | grep -c SECRET"


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[str]:
    """All CPUs, GPUs and memory of all nodes are taken, and nothing moves."""
    ask = "--ntasks-per-node=8 --gres=gpu:8 --mem=60000 --exclusive --wrap 'srun --mem=0 sleep 900'"
    number = lab.sh("login", f"cd; sbatch --parsable -N4 {ask}", "alice").strip()
    show = ["scontrol", "show", "step", f"{number}.0"]
    wait_for(lambda: lab.exec("login", show).returncode == 0, 30, "the job does not start")
    yield number
    lab.sh("login", f"scancel {number}")
    idle = ["squeue", "-h", "-j", number]
    wait_for(lambda: not lab.exec("login", idle).stdout.strip(), 30, "the job does not end")


def by_srun(lab: Lab, job: str, user: str | None, nodes: tuple[str, ...], **more: object) -> dict:
    told = {
        "name": "srun", "nodes": nodes, "script": SCRIPT, "workers": 16, "deadline_s": 20,
        "transport": {"kind": "srun", "job": job, "uid": ALICE}, **more,
    }  # fmt: skip
    return faults.told(faults.asking(lab, [told], user, {"SECRET": "of-root"}))["srun"]


@pytest.mark.parametrize("user", ["alice", None], ids=["as the owner", "as root for the owner"])
def test_every_node_of_a_full_job_answers(lab: Lab, job: str, user: str | None) -> None:
    found = by_srun(lab, job, user, lab.nodes)
    assert [answer["failure"] for answer in found["answers"]] == [None] * 4, found["answers"]
    secrets = "0" if user is None else "1"
    wanted = {f"{n}\nalice\ngpus 0,1,2,3,4,5,6,7\nzone\n{secrets}\n" for n in lab.nodes}
    assert set(found["first"]) == wanted  # root's own environment stays with root


def test_one_dead_node_costs_only_its_own_answer(lab: Lab, job: str) -> None:
    """sixteen names would be sixteen steps; here four, of which one leads nowhere."""
    lab.cut("node04")
    try:
        found = by_srun(lab, job, "alice", lab.nodes, deadline_s=16)
    finally:
        lab.mend("node04")
    failed = {answer["node"]: answer for answer in found["answers"] if answer["failure"]}
    assert set(failed) == {"node04"}
    assert failed["node04"]["failure"] == "unreachable", failed
    assert "node04" in failed["node04"]["says"]
    alive = [answer["elapsed_s"] for answer in found["answers"] if not answer["failure"]]
    assert max(alive) < 6


def test_a_step_that_hangs_ends_at_the_deadline_and_leaves_no_step(lab: Lab, job: str) -> None:
    found = by_srun(lab, job, "alice", ("node01",), script="echo begun; sleep 60", deadline_s=2)
    (answer,) = found["answers"]
    assert (answer["failure"], found["first"]) == ("timeout", ["begun\n"])
    steps = ["squeue", "-h", "-s", "-j", job, "-o", "%i"]
    wait_for(
        lambda: set(lab.exec("login", steps).stdout.split()) <= {f"{job}.0", f"{job}.batch"},
        15, "our step stays behind",
    )  # fmt: skip


def test_another_user_may_not(lab: Lab, job: str) -> None:
    told = {
        "name": "b",
        "nodes": ["node01"],
        "transport": {"kind": "srun", "job": job, "uid": 5002},
    }
    found = faults.told(faults.asking(lab, [told], "bob"))["b"]["answers"][0]
    assert (found["failure"], found["says"]) == (
        "auth denied", f"srun: error: Unable to create step for job {job}: Access/permission denied"
    )  # fmt: skip


def test_a_job_that_is_over_cannot_be_entered(lab: Lab, job: str) -> None:
    found = by_srun(lab, "99999", "alice", ("node01",))["answers"][0]
    assert found["failure"] == "not run"
    assert "Invalid job id" in found["says"]


AUTO = """
import sys
from sluggish.reach.choose import choose
way = choose("auto", sys.argv[2:], job=sys.argv[1], uid=5001, running=sys.argv[1] != "0")
print(way.transport.name, "|", way.why)
"""


@pytest.mark.parametrize(
    ("config", "running", "nodes", "wanted"),
    [
        ("", True, ["node01", "node02"], "ssh | node0"),
        ("Host *\n ProxyCommand nc %h %p\n", True, ["node01"], "openssh | node01 answers to it"),
        ("Host *\n Port 2299\n", True, ["node01"], "srun | ssh does not get through (node01: ref"),
        ("Host *\n Port 2299\n", False, ["node01"], "ssh | node01: refused; srun is no way: the "),
        ("", True, ["login"], "local | this is the job's only node"),
    ],
    ids=["ssh", "openssh", "srun", "none", "local"],
)
def test_auto_takes_what_gets_through_and_says_why(
    lab: Lab, job: str, config: str, running: bool, nodes: list[str], wanted: str
) -> None:
    file = lab.path("login", "/home/alice/.ssh/config")
    file.write_text(config)
    try:
        argv = ["env", "PYTHONPATH=/opt/sluggish", "/opt/venv/bin/python", "-B", "-c", AUTO]
        said = lab.exec("login", [*argv, job if running else "0", *nodes], "alice", check=True)
    finally:
        file.unlink()
    assert said.stdout.startswith(wanted), said.stdout
