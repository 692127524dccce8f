"""The two commands work from a checkout, and say in one line what is missing."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FAKE_PYTHON = """#!/bin/sh
case "$2" in
*version_info*print*|*print*) echo 3.11 ;;
*venv*) exit 1 ;;
esac
"""
SCRIPTS = ("scripts/run", "scripts/test", "scripts/regenerate", "scripts/_venv", ".ci/run")


def checkout(tmp_path: Path, python: str | None) -> tuple[Path, dict[str, str]]:
    """A checkout with nothing but the scripts, and a PATH with this Python alone."""
    shutil.copytree(ROOT / "scripts", tmp_path / "checkout" / "scripts")
    bin_path = tmp_path / "bin"
    bin_path.mkdir()
    for tool in ("sh", "dirname", "cksum", "cat", "rm"):
        (bin_path / tool).symlink_to(shutil.which(tool) or tool)
    if python is not None:
        (bin_path / "python3").write_text(python)
        (bin_path / "python3").chmod(0o755)
    return tmp_path / "checkout", {"PATH": str(bin_path)}


@pytest.mark.parametrize("script", ["run", "test"])
def test_a_python_without_venv_is_one_line_and_exit_2(tmp_path: Path, script: str) -> None:
    root, env = checkout(tmp_path, FAKE_PYTHON)
    done = subprocess.run([root / "scripts" / script], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "Python's venv is missing: install the package python3.11-venv\n"


def test_no_python_at_all_is_one_line_and_exit_2(tmp_path: Path) -> None:
    root, env = checkout(tmp_path, None)
    done = subprocess.run([root / "scripts/run"], env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == ("sluggish needs Python 3.11 or newer: install the package python3.11\n")


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_posix_shell(script: str) -> None:
    shell = shutil.which("dash") or "/bin/sh"
    subprocess.run([shell, "-n", ROOT / script], check=True)
    assert script == "scripts/_venv" or os.access(ROOT / script, os.X_OK)


def test_the_lock_has_exact_versions_and_names_no_host() -> None:
    lines = (ROOT / "tests/requirements.txt").read_text().splitlines()
    names = [line for line in lines if line and not line.startswith("#")]
    assert len(names) > 20
    assert all("==" in line.split(";")[0] for line in names)
    assert not any("://" in line for line in lines)
