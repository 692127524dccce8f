"""Context: what a reader of one kernel line is given, and how it looks at the lines after it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sluggish.text import safe

QUOTE_LIMIT = 600
"""Characters of a line that are kept as its quote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One kernel line with its place in the log."""

    text: str
    """Without stamp, host and tag."""
    raw: str
    at: datetime | None
    node: str | None
    order: int
    tag: str
    following: Callable[[int], Iterator[str]]
    """`following(n)`: the texts of the next n lines, stamps taken off."""

    @property
    def line(self) -> str:
        """The quote: the line as it stood, made safe."""
        raw = self.raw
        if len(raw) <= QUOTE_LIMIT and raw.isascii() and raw.isprintable():
            return raw  # nearly every line; `safe` looks at each character
        return safe(raw, QUOTE_LIMIT)
