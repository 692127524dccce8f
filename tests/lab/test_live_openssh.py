"""Another courier than our own SSH, by the argv template of the site's file, from end to end."""

import time
from collections.abc import Iterator

import pytest

from . import cluster, live
from .cluster import Lab

COURIER = """\
#!/bin/sh
echo "$1" >>/home/alice/carried
exec ssh -T -o BatchMode=yes "$@"
"""
CONFIG = "openssh_command: /home/alice/courier {node} sh -s\n"


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[str]:
    for name, text in (("courier", COURIER), ("site.yaml", CONFIG)):
        lab.path("login", f"/home/alice/{name}").write_text(text)
    lab.path("login", "/home/alice/courier").chmod(0o755)
    ask = "cd; sbatch --parsable -N2 --ntasks-per-node=1 --gres=gpu:1 --wrap 'srun sleep 900'"
    number = lab.sh("login", ask, "alice").strip()
    step = ["scontrol", "show", "step", f"{number}.0"]
    cluster.wait_for(lambda: lab.exec("ctl", step).returncode == 0, 60, "no step")
    yield number
    lab.sh("login", f"scancel {number}; rm -f /home/alice/courier /home/alice/site.yaml")


def test_the_site_s_own_courier_brings_the_script_to_every_node(lab: Lab, job: str) -> None:
    argv = ["env", "SLUGGISH_CONFIG=/home/alice/site.yaml", "sluggish", "diagnose", "--job", job]
    done = lab.exec(
        "login", [*argv, "--transport", "openssh", "--window", "1", "--json"], "alice", timeout=90
    )
    assert "by openssh: as told: /home/alice/courier '{node}' sh -s" in done.stderr, done.stderr
    assert "2 of 2 nodes answered" in done.stderr, done.stderr
    carried = lab.path("login", "/home/alice/carried").read_text().split()
    assert sorted(carried) == ["node01", "node02"]


def test_a_courier_that_is_not_there_is_said_for_every_node(lab: Lab, job: str) -> None:
    began = time.monotonic()
    argv = ["env", "SLUGGISH_OPENSSH_COMMAND=/none/tsh {node} sh -s", "sluggish", "diagnose"]
    ask = [*argv, "--job", job, "--transport", "openssh", "--window", "1", "--json"]
    done = lab.exec("login", ask, "alice", timeout=90)
    assert "0 of 2 nodes answered, 2 not run" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert '"unobserved"' in done.stdout
    assert time.monotonic() - began < 60


def test_the_default_is_ssh_itself(lab: Lab, job: str) -> None:
    argv = ["diagnose", "--job", job, "--transport", "openssh", "--window", "1", "--json"]
    told = live.told(live.sluggish(lab, argv, "alice"), time.monotonic())
    assert "2 of 2 nodes answered" in told.notes, told.notes
