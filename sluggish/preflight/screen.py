"""The shape of every preflight's screen: the answer first, then what was seen, then what to do."""

import textwrap
from collections.abc import Iterable, Iterator

from sluggish.report.terminal import Look
from sluggish.text import safe

COLUMN = 10
"""Width of the word at the left, as on the screen of a diagnosis."""
COLOUR = {"NOT FIT": "1;31", "FIT": "1;32", "✗": "31", "✓": "32", "!": "33", "?": "33"}
_ASCII = str.maketrans({"✗": "x", "✓": "+", "·": "-", "…": "~"})


def block(word: str, texts: Iterable[str], look: Look) -> Iterator[str]:
    """A word in capitals and its lines, broken under one another."""
    head = f"{word:<{COLUMN}}"
    for text in texts:
        yield from wrapped(head, text, look)
        head = " " * COLUMN


def wrapped(head: str, text: str, look: Look) -> list[str]:
    """`head` and then the text made safe, in lines of this width."""
    return textwrap.wrap(
        safe(text, 1_200),
        look.width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    ) or [head.rstrip()]


def steps(texts: Iterable[tuple[str, tuple[str, ...]]], look: Look) -> Iterator[str]:
    """Numbered advice, each with lines to copy that are never broken."""
    for number, (says, lines) in enumerate(texts, 1):
        yield from wrapped(f" {number} ", says, look)
        for line in lines:
            yield f"   {safe(line, 400)}"


def finished(lines: Iterable[str], look: Look) -> str:
    """The screen as one text, with colour or in ASCII as the terminal can."""
    text = "\n".join(_styled(line, look) for line in lines) + "\n"
    if not look.unicode:
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    return text


def _styled(line: str, look: Look) -> str:
    """The words stay: colour is never the only sign."""
    if not look.colour:
        return line
    for sign, code in COLOUR.items():
        if line.lstrip().startswith(sign):
            return line.replace(sign, f"\x1b[{code}m{sign}\x1b[0m", 1)
    return line
