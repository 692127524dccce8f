"""GPU samples over a window: `nvidia-smi --query-gpu=... --format=csv -l 1`.

Shows: utilisation, power, clocks, memory, temperature, throttle reasons. Rights: any user.
Cost: one process for the window; a second GPU command beside a wedged driver is never started.

The old field names are asked, since every driver from about 2014 to 610 takes them; the header may
answer with the new ones (`clocks_event_reasons.*`). An unknown field loses the whole call.
Under MIG utilisation is `[N/A]` and power is of the whole board: no shape can be told.
`nvidia-smi dmon` is read too; it prints no power limit and, without `-o DT`, no time.
"""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta

from sluggish.facts import smi_csv
from sluggish.facts import smi_values as v
from sluggish.facts.gpu import GpuSample
from sluggish.facts.origin import Origin

ID = "gpu_samples"
COMMAND = (
    "nvidia-smi --query-gpu=timestamp,index,pci.bus_id,uuid,utilization.gpu,utilization.memory,"
    "power.draw,enforced.power.limit,clocks.sm,clocks.max.sm,memory.used,temperature.gpu,"
    "clocks_throttle_reasons.active --format=csv -l 1"
)
FACTS: tuple[type, ...] = (GpuSample,)
BINARY = False
WINDOW_S = 10
"""The far side ends the loop after this long: the exit by a signal is its normal end."""

_PERIOD = timedelta(seconds=1)


def sniff(head: bytes) -> bool:
    """A query header over rows in which some GPU comes twice, or dmon's header."""
    text = head.decode("utf-8", "replace")
    found = smi_csv.read(text)
    if found is not None and found.mostly_rows and found.repeats:
        return "utilization.gpu" in found.names or _first(found.names, _POWER) is not None
    lines = [line for line in text.splitlines() if line.strip()]
    foreign = sum(1 for line in lines[:200] if line[0] not in "# 0123456789")
    return any(_dmon_names(line) for line in lines[:5]) and foreign == 0


def parse(text: str, origin: Origin) -> Iterator[GpuSample]:
    """Samples in the order printed. Raises ValueError without a header or without any full row."""
    found = smi_csv.read(text, origin.command)
    any_row = False
    if found is not None:
        for row in found.rows:
            sample = _of_csv(row, origin)
            if sample is not None:
                any_row = True
                yield sample
    else:
        for sample in deque(_of_dmon(text, origin), maxlen=smi_csv.MOST_ROWS):
            any_row = True
            yield sample
    if not any_row:
        raise ValueError("expected rows of nvidia-smi --query-gpu or dmon under a header")


_POWER = ("power.draw", "power.draw.average", "power.draw.instant")
_LIMIT = ("enforced.power.limit", "gpu.power.current_limit", "power.limit")
_REASONS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")


def _first(names: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _of_csv(row: dict[str, str], origin: Origin) -> GpuSample | None:
    def get(*names: str) -> str | None:
        return next((row[n] for n in names if v.value(row.get(n)) is not None), None)

    index = v.whole(get("index"))
    pci = v.pci(get("pci.bus_id", "gpu_bus_id"))
    uuid = get("uuid", "gpu_uuid")
    if index is None and pci is None and uuid is None:
        return None
    if uuid is not None and not uuid.startswith(("GPU-", "MIG-")):
        return None  # an error text between the rows that happens to have as many commas
    return GpuSample(
        node=origin.node or get("hostname"),
        at=v.moment(row.get("timestamp"), origin.utc_offset_s),
        index=index,
        pci=pci,
        uuid=uuid,
        utilisation_pct=v.number(get("utilization.gpu")),
        memory_utilisation_pct=v.number(get("utilization.memory")),
        power_w=v.number(get(*_POWER)),
        power_limit_w=v.number(get(*_LIMIT)),
        sm_clock_mhz=v.whole(get("clocks.sm", "clocks.current.sm")),
        max_sm_clock_mhz=v.whole(get("clocks.max.sm")),
        memory_used_mib=v.whole(get("memory.used")),
        temperature_c=v.number(get("temperature.gpu")),
        throttle=v.reasons(get(*_REASONS)),
    )


def _dmon_names(line: str) -> list[str] | None:
    """`# gpu    pwr  gtemp  mtemp     sm    mem ...`, with `#Date  Time` before it under `-o DT`.

    (nvidia_gpu_exporter, internal/captures, h200 580: the columns differ by version.)
    """
    if not line.startswith("#") or len(line) > 1000:
        return None
    names = line.lstrip("# ").lower().split()
    return (
        names if "gpu" in names[:3] and {"pwr", "sm"} & set(names) and "pid" not in names else None
    )


def _of_dmon(text: str, origin: Origin) -> Iterator[GpuSample]:
    names: list[str] | None = None
    rounds: dict[str, int] = {}
    for line in text.splitlines():
        found = _dmon_names(line)
        if found:
            names = found
            continue
        cells = line.split()
        if names is None or line.startswith("#") or len(cells) != len(names):
            continue
        row = dict(zip(names, cells, strict=True))
        if not row["gpu"].isdecimal():
            continue
        turn = rounds[row["gpu"]] = rounds.get(row["gpu"], -1) + 1
        yield _of_dmon_row(row, turn, origin)


def _of_dmon_row(row: dict[str, str], turn: int, origin: Origin) -> GpuSample:
    at = _dmon_time(row, origin)
    if at is None and origin.taken_at is not None:
        at = origin.taken_at + turn * _PERIOD  # dmon's period is 1 s unless asked otherwise
    return GpuSample(
        node=origin.node,
        at=at,
        index=v.whole(row["gpu"]),
        utilisation_pct=v.number(row.get("sm")),
        memory_utilisation_pct=v.number(row.get("mem")),
        power_w=v.number(row.get("pwr")),
        sm_clock_mhz=v.whole(row.get("pclk")),
        memory_used_mib=v.whole(row.get("fb")),
        temperature_c=v.number(row.get("gtemp") or row.get("temp")),
    )


def _dmon_time(row: dict[str, str], origin: Origin) -> datetime | None:
    date, time = row.get("date", ""), row.get("time", "")
    if len(date) == 8 and date.isdecimal():
        date = f"{date[:4]}/{date[4:6]}/{date[6:]}"
    return v.moment(f"{date} {time}", origin.utc_offset_s)
