"""Big inputs of every kind: four times the lines take about four times the processor time."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.probes import PROBES

FEW, MANY = 1_500, 6_000
MOST = 9.0
"""Sixteen would be quadratic."""
FLOOR_S = 0.15
"""What every run costs, and what a busy machine adds."""


def hung(n: int) -> str:
    return f"[{n}.5] INFO: task python:{n} blocked for more than 120 seconds."


def xid(n: int) -> str:
    return f"[{n}.5] NVRM: Xid (PCI:0000:{n % 200:02x}:00): {13 + n % 100}, pid={n}, name=python, x"


def oom(n: int) -> str:
    return (
        f"[{n}.5] Memory cgroup out of memory: Killed process {n} (python) total-vm:123kB, "
        "anon-rss:12kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:1kB oom_score_adj:0"
    )


def init(n: int) -> str:
    return (
        f"gpu-{n // 8}:{n}:{n} [{n % 8}] NCCL INFO comm 0x{n:x} rank {n} nranks 8192 "
        f"cudaDev {n % 8} nvmlDev {n % 8} busId {n % 8}b000 commId 0x123 - Init START"
    )


def timeout(n: int) -> str:
    return (
        f"[rank{n}]:[E1124 03:{n // 60 % 60:02d}:{n % 60:02d}.1 ProcessGroupNCCL.cpp:632] "
        f"[Rank {n}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={n}, "
        "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600123 milliseconds "
        "before timing out."
    )


def exception(n: int) -> str:
    at = f"[rank{n}]: "
    return (
        f'{at}Traceback (most recent call last):\n{at}  File "/opt/train.py", line {n}, in main\n'
        f"{at}    step()\n{at}RuntimeError: boom {n}"
    )


def exited(n: int) -> str:
    return f"srun: error: gpu-{n}: task {n}: Exited with exit code 1"


def step(n: int) -> str:
    return f"2026-11-24 03:{n // 60 % 60:02d}:{n % 60:02d},123 - INFO - step {n}/9999 | loss 2.3"


def bar(n: int) -> str:
    return f"\r{n % 100}%|###   | {n % 100}/100 [00:01<00:02, 1.2it/s]"


def node(n: int) -> str:
    return (
        f"NodeName=gpu-{n} Arch=x86_64 State=DOWN*+DRAIN Reason=bad [root@2026-11-24T00:00:00] "
        "Gres=gpu:8"
    )


def job(n: int) -> str:
    return (
        f"JobId={n} JobName=x UserId=a(1) GroupId=a(1) JobState=RUNNING Reason=None "
        f"StartTime=2026-11-24T00:00:00 NumNodes=1 NodeList=gpu-{n} TresPerNode=gres/gpu:8\n"
        f"StepId={n}.0 UserId=1 State=RUNNING NodeList=gpu-{n}"
    )


def port(n: int) -> str:
    return (
        f"CA 'mlx5_{n // 8}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n"
        "\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n\t\tLink layer: InfiniBand"
    )


KINDS = (hung, xid, oom, init, timeout, exception, exited, step, bar, node, job, port)


def seconds(path: Path) -> float:
    start = time.process_time()
    diagnose(load([str(path)], PROBES))
    return time.process_time() - start


def lines(line: Callable[[int], str], count: int) -> Iterator[str]:
    return (line(n) + "\n" for n in range(1, count + 1))


@pytest.mark.parametrize("line", KINDS, ids=lambda line: line.__name__)
def test_the_time_grows_with_the_lines_and_not_with_their_square(
    tmp_path: Path, line: Callable[[int], str]
) -> None:
    few, many = tmp_path / "few.txt", tmp_path / "many.txt"
    few.write_text("".join(lines(line, FEW)))
    many.write_text("".join(lines(line, MANY)))
    assert load([str(few)], PROBES).evidence
    seconds(few)
    assert seconds(many) <= MOST * (seconds(few) + FLOOR_S)
