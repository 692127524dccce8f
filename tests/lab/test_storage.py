"""Storage that hangs, hangs for real: its users are in state D and no signal ends them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluggish.facts.host import Filesystem, Mount
from sluggish.facts.origin import Origin
from sluggish.probes import mounts

from . import cluster, sims, storage
from .cluster import Lab

NODE = "node01"


@pytest.fixture
def shared(lab: Lab) -> Iterator[str]:
    path = storage.mount(lab)
    lab.sh(NODE, f"echo step 12 >{path}/alice/slurm.out", "alice")
    yield path
    storage.unmount(lab)


def state(lab: Lab, node: str, pid: int) -> str:
    done = lab.exec(node, ["ps", "-o", "stat=", "-p", str(pid)])
    return done.stdout.strip()[:1]


def start(lab: Lab, node: str, command: str) -> int:
    """Starts a command as alice, says its number on the node."""
    script = f"{command} >/dev/null 2>&1 </dev/null & echo $!"
    return int(lab.sh(node, script, "alice", timeout=20))


@pytest.mark.parametrize("verb", ["stat", "ls", "cat"])
def test_who_touches_hung_storage_cannot_be_killed(lab: Lab, shared: str, verb: str) -> None:
    path = shared if verb == "ls" else f"{shared}/alice/slurm.out"
    storage.hang(lab)
    try:
        pid = start(lab, "node02", f"{verb} {path}")
        cluster.wait_for(lambda: state(lab, "node02", pid) == "D", 10, f"{verb} does not hang")
        lab.sh("node02", f"kill -9 {pid}")
        time.sleep(0.5)  # nothing to wait for: it must still be there
        assert state(lab, "node02", pid) == "D"
    finally:
        storage.mend(lab)
    cluster.wait_for(lambda: state(lab, "node02", pid) == "", 10, "it never ends")
    assert lab.sh("login", f"cat {shared}/alice/slurm.out") == "step 12\n"


def test_the_mounts_probe_sees_it_hang_and_still_tells_local_space(lab: Lab, shared: str) -> None:
    storage.hang(lab)
    try:
        done = lab.exec(NODE, ["sh", "-c", mounts.COMMAND], timeout=20)
    finally:
        storage.mend(lab)
    facts = list(mounts.parse(done.stdout, Origin(node=NODE, exit_code=done.returncode)))
    answers = {fact.path: fact.answered for fact in facts if isinstance(fact, Mount)}
    assert answers["/mnt/fuse-ctl"] is False
    assert any(isinstance(fact, Filesystem) and fact.path == "/" for fact in facts)


def test_a_home_on_hung_storage_lets_nobody_log_in(lab: Lab, shared: str) -> None:
    storage.home_on(lab, "alice")
    try:
        assert lab.sh("login", "ssh node03 pwd", "alice") == "/home/alice\n"
        ssh = ["timeout", "3", "ssh", "-i", "/tmp/key"]
        lab.sh("login", "cp /home/alice/.ssh/id_ed25519 /tmp/key")
        storage.hang(lab)
        try:
            done = lab.exec("login", [*ssh, "alice@node03", "true"])
            assert done.returncode == 124
            assert lab.exec("login", ["ssh", "root@node03", "true"]).returncode == 0
        finally:
            storage.mend(lab)
        assert lab.exec("login", [*ssh, "alice@node03", "true"]).returncode == 0
    finally:
        storage.home_back(lab, "alice")
        lab.sh("login", "rm -f /tmp/key")


def test_nvidia_smi_can_hang_in_state_d(lab: Lab) -> None:
    path = storage.mount(lab, NODE)
    try:
        sims.gpus(lab, NODE, {"hang": f"{path}/alice"})
        assert lab.exec(NODE, ["nvidia-smi", "-L"]).returncode == 0
        storage.hang(lab, NODE)
        pid = start(lab, NODE, "nvidia-smi -q -x")
        cluster.wait_for(lambda: state(lab, NODE, pid) == "D", 10, "it does not hang")
        assert lab.exec("node02", ["nvidia-smi", "-L"], timeout=5).returncode == 0
    finally:
        sims.gpus(lab, NODE)
        storage.unmount(lab, NODE)


def test_a_lab_with_hung_storage_goes_down_and_leaves_nothing(machine: None) -> None:
    lab = cluster.up(1)
    inside = [lab.host_pid(NODE), lab.host_pid("login")]
    path = storage.mount(lab)
    storage.mount(lab, NODE)
    storage.hang(lab)
    storage.hang(lab, NODE)
    pid = start(lab, NODE, f"ls {path}/alice")
    cluster.wait_for(lambda: state(lab, NODE, pid) == "D", 10, "it does not hang")
    inside.append(lab.host_pid(NODE, pid))
    lab.down()
    assert not lab.dir.exists()
    assert not any(Path(f"/proc/{one}").exists() for one in inside)
    assert str(lab.dir) not in Path("/proc/mounts").read_text()
    disks = Path("/sys/block").glob("loop*/loop/backing_file")
    cluster.wait_for(
        lambda: not any("fuse-" in disk.read_text() for disk in disks if os.access(disk, os.R_OK)),
        10, "a loop device is left",
    )  # fmt: skip


def test_a_node_with_hung_storage_can_crash_and_come_back(lab: Lab) -> None:
    path = storage.mount(lab, NODE)
    storage.hang(lab, NODE)
    pid = start(lab, NODE, f"ls {path}/alice")
    cluster.wait_for(lambda: state(lab, NODE, pid) == "D", 10, "it does not hang")
    inside = lab.host_pid(NODE, pid)
    lab.crash(NODE)
    assert not Path(f"/proc/{inside}").exists()
    lab.boot(NODE)
    assert storage.OWN not in lab.sh(NODE, "cat /proc/mounts")
