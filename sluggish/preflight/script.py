"""Pure: everything that speaks against a launch script, and what it leaves unseen."""

from collections.abc import Iterator, Sequence

from sluggish.preflight.launch import checkpoint, export, in_quotes, kill, saves_are_told, sruns
from sluggish.preflight.note import Note
from sluggish.preflight.recorder import recorder
from sluggish.preflight.settings import folklore, timeouts, watchdog
from sluggish.preflight.shell import Script
from sluggish.preflight.submit import agents, expanded, ignored, launch_is_by, parts, refused
from sluggish.text import safe


def check(script: Script) -> tuple[Note, ...]:
    """What speaks against the launch, worst first, then in the order of the lines."""
    sides = (refused, ignored, kill, agents, parts, expanded, watchdog, timeouts, recorder,
             folklore, checkpoint, export)  # fmt: skip
    notes = [note for side in sides for note in side(script)]
    return tuple(sorted(notes, key=lambda n: (not n.unfit, n.line is None, n.line or 0)))


def fit(notes: Sequence[Note]) -> bool:
    """Whether nothing in it will cost the allocation."""
    return not any(note.unfit for note in notes)


def not_checked(script: Script) -> Iterator[str]:
    """What the script leaves to others."""
    if script.open_quote is not None:
        where = f"what follows line {script.open_quote}"
        yield f"{where}: a quote or here-document begins there and never ends"
    if script.sourced:
        files = ", ".join(safe(name, 60) for name in script.sourced[:4])
        yield f"settings of {files}: read by the script, not looked into (give it as --script too)"
    if not any(True for _ in sruns(script)):
        by = launch_is_by(script)
        if by:
            yield f"the launch: {by} starts the ranks, and what it does when one of them dies"
        else:
            yield "the launch: no srun that starts ranks stands in this script"
    quoted = sorted(set(in_quotes(script)))
    if quoted:
        lines = ", ".join(map(str, quoted[:8]))
        yield f"line {lines}: srun stands in quotes there, or is handed to another program"
    if script.inner:
        lines = ", ".join(map(str, script.inner[:8])) + ", ..." * (len(script.inner) > 8)
        yield f"the script in the here-document at line {lines}: give it as a file of its own"
    if not saves_are_told(script):
        yield "how often a checkpoint is saved: not to be seen here; once an epoch is too rare"
