"""Processes of this machine: told from their namesakes, numbered inside and outside, ended."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path


class LabError(Exception):
    """Something in the lab did not do as told; the text says where its logs are."""


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills what `popen` started, with its process group; one in D state stays behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # left to the lab's end; no warning at exit


def wait_for(true: Callable[[], bool], seconds: float, what: str) -> None:
    """Returns as soon as the condition holds; raises `LabError` with `what` after `seconds`."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise LabError(what)
        time.sleep(0.05)


def start_time(pid: int) -> str | None:
    after = read(Path(f"/proc/{pid}/stat")).rpartition(") ")[2].split()
    return after[19] if len(after) > 19 and after[0] not in "ZX" else None


def numbers() -> Iterator[tuple[int, list[str]]]:
    """Every process's number on the machine, and its numbers from the outermost space inwards."""
    for status in Path("/proc").glob("[0-9]*/status"):
        for line in read(status).splitlines():
            if line.startswith("NSpid:"):
                yield int(status.parent.name), line.split()[1:]


def read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
