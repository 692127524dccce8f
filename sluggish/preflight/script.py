"""Pure: everything that speaks against a launch script, and what it leaves unseen."""

from collections.abc import Iterator, Sequence

from sluggish.preflight.launch import checkpoint, export, kill, saves_are_told, sruns
from sluggish.preflight.note import Note
from sluggish.preflight.recorder import recorder
from sluggish.preflight.settings import folklore, timeouts, watchdog
from sluggish.preflight.shell import Script
from sluggish.text import safe


def check(script: Script) -> tuple[Note, ...]:
    """What speaks against the launch, worst first, then in the order of the lines."""
    parts = (kill, watchdog, timeouts, recorder, folklore, checkpoint, export)
    notes = [note for part in parts for note in part(script)]
    return tuple(sorted(notes, key=lambda n: (not n.unfit, n.line is None, n.line or 0)))


def fit(notes: Sequence[Note]) -> bool:
    """Whether nothing in it will cost the allocation."""
    return not any(note.unfit for note in notes)


def not_checked(script: Script) -> Iterator[str]:
    """What the script leaves to others."""
    if script.open_quote is not None:
        yield f"what follows line {script.open_quote}: a quote is opened there and never closed"
    if script.sourced:
        files = ", ".join(safe(name, 60) for name in script.sourced[:4])
        yield f"settings of {files}: read by the script, not looked into (give it as --script too)"
    if not any(True for _ in sruns(script)):
        yield "the launch: no srun that starts ranks stands in this script"
    if not saves_are_told(script):
        yield "how often a checkpoint is saved: not to be seen here; once an epoch is too rare"
