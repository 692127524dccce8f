"""The job's own log files, read on the collector as their owner and in time; else on a node."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from sluggish.evidence.logscan import GAP_MARK
from sluggish.evidence.model import Evidence
from sluggish.reach.paths import Slices, read_slices

HEAD = 1 << 20
TAIL = 32 << 20
"""Bytes of a log that come along; what lies between is said, with its length."""
MOST_LOGS = 64
TIMEOUT_S = 3.0


def read_logs(paths: Sequence[str], uid: int | None) -> tuple[Evidence, ...]:
    """One piece of evidence a log; a path that hangs or may not be read is there with the reason.

    Without an owner nothing is read: whatever a path of unknown origin names stays closed.
    """
    if uid is None:
        says = "the job's owner is not known: not read"
        return tuple(_refused(path, "denied", says) for path in paths)
    wanted = paths[:MOST_LOGS]
    read = partial(read_slices, uid=uid, head=HEAD, tail=TAIL, timeout_s=TIMEOUT_S)
    with ThreadPoolExecutor(max_workers=8) as pool:  # each is a child with its own deadline
        found = [_evidence(slices) for slices in pool.map(read, wanted)]
    found += [_refused(p, "truncated", f"more than {MOST_LOGS} logs") for p in paths[MOST_LOGS:]]
    return tuple(found)


def not_here(found: Sequence[Evidence]) -> tuple[str, ...]:
    """Logs that lie on a node's own disk: the collector does not have them."""
    return tuple(e.command for e in found if e.error == "not found" and e.command)


def _evidence(slices: Slices) -> Evidence:
    if slices.error:
        return _refused(slices.path, slices.error, slices.says)
    content = slices.head + slices.tail
    if not slices.whole:
        left_out = slices.tail_at - len(slices.head)
        mark = f"\n{GAP_MARK}{left_out} bytes not read ...]\n".encode()
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
