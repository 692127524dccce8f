"""The job's owner looks while his home (keys, state, the log) lies on storage that hangs."""

import subprocess
import time

import pytest

from . import cluster, live, storage
from .cluster import Lab

pytestmark = pytest.mark.usefixtures("torch_in_lab")

NODES = ("node01", "node02")
PATH = "PATH=/home/alice/bin:/usr/local/bin:/usr/bin:/bin"
"""As with a conda environment in the home: every program is looked for there first."""
LOOK = ["env", PATH, "SLUGGISH_PROBE_S=3", "/usr/local/bin/sluggish"]


def test_nothing_of_ours_hangs_on_the_job_s_dead_storage(lab: Lab) -> None:
    """Rank 0 hangs in its checkpoint; the way is srun, and the bundle goes to a local disk."""
    storage.mount(lab)
    storage.home_on(lab, "alice")
    try:
        with live.running(lab, "checkpoint", 0, NODES) as job:
            job.fault(0, 2)
            live.wait_quiet(job)
            storage.hang(lab)
            try:
                stuck = ["sh", "-c", f"grep '^State:.D' /proc/{job.beat(0)[0]}/task/*/status"]
                cluster.wait_for(
                    lambda: lab.exec(NODES[0], stuck).returncode == 0, 20, "rank 0 is not in D"
                )
                live.gpus_wait(job, 0)
                argv = [*LOOK, "diagnose", "--job", job.id, "--window", "3", "--json"]
                began = time.monotonic()
                pipe = subprocess.PIPE
                process = lab.popen("login", argv, "alice", stdin=pipe, stdout=pipe, stderr=pipe)
                found = live.told(process, began, 80)
            finally:
                storage.mend(lab)
    finally:
        storage.home_back(lab, "alice")
        storage.unmount(lab)
    # it is both; which word it gets hangs on whether the mounts had time to be asked
    assert found.verdict in ("data_stall/storage", "data_stall/checkpoint"), found.document
    assert found.code == 13
    assert found.places == [("node01", 0)]
    assert not found.drains
    for words in (
        "/home/alice/.config/sluggish/config.yaml: no answer in 2 s: passed over",
        "/home/alice/.local/state/sluggish: no answer",
        "by srun: ssh does not get through",
        "evidence saved: /var/tmp/sluggish-5001/",
        # known to be dead since the bundle was kept elsewhere: the exit does not wait for it again
        "/home/alice/.local/state/sluggish/history.db: not recorded: its storage does not answer",
    ):
        assert words in found.notes, found.notes
    assert "denied: dmesg" in found.gaps
    assert found.seconds < 80
