"""Where live looks are kept: one folder a job, readable by us alone, the oldest pruned.

The usual place lies in the home directory, and homes hang when storage does: each place is tried
in a child with a deadline first, and local disk is the way out.
"""

import os
import re
import stat
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from sluggish.evidence.source import EvidenceError
from sluggish.reach.paths import exists

TRY_S = 1.5
MAX_BYTES = 2 << 30
MAX_DAYS = 30.0
_OURS = re.compile(r"bundle-\d{8}T\d{6}Z(?:-\d{1,3})?\.tar\.gz\Z")
_JOB = re.compile(r"[0-9][0-9_+.]{0,60}\Z")


def state_dir() -> Path:
    """The directory for bundles, made if need be; EvidenceError where none can be written.

    `SLUGGISH_STATE`, else `XDG_STATE_HOME/sluggish`, else `~/.local/state/sluggish`; where that
    does not answer or cannot be written, `/var/tmp` and `/tmp`.
    """
    told = os.environ.get("SLUGGISH_STATE")
    base = os.environ.get("XDG_STATE_HOME")
    home = Path(base) if base else Path(os.environ.get("HOME") or "/nonexistent") / ".local/state"
    mine = f"sluggish-{os.getuid()}"
    places = [Path(told)] if told else [home / "sluggish"]
    whys: list[str] = []
    for place in (*places, Path("/var/tmp") / mine, Path("/tmp") / mine):
        why = _why_not(place)
        if why is None:
            return place
        whys.append(f"{place}: {why}")
    raise EvidenceError(f"no place for the evidence: {'; '.join(whys)}")


def new_bundle(job: str, at: datetime) -> Path:
    """A name for the bundle of a look, in a folder of its job; nothing lies there yet."""
    if not _JOB.match(job):
        raise EvidenceError(f"not a job id: {job[:60]!r}")
    folder = state_dir() / job
    folder.mkdir(mode=0o700, exist_ok=True)
    stem = f"bundle-{at:%Y%m%dT%H%M%SZ}"
    names = [f"{stem}.tar.gz", *(f"{stem}-{n}.tar.gz" for n in range(1, 1000))]
    return next(folder / name for name in names if not (folder / name).exists())


def prune(place: Path, *, max_bytes: int = MAX_BYTES, max_days: float = MAX_DAYS) -> None:
    """Removes the oldest of our own bundles below `place`, by age and by size, never the newest."""
    found: list[tuple[float, int, Path]] = []
    for file in place.glob("*/bundle-*.tar.gz"):
        with suppress(OSError):
            seen = file.lstat()
            ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.getuid()
            if ours and _OURS.match(file.name) and _JOB.match(file.parent.name):
                found.append((seen.st_mtime, seen.st_size, file))
    found.sort(key=lambda entry: entry[0], reverse=True)
    total = 0
    for number, (at, size, file) in enumerate(found):
        total += size
        if number and (total > max_bytes or time.time() - at > max_days * 86_400):
            with suppress(OSError):
                file.unlink()
                file.parent.rmdir()


def _why_not(place: Path) -> str | None:
    """Why this place cannot be used. Only after the child came back do we touch it ourselves."""
    if exists(str(place), TRY_S) is None:
        return "does not answer"
    old = os.umask(0o077)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = place.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return "is not a directory of ours"
        if seen.st_mode & 0o022:
            return "others may write there"
        probe = place / f".try-{os.getpid()}"
        probe.touch(mode=0o600, exist_ok=False)
        probe.unlink()
    except OSError as problem:
        return problem.strerror or str(problem)
    finally:
        os.umask(old)
    return None
