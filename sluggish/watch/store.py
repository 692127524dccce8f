"""State files: one a job, written whole beside the old one and put in its place."""

import os
import time
from contextlib import suppress
from pathlib import Path

from sluggish.watch.state import Job, decode, encode

MOST_BYTES = 64 << 20
KEPT_S = 30 * 86400.0
HALF_S = 3600.0


def path_of(folder: Path, job: str) -> Path:
    """The file of a job; the id was checked where it came in."""
    return folder / f"watch-{job}.json"


def load(folder: Path, job: str, started_at: float | None) -> Job | None:
    """What an earlier watcher knew of this run of the job; None: nothing, or another run's."""
    try:
        with path_of(folder, job).open("rb") as file:
            known = decode(file.read(MOST_BYTES))
    except OSError:
        return None
    return known if known and known.job == job and known.started_at == started_at else None


def save(folder: Path, job: Job) -> str:
    """Why it could not be kept; empty where it was."""
    place = path_of(folder, job.job)
    aside = place.with_name(f".{place.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(aside, "wb", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(encode(job))
        aside.replace(place)
        return ""
    except OSError as problem:
        with suppress(OSError):
            aside.unlink()
        return f"{place}: {problem.strerror}"


def tidy(folder: Path, now: float) -> None:
    """Removes states of jobs that nobody has watched for a month, and halves of killed writers."""
    with suppress(OSError):
        for pattern, kept_s in (("watch-*.json", KEPT_S), (".watch-*.json.*", HALF_S)):
            for file in folder.glob(pattern):
                if now - file.lstat().st_mtime > kept_s:
                    file.unlink()


def forget(folder: Path, job: str) -> None:
    """After the job's end."""
    with suppress(OSError):
        path_of(folder, job).unlink()
