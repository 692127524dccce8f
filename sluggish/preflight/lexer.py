"""Pure: the words of a shell script. Quotes, comments, continuations, arithmetic and here-documents
are understood, nothing is expanded."""

import re
from bisect import bisect_left
from dataclasses import dataclass

ENDS = ";&|()\n"
BLANK = " \t"
MOST_ARITHMETIC = 400
"""Characters; a search without end would be made at each of many parentheses."""
_HERE = re.compile(
    # <<EOF   <<-'END OF IT'   <<\EOF-1
    r"<<-?[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([^\s;&|()<>'\"\\`]+))"
)
_RUN = re.compile(r".[^\\'\"\s;&|()<#]*", re.DOTALL)
"""Letters that change nothing, at once: a word that grew letter by letter took minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One simple command."""

    line: int
    words: list[str]
    """Without quotes."""
    raw: str
    """As it is written, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lexed:
    """A script in pieces."""

    pieces: list[Piece]
    documents: list[range]
    """Lines that are the text of a here-document, and no command of this script."""
    open_quote: int | None = None
    """Line of a quote or a here-document that is never closed: what follows is not understood."""


def lexed(text: str) -> Lexed:
    """Simple commands as words, with line and raw text."""
    found: list[Piece] = []
    documents: list[range] = []
    words: list[str] = []
    here: list[str] = []
    word: str | None = None
    at, began, end = 0, 0, len(text)
    breaks = [match.start() for match in re.finditer("\n", text)]

    def line(place: int) -> int:
        return bisect_left(breaks, place) + 1

    def piece(to: int) -> list[Piece]:
        raw = " ".join(text[began:to].replace("\\\n", " ").split())
        return [Piece(line=line(began), words=words, raw=raw)] * bool(words)

    while at < end:
        char, before = text[at], at
        if char == "\\":
            word = word if text[at + 1 : at + 2] == "\n" else (word or "") + text[at + 1 : at + 2]
            at += 2
        elif char in "'\"":
            close = _closing(text, at)
            if close is None:
                return Lexed(pieces=found, documents=documents, open_quote=line(at))
            word = (word or "") + text[at + 1 : close]
            at = close + 1
        elif char == "#" and word is None:
            at = _line_end(text, at)
        elif (close := _arithmetic(text, at)) is not None:
            word = (word or "") + text[at:close]
            at = close
        elif text.startswith("<<<", at):
            word, at = (word or "") + "<<<", at + 3
        elif match := _HERE.match(text, at):
            here.append(next(filter(None, match.groups())))
            at = match.end()
        elif char in BLANK or char in ENDS:
            words += [] if word is None else [word]
            word = None
            if char in ENDS:
                found += piece(at)
                words = []
            at += 1
            while char == "\n" and here:
                start, (last, at) = at, _after_document(text, at, here.pop(0))
                if last is None:
                    return Lexed(pieces=found, documents=documents, open_quote=line(start - 1))
                documents.append(range(line(start), line(last)))
        else:
            run = _RUN.match(text, at)
            assert run
            word = (word or "") + run[0]
            at = run.end()
        if word is None and not words:
            began = at
        elif not words and began < before and not text[began:before].strip("\\\n" + BLANK):
            began = before
    words += [] if word is None else [word]
    return Lexed(pieces=found + piece(end), documents=documents)


def _arithmetic(text: str, at: int) -> int | None:
    """Behind the `((1 << 3))` that begins here, in which nothing is a word of the shell."""
    if not text.startswith("((", at):
        return None
    close = text.find("))", at, at + MOST_ARITHMETIC)
    return close + 2 if close >= 0 and "\n" not in text[at:close] else None


def _closing(text: str, at: int) -> int | None:
    """Where the quote that begins here is closed; `$'it\\'s'` knows escapes as `"` does."""
    quote = text[at]
    escapes = quote == '"' or text[max(at - 1, 0) : at] == "$"
    at += 1
    while at < len(text):
        if text[at] == "\\" and escapes:
            at += 1
        elif text[at] == quote:
            return at
        at += 1
    return None


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _after_document(text: str, at: int, word: str) -> tuple[int | None, int]:
    """Where the line begins that ends a here-document, None where none does, and what follows."""
    while at < len(text):
        start, end = at, _line_end(text, at)
        at = min(end + 1, len(text))
        if text[start:end].lstrip("\t") == word:
            return start, at
    return None, at
