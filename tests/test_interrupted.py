"""Ctrl-C while the evidence goes to the disk: it is not lost between the two."""

import subprocess
import sys
from pathlib import Path

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


_IMPORTING = """
import os, signal, sys, threading
from sluggish.cli.interrupt import wait_for_imports
wait_for_imports()
sys.path.insert(0, sys.argv[1])
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    import slow_one
    import time
    time.sleep(30)
except KeyboardInterrupt:
    print("stopped", "slow_one" in sys.modules and slow_one.DONE)
"""


def test_it_strikes_when_the_import_is_done(tmp_path: Path) -> None:
    (tmp_path / "slow_one.py").write_text("import time\ntime.sleep(1)\nDONE = True\n")
    argv = [sys.executable, "-c", _IMPORTING, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("stopped True\n", "")


def test_where_ctrl_c_is_ignored_it_stays_ignored() -> None:
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from sluggish.cli.interrupt import wait_for_imports\nwait_for_imports()\n"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


def test_beside_the_main_thread_there_is_nothing_to_wait_for() -> None:
    body = "\n    ".join(_PROGRAM.format(times=0).strip().splitlines())
    program = f"import threading\ndef work():\n    {body}\n"
    program += "t = threading.Thread(target=work)\nt.start()\nt.join()\n"
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("saved 0\n", "")
