"""Text from nodes and logs is untrusted: the one place that makes it safe to show."""

import re
import unicodedata

NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z")

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI, e.g. colours
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, e.g. window title, hyperlinks
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC strings
    r"|\x1b[@-Z\\-_]"
)
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}  # controls, bidi marks, line separators


def strip_ansi(text: str) -> str:
    """Remove complete terminal escape sequences; lone escapes are left to `safe`."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def safe(text: str, limit: int = 400) -> str:
    """One printable line: escapes removed, control and bidi characters as `\\xNN` or `\\uNNNN`.

    Tabs become one space. Longer text is cut at `limit` characters and marked with `…`.
    """
    text = strip_ansi(text[: limit * 4]).replace("\t", " ").rstrip("\r\n ")
    out = "".join(_escape(c) if unicodedata.category(c) in _UNSAFE_CATEGORIES else c for c in text)
    return out if len(out) <= limit else out[: limit - 1] + "…"


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def counted(number: int, one: str, more: str) -> str:
    """`1 rank has`, `15 ranks have`."""
    return f"{number} {one if number == 1 else more}"


def is_node_name(name: str) -> bool:
    """Whether `name` may stand in a command: a host name and nothing else."""
    return bool(NODE_NAME.match(name))
