"""nvidia-bug-report.log(.gz): one file in which NVIDIA's script puts what many commands printed.

A line of underscores parts its sections, a heading names what follows: `dmesg:`, the path and
arguments of a command, or `*** FILE` (nvidia-bug-report.sh of drivers 390 to 595). Each part that a
probe may know becomes a file of its own; the others are counted as not read.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sluggish.evidence.source import Item
from sluggish.text import is_node_name, safe

HEAD = 16_384
"""Newer scripts put tables of versions before the title."""
MOST_BYTES = 256 << 20
_TITLE = b"Start of NVIDIA bug report log file."
# uname: Linux gpu-07 5.15.0-105-generic #115-Ubuntu SMP ... x86_64 GNU/Linux
_UNAME = re.compile(rb"^uname: Linux ([A-Za-z0-9][\w.-]{0,63}) ", re.MULTILINE)
# ____________________________________________
# /usr/bin/nvidia-smi --query            /usr/bin/lspci -nn            dmesg:
_BEGINS = re.compile(
    rb"^(?:_{40,60}|(?:/[\w./-]{1,80}/)?(?:nvidia-smi|nvidia-imex-ctl|lspci|dmesg|ibstat"
    rb"|ibnetdiscover|ibswitches|iblinkinfo)(?: [^\n]{1,200}|:)?)\r?$",
    re.MULTILINE,
)
_SCAN = b"Scanning kernel log files for NVIDIA kernel messages:"
# Nov 24 03:12:02 gpu-07 kernel: NVRM: ...     under `  journalctl -b -0:`, `  /var/log/messages:`
_FOUND = re.compile(rb"^\S[^\n]{0,4000}(?:NVRM|nvidia-)[^\n]*$", re.MULTILINE)
_XID = b"NVRM: Xid"
# *** /var/log/fabricmanager.log
_KEPT = b"/fabricmanager.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report, taken apart."""

    host: str | None
    parts: tuple[Item, ...]
    """Those with a heading of a command that some probe reads."""
    others: int
    """Sections that nothing here reads."""


def is_report(head: bytes) -> bool:
    """Whether a file begins as the script begins it."""
    return _TITLE in head[:HEAD]


def apart(item: Item) -> Report:
    """The parts as windows of the file. Raises OSError where it cannot be read."""
    text = item.read(0, min(item.size, MOST_BYTES))
    uname = _UNAME.search(text[:HEAD])
    host = uname[1].decode() if uname else None
    parts: list[Item] = []
    scan = b""
    others = 0
    for heading, start, end in _sections(text):
        if heading.startswith(_SCAN):
            scan = b"".join(line + b"\n" for line in _FOUND.findall(text, start, end))
        elif heading.startswith(b"*** ") and heading.endswith(_KEPT):
            if text.startswith(b"*** ls: ", start):
                start = text.find(b"\n", start, end) + 1 or end
            parts.append(_part(item, heading[4:], _window(item, start, end), end - start))
        elif heading.endswith(b" --unit"):  # S-class enclosures; looks like a query without GPUs
            others += 1
        elif _BEGINS.match(heading) and text[start:end].strip():
            parts.append(_part(item, heading, _window(item, start, end), end - start))
        elif not heading.startswith(_TITLE):
            others += 1
    # the same lines as in dmesg, with another clock; of an earlier boot they are only here
    if scan and not any(_XID in part.read(0, part.size) for part in parts if _is_dmesg(part)):
        parts.append(_part(item, b"journal", lambda at, n: scan[at : at + n], len(scan)))
    known = host if host and is_node_name(host) else None
    return Report(host=known, parts=tuple(parts), others=others)


def _sections(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(heading, begin and end of what stands below it)."""
    begins = list(_BEGINS.finditer(text))
    for at, found in enumerate(begins):
        end = begins[at + 1].start() if at + 1 < len(begins) else len(text)
        heading, start = found.group().strip(), found.end() + 1
        if heading.startswith(b"____"):
            first = re.compile(rb"\S[^\n]{0,300}").search(text, start, end)
            if first is None:  # a command follows at once, and is found by itself
                continue
            heading, start = first.group().strip(), first.end() + 1
        yield heading, start, end


def _part(item: Item, heading: bytes, read: Callable[[int, int], bytes], size: int) -> Item:
    name = safe(heading.decode("utf-8", "replace").rsplit("/", 1)[-1].rstrip(":"), 60)
    return replace(item, name=f"{item.name}/{name}", size=size, read=read, file=None)


def _window(item: Item, start: int, end: int) -> Callable[[int, int], bytes]:
    return lambda at, n: item.read(start + at, max(0, min(n, end - start - at)))


def _is_dmesg(part: Item) -> bool:
    return part.name.rsplit("/", 1)[-1].startswith("dmesg")
