"""A rank's witness: on request writes what the rank knows while its main thread hangs.

Gloo has no watchdog that dumps, so a thread of each rank does. A stopped or killed process writes
nothing. Runs inside the rank, with its directory as the script's own.
"""

import faulthandler
import os
import threading
import time
from pathlib import Path

POLL_S = 0.1


def start(folder: Path, rank: int, *, late_s: float, frames: bool) -> None:
    """Watch for `folder/ask`, whose text is the directory to write to; end with the parent."""
    watch = threading.Thread(target=_watch, args=(folder, rank, late_s, frames), daemon=True)
    watch.name = "witness"
    watch.start()


def _watch(folder: Path, rank: int, late_s: float, frames: bool) -> None:
    parent, answered = os.getppid(), ""
    while os.getppid() == parent:
        asked = _read(folder / "ask")
        if asked and asked != answered:
            time.sleep(late_s * rank)
            testify(Path(asked), rank, frames=frames)
            answered = asked
        time.sleep(POLL_S)
    os._exit(3)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def testify(into: Path, rank: int, *, frames: bool) -> None:
    """Stacks and flight recorder of this rank, now.

    The first dump with frames imports half of torch (800 modules, 1.3 s of CPU): not for each rank.
    """
    from torch._C import _distributed_c10d as c10d

    with (into / "stacks" / f"faulthandler_rank_{rank}.txt").open("w") as file:
        faulthandler.dump_traceback(file, all_threads=True)
    half = into / f".half_{rank}"
    half.write_bytes(c10d._dump_fr_trace(includeStackTraces=frames))
    half.rename(into / "dumps" / f"fr_{rank}")
