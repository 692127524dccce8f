"""Fabric Manager's own log, as somebody mailed it: its copy of NVSwitch errors.

Where: /var/log/fabricmanager.log of a node with NVSwitches. Rights: root. It is never asked for:
the kernel's log of a node shows the same errors as SXid lines (gpud, fabric-manager: both forms).
Traps: its stamps are local time without a zone; other entries run over several lines; an error
says `fatal` or `non-fatal`, never which GPU. Switches of B200 and NVL72 are managed by NVLSM and
leave no such lines.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from sluggish.facts import smi_values
from sluggish.facts.gpu import SXid
from sluggish.facts.origin import Origin
from sluggish.text import safe

ID = "fabric_manager"
COMMAND = ""
FACTS: tuple[type, ...] = (SXid,)
BINARY = False
MOST = 2_000
"""Errors kept, the last ones."""

# [Feb 25 2025 13:59:45] [INFO] [tid 1808] multicast group 0 is freed.
_STAMPED = re.compile(
    r"^\[(?P<at>[A-Z][a-z]{2} [ \d]\d \d{4} \d\d:\d\d:\d\d)\] \[[A-Z]{4,8}\] \[tid \d{1,10}\] ",
    re.MULTILINE,
)
# [Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch
#     pci bus id 00000000:86:00.0 physical id 3 port 33     (newer: on NodeId 0)
_ERROR = re.compile(
    _STAMPED.pattern
    + r"detected NVSwitch (?P<non>non-)?fatal error (?P<code>\d{4,6}) on (?:fid|NodeId) \d{1,4} on "
    r"NVSwitch pci bus id (?P<pci>[0-9A-Fa-f:.]{7,20})(?: physical id \d{1,4})?"
    r"(?: port (?P<port>\d{1,4}))?",
    re.MULTILINE,
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SHARE = 0.25
"""Of the lines, at least: entries of several lines carry one stamp."""


def sniff(head: bytes) -> bool:
    """Its stamp with level and thread on the first line and on a good part of the others."""
    text = head.decode("utf-8", "replace")
    lines = text.count("\n") or 1
    first = text.lstrip("\r\n")[:200]
    stamps = len(_STAMPED.findall(text)) if _STAMPED.match(first) else 0
    return bool(stamps) and stamps >= _SHARE * lines


def parse(text: str, origin: Origin) -> Iterator[SXid]:
    """The switch errors in order; none is normal. ValueError where no line carries its stamp."""
    if not _STAMPED.search(text):
        raise ValueError("expected the log of Fabric Manager")
    found = list(_ERROR.finditer(text))
    for error in found[-MOST:]:
        address = smi_values.pci(error["pci"])
        if address is None:
            continue
        yield SXid(
            node=origin.node,
            at=_moment(error["at"], origin.utc_offset_s),
            pci=address,
            code=int(error["code"]),
            fatal=error["non"] is None,
            link=int(error["port"]) if error["port"] else None,
            line=safe(error.group()),
        )


def _moment(text: str, utc_offset_s: int) -> datetime | None:
    month, day, year, clock = text.split()
    hour, minute, second = (int(part) for part in clock.split(":"))
    try:
        local = datetime(
            int(year), _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC
        )
        return local - timedelta(seconds=utc_offset_s)
    except (ValueError, OverflowError):
        return None
