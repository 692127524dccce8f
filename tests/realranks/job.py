"""Starts the ranks of one case, waits until they hang, takes the evidence, ends them."""

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from realranks import evidence

HERE = Path(__file__).parent
QUIET_S = 1.6  # an operation younger than a second does not hang for sluggish
LIMIT_S = 120.0  # a loaded machine; everything below is waited for, not slept


@dataclass(frozen=True, kw_only=True)
class Case:
    """How many ranks, which one is to blame, and who can still testify."""

    name: str
    world: int
    culprit: int
    signal: int | None = None
    """Sent to the culprit from outside once it stands at its fault."""
    silent: tuple[int, ...] = ()
    """Ranks that leave no dump: stopped, killed, aborted."""


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """A running job of ours."""

    case: Case
    folder: Path
    processes: tuple[subprocess.Popen[bytes], ...]

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"


@contextlib.contextmanager
def started(case: Case, folder: Path) -> Iterator[Ranks]:
    """The ranks of a case as processes, ended when the block is left."""
    evidence.folders(folder / "evidence")
    evidence.folders(folder / "finished")
    (folder / "beat").write_bytes(bytes(8 * case.world))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(case.world):
            processes.append(_start(case, folder, rank))
        yield Ranks(case=case, folder=folder, processes=tuple(processes))
    finally:
        for process in processes:
            _end(process)


def _start(case: Case, folder: Path, rank: int) -> subprocess.Popen[bytes]:
    env = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(case.world),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    with (folder / "evidence" / "logs" / f"rank_{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, HERE / "train.py", case.name, folder, str(case.culprit)],
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its loader workers end with it
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def hang(ranks: Ranks) -> None:
    """Let the job run into its fault and take all evidence while it hangs."""
    case, told = ranks.case, ranks.evidence
    wait_until(lambda: all(beats(ranks)), ranks, "training")
    evidence.processes(ranks.processes, told / "procs" / "procs_a.txt")
    wait_until(lambda: (ranks.folder / "fault").exists(), ranks, "the fault")
    if case.signal is not None:
        ranks.processes[case.culprit].send_signal(case.signal)
    wait_quiet(ranks)
    take_dumps(ranks, told, case.silent)
    evidence.py_spy(ranks.processes, told / "stacks", stopped=case.silent)
    evidence.processes(ranks.processes, told / "procs" / "procs_b.txt")


def take_dumps(ranks: Ranks, into: Path, silent: tuple[int, ...] = ()) -> None:
    """Ask every rank's witness for its dump and stacks; wait for those who can answer."""
    half = ranks.folder / ".ask"
    half.write_text(str(into))
    half.rename(ranks.folder / "ask")
    expected = {f"fr_{r}" for r in range(ranks.case.world) if r not in silent}
    wait_until(lambda: expected <= {p.name for p in (into / "dumps").iterdir()}, ranks, "dumps")


def run_and_end(ranks: Ranks, running: Path) -> Path:
    """A healthy job: dumps in mid-run, moments apart, then let it end by itself; the dumps."""
    wait_until(lambda: min(beats(ranks)) > 60, ranks, "training")
    for attempt in range(6):
        into = running / str(attempt)
        evidence.folders(into)
        take_dumps(ranks, into)
        if evidence.oldest_pending_s(into / "dumps") < QUIET_S / 2:
            break  # else this machine stood still for a moment, and so did the job
    (ranks.folder / "stop").touch()
    wait_until(lambda: all(p.poll() is not None for p in ranks.processes), ranks, "its end")
    return into / "dumps"


def launched(case: Case, folder: Path) -> tuple[int, Path]:
    """Run a case under torchrun, which ends the job when a rank ends; its exit code and log."""
    evidence.folders(folder / "evidence")
    (folder / "beat").write_bytes(bytes(8 * case.world))
    log = folder / "evidence" / "logs" / "train.log"
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={case.world}"]
    command = [sys.executable, *torchrun, HERE / "train.py", case.name, folder, str(case.culprit)]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(LIMIT_S), log
        finally:
            _end(process)


def beats(ranks: Ranks) -> tuple[int, ...]:
    """Calls into torch.distributed so far, a rank."""
    raw = (ranks.folder / "beat").read_bytes()
    return struct.unpack(f"{ranks.case.world}q", raw)


def wait_quiet(ranks: Ranks) -> None:
    """Until no rank has made a call for QUIET_S."""
    last, since = beats(ranks), time.monotonic()
    deadline = since + LIMIT_S
    while time.monotonic() - since < QUIET_S:
        time.sleep(0.1)
        now = beats(ranks)
        if now != last:
            last, since = now, time.monotonic()
        assert time.monotonic() < deadline, f"{ranks.case.name} does not come to rest"


def wait_until(condition: Callable[[], bool], ranks: Ranks, what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{ranks.case.name}: no sign of {what}"
        time.sleep(0.05)
