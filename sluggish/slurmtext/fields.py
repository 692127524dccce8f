"""Slurm's `Key=value` records, its words for nothing, its times and durations."""

import re
from datetime import UTC, datetime, timedelta

from sluggish.hostlist import expand

NOTHING = {"", "(null)", "N/A", "n/a", "n/s", "None", "Unknown", "None assigned", "NONE", "INVALID"}

_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z_/]*(?::[A-Za-z:]+)?)=")
# `2026-11-29T23:43:19`; scontrol prints local time without a zone
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\Z", re.ASCII)
# `1-02:03:04`, `02:03:04`, `03:04`
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})(?:\.\d+)?\Z", re.ASCII)
# `:b300`, `:1g.10gb`; `:` where the type is `(null)`
_GPU_TYPE = r":(?:\d{0,4}[A-Za-z][\w.\-]{0,64})?"


def records(text: str, head: str) -> list[str]:
    """One text a record; a record begins on the line that starts with `head`, e.g. `JobId=`.

    Lines before the first record are dropped. A value that holds a newline (a drain reason)
    leaves a line without a key: it stays part of its record.
    """
    found: list[list[str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(head):
            found.append([stripped])
        elif stripped and found:
            found[-1].append(stripped)
    return ["\n".join(lines) for lines in found]


def fields(record: str) -> dict[str, str]:
    """`Key=value` pairs; values may hold blanks and `=`. Of a repeated key the first counts.

    Keys begin with a capital letter (`AllocNode:Sid`, `CPUs/Task` are keys, `job=7` is not).
    """
    found: dict[str, str] = {}
    marks = list(_KEY.finditer(record))
    for mark, following in zip(marks, [*marks[1:], None], strict=True):
        end = following.start() if following else len(record)
        found.setdefault(mark[1], record[mark.end() : end].strip())
    return found


def word(value: str | None) -> str | None:
    """The value, or None where Slurm prints one of its words for nothing."""
    return None if value is None or value.strip() in NOTHING else value.strip()


def number(value: str | None) -> int | None:
    """A whole number; of a range such as `1-1` its lower end."""
    match = re.match(r"(\d{1,15})(?:-\d+)?\Z", (value or "").strip(), re.ASCII)
    return int(match[1]) if match else None


def when(value: str | None, utc_offset_s: int) -> datetime | None:
    """Slurm's local time as UTC, or None (`Unknown`, `None`, a site's own format)."""
    match = _TIME.match((value or "").strip())
    if not match:
        return None
    try:
        local = datetime(*(int(part) for part in match.groups()), tzinfo=UTC)
        return local - timedelta(seconds=utc_offset_s)
    except (ValueError, OverflowError):
        return None


def seconds(value: str | None) -> int | None:
    """A duration (`1-02:03:04`) in seconds; None for `UNLIMITED` and the like."""
    match = _SPAN.match((value or "").strip())
    if not match:
        return None
    days, hours, minutes, rest = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def nodes(value: str | None) -> tuple[str, ...]:
    """Unique node names of a list. Raises ValueError when the list is broken."""
    return tuple(dict.fromkeys(expand(value or "")))


def gpus(value: str | None) -> int | None:
    """GPUs in a gres or TRES text: `gpu:b300:8(S:0-1)`, `gres/gpu:8`, `cpu=16,gres/gpu=16`.

    A typed entry (`gres/gpu:a100=8`, `gpu:1g.10gb:2`, `gpu:(null):8`) repeats the untyped one,
    which is preferred.
    """
    plain: list[int] = []
    typed: list[int] = []
    for part in re.sub(r"\([^()]*\)", "", value or "").split(","):
        part = re.sub(r"^gres[:/]", "", part.strip())
        match = re.match(rf"gpu({_GPU_TYPE})?[:=](\d{{1,6}})\Z", part, re.ASCII)
        if match:
            (typed if match[1] else plain).append(int(match[2]))
        elif re.match(rf"gpu({_GPU_TYPE})?\Z", part, re.ASCII):
            plain.append(1)
    chosen = plain or typed
    return sum(chosen) if chosen else None
