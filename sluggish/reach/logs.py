"""The job's own log files, read on the collector as their owner and in time; else on a node."""

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import sluggish
from sluggish.evidence.logscan import SLICED, unsearched
from sluggish.evidence.model import Evidence
from sluggish.probes.job_log import AHEAD, NEEDLES
from sluggish.reach.command import run
from sluggish.reach.paths import OPEN, Slices, as_owner, object_of, read_slices

HEAD = 1 << 20
TAIL = 32 << 20
"""Bytes of a log that are looked at where it is not searched."""
WHOLE = 8 << 20
"""A longer one is searched from end to end and comes in slices."""
MOST_LOGS = 64
TIMEOUT_S = 3.0
SEARCH_S = 10.0
"""A search that finds itself slower stops here, and says what it left out."""
SEARCH_LOST_S = 20.0

_SEARCH = (
    OPEN
    + """
name, seconds = sys.argv[2], float(sys.argv[3])
needles, ahead = json.loads(sys.argv[4])
file, found = opened(name)
try:
    text = slices(file, found.st_size, [n.encode("latin-1") for n in needles],
                  {n.encode("latin-1"): far for n, far in ahead}, seconds)
except OSError as problem:
    failed(problem)
sys.stdout.write(json.dumps(facts(found)) + "\\n" + text)
"""
)


def read_logs(
    paths: Sequence[str], uid: int | None, *, search: bool = False
) -> tuple[Evidence, ...]:
    """One piece of evidence a log; a path that hangs or may not be read is there with the reason.

    Without an owner nothing is read: whatever a path of unknown origin names stays closed.
    `search`: one that is longer than `WHOLE` is searched from end to end, within `SEARCH_S`.
    """
    if uid is None:
        says = "the job's owner is not known: not read"
        return tuple(_refused(path, "denied", says) for path in paths)
    wanted = paths[:MOST_LOGS]
    read = partial(read_slices, uid=uid, head=HEAD, tail=TAIL, timeout_s=TIMEOUT_S)
    with ThreadPoolExecutor(max_workers=8) as pool:  # each is a child with its own deadline
        heads = list(pool.map(read, wanted))
        searched = pool.map(partial(_searched, uid=uid), heads) if search else [None] * len(heads)
        found = [_evidence(slices, text) for slices, text in zip(heads, searched, strict=True)]
    found += [_refused(p, "truncated", f"more than {MOST_LOGS} logs") for p in paths[MOST_LOGS:]]
    return tuple(found)


def not_here(found: Sequence[Evidence]) -> tuple[str, ...]:
    """Logs that lie on a node's own disk: the collector does not have them."""
    return tuple(e.command for e in found if e.error == "not found" and e.command)


def _searched(slices: Slices, uid: int) -> bytes | None:
    """The slices of a long log around its known words, by a child; None where it gave none."""
    if slices.error or slices.size <= WHOLE:
        return None
    here = str(Path(sluggish.__file__).parents[1])
    ours = f"import sys\nsys.path[:] = {[here, *filter(None, sys.path)]!r}\n"
    ours += "from sluggish.evidence.logslices import slices\n"
    wanted = json.dumps(
        [[n.decode("latin-1") for n in NEEDLES], [[n.decode("latin-1"), AHEAD[n]] for n in AHEAD]]
    )
    program = ours + as_owner(uid) + _SEARCH
    argv = (sys.executable, "-I", "-S", "-c", program, str(uid), slices.path, str(SEARCH_S), wanted)
    ran = run(argv, SEARCH_LOST_S, cap_bytes=SLICED)
    line, _, text = ran.stdout.partition(b"\n")
    told = object_of(line)
    return text if ran.error is None and told is not None and "error" not in told else None


def _evidence(slices: Slices, searched: bytes | None = None) -> Evidence:
    if slices.error:
        return _refused(slices.path, slices.error, slices.says)
    content = slices.head + slices.tail
    if searched is not None:
        content = searched
    elif not slices.whole:
        left_out = slices.tail_at - len(slices.head)
        mark = f"\n{unsearched(left_out, slices.tail_at)}".encode()
        content = slices.head + mark + slices.tail
    return Evidence(
        node=None,
        probe="job_log",
        path=slices.path,
        command=slices.path,
        rights="user",
        exit_code=0,
        size=len(content),
        open=lambda: content,
        window=lambda offset, length: content[offset : offset + length],
        mtime=slices.mtime,
    )


def _refused(path: str, error: str, says: str) -> Evidence:
    return Evidence(
        node=None, probe="job_log", path="", command=path, error=error, stderr=f"{path}: {says}"
    )
