"""`sluggish collect --job ID -o FILE`, and how `diagnose --job` takes and keeps its bundle."""

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sluggish.causes import EXIT_NOTHING
from sluggish.cli.live import OVER, Taken, Wanted, take
from sluggish.cli.notes import Notes
from sluggish.evidence.save import save
from sluggish.evidence.source import EvidenceError
from sluggish.probes import PROBES
from sluggish.reach.choose import choose
from sluggish.reach.model import Transport
from sluggish.reach.slurm import SlurmView
from sluggish.reach.srun import NoSrun
from sluggish.reach.state import new_bundle, prune, state_dir

STOPPED = 130


def run(wanted: Wanted, out: Path, *, transport: str) -> int:
    """Take a look at a job and save it as a bundle; nothing is judged."""
    kept = collected(wanted, transport=transport, out=out)
    if kept is None:
        return EXIT_NOTHING
    print(kept[0])
    return STOPPED if kept[1].stopped else 0


def collected(
    wanted: Wanted, *, transport: str, out: Path | None = None
) -> tuple[Path, Taken] | None:
    """The saved bundle of a look, and the look; None where Slurm knows no such job."""
    notes = Notes(PROBES)
    if out is not None and out.exists():
        raise EvidenceError(f"{out}: is there already; give another name")
    place = out or new_bundle(_folder(wanted.job), datetime.now(UTC))
    notes.say(f"saving evidence to {place}: do not cancel the job yet")
    with _spool(place.parent) as folder:
        taken = take(wanted, folder, lambda view: _transport(view, transport, notes), notes)
        if not taken.look.evidence:
            return _nothing(taken.view)
        _keep(taken, place)
    notes.say(f"evidence saved: {place} (it may hold private lines of the job's logs)")
    if out is None:
        prune(state_dir())
    return place, taken


def _folder(job: str) -> str:
    return job.partition(".")[0]


def _transport(view: SlurmView, name: str, notes: Notes) -> Transport:
    job = view.job
    way = choose(
        name,
        view.nodes,
        job=job.raw_id or job.id if job else None,
        uid=view.uid,
        running=bool(job and job.state not in (*OVER, "PENDING")),
    )
    if isinstance(way, NoSrun):
        raise EvidenceError(f"srun is no way to the nodes: {way.why}")
    notes.say(f"by {way.transport.name}: {way.why}")
    return way.transport


def _nothing(view: SlurmView) -> None:
    print(f"sluggish: Slurm tells nothing of job {view.asked.job}", file=sys.stderr)
    for note in view.notes[:10]:
        print(f"  {note}", file=sys.stderr)


@contextmanager
def _spool(near: Path) -> Generator[Path]:
    """A directory of ours for what comes home, until it is packed."""
    try:
        with tempfile.TemporaryDirectory(prefix=".sluggish-", dir=near) as folder:
            yield Path(folder)
    except OSError as problem:
        raise EvidenceError(f"{near}: cannot be written: {problem.strerror or problem}") from None


def _keep(taken: Taken, place: Path) -> None:
    """Readable by us alone, never over something that is there."""
    old = os.umask(0o077)
    try:
        save(taken.look.bundle(PROBES, taken.taken_at), place)
    finally:
        os.umask(old)
