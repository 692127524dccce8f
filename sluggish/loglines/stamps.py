"""Time stamps of log lines: with and without a year, a date, a zone."""

import re
from datetime import UTC, date, datetime, time, timedelta, timezone

from sluggish.facts.origin import Origin

SLACK = timedelta(hours=26)
"""A stamp may lie this far behind `taken_at`: zones are guessed and clocks differ."""

# 2026-11-24 03:00:00,123   2026-11-24T03:00:00.123456Z   2025-11-09 15:39:31.043 +08:00
# 2024/05/07 15:51:09       forms: Python logging, ISO 8601, NCCL_DEBUG_TIMESTAMP_FORMAT, syslog-ng
ISO = (
    r"(?P<Y>(?:19|20)\d\d)[-/](?P<M>\d\d)[-/](?P<D>\d\d)[T ]"
    r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?(?: ?(?P<z>Z|[+-]\d\d:?\d\d))?"
)


def zone_of(origin: Origin) -> timezone:
    """The zone for stamps that carry none; UTC where the offset is nonsense."""
    offset = timedelta(seconds=origin.utc_offset_s)
    return timezone(offset) if abs(offset) < timedelta(hours=24) else UTC


def from_iso(found: re.Match[str], zone: timezone) -> datetime | None:
    """UTC of a match of `ISO`; None for a 30 February."""
    try:
        naive = datetime(
            int(found["Y"]), int(found["M"]), int(found["D"]),
            int(found["h"]), int(found["m"]), int(found["s"]), _micro(found["f"]),
        )  # fmt: skip
        return naive.replace(tzinfo=_zone(found["z"], zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _micro(digits: str | None) -> int:
    return int((digits or "0")[:6].ljust(6, "0"))


def _zone(text: str | None, default: timezone) -> timezone:
    if not text:
        return default
    if text == "Z":
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def without_year(
    month: int, day: int, clock: time, zone: timezone, taken_at: datetime | None
) -> datetime | None:
    """The year that puts the stamp nearest before `taken_at`; None where nothing tells a year."""
    if taken_at is None:
        return None
    for year in (taken_at.year + 1, taken_at.year, taken_at.year - 1):
        try:
            at = datetime.combine(date(year, month, day), clock, zone).astimezone(UTC)
        except (ValueError, OverflowError):
            continue
        if at <= taken_at + SLACK:
            return at
    return None


def without_date(clock: time, zone: timezone, taken_at: datetime | None) -> datetime | None:
    """The day that puts the time of day nearest before `taken_at`."""
    if taken_at is None:
        return None
    try:
        at = datetime.combine(taken_at.astimezone(zone).date(), clock, zone).astimezone(UTC)
        return at if at <= taken_at + timedelta(minutes=5) else at - timedelta(days=1)
    except (ValueError, OverflowError):
        return None


def clock(hours: str, minutes: str, seconds: str, fraction: str | None = None) -> time | None:
    """A time of day from its digits; None for 25:61:00."""
    try:
        return time(int(hours), int(minutes), int(seconds), _micro(fraction))
    except ValueError:
        return None
