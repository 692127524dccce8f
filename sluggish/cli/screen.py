"""What the terminal can show, and writing to it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from sluggish.report.terminal import Look


def look_of(stream: TextIO) -> Look:
    """Colour only on a terminal and without NO_COLOR; glyphs only where the encoding has them."""
    from sluggish.report.terminal import Look

    dumb = os.environ.get("TERM") == "dumb"
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and not dumb
    try:
        "✗✓·↔…".encode(stream.encoding or "ascii")
        unicode = True
    except (UnicodeEncodeError, LookupError):
        unicode = False
    return Look(colour=colour, unicode=unicode)


def show(text: str) -> None:
    """Write a report to stdout; a character that it cannot carry is escaped, never an error."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
