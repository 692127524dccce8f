"""Many jobs in one question to Slurm: which of them run, on which nodes."""

import re
from collections.abc import Mapping, Sequence

from sluggish.evidence.source import EvidenceError
from sluggish.job import Neighbour
from sluggish.reach.command import run
from sluggish.slurmtext.queue import FORMAT, rows
from sluggish.text import safe

TIMEOUT_S = 8.0
_NAME = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}\Z", re.ASCII)


def states(ids: Sequence[str]) -> Mapping[str, Neighbour] | None:
    """Raw job number -> its row; a job that Slurm has forgotten is left out. None: no answer."""
    if not ids:
        return {}
    argv = ("squeue", "-t", "all", "-j", ",".join(ids), "-o", FORMAT)
    ran = run(argv, TIMEOUT_S)
    if re.search(r"(?i)invalid job id", ran.stderr):
        return {}
    try:
        found = rows(ran.text)
    except ValueError:
        return None
    return {one.raw_id: one for one in found} | {one.id: one for one in found}


def running(user: str | None, partition: str | None) -> Sequence[Neighbour] | None:
    """The running jobs of a user, of a partition, or of both; None: no answer."""
    argv = ["squeue", "-t", "RUNNING", "-o", FORMAT]
    for option, name in (("-u", user), ("-p", partition)):
        if name is not None:
            if not _NAME.match(name):
                raise EvidenceError(f"{safe(name, 60)!r} is no name of a user or partition")
            argv += [option, name]
    ran = run(argv, TIMEOUT_S)
    if re.search(r"(?i)invalid (user|partition)", ran.stderr):
        raise EvidenceError(f"squeue: {safe(ran.says, 200)}")
    try:
        return rows(ran.text)
    except ValueError:
        if ran.error == "not found":
            raise EvidenceError("no squeue on this machine") from None
        return None
