"""The answer to `--script`, for people and for scripts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from sluggish.causes import EXIT_UNFIT
from sluggish.preflight.counts import many
from sluggish.preflight.documents import LONG, NoteDoc, ScriptDocument, written
from sluggish.preflight.note import Note
from sluggish.preflight.screen import block, finished, wrapped
from sluggish.preflight.script import check, fit, not_checked
from sluggish.preflight.shell import Script, read_script
from sluggish.preflight.sources import bad
from sluggish.preflight.submit import refused
from sluggish.report.terminal import Look
from sluggish.text import safe

MOST_BYTES = 1 << 20


def load(path: Path) -> Script:
    """The script's text, understood; EvidenceError where it is no text."""
    try:
        if not path.exists():
            raise bad(path, "no such file")
        if not path.is_file():
            raise bad(path, "not a file")
        if path.stat().st_size > MOST_BYTES:
            raise bad(path, f"more than {MOST_BYTES >> 20} MB: no launch script")
        data = path.read_bytes()
    except OSError as problem:
        raise bad(path, f"cannot be read: {problem.strerror or problem}") from None
    if b"\0" in data:
        raise bad(path, "not a text: it holds zero bytes")
    if not data.strip():
        raise bad(path, "empty")
    return read_script(data.decode("utf-8", "replace"))


def render(script: Script, name: str, look: Look) -> str:
    """The screen."""
    notes = check(script)
    return finished(_lines(script, notes, name, look), look)


def _lines(script: Script, notes: Sequence[Note], name: str, look: Look) -> Iterator[str]:
    lines = many(len(script.text.splitlines()), "line")
    yield f"sluggish preflight  {safe(name, 80)}  {lines}, read only"
    yield ""
    unfit = [note for note in notes if note.unfit]
    if unfit:
        lines = f"{len(unfit)} lines cost" if len(unfit) > 1 else "one line costs"
        says = f"{lines} the allocation when something breaks"
        if any(True for _ in refused(script)):
            says = "sbatch refuses it as it stands"
        yield from block("NOT FIT", [says], look)
    else:
        more = f"; {len(notes)} to improve" if notes else ""
        yield from block("FIT", [f"nothing here costs the allocation{more}"], look)
    if notes:
        yield ""
    for note in notes:
        where = f"line {note.line}" if note.line else "missing"
        yield from wrapped(f" {'✗' if note.unfit else '!'} {where:<9} ", note.says, look)
        for better in note.better or ("(take the line out)",) * bool(note.line):
            yield f"     write    {safe(better, 400)}"
    blind = list(not_checked(script))
    if blind:
        yield ""
        yield "NOT CHECKED"
        for says in blind:
            yield from wrapped(" ? ", says, look)
    yield ""
    yield f" exit {0 if not unfit else EXIT_UNFIT}   docs/preflight.md"


def document(script: Script, name: str) -> str:
    """The same as one JSON document; docs/preflight.schema.json describes it."""
    notes = check(script)
    return written(
        ScriptDocument(
            fit=fit(notes),
            exit_code=0 if fit(notes) else EXIT_UNFIT,
            source=safe(name, LONG),
            notes=[
                NoteDoc(
                    unfit=note.unfit,
                    line=note.line,
                    says=safe(note.says, LONG),
                    better=[safe(line, LONG) for line in note.better],
                )
                for note in notes
            ],
            not_checked=[safe(says, LONG) for says in not_checked(script)],
        )
    )
