"""Pure: which evidence a launch will leave of a hang: docs/collectives.md has the settings."""

import re
from collections.abc import Iterator

from sluggish.preflight.note import ON, Note, is_one_of, number, of_setting
from sluggish.preflight.shell import Script

DUMPS = "/shared/dumps/$SLURM_JOB_ID"


def recorder(script: Script) -> Iterator[Note]:
    """Without a dump on lasting storage nobody can say which rank the others waited for."""
    sizes = [script.settings.get(name) for name in _SIZES]
    set_to = [s for s in sizes if s]
    if any(number(s) == 0 for s in set_to):
        zero = next(s for s in set_to if number(s) == 0)
        yield of_setting(
            zero,
            "the flight recorder is off: a hang leaves no trace of who waits for whom",
            better=(f"export {zero.name}=20000",),
        )
    elif not set_to:
        yield Note(
            unfit=False,
            line=None,
            says="the flight recorder's size is not set: older "
            "PyTorch keeps nothing then (each version reads its own name)",
            better=tuple(f"export {name}=20000" for name in _SIZES),
        )
    setting = script.settings.get("TORCH_NCCL_DUMP_ON_TIMEOUT")
    if setting is None or not is_one_of(setting, ON):
        says = "no dump is written at a timeout" + ("" if setting else " by older PyTorch")
        line = setting.line if setting else None
        yield Note(
            unfit=False, line=line, says=says, better=("export TORCH_NCCL_DUMP_ON_TIMEOUT=1",)
        )
    yield from _dump_path(script)
    if "NCCL_DEBUG" not in script.settings:
        yield Note(
            unfit=False,
            line=None,
            says="NCCL_DEBUG is not set: no error of the network reaches the log",
            better=("export NCCL_DEBUG=WARN",),
        )


_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_PATHS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_JOB = re.compile(r"SLURM_(?:ARRAY_)?JOB_?ID|%[jA]|\$\(date|RANDOM|mktemp")
_LOST = re.compile(r"(?:/tmp|/var/tmp|/dev/shm|/run|\$\{?TMPDIR)\b")


def _dump_path(script: Script) -> Iterator[Note]:
    better = (f'mkdir -p "{DUMPS}"', *(f"export {name}={DUMPS}/rank_" for name in _PATHS))
    found = [s for s in map(script.settings.get, _PATHS) if s]
    if not found:
        yield Note(
            unfit=False,
            line=None,
            says="no lasting place for the dumps: by default they "
            "go to the node's /tmp, which a teardown deletes, or into a home where jobs "
            "overwrite one another",
            better=better,
        )
    for setting in found:
        path = setting.value
        line = (f"export {setting.name}={DUMPS}/rank_",)
        if _LOST.match(path):
            yield of_setting(
                setting,
                "dumps on a node's own disk are gone when it is",
                better=line,
            )
        elif not _JOB.search(path):
            yield of_setting(
                setting,
                "the next job overwrites the dumps: the job's id is not in the "
                "path, nor in a dump itself",
                better=line,
            )
