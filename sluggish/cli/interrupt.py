"""Ctrl-C never strikes in the middle of an import.

A KeyboardInterrupt that is raised there leaves a half-made module behind, which another thread then
takes for a whole one; raised in the import system itself it is swallowed and leaves a lock held
that everybody waits for (seen on Python 3.11.2).
"""

import os
import signal
import threading
from types import FrameType

AGAIN_S = 0.02
_IMPORTS = "<frozen importlib"


def wait_for_imports() -> None:
    """From now on Ctrl-C waits until the main thread's import is done. For the main thread alone.

    Where somebody else handles Ctrl-C, or it is ignored (`nohup`, `&`), that stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _strike)


def _strike(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            again = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        frame = frame.f_back
    raise KeyboardInterrupt
