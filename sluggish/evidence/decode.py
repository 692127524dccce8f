"""Bytes to text, whatever the mail did to them."""

import codecs
import re

_COLOUR = re.compile(rb"\x1b\[[0-9;:]{0,40}[mK]")  # ESC [ 3 2 m, and grep's ESC [ K


def without_colours(content: bytes) -> bytes:
    """The bytes without colour sequences; other escapes stay for those who know what they mean."""
    return _COLOUR.sub(b"", content) if b"\x1b[" in content else content


def decode(content: bytes) -> str:
    """Text of UTF-8, UTF-16 with or without its mark, or junk; NUL runs and `\\r\\n` are cleaned.

    Colours go too: `dmesg` and `grep` write them where they are told to, also into a file.
    What is not UTF-8 becomes U+FFFD. A lone `\\r` stays: progress bars are written with it.
    """
    text = _decode(without_colours(content))
    if "\0" in text:  # a log on a file system that was cut off has runs of them
        text = text.replace("\0", "")
    return text.replace("\r\n", "\n") if "\r\n" in text else text


def _decode(content: bytes) -> str:
    if content.startswith(codecs.BOM_UTF8):
        return content[3:].decode("utf-8", "replace")
    if content.startswith(codecs.BOM_UTF16_LE):
        return content[2:].decode("utf-16-le", "replace")
    if content.startswith(codecs.BOM_UTF16_BE):
        return content[2:].decode("utf-16-be", "replace")
    start = content[:64]
    if len(start) >= 16 and not any(start[1::2]) and all(start[0::2]):
        return content.decode("utf-16-le", "replace")  # PowerShell without a mark
    return content.decode("utf-8", "replace")
