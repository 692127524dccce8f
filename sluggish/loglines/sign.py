"""A kind of log line: the words that it must hold, and its form."""

import re
from collections.abc import Callable
from dataclasses import dataclass

Detail = Callable[[re.Match[str]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A kind of line: the words it must hold, cheap to look for, and its form."""

    kind: str
    words: tuple[str, ...]
    form: re.Pattern[str]


def sign(kind: str, *words: str, form: str | None = None) -> Sign:
    """Without a form the words themselves are the form."""
    pattern = form or "|".join(re.escape(word) for word in words)
    return Sign(kind=kind, words=words, form=re.compile(pattern, re.IGNORECASE))
