"""Pure: the commands and settings that stand in a shell script, read and never run.

No shell: quotes, comments, continuations and here-documents are understood, nothing is expanded
but variables that the script itself sets to plain text.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_HERE = re.compile(r"<<-?[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([A-Za-z0-9_]+))")
_USE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=]([^${}]*))?\})")
_PYTHON = re.compile(
    # os.environ["NCCL_DEBUG"] = "WARN"     (in a program, or in a here-document)
    r"""environ(?:\[|\.setdefault\()\s*["'](\w{1,80})["']\s*(?:\]\s*=|,)\s*["']([^"'\n]{0,400})["']"""
)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
MOST_VALUE = 4_000
ENDS = ";&|()\n"
BLANK = " \t"
_RUN = re.compile(r".[^\\'\"\s;&|()<#]*", re.DOTALL)
"""Letters that change nothing, at once: a word that grew letter by letter took minutes."""
EXPORTS = ("export", "env", "declare", "typeset", "readonly", "local")
DIRECTIVE = re.compile(r"#SBATCH[ \t]+(.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One simple command."""

    line: int
    words: tuple[str, ...]
    """Without quotes; assignments before it are left out."""
    raw: str
    """As it is written, on one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A variable that gets a value; of several the last one counts."""

    name: str
    value: str
    """With the script's own variables put in."""
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What a script says."""

    commands: tuple[Command, ...]
    settings: Mapping[str, Setting]
    directives: Mapping[str, tuple[str, int]]
    """`--nodes` and its value and line, of the #SBATCH lines; short options as they are written."""
    text: str
    """Line for line, without those that are comments."""
    sourced: tuple[str, ...] = ()
    """Files that it reads settings from: not seen here."""
    open_quote: int | None = None
    """Line of a quote that is never closed: what follows it was not understood."""


def read_script(text: str) -> Script:
    """Everything that can be known without running it."""
    text = text.replace("\r\n", "\n")
    commands: list[Command] = []
    settings: dict[str, Setting] = {}
    sourced: list[str] = []
    pieces, open_quote = _pieces(text)
    for line, words, raw in pieces:
        rest = _take_settings(words, line, settings)
        if rest and rest[0] in (".", "source") and len(rest) > 1:
            sourced.append(rest[1])
        if rest:
            commands.append(Command(line=line, words=tuple(rest), raw=raw))
    done: dict[tuple[str, int], str] = {}
    spoken = _COMMENT.sub("", text)
    for match in _PYTHON.finditer(spoken):
        line = spoken.count("\n", 0, match.start()) + 1
        settings[match[1]] = Setting(name=match[1], value=match[2], line=line)
    return Script(
        commands=tuple(commands),
        settings={
            name: replace(one, value=resolved(one.value, settings, done=done))
            for name, one in settings.items()
        },
        directives=dict(_directives(text)),
        text=spoken,
        sourced=tuple(dict.fromkeys(sourced)),
        open_quote=open_quote,
    )


def resolved(
    value: str,
    settings: Mapping[str, Setting],
    depth: int = 4,
    done: dict[tuple[str, int], str] | None = None,
) -> str:
    """The value with the script's own variables in it, and `${X:-default}` as its default.

    `done` keeps what was put in: a variable that names others by the thousand is read once.
    """

    done = {} if done is None else done

    def one(match: re.Match[str]) -> str:
        known = settings.get(match[1] or match[2])
        if known is not None and depth and known.value != value:
            at = known.name, depth - 1
            if at not in done:
                done[at] = resolved(known.value, settings, depth - 1, done)
            return done[at]
        return match[0] if match[3] is None else match[3]

    said, size, end = list[str](), 0, 0
    for match in _USE.finditer(value := value[:MOST_VALUE]):
        said += value[end : match.start()], one(match)
        size, end = size + len(said[-1]), match.end()
        if size > MOST_VALUE:
            break
    return "".join([*said, value[end:]])[:MOST_VALUE]


def _take_settings(words: list[str], line: int, settings: dict[str, Setting]) -> list[str]:
    """Notes the assignments; what is left is the command."""
    at = 0
    while at < len(words):
        match = _NAME.match(words[at])
        if match:
            settings[match[1]] = Setting(name=match[1], value=match[2], line=line)
        elif words[at] == "unset":
            for name in words[at + 1 :]:
                settings.pop(name, None)
            return []
        elif words[at] not in EXPORTS and not (at and words[at].startswith("-")):
            break
        at += 1
    return words[at:]


def _directives(text: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """The #SBATCH lines before the first command, as sbatch reads them."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            return
        match = DIRECTIVE.match(line)
        words = re.sub(r"\s#.*", "", match[1]).split() if match else []
        for at, word in enumerate(words):
            if word.startswith("--"):
                name, _, value = word.partition("=")
            elif word.startswith("-"):
                name, value = word[:2], word[2:]
            else:
                continue
            after = words[at + 1] if at + 1 < len(words) else "-"
            yield name, (value or ("" if after.startswith("-") else after), number)


def _pieces(text: str) -> tuple[list[tuple[int, list[str], str]], int | None]:
    """Simple commands as words, with line and raw text; and where a quote stays open."""
    found: list[tuple[int, list[str], str]] = []
    words: list[str] = []
    here: list[str] = []
    word: str | None = None
    at, began, end = 0, 0, len(text)
    breaks = [match.start() for match in re.finditer("\n", text)]
    while at < end:
        char, before = text[at], at
        if char == "\\":
            word = word if text[at + 1 : at + 2] == "\n" else (word or "") + text[at + 1 : at + 2]
            at += 2
        elif char in "'\"":
            close = _closing(text, at)
            if close is None:
                return found, text.count("\n", 0, at) + 1
            word = (word or "") + text[at + 1 : close]
            at = close + 1
        elif char == "#" and word is None:
            at = _line_end(text, at)
        elif (match := _HERE.match(text, at)) and text[at : at + 3] != "<<<":
            here.append(next(filter(None, match.groups())))
            at = match.end()
        elif char in BLANK or char in ENDS:
            words += [] if word is None else [word]
            word = None
            if char in ENDS:
                found += [_piece(text, breaks, began, at, words)] * bool(words)
                words = []
            at += 1
            while char == "\n" and here:
                at = _after_document(text, at, here.pop(0))
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
    return found + [_piece(text, breaks, began, end, words)] * bool(words), None


def _piece(
    text: str, breaks: list[int], began: int, end: int, words: list[str]
) -> tuple[int, list[str], str]:
    raw = " ".join(text[began:end].replace("\\\n", " ").split())
    return bisect_left(breaks, began) + 1, words, raw


def _closing(text: str, at: int) -> int | None:
    """Where the quote that begins here is closed."""
    quote, at = text[at], at + 1
    while at < len(text):
        if text[at] == "\\" and quote == '"':
            at += 1
        elif text[at] == quote:
            return at
        at += 1
    return None


def _line_end(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _after_document(text: str, at: int, word: str) -> int:
    """Behind the line that ends a here-document."""
    while at < len(text):
        end = _line_end(text, at)
        line, at = text[at:end], end + 1
        if line.lstrip("\t") == word:
            break
    return min(at, len(text))
