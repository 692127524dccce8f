"""`scripts/lab` as somebody types it, and where it refuses."""

import subprocess
from pathlib import Path

from . import packages

LAB = str(packages.ROOT / "scripts/lab")


def run(*argv: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*before, LAB, *argv], capture_output=True, text=True, check=False)


def test_up_exec_and_down(machine: None, tmp_path: Path) -> None:
    here = ("-d", str(tmp_path / "lab"))
    up = run(*here, "up", "2")
    assert up.returncode == 0, up.stderr
    try:
        assert run(*here, "exec", "login", "-u", "alice", "--", "id", "-un").stdout == "alice\n"
        assert run(*here, "exec", "node02", "sh", "-c", "exit 7").returncode == 7
        assert "slurmctld" in run(*here, "status").stdout
        assert run(*here, "crash", "node02").returncode == 0
        assert run(*here, "boot", "node02").returncode == 0
        assert run(*here, "exec", "node99", "true").stderr.startswith("lab: no node node99")
        assert "is not empty" in run(*here, "up", "2").stderr
    finally:
        assert run(*here, "down").returncode == 0
    assert not (tmp_path / "lab").exists()
    assert run(*here, "down").returncode == 0
    assert run(*here, "exec", "login", "true").returncode == 1


def test_a_plain_user_is_told_why_not(machine: None) -> None:
    nobody = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    done = run("check", before=nobody)
    assert (done.returncode, done.stderr) == (3, "lab: cannot run here: needs root\n")


def test_a_machine_with_a_slurm_of_its_own_is_left_alone(machine: None, tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").touch()
    inside = (
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount --bind {tmp_path} /etc/slurm && exec "$@"',
        "-",
    )
    for verb in (("check",), ("up", "1"), ("install",)):
        done = run("-d", str(tmp_path / "lab"), *verb, before=inside)
        assert done.returncode == 3, verb
        assert "/etc/slurm/slurm.conf" in done.stderr
    allowed = run("check", before=("env", "SLUGGISH_LAB=1", *inside))
    assert allowed.returncode == 0, allowed.stderr
