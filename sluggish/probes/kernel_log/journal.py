"""The journal's own formats as `short-unix` lines: `-o json` and its kin, `export`, `verbose`.

Field names: systemd.journal-fields(7). Of who wrote an entry `_TRANSPORT` decides: journald sets it
and no program can, while anybody may call himself `kernel` (`logger -t kernel`).
"""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from sluggish.evidence.logscan import GAP_MARK
from sluggish.text import is_node_name

# {"__CURSOR":"...","__REALTIME_TIMESTAMP":"1763953300123456","_TRANSPORT":"kernel",...}    -o json
#     "__REALTIME_TIMESTAMP" : "1763953300123456",                                   -o json-pretty
_JSON = re.compile(
    r'(?m)^(?:\x1e|data: )?\{[^\n]{0,4000}"__(?:REALTIME_TIMESTAMP|CURSOR)"'
    r'|^\{\n(?:\t"[^\n]{0,4000}\n){0,20}\t"__(?:REALTIME_TIMESTAMP|CURSOR)" :'
)
# __REALTIME_TIMESTAMP=1763953300123456                                                   -o export
_EXPORT = re.compile(r"(?m)^__REALTIME_TIMESTAMP=[0-9]{13,17}$")
# Mon 2026-11-30 13:28:11.451091 UTC [s=498f..;i=940;b=48d8..;m=a61b9e27a;t=6617e6198f2d3;x=3b96..]
#     MESSAGE=br0: port 5 entered forwarding state                                     -o verbose
_VERBOSE = re.compile(
    r"^[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} \S{1,8} "
    r"\[s=[0-9a-f]{1,40};[\w=;]{1,200};t=(?P<micros>[0-9a-f]{10,15});x=[0-9a-f]{1,20}\]$",
    re.MULTILINE | re.ASCII,
)
_KERNEL = re.compile(r'(?m)"(?:_TRANSPORT|SYSLOG_IDENTIFIER)" ?: ?"kernel"'
                     r"|^(?: {4})?(?:_TRANSPORT|SYSLOG_IDENTIFIER)=kernel$")  # fmt: skip
_SIGNED = re.compile(
    r'(?m)"(?:_TRANSPORT|SYSLOG_IDENTIFIER)" ?:|^(?: {4})?(?:_TRANSPORT|SYSLOG_IDENTIFIER)='
)
_BARE = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")
_TAG = re.compile(r"[A-Za-z][\w.()/@-]{0,48}\Z", re.ASCII)
_WANTED = frozenset(
    {"__REALTIME_TIMESTAMP", "_TRANSPORT", "SYSLOG_IDENTIFIER", "_HOSTNAME", "MESSAGE"}
)

Entry = dict[str, Any]


def is_journal(text: str) -> bool:
    """Whether a text is one of these formats and may hold entries of the kernel."""
    if not (_JSON.search(text) or _EXPORT.search(text) or _VERBOSE.search(text)):
        return False
    return bool(_KERNEL.search(text)) or not _SIGNED.search(text)


def as_lines(text: str) -> tuple[str, int]:
    """The entries as lines of `journalctl -o short-unix`, and how many could not be read."""
    broken = 0
    lines: list[str] = []
    for entry in _of_json(text) if _JSON.search(text) else _of_export(text):
        if entry is None:
            broken += 1
        elif isinstance(entry, str):
            lines.append(entry)
        else:
            lines += _lines(entry)
    return "\n".join([*lines, ""]), broken


def _lines(entry: Entry) -> Iterator[str]:
    stamp = _word(entry.get("__REALTIME_TIMESTAMP"))
    micros = int(stamp) if stamp.isascii() and stamp.isdecimal() and len(stamp) < 18 else None
    at = f"{micros // 1_000_000}.{micros % 1_000_000:06d} " if micros is not None else ""
    host = _word(entry.get("_HOSTNAME"))
    host = f"{host} " if is_node_name(host) else ""
    for line in _text(entry.get("MESSAGE")).splitlines():
        yield f"{at}{host}{_tag(entry)}: {line}"


def _tag(entry: Entry) -> str:
    name, transport = _word(entry.get("SYSLOG_IDENTIFIER")), _word(entry.get("_TRANSPORT"))
    if transport == "kernel" or not (name or transport):
        return "kernel"
    if name == "kernel" and not transport:
        return "kernel"
    return name if name != "kernel" and _TAG.match(name) else "user"


def _word(value: object) -> str:
    """A field that was given twice is a list: such a one says nothing."""
    return value if isinstance(value, str) else ""


def _text(value: object) -> str:
    """journald writes a message that is not plain text as a list of its bytes."""
    if isinstance(value, list):
        numbers = [n for n in cast(list[Any], value) if isinstance(n, int) and 0 <= n < 256]
        return bytes(numbers).decode("utf-8", "replace")
    return value if isinstance(value, str) else ""


def _of_json(text: str) -> Iterator[Entry | str | None]:
    """One object a line, or an object of many lines between lines that are a bare brace."""
    held: list[str] | None = None
    for line in text.split("\n"):
        bare = line.lstrip("\x1e").removeprefix("data: ").rstrip("\r")
        if line.startswith(GAP_MARK):
            yield line
        elif held is not None:
            held.append(bare)
            if bare == "}":
                yield _loaded("\n".join(held))
                held = None
        elif bare == "{":
            held = [bare]
        elif bare:
            yield _loaded(bare)
    if held is not None:
        yield None


def _loaded(text: str) -> Entry | None:
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast(Entry, found) if isinstance(found, dict) else None


def _of_export(text: str) -> Iterator[Entry | str | None]:
    """`NAME=value` lines; a blank one ends an entry, in `verbose` the next heading does."""
    entry: Entry = {}
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = end if end >= 0 else len(text)
        line, at = text[at:end], end + 1
        name, equals, value = line.partition("=")
        if found := _VERBOSE.match(line):
            if entry:
                yield entry
            entry = {"__REALTIME_TIMESTAMP": str(int(found["micros"], 16))}
        elif line.startswith(GAP_MARK):
            yield line
        elif line.startswith("    "):
            if name[4:] in _WANTED:
                entry[name[4:]] = value
        elif equals and name in _WANTED:
            entry[name] = value
        elif _BARE.match(line):
            behind = _behind_bytes(text, at)
            if behind is None:
                yield None
                return
            at = behind
        elif not line and entry:
            yield entry
            entry = {}
    if entry:
        yield entry


def _behind_bytes(text: str, at: int) -> int | None:
    """Where a value of bytes ends; None where decoding has spoilt its length.

    Such a value is any program's, and may hold lines that look like an entry of the kernel: what
    stands behind one whose end is not known is not believed.
    """
    size = sum(ord(char) << (8 * place) for place, char in enumerate(text[at : at + 8]))
    if len(text) < at + 8 or any(ord(char) > 0x7F for char in text[at : at + 8]):
        return None
    here = at + 8
    while size > 0 and here < len(text):
        if text[here] == "\ufffd":
            return None
        size -= len(text[here].encode("utf-8", "replace"))
        here += 1
    return here + 1 if size == 0 and text.startswith("\n", here) else None
