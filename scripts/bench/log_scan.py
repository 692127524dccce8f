"""How fast a big job log is scanned, beside ripgrep: same strings, same file, one core, one run.

    apt-get install ripgrep; .venv/bin/python scripts/bench/log_scan.py [MEGABYTES]

Writes its own log (default 1000 MB) to a temporary file. Prints, for at most 0.1 % matching lines
(goal: at least 1/3 of `rg -j1 -F`) and for a match on every line (goal: 1/10), the speeds of both
and their ratio, the peak memory (goal: under 300 MB), and the speed without hyperscan.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sluggish.evidence import needles
from sluggish.evidence.logscan import excerpt

ROUNDS = 3
SPARSE = [
    "NCCL WARN", "Watchdog caught", "WorkNCCL(", "Traceback (most recent call last)",
    "slurmstepd: ", "srun: error", "(exitcode: ", "CUDA out of memory", "CUDA error: ",
    "oom-kill event", "Got async event", "Got completion", "Duplicate GPU", "ibv_reg_mr",
    "No space left on device", "rendezvous", "RendezvousTimeout", "ncclRemoteError",
    "Init COMPLETE", "Init START", "Bootstrap : Using", "NET/IB : Using", "NCCL version",
    "last enqueued", "Received a dump signal", "watchdog got stuck", "CollectiveFingerPrint",
    "monitoredBarrier", "Connection closed by peer", "Connection reset by peer",
    "socketPollConnect", "aving checkpoint", "aved checkpoint", "StopIteration",
    "Segmentation fault", "Bus error", "SIGKILL", "terminate called", "raining completed",
    "DataLoader worker",
]  # fmt: skip
CROWDED = ["train: step", "loss ", "tokens/s", *SPARSE[3:]]


def write_log(path: Path, size: int) -> None:
    """Step lines; one line in 2,000 is one of NCCL's."""
    step = (
        "[2026-11-24 03:{:02d}:{:02d},{:03d}] [INFO] train: step {} | loss {:.4f} | {} tokens/s\n"
    )
    lines = [
        step.format(i // 60 % 60, i % 60, i % 1000, i, 2 + i % 997 / 997, 30_000 + i % 7919)
        if i % 2_000
        else f"gpu-07:4182:4390 [{i % 8}] NCCL WARN NET/IB : Got async event : port error {i}\n"
        for i in range(1, 100_001)
    ]
    block = "".join(lines).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(block)


def best(run: Callable[[], object]) -> float:
    """Seconds of the fastest round; the first warms the page cache for both sides alike."""
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def ripgrep(path: Path, strings: list[str]) -> Callable[[], object]:
    command = ["rg", "-j1", "-F", *(part for s in strings for part in ("-e", s)), str(path)]
    return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=False)


def measure(path: Path, megabytes: float) -> None:
    for name, strings, goal in (("sparse", SPARSE, 1 / 3), ("every line", CROWDED, 1 / 10)):
        wanted = [s.encode() for s in strings]
        ours = best(lambda wanted=wanted: excerpt(path, wanted))
        theirs = best(ripgrep(path, strings))
        ratio = theirs / ours
        print(
            f"{name:10} {len(strings)} strings: sluggish {megabytes / ours:6.0f} MB/s, "
            f"rg {megabytes / theirs:6.0f} MB/s, ratio {ratio:.2f} (goal {goal:.2f}) "
            f"{'ok' if ratio >= goal else 'MISSED'}"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB (goal 300) {'ok' if peak < 300 else 'MISSED'}")
    if needles.hyperscan is None:
        print("hyperscan is not installed: the numbers above are of the slow road")
        return
    needles.hyperscan = None
    slow = best(lambda: excerpt(path, [s.encode() for s in SPARSE]))
    print(f"without hyperscan: {megabytes / slow:.0f} MB/s")


def main() -> None:
    if shutil.which("rg") is None:
        sys.exit("ripgrep is missing: apt-get install ripgrep")
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    size = int(float(sys.argv[1]) * 1e6) if len(sys.argv) > 1 else 1_000_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        write_log(path, size)
        measure(path, path.stat().st_size / 1e6)


if __name__ == "__main__":
    main()
