"""The kernel's log of a node: `journalctl -k -b -o short-unix`, else `dmesg`.

Privileges: root, or groups adm/systemd-journal; `dmesg_restrict=1` is the default of Debian and
Ubuntu. "Operation not permitted" and journalctl's hint are a refusal, never "no Xid".
Cost: reads the ring buffer or the journal of this boot; a few MB at most as a rule.
Traps: the ring buffer wraps and the journal is vacuumed, so `KernelSpan` says what is covered;
`[seconds]` drift against NTP (50 ppm are 4 s a day); syslog stamps have no year and no zone;
`dmesg -T` follows the locale. Also read: `journalctl -o json` and its kin, `-o export`. Sources:
see the readers beside this file.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from sluggish.evidence.logscan import GAP_MARK
from sluggish.facts.fabric import FabricEvent
from sluggish.facts.gpu import GpuTrouble, SXid, Xid
from sluggish.facts.host import (
    HungTask,
    KernelSpan,
    KernelTrouble,
    Machine,
    OomKill,
    PcieError,
    Segfault,
    StorageEvent,
)
from sluggish.facts.origin import Origin
from sluggish.probes.kernel_log import devices, host, journal, nvidia, storage
from sluggish.probes.kernel_log.context import Record
from sluggish.probes.kernel_log.stamps import Stamped, split
from sluggish.probes.kernel_log.tidy import tidy

ID = "kernel_log"
COMMAND = (
    'if [ -n "$(journalctl -q -k -b -n 1 -o cat --no-pager 2>/dev/null)" ]; '
    "then journalctl -q -k -b -o short-unix --no-pager; else dmesg; fi"
)
FACTS: tuple[type, ...] = (
    Xid, SXid, GpuTrouble, OomKill, HungTask, StorageEvent, PcieError, KernelTrouble, Segfault,
    FabricEvent, KernelSpan, Machine,
)  # fmt: skip
BINARY = False
NEEDLES: tuple[str, ...] = (*nvidia.NEEDLES, *host.NEEDLES, *storage.NEEDLES, *devices.NEEDLES)
"""A line that holds none of these yields no fact."""
AHEAD: dict[bytes, int] = {b"blocked for more": 6_000}
"""Bytes wanted behind a needle in a log that is too big to be read whole: a stack follows."""
WHOLE = 32 << 20
"""Bytes that are read as they are; the kernel's ring and the journal of a boot are smaller."""
EACH = 2_000
"""Places kept of one needle in a bigger log."""

LINE_LIMIT = 4096
"""Characters of a line that are looked at; the kernel's own lines end at about 1,000."""
LOOK_BACK = 20
"""A continuation line takes the time of a stamped line at most so many lines before it."""
HEAD_LINES = 200
HEAD_CHARS = 1 << 16
READERS = (nvidia.read, host.read, storage.read, devices.read)

# dmesg: read kernel buffer failed: Operation not permitted
# Hint: You are currently not seeing messages from other users and the system.
# No journal files were opened due to insufficient permissions.
_DENIED = re.compile(
    r"read kernel buffer failed|klogctl.{0,40}(?:not permitted|denied)"
    r"|not seeing messages from other users|insufficient permissions"
    r"|^dmesg: .{0,120}(?:not permitted|denied)"
    r"|/dev/kmsg: (?:Operation not permitted|Permission denied)",
    re.MULTILINE,
)
_SOURCES = {
    "seconds": "dmesg", "ctime": "dmesg -T", "iso": "ISO stamps", "unix": "journalctl",
    "syslog": "syslog", "delta": "dmesg -e", "minute": "dmesg -e", "kmsg": "/dev/kmsg",
}  # fmt: skip
# [... 123456 bytes not read ...]       written by sluggish/evidence/logscan.py
_LEFT_OUT = re.compile(rf"^{re.escape(GAP_MARK)}([0-9]{{1,18}}) bytes not read", re.MULTILINE)
# a line without any of the words that people grep for; the kernel's start alone prints hundreds
_OTHER_LINE = re.compile(
    r"^(?!--)(?=[^\n]*\S)"
    r"(?![^\n]{0,4096}(?:nvrm|nvidia|xid|nvlink|mlx5|infiniband|oom|killed proc))",
    re.MULTILINE | re.IGNORECASE,
)
_BOOT_LINES = ("Linux version ", "Booting Linux on")


def parse(text: str, origin: Origin) -> Iterator[Any]:
    """The events of a kernel log, then what it covers. ValueError if it could not be read."""
    _refuse_denial(text, origin)
    broken = 0
    if journal.is_journal(text[:HEAD_CHARS]):
        text, broken = journal.as_lines(text)
    log = _Log(text, origin)
    found = tidy(log.events())
    if not found and not log.is_kernel_log():
        raise ValueError("expected kernel log lines (dmesg, journalctl -k or syslog)")
    yield from found
    yield from log.spans()
    if broken:
        raise ValueError(f"expected whole entries of the journal, {broken} are cut or damaged")


def _refuse_denial(text: str, origin: Origin) -> None:
    """A reader without the right to read prints a hint: a refusal and not a clean log."""
    if len(text) < 4096 and (found := _DENIED.search(text)):
        rest = [line for line in text.splitlines() if line.strip() and not _is_hint(line)]
        if not rest:
            raise ValueError(f"denied: {found.group().strip()}")
    if not text.strip():
        if found := _DENIED.search(origin.stderr[:4096]):
            raise ValueError(f"denied: {found.group().strip()}")
        raise ValueError("expected kernel log lines, the text is empty")


def _is_hint(line: str) -> bool:
    return bool(_DENIED.search(line)) or line.strip().startswith(
        ("Hint:", "Users in groups", "Pass -q", "-- No entries", "-- Journal begins", "-- Logs")
    )


class _Log:
    """One log: finds the lines that may tell something, and gives each its time."""

    def __init__(self, text: str, origin: Origin) -> None:
        self.text = text
        self.origin = origin
        raw = list(self._lines(0, HEAD_LINES))
        self.head = [split(line, origin) for line in raw]
        stamps = [bool(_OWN.match(line) or _SYSLOG_KERNEL.match(line)) for line in raw]
        self.stamped = any(stamps)
        self.excerpt = sum(stamps) * 2 < sum(not line[0].isspace() for line in raw)
        self.pasted = any(_PASTED.match(line) for line in raw)
        self.hosts = {line.host for line in self.head if line.host}
        self.node = origin.node or next((line.host for line in self.head if line.host), None)
        relative = any(line.form in ("delta", "minute") for line in self.head)
        self.times: dict[int, datetime | None] | None = None
        self.last_relative: datetime | None = None
        self.hits = self._hits()
        if relative:
            self._walk()

    def is_kernel_log(self) -> bool:
        """Whether its first lines carry stamps of a kernel log, or the kernel's own words."""
        return self.stamped or self.pasted

    def events(self) -> Iterator[Any]:
        """The facts of all lines that hold a needle, as they stand in the log."""
        for order, start in enumerate(self.hits):
            raw = self._line_at(start)
            line = split(raw, self.origin)
            if line.host:
                self.hosts.add(line.host)
            record = Record(
                text=line.text,
                raw=raw,
                at=self._time(start, line),
                node=self.origin.node or line.host or self.node,
                order=order,
                tag=line.tag,
                following=lambda n, start=start: self._following(start, n),
            )
            yield from _facts(record)

    def spans(self) -> Iterator[KernelSpan]:
        """What the log covers; a collected log of many hosts has one span a host."""
        stamped = [line.at for line in self.head if line.at and self.stamped]
        last = self.last_relative if self.times is not None else self._last_time()
        forms = [line.form for line in self.head if line.form]
        boot = any(line.text.startswith(_BOOT_LINES) for line in self.head[:10])
        live = self.origin.command is not None
        for node in [self.origin.node] if self.origin.node else (sorted(self.hosts) or [None]):
            yield KernelSpan(
                node=node,
                first_at=stamped[0] if stamped else None,
                last_at=last if stamped else None,
                lines=self.text.count("\n") + (not self.text.endswith("\n")),
                from_boot=boot,
                source=_SOURCES.get(forms[0], "") if forms else "",
                until=self.origin.taken_at if live else None,
                bytes_left_out=sum(int(gap[1]) for gap in _LEFT_OUT.finditer(self.text)),
                filtered=not live and self._is_filtered(),
            )

    def _is_filtered(self) -> bool:
        """`dmesg | grep NVRM`, lines in a mail: they cannot say that nothing else was there."""
        if self.stamped and self.excerpt:
            return True
        return bool(self.text.strip()) and _OTHER_LINE.search(self.text) is None

    def _hits(self) -> list[int]:
        """Starts of the lines that hold a needle, in order. Linear: one search a needle."""
        text, starts = self.text, set[int]()
        for needle in NEEDLES:
            at = text.find(needle)
            while at >= 0:
                starts.add(text.rfind("\n", 0, at) + 1)
                end = text.find("\n", at)
                at = text.find(needle, end) if end >= 0 else -1
        return sorted(starts)

    def _line_at(self, start: int) -> str:
        end = self.text.find("\n", start, start + LINE_LIMIT)
        return _bare(self.text[start : end if end >= 0 else start + LINE_LIMIT].rstrip("\r"))

    def _lines(self, start: int, count: int) -> Iterator[str]:
        """`count` lines from `start`, blank ones left out."""
        while count > 0 and 0 <= start < len(self.text):
            if self.text[start] != "\n" and (line := self._line_at(start).strip("\0")):
                count -= 1
                yield line
            start = self.text.find("\n", start) + 1
            if start == 0:
                return

    def _following(self, start: int, count: int) -> Iterator[str]:
        after = self.text.find("\n", start) + 1
        if after:
            yield from (split(line, self.origin).text for line in self._lines(after, count))

    def _time(self, start: int, line: Stamped) -> datetime | None:
        if self.times is not None:
            return self.times.get(start)
        return line.at if line.form else self._time_before(start)

    def _time_before(self, start: int) -> datetime | None:
        """Time of the nearest stamped line before `start`."""
        for _ in range(LOOK_BACK):
            if start <= 0:
                return None
            start = self.text.rfind("\n", 0, start - 1) + 1
            line = split(self._line_at(start), self.origin)
            if line.form:
                return line.at
        return None

    def _last_time(self) -> datetime | None:
        end = len(self.text.rstrip())
        return self._time_before(end + 1) if end else None

    def _walk(self) -> None:
        """Relative stamps count from the line before: the only form that needs every line."""
        wanted = set(self.hits)
        self.times, now, start = {}, None, 0
        while start < len(self.text):
            line = split(self._line_at(start), self.origin)
            if self.text.startswith(GAP_MARK, start):
                now = None  # the seconds of the lines that were left out are not known
            if line.delta is not None:
                now = now + line.delta if now else None
            elif line.at:
                now = line.at
            if start in wanted:
                self.times[start] = now
            following = self.text.find("\n", start) + 1
            if following == 0:
                break
            start = following
        self.last_relative = now


def _facts(record: Record) -> Iterator[Any]:
    if record.tag == "kernel":
        for reader in READERS:
            if fact := reader(record):
                yield fact
                return
    elif record.tag.startswith("systemd-networkd") and (fact := devices.read(record)):
        yield fact


def sniff(head: bytes) -> bool:
    """Most lines carry kernel stamps, or some carry syslog's `kernel:`."""
    text = head.decode("utf-8", "replace")
    if journal.is_journal(text):
        return True
    if len(text) < 4096 and _DENIED.search(text) and text.lstrip().startswith(("dmesg:", "Hint:")):
        return True
    lines = [line.strip("\r\0").rstrip() for line in text.split("\n", 400)[:400]]
    lines = [_bare(line[:LINE_LIMIT]) for line in lines if line]
    if not lines:
        return False
    if any(_PASTED.match(line) for line in lines):
        return True
    own = [bool(_OWN.match(line)) for line in lines if not _KMSG_TAG.match(line)]
    if _most(own) or (len(own) > 2 and _most(own[1:-1])):  # the ends may be cut
        return True
    return any(_SYSLOG_KERNEL.match(line) for line in lines)


def _bare(line: str) -> str:
    """The line without what a mail, a code block or `grep` puts in front of its stamp."""
    found = None if line[:1] in "[<" else _AROUND.match(line)
    return line[found.end() :] if found else line


def _most(marks: list[bool]) -> bool:
    return bool(marks) and sum(marks) * 2 >= len(marks)


# > [ 1890.1] NVRM: ...    /var/log/messages-20261123:Nov 24 03:04:17 gpu-08 kernel: ...    1203:Nov
_AROUND = re.compile(
    r"[ \t>]{0,16}(?:[\w./@+-]{0,200}(?:log|messages|dmesg|kern|txt)[\w.-]{0,40}:)?(?:[0-9]{1,9}:)?"
    r"(?=\[ {0,8}[0-9+A-Z]|<[0-9]{1,3}>|[A-Z][a-z]{2} {1,2}[0-9]|[0-9]{4}-[0-9]{2}-"
    r"|[0-9]{9,11}\.[0-9]{6} |NVRM: |kernel: )"
)
_KMSG_TAG = re.compile(r" [A-Z]{3,20}=")  # ` SUBSYSTEM=pci`: goes with the record before it
# stamps that nobody but the kernel's own tools print
_OWN = re.compile(
    r"(?:<[0-9]{1,3}>)?\[ *[0-9]{1,9}\.[0-9]{6}(?: *<[ 0-9.+]{1,24}>)?\]"  # dmesg
    r"|\[ *\+[0-9]{1,10}\.[0-9]{6}\]|\[[A-Z][a-z]{2} ?[0-9]{1,2} [0-9]{2}:[0-9]{2}\] "  # dmesg -e
    r"|\[\w{1,6}\.? +\w{3,6}\.? +[0-9]{1,2} [0-9:]{8} [0-9]{4}\] "  # dmesg -T
    r"|[0-9-]{10}T[0-9:]{8},[0-9]{6}[+-][0-9]{2}:?[0-9]{2} "  # dmesg --time-format iso
    r"|(?:kern|user|daemon|syslog|auth|mail|local[0-7]) {0,4}:[a-z]{3,6} {0,2}: "  # dmesg -x
    r"|[0-9]{1,4},[0-9]{1,20},[0-9]{1,17},[-c+][^;]{0,40};"  # /dev/kmsg
)
_SYSLOG_KERNEL = re.compile(
    r"(?:<[0-9]{1,3}>(?:1 )?)?"
    r"(?:[0-9]{9,11}\.[0-9]{6}"
    r"|(?:[^\W\d_]{3,5}\.?|[0-9]{1,2}[月월]) {1,2}[0-9]{1,2} (?:[0-9]{4} )?[0-9:]{8}"
    r"(?:\.[0-9]{1,9})?"
    r"|[0-9]{4} [A-Z][a-z]{2} {1,2}[0-9]{1,2} [0-9:]{8}"
    r"|(?:[A-Z][a-z]{2} )?[0-9-]{10}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?(?: ?(?:Z|UTC"
    r"|[+-][0-9]{2}:?[0-9]{2}))?)"
    r" [A-Za-z0-9][A-Za-z0-9._-]{0,252} kernel(?:\[[0-9]{1,8}\])?(?:: | - - - | [0-9]+ - - )"
)
# a few lines pasted without a stamp, with the time alone, or with seconds that were rounded:
# [ 1843.31] NVRM: Xid ...     19:14:43  NVRM: Xid ...     kernel: NVRM: ...     Out of memory: Kill
_PASTED = re.compile(
    r"(?:\[ *[0-9]{1,9}\.[0-9]{1,9}\] *|\[?[0-9:]{8}\]? +)?(?:kernel: +)?"
    r"(?:NVRM: |nvidia-nvswitch[0-9]+: SXid |(?:mlx5_core|pcieport) [0-9a-f]{4}:"
    r"|infiniband mlx5_[0-9]|Out of memory: Kill|Memory cgroup out of memory: Kill"
    r"|oom-kill:constraint=|[\w./:-]{1,40} invoked oom-killer"
    r"|INFO: task [^\n]{1,80} blocked for more"
    r"|watchdog: BUG: soft lockup|LustreError: |Lustre: |nfs: server |\{[0-9]\}\[Hardware Error\]"
    r"|mce: \[Hardware Error\]|EDAC MC[0-9])"
)
