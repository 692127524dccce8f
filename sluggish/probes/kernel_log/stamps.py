"""Stamps of kernel-log lines: every form that dmesg, journalctl and syslog print.

Each form has a sample line above it. Sources: util-linux 2.38 `dmesg`, systemd 252 `journalctl`,
rsyslog's file formats, RFC 5424, the kernel's `/dev/kmsg` interface.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from sluggish.facts.origin import Origin
from sluggish.text import is_node_name

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ABROAD = {
    name: number
    for number, names in enumerate(
        (
            "ene gen sty янв", "fév fev lut фев", "mär mrt мар", "avr abr kwi апр",
            "mai mag mei maj май мая", "juin giu cze июн", "juil lug lip июл", "aoû ago sie авг",
            "set wrz сен", "okt ott out paź окт", "lis ноя", "dez déc dic des gru дек",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
"""Months as `dmesg -T` and `journalctl` write them elsewhere (glibc's locales), first letters."""
_CLOCK_SLACK = timedelta(days=1)
"""A stamp without a year may lie this far ahead of the moment it was printed (zones, clocks)."""

_DATE = r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
_TIME = r"(?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
_FRACTION = r"(?:[.,](?P<fraction>[0-9]{1,9}))?"
_ZONE = r"(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})"
_LETTER = r"[A-Za-z\u00c0-\u024f\u0400-\u04ff]"
_MONTH_DAY = rf"(?P<month>{_LETTER}{{3,5}}|[0-9]{{1,2}}[月월])\.? {{1,2}}(?P<day>[0-9]{{1,2}})"

# kern  :warn  : [12345.678901] text         dmesg -x / --decode
_DECODED = re.compile(r"(?P<facility>[a-z0-9]{1,8}) *:(?P<level>[a-z]{1,7}) *: ", re.ASCII)
# <4>[12345.678901] text                     dmesg -r
_RAW_LEVEL = re.compile(r"<[0-9]{1,3}>(?!1 )", re.ASCII)
# 6,3973,227996636,-;text                    /dev/kmsg
_KMSG = re.compile(r"(?P<prio>[0-9]{1,4}),[0-9]{1,20},(?P<us>[0-9]{1,17}),[^;]{1,40};", re.ASCII)
# [12345.678901] text     [    0.000000][    T0] text     [12345.678901 <    0.000316>] text
_SECONDS = re.compile(
    r"\[ *(?P<seconds>[0-9]{1,10}\.[0-9]{1,9})(?: *<[ 0-9.+]{1,24}>)?\]"
    r"(?: ?\[ *[TC][0-9]{1,8}\])? ?",
    re.ASCII,
)
# [Tue Nov 24 03:12:01 2026] text            dmesg -T; the words follow the locale
_CTIME = re.compile(
    r"\[(?:[^\W\d_]{1,6}\.? +)?(?P<month>[^\W\d_]{1,6}|[0-9]{1,2}[月월])\.? +"
    r"(?P<day>[0-9]{1,2}) +" + _TIME + r" (?P<year>[0-9]{4})(?: *<[ 0-9.+]{1,24}>)?\] ?"
)
# [  +0.000316] text                         dmesg -e: seconds since the line before
_DELTA = re.compile(r"\[ *\+(?P<delta>[0-9]{1,10}\.[0-9]{1,9})\] ?", re.ASCII)
# [Nov24 03:12] text                         dmesg -e: the first line of another minute
_MINUTE = re.compile(
    r"\[(?P<month>[A-Za-z]{3}) ?(?P<day>[0-9]{1,2}) (?P<time>[0-9]{2}:[0-9]{2})\] ?", re.ASCII
)
# 2026-11-24T03:12:01,123456+00:00 text      dmesg --time-format iso
# 2026-11-24T03:12:02+0000 n01 kernel: text  journalctl -o short-iso, short-iso-precise, rsyslog
# <4>1 2026-11-24T03:12:02.1+01:00 n01 kernel - - - text     RFC 5424
# Tue 2026-11-24 03:12:02 UTC n01 kernel: text               journalctl -o short-full
_ISO = re.compile(
    r"(?:<[0-9]{1,3}>1 )?(?:[A-Z][a-z]{2} )?\[?" + _DATE + "[T ]" + _TIME + _FRACTION
    + r" ?(?:" + _ZONE + r"|(?P<utc>UTC|GMT))?\]? +",
    re.ASCII,
)  # fmt: skip
# 1764000000.123456 n01 kernel: text         journalctl -o short-unix
_UNIX = re.compile(r"(?P<unix>[0-9]{9,11}\.[0-9]{6}) ", re.ASCII)
# Nov 24 03:12:02 n01 kernel: [12345.678] text    syslog, journalctl -o short; some write a year
_SYSLOG = re.compile(
    r"(?:<[0-9]{1,3}>)?(?:(?P<before>[0-9]{4}) )?" + _MONTH_DAY + r" (?:(?P<middle>[0-9]{4}) )?"
    + _TIME + _FRACTION + r"(?: (?P<after>[0-9]{4}))? ",
    re.ASCII,
)  # fmt: skip
# 19:14:43  NVRM: Xid ...                    pasted by hand, the day is lost
_CLOCK = re.compile(r"\[?" + _TIME + _FRACTION + r"\]? +", re.ASCII)
# n01 kernel: text     n01 kernel - - - text     n01 systemd-networkd[612]: text
_HOST_TAG = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252}) )?(?P<tag>[A-Za-z][\w.()/@-]{0,48})"
    r"(?:\[[0-9]{1,10}\])?(?:: ?| - - - | [0-9]{1,9} - - )",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamped:
    """A line in parts."""

    text: str
    """What the kernel printed."""
    at: datetime | None = None
    host: str | None = None
    tag: str = "kernel"
    """Who printed it: `kernel`, or the daemon that syslog names."""
    form: str = ""
    """Name of the form of its stamp; empty: it has none."""
    delta: timedelta | None = None
    """Only in the relative form: time since the line before."""


def split(line: str, origin: Origin) -> Stamped:
    """Take the stamp, host and tag off one line. Never fails: what is not a stamp stays text."""
    tag = "kernel"
    if found := _DECODED.match(line):
        line = line[found.end() :]
        tag = "kernel" if found["facility"] == "kern" else found["facility"]
    elif found := _RAW_LEVEL.match(line):
        line = line[found.end() :]
    for form, pattern in _FORMS:
        if found := pattern.match(line):
            if form == "kmsg" and int(found["prio"]) >> 3:
                tag = "user"
            return _stamped(form, found, line[found.end() :], tag, origin)
    return _tagged(Stamped(text=line, tag=tag), bare=True)


_FORMS = (
    ("seconds", _SECONDS),
    ("iso", _ISO),
    ("unix", _UNIX),
    ("ctime", _CTIME),
    ("syslog", _SYSLOG),
    ("delta", _DELTA),
    ("minute", _MINUTE),
    ("kmsg", _KMSG),
    ("clock", _CLOCK),
)
_WITH_HOST = ("iso", "unix", "syslog")


def _stamped(form: str, found: re.Match[str], rest: str, tag: str, origin: Origin) -> Stamped:
    delta = timedelta(seconds=float(found["delta"])) if form == "delta" else None
    try:
        at = _TIMES[form](found, origin) if form in _TIMES else None
    except (ValueError, OverflowError):  # the 31st of February
        at = None
    line = Stamped(text=rest, at=at, tag=tag, form=form, delta=delta)
    dmesg_iso = form == "iso" and "," in found.group()  # only dmesg writes a comma, and no host
    return _tagged(line, bare=form not in _WITH_HOST or dmesg_iso)


def _tagged(line: Stamped, *, bare: bool) -> Stamped:
    """Take `host tag:` off; `bare` lines carry a tag only if it is `kernel:`."""
    found = _HOST_TAG.match(line.text)
    if not found or (found["host"] is None and found["tag"] != "kernel"):
        return line
    if bare and found["tag"] != "kernel":
        return line
    host = found["host"] if found["host"] and is_node_name(found["host"]) else None
    text = line.text[found.end() :]
    if inner := _SECONDS.match(text):  # syslog keeps the kernel's own seconds
        text = text[inner.end() :]
    return Stamped(
        text=text, at=line.at, host=host, tag=found["tag"], form=line.form, delta=line.delta
    )


def _zone(origin: Origin) -> timezone:
    return timezone(timedelta(seconds=max(-86399, min(86399, origin.utc_offset_s))))


def _from_boot(seconds: float, origin: Origin) -> datetime | None:
    return origin.boot_at + timedelta(seconds=seconds) if origin.boot_at else None


def _iso(found: re.Match[str], origin: Origin) -> datetime:
    fraction = (found["fraction"] or "0")[:6].ljust(6, "0")
    stamp = datetime.fromisoformat(f"{found['date']}T{found['time']}.{fraction}")
    zone = found["zone"]
    if found["utc"] or zone == "Z":
        return stamp.replace(tzinfo=UTC)
    if zone is None:
        return stamp.replace(tzinfo=_zone(origin)).astimezone(UTC)
    sign = -1 if zone[0] == "-" else 1
    offset = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * sign
    return stamp.replace(tzinfo=timezone(offset)).astimezone(UTC)


def _month(name: str) -> int:
    """1-12; ValueError where the word is of a locale that is not known here."""
    if name[-1] in "月월":
        return int(name[:-1])
    low = name.lower()
    found = _ABROAD.get(low[:4]) or _ABROAD.get(low[:3])
    return found or MONTHS.index(low[:3]) + 1


def _ctime(found: re.Match[str], origin: Origin) -> datetime:
    return _local(int(found["year"]), found, found["time"], origin)


def _local(year: int, found: re.Match[str], clock: str, origin: Origin) -> datetime:
    hour, minute, *second = (int(part) for part in clock.split(":"))
    return datetime(
        year, _month(found["month"]), int(found["day"]), hour, minute, second[0] if second else 0,
        tzinfo=_zone(origin),
    ).astimezone(UTC)  # fmt: skip


def _yearless(found: re.Match[str], origin: Origin) -> datetime | None:
    """The year that puts the stamp nearest before the moment the text was taken."""
    taken = origin.taken_at or origin.mtime
    if taken is None:
        return None
    year = (taken + _CLOCK_SLACK).astimezone(_zone(origin)).year
    for candidate in (year, year - 1, year - 2, year - 3, year - 4):  # 29 February skips years
        try:
            at = _local(candidate, found, found["time"], origin)
        except ValueError:
            continue
        if at <= taken + _CLOCK_SLACK:
            return at
    return None


def _syslog(found: re.Match[str], origin: Origin) -> datetime | None:
    year = found["before"] or found["middle"] or found["after"]
    at = _local(int(year), found, found["time"], origin) if year else _yearless(found, origin)
    if at and found["fraction"]:
        at += timedelta(microseconds=int(found["fraction"][:6].ljust(6, "0")))
    return at


def _clock(found: re.Match[str], origin: Origin) -> datetime | None:
    taken = origin.taken_at or origin.mtime
    if taken is None:
        return None
    day = taken.astimezone(_zone(origin))
    hour, minute, second = (int(part) for part in found["time"].split(":"))
    at = day.replace(hour=hour, minute=minute, second=second, microsecond=0).astimezone(UTC)
    return at if at <= taken + timedelta(minutes=5) else at - timedelta(days=1)


def _seconds(found: re.Match[str], origin: Origin) -> datetime | None:
    return _from_boot(float(found["seconds"]), origin)


def _kmsg(found: re.Match[str], origin: Origin) -> datetime | None:
    return _from_boot(int(found["us"]) / 1e6, origin)


def _unix(found: re.Match[str], _: Origin) -> datetime:
    return datetime.fromtimestamp(float(found["unix"]), UTC)


_TIMES: dict[str, Callable[[re.Match[str], Origin], datetime | None]] = {
    "seconds": _seconds,
    "kmsg": _kmsg,
    "iso": _iso,
    "unix": _unix,
    "ctime": _ctime,
    "syslog": _syslog,
    "minute": _yearless,
    "clock": _clock,
}
