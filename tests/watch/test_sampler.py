"""The sampler's script in a real shell: what it prints, its cost, and that it leaves nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluggish.reach.sampler import build
from sluggish.watch.sample import Note, Sample, parse

ONE_OF_A_MINUTE = 0.005 * 60
"""Seconds of CPU a minute that are half a per cent of one core."""
SMI = """#!/bin/sh
[ -e {mark} ] && echo again >>{mark} || echo first >{mark}
while :; do
    for i in 0 1; do echo "$i, 100, 0, 195.00, 1100.00, 1920, 1920, 180000"; done
    sleep 1
done
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


MEASURE = """
import ctypes, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans are counted too
out = subprocess.run(["sh", "-s"], stdin=sys.stdin, stdout=subprocess.PIPE, check=False).stdout
until = time.monotonic() + 5
left = True
while left and time.monotonic() < until:
    try:
        left = os.waitpid(-1, os.WNOHANG) != (0, 0) or (time.sleep(0.05) or True)
    except ChildProcessError:
        left = False
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(spent.ru_utime + spent.ru_stime, left)
sys.stdout.flush()
sys.stdout.buffer.write(out)
"""


def ran(script: bytes, path: str = "") -> tuple[float, bool, list[str]]:
    """CPU seconds of the script and all below it, whether something was left, its lines."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    script = script.replace(b"PATH=/usr/local/sbin:", f"PATH={path}:/usr/local/sbin:".encode())
    argv = [sys.executable, "-c", MEASURE]
    done = subprocess.run(argv, input=script, capture_output=True, env=env, timeout=60, check=True)
    first, *lines = done.stdout.decode("utf-8", "replace").splitlines()
    spent, left = first.split()
    return float(spent), left == "True", lines


def test_a_minute_of_samples_costs_less_than_half_a_per_cent_of_a_core(tmp_path: Path) -> None:
    job = str(500_000 + os.getpid())  # no other run of this test on the machine has it
    env = {**os.environ, "SLURM_JOB_ID": job}
    ranks = [
        subprocess.Popen(["sleep", "60"], env={**env, "RANK": str(number)}) for number in range(16)
    ]
    log = tmp_path / "job.out"
    log.write_text("step 1\n")
    try:
        # twelve samples and one search for processes: what a minute at 5 s has
        uid = os.getuid()
        script = build(job=job, uid=uid, logs=[str(log)], every_s=1, life_s=12)
        spent, left, lines = ran(script)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert not left
    samples = [s for line in lines if isinstance(s := parse(line, "n", 1.0), Sample)]
    assert len(samples) == 12
    assert (samples[-1].ranks, samples[-1].alive) == (16, 16)
    assert samples[-1].log_bytes == 7
    assert spent < ONE_OF_A_MINUTE, f"{spent / 60:.2%} of a core"


def test_the_gpus_are_asked_by_one_process_for_the_whole_watch(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(mark=mark))
    smi.chmod(0o755)
    _, left, lines = ran(build(job="77124", uid=os.getuid(), every_s=1, life_s=5), str(tmp_path))
    assert mark.read_text() == "first\n"
    assert not left
    samples = [s for line in lines if isinstance(s := parse(line, "n", 1.0), Sample)]
    assert [gpu.index for gpu in samples[-1].gpus] == [0, 1]
    assert samples[-1].gpus[0].power_w == 195


def test_a_reader_that_has_gone_ends_it() -> None:
    script = build(job="77125", uid=os.getuid(), every_s=1, life_s=50)
    process = subprocess.Popen(
        ["sh", "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(script)
    process.stdin.close()
    assert process.stdout.readline().startswith(b"h|1|1|")
    process.stdout.close()
    process.wait(15)


def test_a_node_without_nvidia_smi_says_so_and_goes_on() -> None:
    _, _, lines = ran(build(job="77126", uid=os.getuid(), every_s=1, life_s=3), "/nowhere")
    found = [parse(line, "n", 1.0) for line in lines]
    if subprocess.run(
        ["sh", "-c", "command -v nvidia-smi"], capture_output=True, check=False
    ).returncode:
        assert any(isinstance(n, Note) and n.kind == "gpu ended" for n in found)
    assert sum(isinstance(one, Sample) for one in found) == 3
