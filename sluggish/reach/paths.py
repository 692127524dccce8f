"""Paths of other people and of shared storage: looked at in a child, as their owner, in time.

Opening a file of a dead mount hangs for ever and cannot be killed, and root that reads what a
job's owner names can be led anywhere. So each look is a short child process that becomes the
owner, follows no last link, takes regular files of the owner alone, and is left behind where it
does not answer.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluggish.reach.command import DROP, Ran, run

MOST_FILES = 200
"""More files than this behind one pattern are not one job's logs."""
PATH_MAX = 4096

_IMPORTS = "import errno, glob, itertools, json, os, stat, sys\n"
_COMMON = """
WHY = {errno.ENOENT: "not found", errno.ENOTDIR: "not found", errno.EACCES: "denied",
       errno.EPERM: "denied", errno.ELOOP: "denied"}
def done(**told):
    sys.stdout.write(json.dumps(told) + "\\n")
    sys.stdout.flush()
    raise SystemExit
def facts(found):
    return {"size": found.st_size, "mtime": found.st_mtime, "owner": found.st_uid,
            "regular": stat.S_ISREG(found.st_mode)}
"""
_STAT = """
for name in sys.argv[2:]:
    try:
        print(json.dumps(facts(os.stat(name))))
    except OSError as problem:
        print(json.dumps({"error": WHY.get(problem.errno, "not found"), "says": problem.strerror}))
"""
# a device or FIFO is not even opened; one that is put in its place meanwhile is opened as its owner
OPEN = """
def opened(name):
    try:
        found = os.lstat(name)
        file = -1
        if stat.S_ISREG(found.st_mode):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            file = os.open(name, flags)
            found = os.fstat(file)
        if stat.S_ISLNK(found.st_mode):
            done(error="denied", says="a link: not followed")
        if not stat.S_ISREG(found.st_mode):
            done(error="denied", says="not a regular file")
        if found.st_uid != uid:
            says = "belongs to uid %d, not to the job's %d" % (found.st_uid, uid)
            done(error="denied", says=says)
        return file, found
    except OSError as problem:
        failed(problem)
def failed(problem):
    done(error=WHY.get(problem.errno, "not found"), says=problem.strerror)
"""
_READ = (
    OPEN
    + """
name, head, tail = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
file, found = opened(name)
try:
    size = found.st_size
    first = os.pread(file, min(head, size), 0)
    start = max(len(first), size - tail)
    last = os.pread(file, size - start, start) if size > start else b""
except OSError as problem:
    failed(problem)
sys.stdout.write(json.dumps({**facts(found), "head": len(first), "start": start}) + "\\n")
sys.stdout.flush()
for part in (first, last):
    view = memoryview(part)
    while view:
        view = view[os.write(1, view):]
"""
)
_GLOB = """
most = int(sys.argv[2])
names = itertools.chain.from_iterable(glob.iglob(name) for name in sys.argv[3:])
print(json.dumps(list(dict.fromkeys(itertools.islice(names, most)))))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A path as its owner sees it."""

    path: str
    size: int = 0
    mtime: datetime | None = None
    owner: int | None = None
    regular: bool = False
    error: str | None = None
    """`timeout`, `stuck`: its storage does not answer; `denied`, `not found`."""
    says: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices(Found):
    """Head and tail of a regular file; `tail` begins at `tail_at`, never inside the head."""

    head: bytes = b""
    tail: bytes = b""
    tail_at: int = 0

    @property
    def whole(self) -> bool:
        """Whether head and tail together are all of it."""
        return self.error is None and self.tail_at == len(self.head)


def read_slices(path: str, *, uid: int, head: int, tail: int, timeout_s: float) -> Slices:
    """The first `head` and the last `tail` bytes of a regular file that `uid` owns; never raises.

    Links, devices, FIFOs and other people's files are `denied`.
    """
    if len(os.fsencode(path)) > PATH_MAX or "\0" in path:
        return Slices(path=path[:200], error="not found", says="no path")
    ran = _child(_READ, (path, str(head), str(tail)), uid, timeout_s, head + tail)
    line, _, content = ran.stdout.partition(b"\n")
    told = object_of(line)
    if ran.error or told is None:
        return Slices(path=path, error=ran.error or "not found", says=why_silent(ran))
    if "error" in told:
        return Slices(path=path, error=told["error"], says=told["says"])
    first = content[: told["head"]]
    return Slices(
        **fields_of(path, told), head=first, tail=content[len(first) :], tail_at=told["start"]
    )


def stat(path: str, *, uid: int | None = None, timeout_s: float) -> Found:
    """What is there, links followed; by default as who runs us. Never raises."""
    ran = _child(_STAT, (path,), os.getuid() if uid is None else uid, timeout_s, 1 << 16)
    told = object_of(ran.stdout)
    if ran.error or told is None:
        return Found(path=path, error=ran.error or "not found", says=why_silent(ran))
    if "error" in told:
        return Found(path=path, error=told["error"], says=told["says"])
    return Found(**fields_of(path, told))


def exists(path: str, timeout_s: float, *, uid: int | None = None) -> bool | None:
    """Whether something is there; None where its storage did not answer in time."""
    found = stat(path, uid=uid, timeout_s=timeout_s)
    if found.error in ("timeout", "stuck"):
        return None
    return found.error is None


def expand(
    patterns: Sequence[str], *, uid: int | None, timeout_s: float, most: int = MOST_FILES
) -> tuple[str, ...] | Found:
    """Files behind globs, as `uid` sees them; a Found with its error where nobody could say."""
    sane = [one for one in patterns if "\0" not in one and len(os.fsencode(one)) <= PATH_MAX]
    who = os.getuid() if uid is None else uid
    ran = _child(_GLOB, (str(most), *sane), who, timeout_s, most * (PATH_MAX + 8))
    try:
        if not ran.error:
            return tuple(json.loads(ran.stdout))
    except ValueError:
        pass
    return Found(path=", ".join(sane)[:400], error=ran.error or "not found", says=why_silent(ran))


def _child(code: str, words: Sequence[str], uid: int, timeout_s: float, most: int) -> Ran:
    argv = (sys.executable, "-I", "-S", "-c", as_owner(uid) + code, str(uid), *words)
    return run(argv, timeout_s, cap_bytes=most + 8192)


def as_owner(uid: int) -> str:
    """The child's first lines: root becomes the owner; another stays, the owner is still checked.

    What it needs is imported before: the owner may not be able to read it.
    """
    become = DROP if os.getuid() in (0, uid) else f"uid = {uid}\n"
    return _IMPORTS + become + _COMMON


def object_of(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def fields_of(path: str, told: dict[str, Any]) -> dict[str, Any]:
    return {
        "path": path,
        "size": told["size"],
        "mtime": datetime.fromtimestamp(float(str(told["mtime"])), UTC),
        "owner": told["owner"],
        "regular": told["regular"],
    }


def why_silent(ran: Ran) -> str:
    if ran.error in ("timeout", "stuck"):
        return f"no answer in {ran.duration_s:.1f} s"
    last = ran.stderr.strip().splitlines()
    return last[-1] if last else "no answer"
