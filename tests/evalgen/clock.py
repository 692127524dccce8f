"""Times of the world: seconds since the epoch, and the texts that tools make of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone


def epoch(text: str) -> float:
    """`2026-11-24T03:22:10Z` as seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def at(t: float, zone_s: int = 0) -> datetime:
    return datetime.fromtimestamp(t, UTC).astimezone(timezone(timedelta(seconds=zone_s)))


def iso(t: float) -> str:
    """`2026-11-24T03:22:10Z`"""
    return at(t).strftime("%Y-%m-%dT%H:%M:%SZ")


def slurm(t: float, zone_s: int = 0) -> str:
    """`2026-11-24T03:22:10`, local and without a zone, as Slurm prints it."""
    return at(t, zone_s).strftime("%Y-%m-%dT%H:%M:%S")


def logging(t: float, zone_s: int = 0) -> str:
    """`2026-11-24 03:22:10,123`: Python's logging."""
    d = at(t, zone_s)
    return d.strftime("%Y-%m-%d %H:%M:%S,") + f"{d.microsecond // 1000:03d}"


def glog(t: float, level: str = "E", zone_s: int = 0) -> str:
    """`E1124 03:22:10.123456789`: c10d; the month without a leading zero."""
    d = at(t, zone_s)
    nanos = round((t % 1) * 1e9) % 1_000_000_000
    return f"{level}{d.month}{d.day:02d} {d:%H:%M:%S}.{nanos:09d}"


def duration(seconds: float) -> str:
    """`1-02:03:04` or `02:03:04`: Slurm's RunTime."""
    s = int(seconds)
    days, s = divmod(s, 86400)
    text = f"{s // 3600:02d}:{s % 3600 // 60:02d}:{s % 60:02d}"
    return f"{days}-{text}" if days else text
