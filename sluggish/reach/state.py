"""Where a live look is kept: one folder a job, private, pruned, and never on storage that hangs."""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sluggish.reach.command import run

PROBE_S = 2.0
SILENT = "no answer"
MAX_MB = 2048
MAX_DAYS = 30
_JOB = re.compile(r"\d{1,12}(?:[_+]\d{1,9})?\Z", re.ASCII)
_BUNDLE = re.compile(r"bundle-(\d{8}T\d{6}Z)(?:-\d{1,3})?\.tar\.gz\Z", re.ASCII)

# writes for real: a full or read-only disk is found here, and a dead one hangs this child alone
_TRY = """
import json, os, stat, sys
folder = sys.argv[1]
os.umask(0o077)
try:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    why = ""
    if stat.S_ISLNK(found.st_mode):
        why = "a link"
    elif not stat.S_ISDIR(found.st_mode):
        why = "no folder"
    elif found.st_uid != os.getuid():
        why = "belongs to somebody else"
    elif found.st_mode & 0o022:
        why = "others may write there"
    if not why:
        name = os.path.join(folder, ".try-%d" % os.getpid())
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(name)
except OSError as problem:
    why = problem.strerror
print(json.dumps(why))
"""


class NoPlace(OSError):
    """Nowhere to keep the bundle; the text says what was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A file name that is free, for `evidence.save`."""

    path: Path
    root: Path
    """The state directory that was taken."""
    notes: tuple[str, ...] = ()
    """Why it is not the first choice."""
    silent: tuple[Path, ...] = ()
    """State directories that gave no answer: nothing else is tried there."""


def folders(env: Mapping[str, str], configured: str | None = None) -> tuple[Path, ...]:
    """Where the state may lie, best first; the last two are local disks."""
    home = env.get("HOME", "")
    base = env.get("XDG_STATE_HOME") or (f"{home}/.local/state" if home.startswith("/") else "")
    first = configured or env.get("SLUGGISH_STATE") or (f"{base}/sluggish" if base else "")
    if first.startswith("~/") and home.startswith("/"):
        first = home + first[1:]
    local = [f"/var/tmp/sluggish-{os.getuid()}", f"/tmp/sluggish-{os.getuid()}"]
    return tuple(Path(one) for one in (first, *local) if one.startswith("/"))


def place(
    job: str,
    at: datetime,
    *,
    env: Mapping[str, str],
    configured: str | None = None,
    probe_s: float = PROBE_S,
) -> Place:
    """A free file name in the first folder that answers, is ours alone and can be written.

    NoPlace where there is none.
    """
    notes: list[str] = []
    silent: list[Path] = []
    for root in folders(env, configured):
        folder = root / job if _JOB.match(job) else root / "0"
        why = _try(root, probe_s) or _try(folder, probe_s)
        if not why:
            return Place(path=free(folder, at), root=root, notes=tuple(notes), silent=tuple(silent))
        notes.append(f"{root}: {why}")
        silent += [root] * why.startswith(SILENT)
    raise NoPlace("nowhere to keep the bundle: " + "; ".join(notes))


def _try(folder: Path, probe_s: float) -> str:
    """Why this folder will not do; empty where it will."""
    ran = run((sys.executable, "-I", "-S", "-c", _TRY, str(folder)), probe_s, cap_bytes=4096)
    if ran.error:
        return (
            f"{SILENT} in {ran.duration_s:.0f} s"
            if ran.error in ("timeout", "stuck")
            else ran.error
        )
    try:
        return str(json.loads(ran.stdout))
    except ValueError:
        return ran.says or "not usable"


def free(folder: Path, at: datetime) -> Path:
    """A name that nobody has taken yet: another look may, until this one is saved."""
    stamp = f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    names = (f"bundle-{stamp}{f'-{n}' * bool(n)}.tar.gz" for n in range(1000))
    return next(folder / name for name in names if not os.path.lexists(folder / name))


def prune(
    root: Path, *, keep: Path, max_mb: int = MAX_MB, max_days: int = MAX_DAYS, now: datetime
) -> tuple[Path, ...]:
    """Remove the oldest bundles beyond age and size, and say which. `keep` always stays.

    Only regular files of ours, under the names that `place` gives, one folder below `root`.
    """
    found = sorted(_bundles(root))
    total = sum(size for _, _, size in found)
    gone: list[Path] = []
    for made, path, size in found:
        old = now - made > timedelta(days=max_days)
        if path == keep or not (old or total > max_mb << 20):
            continue
        try:
            path.unlink()
        except OSError:
            continue
        total -= size
        gone.append(path)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    return tuple(gone)


def _bundles(root: Path) -> list[tuple[datetime, Path, int]]:
    """Time by its name, path, size of every bundle there."""
    found: list[tuple[datetime, Path, int]] = []
    for folder in _entries(root):
        if not _JOB.match(folder.name) or not folder.is_dir(follow_symlinks=False):
            continue
        for entry in _entries(Path(folder.path)):
            match = _BUNDLE.match(entry.name)
            facts = entry.stat(follow_symlinks=False)
            if match and stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid():
                made = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
                found.append((made, Path(entry.path), facts.st_size))
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
