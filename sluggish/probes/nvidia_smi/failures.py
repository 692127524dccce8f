"""nvidia-smi's own failure texts, from stdout, stderr or the exit code (gpu facts: SmiFailure)."""

import re
from collections.abc import Iterator

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import SmiFailure
from sluggish.facts.origin import Origin

_PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
# Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error
# Unable to determine the device handle for GPU 0000:01:00.0: Not Found
# Unable to determine the device handle for gpu 0000:1b:00.0: GPU is lost.  Reboot the system ...
_HANDLE = re.compile(
    rf"Unable to determine the device handle for gpu ?(?:\d{{1,3}}(?![0-9A-Fa-f]))?:? ?{_PCI}?:? ?"
    r"(?P<why>.{0,160})",
    re.IGNORECASE,
)
# texts: driver's nvidia-smi; spellings as collected from public reports
_TEXTS: tuple[tuple[str, str], ...] = (
    ("No devices were found", "no_devices"),
    ("Driver/library version mismatch", "version_mismatch"),
    ("couldn't communicate with the NVIDIA driver", "no_driver"),
    ("Failed to initialize NVML: Driver Not Loaded", "no_driver"),
    ("Failed to initialize NVML: Insufficient Permissions", "denied"),
    ("Failed to initialize NVML: GPU access blocked", "denied"),
    ("Failed to initialize NVML: GPU is lost", "gpu_lost"),
    ("Failed to initialize NVML", "unknown_error"),
    ("couldn't find libnvidia-ml", "no_driver"),
    ("GPU is lost", "gpu_lost"),
    ("GPU requires reset", "reset_required"),
)
# exit codes of `nvidia-smi` (its help page names 9, 15, 255 and others); 124/137 are timeout's
_EXITS = {
    4: "denied", 6: "no_devices", 9: "no_driver", 12: "no_driver", 15: "gpu_lost",
    18: "version_mismatch", 124: "timeout", 137: "timeout",
}  # fmt: skip
_FATAL = frozenset(
    {"no_devices", "version_mismatch", "no_driver", "denied", "unknown_error", "timeout",
     "gpu_lost", "reset_required", "stderr"}
)  # fmt: skip
_MOST = 64


def is_all(text: str) -> bool:
    """A file that is nothing but the error: short, and it begins with one of the texts."""
    lines = [line.strip() for line in text[:4096].splitlines() if line.strip()]
    return 0 < len(lines) <= 6 and _kind(lines[0]) is not None


def behind(text: str) -> str:
    """The text without error lines at its top: `nvidia-smi -q -x > file 2>&1` puts them there."""
    for _ in range(_MOST):
        line, newline, rest = text.partition("\n")
        if not newline or len(line) > 1000 or _kind(line.strip()) is None:
            break
        text = rest
    return text


def read(text: str, origin: Origin) -> Iterator[SmiFailure]:
    """Every failure once, at most 64; the same line on stdout and stderr is one."""
    seen: set[str] = set()
    for line in (*_plain_lines(text), *origin.stderr.splitlines()):
        line = line.strip()
        found = _kind(line) if len(line) < 1000 else None
        if found is None or line in seen or len(seen) >= _MOST:
            continue
        seen.add(line)
        kind, pci = found
        yield _failure(origin, kind, pci, line)
    code = origin.exit_code
    if code and not seen and (code in _EXITS or not text.strip()):
        said = origin.stderr.strip().splitlines()
        words = said[0] if said else f"exit code {code} and no text"
        yield _failure(origin, _EXITS.get(code, "stderr"), None, words)


def fatal(failures: tuple[SmiFailure, ...]) -> str | None:
    """The line that explains why there is no answer at all."""
    return next((f.line for f in failures if f.kind in _FATAL), None)


def _plain_lines(text: str) -> Iterator[str]:
    """Lines that are not XML: the error may stand between two elements."""
    if (
        "nable to" not in text
        and "ailed" not in text
        and "evices" not in text
        and "GPU " not in text
    ):
        return
    for line in text.splitlines():
        if "<" not in line and " : " not in line and not line.startswith("|"):
            yield line


def _kind(line: str) -> tuple[str, str | None] | None:
    if match := _HANDLE.search(line):
        return _handle_kind(match["why"]), v.pci(match["pci"])
    for words, kind in _TEXTS:
        if words in line and not line.startswith("["):
            return kind, None
    return None


def _handle_kind(why: str) -> str:
    words = why.lower()
    if "permission" in words:  # a cgroup hides the device: it says nothing of its health
        return "denied"
    if "requires reset" in words or "reset required" in words:
        return "reset_required"
    return "gpu_lost"


def _failure(origin: Origin, kind: str, pci: str | None, line: str) -> SmiFailure:
    return SmiFailure(
        node=origin.node,
        at=origin.taken_at,
        kind=kind,
        pci=pci,
        line=line[:400],
        exit_code=origin.exit_code,
    )
