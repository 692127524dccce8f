"""What the terminal can show, and writing to it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from sluggish.report.terminal import Look

NARROWEST = 72
"""Below this the columns of the screen leave no room for words."""


def look_of(stream: TextIO) -> Look:
    """Colour only on a terminal and without NO_COLOR; glyphs only where the encoding has them."""
    from sluggish.report.terminal import WIDTH, Look

    dumb = os.environ.get("TERM") == "dumb"
    colour = stream.isatty() and not os.environ.get("NO_COLOR") and not dumb
    try:
        "✗✓·↔…".encode(stream.encoding or "ascii")
        unicode = True
    except (UnicodeEncodeError, LookupError):
        unicode = False
    width = WIDTH
    if stream.isatty():
        width = min(WIDTH, max(NARROWEST, shutil.get_terminal_size((WIDTH, 24)).columns))
    return Look(colour=colour, unicode=unicode, width=width)


def show(text: str) -> None:
    """Write a report to stdout; a character that it cannot carry is escaped, never an error."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()
