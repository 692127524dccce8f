"""The sampler's script in a real shell: what it prints, and that it leaves nothing."""

import os
import subprocess
from pathlib import Path

import pytest

from sluggish.reach.sampler import build
from sluggish.watch.sample import Note, Sample, parse

from .sampled import ran

SMI = """#!/bin/sh
[ -e {mark} ] && echo again >>{mark} || echo first >{mark}
while :; do
    for i in 0 1; do echo "$i, 100, 0, 195.00, 1100.00, 1920, 1920, 180000"; done
    sleep 1
done
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_every_sample_counts_the_ranks_and_the_log(tmp_path: Path) -> None:
    job = str(500_000 + os.getpid())  # no other run of this test on the machine has it
    env = {**os.environ, "SLURM_JOB_ID": job}
    ranks = [
        subprocess.Popen(["sleep", "60"], env={**env, "RANK": str(number)}) for number in range(16)
    ]
    log = tmp_path / "job.out"
    log.write_text("step 1\n")
    try:
        script = build(job=job, uid=os.getuid(), logs=[str(log)], every_s=1, life_s=5)
        _, left, lines = ran(script)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert not left
    samples = [s for line in lines if isinstance(s := parse(line, "n", 1.0), Sample)]
    assert len(samples) == 5
    assert (samples[-1].ranks, samples[-1].alive) == (16, 16)
    assert {s.log_bytes for s in samples} - {None} == {7}  # a sample may come between two of it


def test_the_gpus_are_asked_by_one_process_for_the_whole_watch(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI.format(mark=mark))
    smi.chmod(0o755)
    _, left, lines = ran(build(job="77124", uid=os.getuid(), every_s=1, life_s=5), str(tmp_path))
    assert mark.read_text() == "first\n"
    assert not left
    samples = [s for line in lines if isinstance(s := parse(line, "n", 1.0), Sample) and s.gpus]
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
