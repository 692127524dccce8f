"""Evidence from outside the ranks: /proc in the bundle's form, py-spy."""

import contextlib
import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sluggish.probes.rank_procs import ENVIRONMENT

FILES = ("stat", "status", "wchan", "io", "limits", "cgroup", "stack")
_KEPT = re.compile(rf"({ENVIRONMENT})=")


def folders(at: Path) -> None:
    for name in ("dumps", "stacks", "logs", "procs"):
        (at / name).mkdir(parents=True)


def processes(ranks: Sequence[subprocess.Popen[bytes]], path: Path) -> None:
    """The host's name, and `/proc/PID/FILE` of the ranks and their children, nobody else's."""
    pids = [p.pid for p in ranks if p.poll() is None]
    pids += [child for pid in pids for child in _children(pid)]
    told = "".join(_process(pid) for pid in pids)
    path.write_text(
        f"==> hostname <==\n{socket.gethostname()}\n{told}==> processes <==\n{len(pids)}\n"
    )


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _process(pid: int) -> str:
    home = Path(f"/proc/{pid}")
    text = ""
    for name in FILES:
        with contextlib.suppress(OSError):
            text += f"==> {home}/{name} <==\n{(home / name).read_text()}\n"
    with contextlib.suppress(OSError):
        told = (home / "cmdline").read_text().replace("\0", " ")
        text += f"==> {home}/cmdline <==\n{told}\n"
        kept = [e for e in (home / "environ").read_text().split("\0") if _KEPT.match(e)]
        text += f"==> {home}/environ <==\n" + "".join(f"{e}\n" for e in kept)
    return text


def py_spy(
    ranks: Sequence[subprocess.Popen[bytes]], into: Path, *, stopped: Sequence[int]
) -> tuple[int, ...]:
    """One `py-spy dump` a living rank, side by side; the ranks that it could read."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shutil.which("py-spy", path=path)
    if program is None:
        return ()
    running = {
        rank: _spy(program, process.pid, quietly=rank in stopped)
        for rank, process in enumerate(ranks)
        if process.poll() is None
    }
    told = {rank: (spy.communicate(timeout=60)[0], spy.returncode) for rank, spy in running.items()}
    read = {rank: text for rank, (text, code) in told.items() if code == 0}
    for rank, text in read.items():
        (into / f"pyspy_rank_{rank}.txt").write_bytes(text)
    return tuple(read)


def _spy(program: str, pid: int, *, quietly: bool) -> subprocess.Popen[bytes]:
    # attaching to a stopped process would wait for it, or let it go on
    more = ["--nonblocking"] if quietly else []
    return subprocess.Popen(
        [program, "dump", "--pid", str(pid), *more],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def oldest_pending_s(dumps: Path) -> float:
    """Age of the oldest unfinished operation when its dump was written; our own dumps only."""
    ages = [0.0]
    for path in dumps.iterdir():
        entries = pickle.loads(path.read_bytes())["entries"]
        made = [e["time_created_ns"] / 1e9 for e in entries if not e["retired"]]
        ages += [path.stat().st_mtime - moment for moment in made]
    return max(ages)


def may_trace() -> bool:
    """Whether this process may read its siblings' stacks: root with CAP_SYS_PTRACE."""
    caps = re.search(r"^CapEff:\s+([0-9a-f]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    return bool(caps and int(caps[1], 16) >> 19 & 1)
