"""The text of Xid and SXid lines, taken apart. Pure; no catalogue data is read here.

Forms: NVIDIA/open-gpu-kernel-modules 595.45.04 `kernel_rc.c`, `error_nvswitch.c`, `gpu.c`.
"""

import re
from dataclasses import dataclass, replace

_PCI = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"

# NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
# NVRM: Xid (PCI:0000:3b:00 GPU-I:02 GPU-CI:00): 94, pid=77, name=python3, Contained: ...
# NVRM: Xid (0000:03:00): 14, Channel 00000001            (drivers before about 400)
XID = re.compile(
    r"NVRM: (?:\w{1,32}: )?Xid \((?:PCI:)?(?P<pci>" + _PCI + r")"
    r"(?: GPU-I:(?P<gi>[0-9]{1,6}))?(?: GPU-CI:(?P<ci>[0-9]{1,6}))?\)"
    r": (?P<code>[0-9]{1,6})(?:, ?(?P<rest>.*))?$",
    re.ASCII | re.DOTALL,
)
# 09:15:02  NVRM: Xid 31 PCI:0000:f1:00 pid=812 name=python   (shortened by hand in reports)
XID_SHORT = re.compile(
    r"NVRM:? +Xid (?P<code>[0-9]{1,6}),? \(?PCI:(?P<pci>" + _PCI + r")\)?[:,]? ?(?P<rest>.*)$",
    re.ASCII | re.DOTALL,
)
# NVRM: Xid (PCI:...): 145, RLW_RXPIPE Nonfatal ...      NVRM: Xid (PCI:xxxx:xx:00): 79, ...
# (whoever posted it left the address out: the code still tells)
XID_NO_ADDRESS = re.compile(
    r"NVRM: Xid \(PCI:(?=[^)]{0,20}[.xX*\u2026])[^)\n]{1,24}\): (?P<code>[0-9]{1,6})"
    r"(?:, ?(?P<rest>.*))?$",
    re.ASCII | re.DOTALL,
)
# pid=4242, name=python3, Ch 00000008        pid='<unknown>', name=<unknown>, GPU has ...
_PID = re.compile(r"pid='?(?P<pid><unknown>|[0-9]{1,10})?'?(?:,? |$)", re.ASCII)
_NAME = re.compile(r"name=(?P<name>[^,]{0,64})(?:, ?|$)", re.ASCII)
# ... channel 0x00000002 caused by previous Xid 149
_PREVIOUS = re.compile(r" caused by previous Xid (?P<code>[0-9]{1,6})\s*$", re.ASCII)
# RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 ...)
# (two blanks after the unit are usual)
NVLINK5 = re.compile(
    r"(?P<unit>[A-Z][A-Z0-9_]{1,40}(?:/[A-Z0-9_]{1,40})?) +(?P<severity>Fatal|Nonfatal) +"
    r"XC[0-9] +i[0-9]{1,3} +Link +(?P<link>-?[0-9]{1,3})(?: +\((?P<words>[^)]{0,120}))?",
    re.ASCII,
)
# NVLink: fatal error detected on link 9(0x0, 0x0, 0x80000, 0x0, 0x0, 0x0, 0x0)
NVLINK4 = re.compile(
    r"NVLink: .{0,60}? link (?P<link>[0-9]{1,3}) ?\((?P<words>[^)]{0,120})", re.ASCII
)
# GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)
RECOVERY = re.compile(
    r"recovery action changed from 0x(?P<old>[0-9a-f]{1,8}) \([^)]{0,60}\) "
    r"to 0x(?P<new>[0-9a-f]{1,8})",
    re.ASCII,
)
# Contained: CE User Channel (0xb). RST: No, D-RST: No
_RESET = re.compile(r"(?<!D-)RST: (?P<word>Yes|No)", re.ASCII)
# nvidia-nvswitch2: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 38 egress non-posted PRIV error
SXID = re.compile(
    r"nvswitch[0-9]{1,3}: SXid \(PCI:(?P<pci>" + _PCI + r")\): (?P<code>[0-9]{1,6}), "
    r"(?:(?P<severity>Fatal|Non-fatal|Correctable), )?(?P<rest>.*)$",
    re.ASCII | re.DOTALL,
)
_LINK = re.compile(r"\bLink (?P<link>[0-9]{1,3})\b", re.ASCII)
_FOLLOW_UP = re.compile(r"(?:Severity [0-9]|Data \{)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class XidText:
    """An Xid line in parts, as printed. `pci` has no function digit in most drivers.

    It is empty where the address was left out of what was posted.
    """

    pci: str
    code: int
    pid: int | None = None
    process: str | None = None
    words: str = ""
    caused_by: int | None = None
    recovery: int | None = None
    reset_hint: bool | None = None
    unit: str | None = None
    fatal: bool | None = None
    link: int | None = None
    intrinfo: int | None = None
    status: int | None = None
    link_words: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SXidText:
    """An SXid line in parts."""

    pci: str
    code: int
    fatal: bool | None
    """None where the driver printed no word."""
    link: int | None
    words: str
    follow_up: bool
    """True for the Severity and Data lines that belong to the SXid before them."""


def split_xid(text: str) -> XidText | None:
    """The parts of an Xid line; anything may stand before `NVRM:`. None: not an Xid line."""
    found = XID.search(text) or XID_SHORT.search(text) or XID_NO_ADDRESS.search(text)
    if not found:
        return None
    code = int(found["code"])
    rest, pid, process = _caller((found["rest"] or "").strip())
    previous = _PREVIOUS.search(rest)
    words = rest[: previous.start()] if previous else rest
    recovery = RECOVERY.search(words) if code == 154 else None
    reset = _RESET.search(words) if code in (94, 95) else None
    parts = XidText(
        pci=found.groupdict().get("pci") or "",
        code=code,
        pid=pid,
        process=process,
        words=words,
        caused_by=int(previous["code"]) if previous else None,
        recovery=int(recovery["new"], 16) if recovery else None,
        reset_hint=reset["word"] == "Yes" if reset else None,
    )
    return _with_link(parts)


def _caller(rest: str) -> tuple[str, int | None, str | None]:
    """Take `pid=` and `name=` off the front: what is left, pid, process name."""
    pid: int | None = None
    process: str | None = None
    if found := _PID.match(rest):
        rest = rest[found.end() :]
        pid = int(found["pid"]) if (found["pid"] or "").isdigit() else None
    if found := _NAME.match(rest):
        rest = rest[found.end() :]
        process = None if found["name"] in ("<unknown>", "") else found["name"]
    return rest, pid, process


def _with_link(parts: XidText) -> XidText:
    """Add what NVLink lines say: unit, printed severity, link, words."""
    if 144 <= parts.code <= 150 and (found := NVLINK5.match(parts.words)):
        numbers = _hex_words(found["words"] or "")
        link = int(found["link"])
        return replace(
            parts,
            unit=found["unit"],
            fatal=found["severity"] == "Fatal",
            link=link if link >= 0 else None,
            intrinfo=numbers[0] if numbers else None,
            status=numbers[1] if len(numbers) > 1 else None,
            link_words=numbers,
        )
    if parts.code == 74 and (found := NVLINK4.search(parts.words)):
        return replace(parts, link=int(found["link"]), link_words=_hex_words(found["words"]))
    return parts


def _hex_words(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()
    return tuple(int(w, 16) for w in words if re.fullmatch(r"0x[0-9a-fA-F]{1,8}", w))


def split_sxid(text: str) -> SXidText | None:
    """The parts of an SXid line, or None."""
    found = SXID.search(text)
    if not found:
        return None
    severity = found["severity"]
    link = _LINK.search(found["rest"])
    return SXidText(
        pci=found["pci"],
        code=int(found["code"]),
        fatal=None if severity is None else severity == "Fatal",
        link=int(link["link"]) if link else None,
        words=found["rest"].strip(),
        follow_up=bool(_FOLLOW_UP.match(found["rest"])),
    )
