"""The lab itself: its parts are real, its faults are faults, and nothing of it stays behind."""

from pathlib import Path

import pytest

from . import cluster
from .cluster import Lab


def test_every_node_is_a_machine_of_its_own(lab: Lab) -> None:
    boots = set()
    for node in lab.nodes:
        name, boot = lab.sh(
            "login", f"ssh {node} 'hostname; cat /proc/sys/kernel/random/boot_id'"
        ).split()
        assert name == node
        boots.add(boot)
    assert len(boots) == len(lab.nodes)


@pytest.mark.parametrize("user", ["root", "alice", "bob"])
def test_users_reach_every_node_over_ssh(lab: Lab, user: str) -> None:
    for node in lab.nodes:
        who = lab.sh("login", f"ssh {node} id -un", None if user == "root" else user)
        assert who.strip() == user


def test_alice_has_no_way_into_root(lab: Lab) -> None:
    assert lab.exec("login", ["ssh", "root@node01", "id"], "alice").returncode == 255
    assert lab.exec("login", ["ls", "/root"], "alice").returncode == 2


def test_alice_can_run_sluggish(lab: Lab) -> None:
    assert "diagnose" in lab.sh("login", "sluggish --help", "alice")


def test_a_job_runs_and_its_ranks_are_listed(lab: Lab) -> None:
    batch = "cd; sbatch --parsable -N2 --ntasks-per-node=8 --gres=gpu:8 --wrap 'srun sleep 600'"
    job = lab.sh("login", batch, "alice").strip()
    try:
        lab.sh(
            "login", f"until scontrol show step {job}.0; do sleep 0.1; done 2>/dev/null", "alice"
        )
        node = lab.sh("login", f"squeue -h -j {job} -o %B").strip()
        rows = lab.sh(node, f"scontrol listpids {job}", "alice").splitlines()
        assert len([row for row in rows if f" {job} " in row and " 0 " in row]) >= 8
        ask = f"srun --jobid={job} --overlap -N2 --ntasks-per-node=1 --input=none hostname"
        assert len(set(lab.sh("login", ask, "alice").split())) == 2
    finally:
        lab.sh("login", f"scancel {job}")


def test_accounting_answers(lab_acct: Lab) -> None:
    assert lab_acct.exec("login", ["sacct", "-j", "1"], "alice").returncode == 0
    users = lab_acct.sh("login", "sacctmgr -nP show user format=user,adminlevel", "bob")
    assert "bob|Operator" in users


def test_a_cut_node_is_a_black_hole_until_it_is_mended(lab: Lab) -> None:
    lab.cut("node03")
    try:
        ssh = ["ssh", "-o", "ConnectTimeout=2", "node03", "hostname"]
        assert lab.exec("login", ssh).returncode == 255
    finally:
        lab.mend("node03")
    cluster.wait_for(lambda: lab.exec("login", ssh).returncode == 0, 10, "node03 stays cut")


def test_a_crashed_node_boots_with_another_boot_id(lab: Lab) -> None:
    ask = "cat /proc/sys/kernel/random/boot_id"
    before = lab.sh("node04", ask)
    lab.crash("node04")
    assert lab.exec("login", ["ssh", "-o", "ConnectTimeout=1", "node04", "true"]).returncode == 255
    lab.boot("node04")
    assert lab.sh("node04", ask) != before


def test_two_labs_stand_side_by_side_and_leave_nothing(lab: Lab) -> None:
    other = cluster.up(1)
    first = other.host_pid("node01")
    assert other.sh("node01", "hostname") == "node01\n"
    other.down()
    assert not other.dir.exists()
    assert not Path(f"/proc/{first}").exists()
    assert str(other.dir) not in Path("/proc/mounts").read_text()
    assert lab.sh("node01", "hostname") == "node01\n"


def test_a_lab_whose_test_run_was_killed_is_swept_away(lab: Lab, tmp_path: Path) -> None:
    left = cluster.up(1)
    (left.dir / "owner").write_text(f"{2**22} 1\n")  # a number that no process has
    cluster.sweep()
    assert not left.dir.exists()
    assert lab.is_up()


def test_a_directory_that_is_no_lab_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(cluster.LabError, match="is not a lab"):
        cluster.down(tmp_path)
    with pytest.raises(cluster.LabError, match="not empty"):
        cluster.up(1, directory=tmp_path)
    assert (tmp_path / "mine").exists()
