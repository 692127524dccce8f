"""Slurm's own private /tmp (job_container/tmpfs): what the ranks dump there ends with the job."""

from collections.abc import Iterator

import pytest

from . import cluster, live, sims
from .cluster import Lab
from .live import Job

pytestmark = pytest.mark.usefixtures("torch_in_lab")

NODES = ("node01", "node02")
# 22.05 binds its new namespace before its child has made it: slowed down, many a job starts
PATIENT = "exec strace -qq -f -p $(pgrep -x slurmd) -e inject=mount:delay_enter=200000"
FOLDER = "/home/alice/private"
SUBMIT = f"""
mkdir -p {FOLDER} && cd {FOLDER} && sbatch --parsable -J odd -N2 -w {",".join(NODES)} \
    --ntasks-per-node=2 --gres=gpu:2 -o {FOLDER}/job.out --wrap "
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1
export TORCH_FR_DUMP_TEMP_FILE=/tmp/fr_\\${{SLURM_JOB_ID}}_
srun /opt/venv/bin/python -u /opt/sluggish/tests/lab/train.py odd 2 {FOLDER}"
"""


@pytest.fixture(scope="module")
def private(machine: None) -> Iterator[Lab]:
    more = "JobContainerType=job_container/tmpfs\nPrologFlags=contain\n"
    own = "AutoBasePath=true\nBasePath=/run/node/private\n"
    lab = cluster.up(2, hcas=1, slurm_conf=more, job_container=own)
    yield lab
    lab.down()


def started(lab: Lab) -> str:
    """A job whose step runs. Slurm holds one that fell into the race: then another is submitted."""
    for _ in range(8):
        number = lab.sh("login", SUBMIT, "alice").strip()
        step = ["scontrol", "show", "step", f"{number}.0"]
        held = ["sh", "-c", f"squeue -h -o %r -j {number} | grep -q held"]

        def told(step: list[str] = step, held: list[str] = held) -> bool:
            return not (lab.exec("ctl", step).returncode and lab.exec("ctl", held).returncode)

        cluster.wait_for(told, 30, "no step, and it is not held")
        if lab.exec("ctl", step).returncode == 0:
            return number
        lab.exec("ctl", ["scancel", "-f", number])
    raise cluster.LabError("none of 8 jobs got a /tmp of its own")


@pytest.fixture
def job(private: Lab) -> Iterator[Job]:
    """Rank 2 is in another collective; the dumps lie in a /tmp that only the job sees."""
    lab = private
    slow = [
        lab.popen(n, ["sh", "-c", f"{PATIENT} -e trace=mount -o /dev/null 2>&1"]) for n in NODES
    ]
    try:
        traced = ["sh", "-c", "grep -q '^TracerPid:.[1-9]' /proc/$(pgrep -x slurmd)/status"]
        for node in NODES:
            cluster.wait_for(lambda n=node: not lab.exec(n, traced).returncode, 20, "no strace")
        number = started(lab)
        tmp = "/run/node/private/{node}/{id}/.{id}"
        found = Job(lab=lab, id=number, case="odd", culprit=2, nodes=NODES, tmp=tmp)
        cluster.wait_for(lambda: min(found.steps()) >= 5, 60, "the ranks do not train")
    finally:
        for process in slow:
            cluster.end(process)
    found.fault()
    live.wait_quiet(found)
    live.gpus_wait(found, found.culprit)
    yield found
    for node in NODES:
        sims.gpus(lab, node)


def test_the_warning_stands_before_scancel_whoever_looks_and_by_whatever_way(job: Job) -> None:
    hidden = ["sh", "-c", f"ls /tmp/fr_{job.id}_*"]
    assert job.lab.exec(NODES[0], hidden).returncode != 0
    for way, told in live.looks(job).items():
        said = (way, told.document["verdict"])
        assert (told.verdict, told.places) == (
            "rank_desync/collective_mismatch", [("node02", 2)]
        ), said  # fmt: skip
        (ending,) = [
            step for step in told.document["remedies"] if f"scancel {job.id}" in step["commands"]
        ]
        assert ending["precondition"].startswith("ranks on node[01-02] have mounts of their own"), (
            way
        )
