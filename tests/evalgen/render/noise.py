"""What befalls the text of a job's log between 16 writers and the file that somebody mails.

Seen in public reports: coloured levels, Windows line ends of a pasted log, a second writer in the
middle of a line, two lines glued together, keep-alive lines of a server.
"""

from __future__ import annotations

import random
import re

_LEVELS = {"INFO": "32", "WARN": "33", "WARNING": "33", "ERROR": "31"}
_SECOND = (
    "/opt/venv/lib/python3.11/site-packages/torch/utils/checkpoint.py:87: FutureWarning: "
    "`torch.cpu.amp.autocast(args...)` is deprecated.\n  warnings.warn("
)
_KEEP = ("Traceback", "Error", "WorkNCCL", "Watchdog", "srun: ", "slurmstepd", "Killed")
"""A torn line is lost; the lines that the incident hangs on come whole in most public logs."""


def noisy(text: str, kinds: tuple[str, ...], seed: str) -> str:
    """The text with each kind of noise, in the order given."""
    rng = random.Random(f"{seed}/noise")
    how = {"colours": _colours, "torn": _torn, "windows": _windows, "pulse": _pulse}
    for kind in kinds:
        text = how[kind](text, rng)
    return text


def _colours(text: str, _rng: random.Random) -> str:
    """Level words and file names coloured, the line reset at its end."""
    text = re.sub(
        r"\b(INFO|WARN|WARNING|ERROR)\b", lambda m: f"\x1b[{_LEVELS[m[1]]}m{m[1]}\x1b[0m", text
    )
    return re.sub(r'(?m)^(.*File )("[^"\n]+")', "\\1\x1b[35m\\2\x1b[0m", text)


def _windows(text: str, _rng: random.Random) -> str:
    return text.replace("\n", "\r\n")


def _torn(text: str, rng: random.Random) -> str:
    """A second writer inside some lines, and some line ends that got lost."""
    out = []
    for line in text.splitlines(keepends=True):
        plain = len(line) > 60 and not any(word in line for word in _KEEP)
        if plain and rng.random() < 0.06:
            at = rng.randrange(20, len(line) - 10)
            out.append(line[:at] + _SECOND + line[at:])
        elif plain and rng.random() < 0.05:
            out.append(line.rstrip("\r\n"))
        else:
            out.append(line)
    return "".join(out)


def _pulse(text: str, rng: random.Random) -> str:
    """Another program of the job says every now and then that it lives."""
    out = []
    for line in text.splitlines(keepends=True):
        out.append(line)
        if rng.random() < 0.1:
            out.append(f'INFO:     10.20.4.{rng.randrange(9)}:51234 - "GET /healthz" 200 OK\n')
    return "".join(out)
