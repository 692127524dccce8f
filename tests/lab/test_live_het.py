"""The parts of a heterogeneous job are one look, by every way; one part can be asked for alone."""

import time
from collections.abc import Iterator

import pytest

from . import cluster, live
from .cluster import Lab

SCRIPT = """\
#!/bin/sh
#SBATCH -N1 -w node03 --gres=gpu:1
#SBATCH hetjob
#SBATCH -N2 -w node[01-02] --gres=gpu:1
srun --het-group=0,1 sleep 900
"""


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[str]:
    lab.path("login", "/home/alice/het.sh").write_text(SCRIPT)
    number = lab.sh("login", "cd; sbatch --parsable het.sh", "alice").strip()
    ranks = ["pgrep", "-u", "alice", "-x", "sleep"]
    for node in ("node01", "node02", "node03"):
        cluster.wait_for(
            lambda node=node: lab.exec(node, ranks).returncode == 0, 60, f"no rank on {node}"
        )
    yield number
    lab.sh("login", f"scancel {number}")


@pytest.mark.parametrize("transport", ["ssh", "srun"])
@pytest.mark.parametrize(("part", "count"), [("", 3), ("+1", 2)])
def test_every_part_answers_with_its_ranks(
    lab: Lab, job: str, part: str, count: int, transport: str
) -> None:
    """srun reaches a part by the leader's number and the part's, never by its own number."""
    argv = ["diagnose", "--job", job + part, "--transport", transport, "--window", "1", "--json"]
    told = live.told(live.sluggish(lab, argv, "alice"), time.monotonic())
    assert f"{count} of {count} nodes answered" in told.notes, told.notes
    why = [one["why"] for one in told.document["verdict"]["ruled_out"]]
    assert any(one.startswith(f"{count} rank processes are there") for one in why), why
