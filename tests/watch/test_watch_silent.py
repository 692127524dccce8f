"""A watch that begins while Slurm is away says so at once, and goes on asking."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.parametrize("whose", [["--job", "1"], ["--user", "alice"]])
def test_a_slurm_that_is_silent_from_the_start_is_said_before_the_first_poll(
    tmp_path: Path, whose: list[str]
) -> None:
    for name in ("squeue", "scontrol", "sacct"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "HOME": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
    }
    command = [sys.executable, "-m", "sluggish", "watch", *whose]
    began = time.monotonic()
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        try:
            line = watch.stdout.readline()
            assert "slurm silent: squeue has no answer" in line
            assert time.monotonic() - began < 14  # squeue is asked again after 15 s
            assert watch.poll() is None
        finally:
            watch.kill()
