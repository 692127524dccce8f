"""Ctrl-C while the evidence goes to the disk: it is not lost between the two."""

import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal
from sluggish.cli.collect import _to_its_end
before = signal.getsignal(signal.SIGINT)
try:
    with _to_its_end() as pressed:
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGINT)
        print("saved", len(pressed))
except KeyboardInterrupt:
    print("broken off")
assert signal.getsignal(signal.SIGINT) is before
"""


@pytest.mark.parametrize(
    ("times", "says"), [(0, "saved 0\n"), (1, "saved 1\n"), (2, "broken off\n")]
)
def test_pressed_once_it_waits_for_the_disk_and_twice_it_does_not(times: int, says: str) -> None:
    argv = [sys.executable, "-c", _PROGRAM.format(times=times)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == says


def test_beside_the_main_thread_there_is_nothing_to_wait_for() -> None:
    body = "\n    ".join(_PROGRAM.format(times=0).strip().splitlines())
    program = f"import threading\ndef work():\n    {body}\n"
    program += "t = threading.Thread(target=work)\nt.start()\nt.join()\n"
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("saved 0\n", "")
