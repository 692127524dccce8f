"""Pure: the commands and settings that stand in a shell script, read and never run.

No shell: nothing is expanded but variables that the script itself sets to plain text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sluggish.preflight.batch import Batch, read_batch
from sluggish.preflight.lexer import lexed

_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_USE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::?[-=]([^${}]*))?\})")
_PYTHON = re.compile(
    # os.environ["NCCL_DEBUG"] = "WARN"     (in a program, or in a here-document)
    r"""environ(?:\[|\.setdefault\()\s*["'](\w{1,80})["']\s*(?:\]\s*=|,)\s*["']([^"'\n]{0,400})["']"""
)
_COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
MOST_VALUE = 4_000
EXPORTS = ("export", "env", "declare", "typeset", "readonly", "local")


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
    batch: Batch
    """What sbatch reads of it."""
    text: str
    """Line for line, without those that are comments."""
    sourced: tuple[str, ...] = ()
    """Files that it reads settings from: not seen here."""
    inner: tuple[int, ...] = ()
    """Lines at which a here-document begins that is a script of its own."""
    open_quote: int | None = None
    """Line of a quote or here-document that is never closed: what follows was not understood."""


def read_script(text: str) -> Script:
    """Everything that can be known without running it."""
    whole, text = text, text.removeprefix("\ufeff").replace("\r\n", "\n")
    commands: list[Command] = []
    settings: dict[str, Setting] = {}
    sourced: list[str] = []
    read = lexed(text)
    for piece in read.pieces:
        line = piece.line
        rest = _take_settings(piece.words, line, settings)
        if rest and rest[0] in (".", "source") and len(rest) > 1:
            sourced.append(rest[1])
        if rest:
            commands.append(Command(line=line, words=tuple(rest), raw=piece.raw))
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
        batch=read_batch(whole, read.documents),
        text=spoken,
        sourced=tuple(dict.fromkeys(sourced)),
        inner=tuple(_inner(text, read.documents)),
        open_quote=read.open_quote,
    )


_LAUNCH = re.compile(r"^#SBATCH\b|^[^#\n]*\bsrun\b", re.MULTILINE)


def _inner(text: str, documents: Sequence[range]) -> Iterator[int]:
    lines = text.split("\n") if documents else []
    for document in documents:
        body = "\n".join(lines[document.start - 1 : document.stop - 1])
        if _LAUNCH.search(body):
            yield document.start


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
