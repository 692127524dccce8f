"""A look by srun as the job's owner at sixteen nodes, of which one is dead."""

import time
from collections.abc import Iterator

import pytest

from . import cluster, live
from .cluster import Lab

DEAD = "node11"


@pytest.fixture
def sixteen(machine: None) -> Iterator[Lab]:
    """Slurm gives a silent node ten minutes: until then the job runs, and so does the step."""
    lab = cluster.up(16, hcas=1, slurmd_timeout=600)
    yield lab
    lab.down()


def test_one_dead_node_of_sixteen_costs_only_its_own_answer(sixteen: Lab) -> None:
    """All GPUs and CPUs are taken by ranks that stand; one launch a node gets in beside them."""
    lab = sixteen
    ask = "-N16 --ntasks-per-node=1 --cpus-per-task=32 --gres=gpu:8 --mem=60000 --exclusive"
    job = lab.sh("login", f"cd; sbatch --parsable {ask} --wrap 'srun sleep 900'", "alice").strip()
    ranks = ["sh", "-c", "pgrep -u alice -x sleep"]
    for node in lab.nodes:
        cluster.wait_for(
            lambda node=node: lab.exec(node, ranks).returncode == 0, 60, f"no rank on {node}"
        )
    lab.crash(DEAD)
    argv = ["diagnose", "--job", job, "--transport", "srun", "--window", "1", "--json"]
    told = live.told(live.sluggish(lab, argv, "alice"), time.monotonic(), 120)
    assert "15 of 16 nodes answered, 1 unreachable" in told.notes
    blind = {one["what"]: one for one in told.document["verdict"]["not_checked"] if one["where"]}
    for what in ("boot and clock", "processes", "nvidia-smi", "port counters", "mounts"):
        assert blind[what]["where"] == DEAD, blind[what]
        assert blind[what]["why"].startswith("unreachable: srun: error: Task launch for StepId=")
    found = {one["rule"]: one for one in told.document["findings"]}
    assert found["NODE-SILENT"]["node"] == DEAD
    # silence is no proof of death, and a plain user's dead node is nobody's to drain
    assert (told.verdict, told.places) == ("unknown/unobserved", [])
    assert not told.drains
    assert f"does {DEAD} live" in told.document["verdict"]["next_probe"]
    assert told.seconds < 60
