"""nvidia-smi's query CSV: header, rows, and whether it is one look or a window of samples."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

# utilization.gpu [%], power.draw [W], index   (nvidia_gpu_exporter, internal/captures)
_NAME = re.compile(
    r"([a-z][a-z0-9_.-]{1,80})(?: \[(?:%|MiB|MHz|W|us|ms|KB/s|C)\])?\Z", re.IGNORECASE
)
_QUERY = re.compile(r"--query-gpu=([A-Za-z0-9_.,-]{1,8000})")
_IDENTITY = ("pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid", "index")
_MEASURES = frozenset(
    {
        "utilization.gpu", "power.draw", "power.draw.average", "power.draw.instant", "clocks.sm",
        "clocks.current.sm", "memory.used", "temperature.gpu", "pstate", "name", "driver_version",
        "gpu_recovery_action", "remapped_rows.pending", "remapped_rows.failure", "fabric.state",
        "ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.volatile.total",
        "pcie.link.gen.current", "pcie.link.width.current", "ecc.mode.current", "count",
        "clocks_throttle_reasons.active", "clocks_event_reasons.active", "enforced.power.limit",
    }
)  # fmt: skip
_NOT_A_GPU_QUERY = frozenset({"pid", "process_name", "used_gpu_memory", "retired_pages.address"})
_LONGEST = 32_768
MOST_ROWS = 50_000
"""An hour of sixteen GPUs at 1 Hz: of a longer recording the end tells why the job stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Csv:
    """Rows by field name in lower case; names are the header's, or the command's without one."""

    names: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    """The last `MOST_ROWS` of them."""
    count: int
    """Rows in all."""
    repeats: bool
    """Some GPU has more than one row: samples over a window."""
    torn: int
    """Rows with another number of columns: left out, an interrupted line or an error text."""
    lines: int
    """Lines of the text that are not blank."""
    headers: int

    @property
    def mostly_rows(self) -> bool:
        """Whether the text is this CSV and not a log that holds some."""
        return self.headers > 0 and self.lines - self.count - self.headers <= 4


def header(line: str) -> tuple[str, ...] | None:
    """Field names if this line is a query header, else None."""
    if "," not in line or len(line) > _LONGEST:
        return None
    names: list[str] = []
    for cell in line.strip().split(","):
        match = _NAME.match(cell.strip())
        if match is None:
            return None
        names.append(match[1].lower())
    known = set(names)
    if known & _NOT_A_GPU_QUERY or not known & _MEASURES:
        return None
    enough = len(known & (_MEASURES | {*_IDENTITY, "timestamp"})) >= 2
    return tuple(names) if enough else None


def read(text: str, command: str | None = None) -> Csv | None:
    """The CSV of a text, or None. Headers may repeat; without one the command's list counts."""
    names = _of_command(command)
    headers = lines = torn = count = 0
    rows: deque[dict[str, str]] = deque(maxlen=MOST_ROWS)
    for line in text.splitlines():
        lines += bool(line.strip())
        found = header(line)
        if found is not None:
            names, headers = found, headers + 1
            continue
        if names is None or "," not in line or len(line) > _LONGEST:
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(names):
            torn += 1
            continue
        rows.append(dict(zip(names, cells, strict=True)))
        count += 1
    if names is None or not (headers or rows):
        return None
    return Csv(
        names=names,
        rows=tuple(rows),
        count=count,
        repeats=_repeats(rows),
        torn=torn,
        lines=lines,
        headers=headers,
    )


def _of_command(command: str | None) -> tuple[str, ...] | None:
    match = _QUERY.search(command or "")
    return tuple(name.lower() for name in match[1].split(",")) if match else None


def _repeats(rows: Iterable[dict[str, str]]) -> bool:
    """Masked captures have equal uuids: all identity columns together tell a GPU."""
    keys = [tuple(row.get(name) for name in _IDENTITY) for row in rows]
    return len(set(keys)) < len(keys)
