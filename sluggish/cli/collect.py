"""`sluggish collect --job ID -o FILE`, and how `diagnose --job` takes and keeps its bundle."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

from sluggish.causes import EXIT_NOTHING
from sluggish.cli.live import OVER, Taken, Wanted, take
from sluggish.cli.notes import Notes
from sluggish.cli.way import way_to
from sluggish.config import Config
from sluggish.evidence.model import Bundle
from sluggish.evidence.save import save
from sluggish.evidence.source import EvidenceError
from sluggish.reach.model import Transport
from sluggish.reach.pick import number_of
from sluggish.reach.slurm import SlurmView
from sluggish.reach.ssh import load_fabric
from sluggish.reach.state import NoPlace, free, place, prune

STOPPED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A look that lies on the disk."""

    path: Path
    taken: Taken
    silent: tuple[Path, ...] = ()
    """State directories whose storage does not answer."""


def run(wanted: Wanted, out: Path, config: Config, *, anonymous: bool) -> int:
    """Take a look at a job and save it as a bundle; nothing is judged."""
    if os.path.lexists(out):
        raise EvidenceError(f"{out}: is there already; give another name")
    notes = Notes()
    kept = _collected(wanted, out, config, notes, anonymous=anonymous)
    if kept is None:
        return EXIT_NOTHING
    print(kept.path)
    return STOPPED if kept.taken.stopped else 0


def collected(wanted: Wanted, config: Config) -> Kept | None:
    """A look saved in the state directory; None where Slurm tells of no such job."""
    notes = Notes()
    now = datetime.now(UTC)
    try:
        where = place(wanted.job.job, now, env=os.environ, configured=config.state.dir)
    except NoPlace as problem:
        raise EvidenceError(str(problem)) from None
    notes.say(where.notes)
    kept = _collected(wanted, where.path, config, notes, own=True)
    limits = {"max_mb": config.state.max_mb, "max_days": config.state.max_days}
    prune(where.root, keep=kept.path if kept else where.path, now=now, **limits)
    if kept is None:
        with suppress(OSError):  # other looks lie there
            where.path.parent.rmdir()
    return replace(kept, silent=where.silent) if kept else None


def _collected(
    wanted: Wanted,
    out: Path,
    config: Config,
    notes: Notes,
    *,
    anonymous: bool = False,
    own: bool = False,
) -> Kept | None:
    with _spool(out.parent) as folder:
        threading.Thread(target=_load_ahead, args=(wanted.transport,), daemon=True).start()
        way = partial(transport_of, name=wanted.transport, config=config, notes=notes)
        notes.say(f"saving evidence to {out}")
        taken = take(wanted, folder, way, notes)
        if taken.view.job is None and not taken.view.nodes:
            _nothing(taken.view)
            return None
        from sluggish.probes import PROBES

        with _to_its_end() as pressed:
            bundle = taken.look.bundle(PROBES, taken.taken_at)
            out = _save(_anonymous(bundle) if anonymous else bundle, out, own)
        taken.stopped |= bool(pressed)
    notes.say(f"evidence saved: {out} (slices of the job's logs may hold private data)")
    return Kept(path=out, taken=taken)


def _load_ahead(transport: str) -> None:
    """What is needed later (0.5 CPU s) is loaded while Slurm and the nodes are waited for."""
    if transport in ("auto", "ssh"):
        load_fabric()
    for name in ("sluggish.diagnose", "sluggish.report.terminal"):
        import_module(name)


@contextmanager
def _to_its_end() -> Generator[list[int]]:
    """Ctrl-C, pressed once more by somebody in a hurry, waits until the evidence is on the disk.

    Pressed again it counts at once: the disk may hang.
    """
    pressed: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    try:
        before = signal.signal(signal.SIGINT, later)
    except ValueError:  # not the main thread: it gets no Ctrl-C
        yield pressed
        return
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def _save(bundle: Bundle, out: Path, own: bool) -> Path:
    """The path that it got: two looks of one second choose one name in our own directory."""
    while True:
        try:
            save(bundle, out)
            return out
        except FileExistsError:
            if not own:
                raise EvidenceError(f"{out}: is there already; give another name") from None
            out = free(out.parent, datetime.now(UTC))


def _anonymous(bundle: Bundle) -> Bundle:
    from sluggish.evidence.anonymize import anonymize
    from sluggish.facts.store import origin_of
    from sluggish.probes.flight_recorder import compacted

    clocks = {clock.node: clock for clock in bundle.clocks}
    return anonymize(bundle, lambda e: compacted(e.open(), origin_of(e, bundle, clocks)))


def transport_of(view: SlurmView, *, name: str, config: Config, notes: Notes) -> Transport:
    job = view.job
    return way_to(
        name,
        view.nodes,
        config,
        notes,
        job=number_of(job) if job else None,
        uid=view.uid,
        running=bool(job and job.state not in (*OVER, "PENDING")),
        parts=view.parts,
    )


def _nothing(view: SlurmView) -> None:
    """Its notes were shown as they came: what is left is the one line that says the end."""
    print(f"sluggish: job {view.asked.job}: {view.no_job}", file=sys.stderr)


@contextmanager
def _spool(near: Path) -> Generator[Path]:
    """A directory of ours for what comes home, until it is packed."""
    try:
        spool = tempfile.TemporaryDirectory(prefix=".sluggish-", dir=near or ".")
    except OSError as problem:
        raise EvidenceError(f"{near}: cannot be written: {problem.strerror or problem}") from None
    with spool as folder:
        yield Path(folder)
