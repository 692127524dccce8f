"""How nvidia-smi spells values: absent, broken, numbers with units, flags, addresses, times."""

import re
from datetime import UTC, datetime, timedelta

# [N/A], N/A, [Not Supported], [Requested functionality has been deprecated], "-" (dmon)
_ABSENT = frozenset(
    {
        "", "-", "n/a", "not supported", "not available", "not found",
        "requested functionality has been deprecated", "insufficient permissions",
        "function not found", "not applicable", "disabled by policy",
    }
)  # fmt: skip
# evidence and not absence: the driver was asked and could not answer for this GPU
_BROKEN = frozenset(
    {"unknown error", "gpu is lost", "err!", "gpu requires reset", "reset required", "error"}
)
_NO_VALUE = _ABSENT | _BROKEN
_NUMBER = re.compile(r"([-+]?\d{1,18}(?:\.\d{1,9})?)\s*(?:[A-Za-z%/()]{0,12})\Z")
# 00000000:65:00.0, 0000:65:00, 65:00.0
_PCI = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?\Z")
_YEAR_FIRST = re.compile(r"(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\Z")
# Tue Sep  1 20:41:56 2026
_ASCTIME = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})\s*\Z"
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# bit -> reason (nvidia-ml-py, nvmlClocksEventReason*)
_REASON_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clocks_setting"),
)


def value(text: str | None) -> str | None:
    """The text of a value, or None where nvidia-smi says that it has none."""
    if text is None:
        return None
    bare = _bare(text)
    return None if bare.lower() in _NO_VALUE else bare


def broken(text: str | None) -> str | None:
    """`Unknown Error`, `GPU is lost`, `ERR!`, `GPU requires reset`; None for any other text."""
    if not text or text[0].isdigit():  # most fields are numbers, and none of the words begins so
        return None
    bare = _bare(text)
    return bare if bare.lower() in _BROKEN else None


def number(text: str | None) -> float | None:
    """`77.71 W`, `345 MHz`, `16x`, `3072 bank(s)`, `0 %` -> its number; None if it is none."""
    bare = value(text)
    match = _NUMBER.match(bare) if bare is not None and len(bare) < 48 else None
    return float(match[1]) if match else None


def whole(text: str | None) -> int | None:
    """As `number`, cut to a whole one."""
    found = number(text)
    return None if found is None else int(found)


def flag(text: str | None) -> bool | None:
    """Yes/No, Active/Not Active, Enabled/Disabled, 1/0 (of CSV); None for anything else."""
    word = (value(text) or "").lower()
    if word in ("yes", "active", "enabled", "true", "on", "1"):
        return True
    return False if word in ("no", "not active", "disabled", "false", "off", "0") else None


def pci(text: str | None) -> str | None:
    """Any spelling of a PCI address -> `0000:65:00.0`, lower case; None if it is not one."""
    match = _PCI.match((text or "").strip())
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4] or '0'}".lower()


def reasons(text: str | None) -> tuple[str, ...]:
    """Names of the bits of `clocks_throttle_reasons.active`, e.g. `0x0000000000000048`."""
    bare = value(text) or ""
    if not re.fullmatch(r"0[xX][0-9A-Fa-f]{1,16}", bare):
        return ()
    bits = int(bare, 16)
    return tuple(name for bit, name in _REASON_BITS if bits & bit)


def moment(text: str | None, utc_offset_s: int) -> datetime | None:
    """nvidia-smi's own stamp (`2026/09/01 20:41:56.941`, `Tue Sep  1 20:41:56 2026`) as UTC.

    It carries no zone: `utc_offset_s` is the node's.
    """
    bare = (text or "").strip()
    try:
        if match := _YEAR_FIRST.match(bare):
            year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
            micro = int((match[7] or "").ljust(6, "0"))
        elif match := _ASCTIME.match(bare):
            month = _MONTHS.index(str(match[1])) + 1
            day, hour, minute, second, year = (int(match[i]) for i in range(2, 7))
            micro = 0
        else:
            return None
        local = datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC)
        return local - timedelta(seconds=utc_offset_s)
    except (ValueError, OverflowError):
        return None


def _bare(text: str) -> str:
    text = text.strip()
    return text[1:-1].strip() if text[:1] == "[" and text[-1:] == "]" else text
