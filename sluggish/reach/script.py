"""The one POSIX sh script that a node runs: the values of a look, the probes, and five .sh files.

Everything that goes into the text is checked or quoted here; nothing of it is taken from a node.
"""

import re
import shlex
from collections.abc import Sequence
from importlib.resources import files
from types import ModuleType

from sluggish.reach.model import Ask

PAIRS = ("ib_counters", "rank_procs", "memory")
"""Probes that run twice, a window apart: counters and CPU times are read as differences."""
JOB_LEVEL = ("slurm_job", "slurm_node", "sacct", "squeue", "topology", "job_log", "ibdiagnet",
             "ibdiags")  # fmt: skip
"""Asked once on the collector, or mailed: not asked of every node."""
APART = ("identity", "kernel_log", "nvidia_smi", "gpu_samples", "nccl_ras", "stacks")
"""Probes with a place of their own in the order of a look."""
SUDO_COMMANDS = (
    "journalctl -q -k -b -o short-unix --no-pager",
    "dmesg",
)
"""All that `--sudo` ever runs, word for word: docs/permissions.md has the lines for sudoers."""

PARTS = ("node.sh", "owner.sh", "nccl.sh", "poke.sh", "pipe.sh")
_END = 'if [ -n "$T" ]; then look; else without_files; fi\nsaid end "" "" "" "" ""'
_DIGITS = re.compile(r"\d{1,12}\Z", re.ASCII)
_BOUNDARY = re.compile(r"[0-9a-f]{32}\Z")
_PATH = re.compile(r"/[^\0\n]{0,4000}\Z")
_ID = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")


def build(ask: Ask, boundary: str, probes: Sequence[ModuleType]) -> bytes:
    """The script of one round, the same for every node of it.

    Raises ValueError for a job, a boundary or a path that is none: what is not in shape does not
    come near a shell.
    """
    by_id = {probe.ID: probe for probe in probes if probe.COMMAND}
    wanted = [name for name in (ask.probes or tuple(by_id)) if name not in JOB_LEVEL]
    with_command = [name for name in wanted if name in by_id]
    order = [name for name in with_command if name != "nccl_ras" or ask.ras]
    if not ask.probes or "flight_recorder" in ask.probes:
        order.append("flight_recorder")
    static = [n for n in order if n not in (*PAIRS, *APART, "flight_recorder")]
    values = {
        "BOUNDARY": _checked(boundary, _BOUNDARY),
        "SLUGGISH_JOB": _checked(ask.job, _DIGITS) if ask.job else "",
        "SLUGGISH_UID": "" if ask.uid is None else _checked(str(ask.uid), _DIGITS),
        "PROBES": " ".join(_checked(name, _ID) for name in order),
        "PAIRS": " ".join(name for name in PAIRS if name in order),
        "STATIC": " ".join(static),
        "LOGS": "\n".join(_checked(path, _PATH) for path in ask.logs),
        "DUMPS": "\n".join(_checked(path, _PATH) for path in ask.dumps),
        "DUMPS_AFTER": str(int(ask.dumps_after.timestamp())) if ask.dumps_after else "",
        "ASKED_AT": str(int(ask.asked_at.timestamp())) if ask.asked_at else "",
        "WINDOW_CS": str(round(ask.window_s * 100)),
        "PROBE_CS": str(round(ask.probe_s * 100)),
        "CAP": str(ask.cap_bytes),
        "NODE_CAP": str(ask.node_cap_bytes),
        "RAS": "yes" if ask.ras else "",
        "POKE": "yes" if ask.poke else "",
        "SUDO": "yes" if ask.sudo else "",
    }
    head = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    bodies = [_function(name, by_id[name].COMMAND) for name in with_command]
    text = "\n".join((*head, *bodies, *map(_part, PARTS), _END))
    return f"sluggish_main() {{\n{text}\n}}\nsluggish_main\n".encode()


def _function(name: str, command: str) -> str:
    return f"p_{_checked(name, _ID)}() {{\n{command.strip()}\n}}"


def _checked(value: str, pattern: re.Pattern[str]) -> str:
    if not pattern.match(value):
        raise ValueError(f"not fit for a script: {value[:60]!r}")
    return value


def _part(name: str) -> str:
    return files("sluggish.reach").joinpath(name).read_text("utf-8")
