"""A log that several runs of a job wrote into: where the run that is looked at begins.

With `--open-mode=append`, or `JobFileAppend=1`, a job that Slurm starts again writes behind what
its earlier runs left, their last errors included (sbatch(1), slurm.conf(5)).
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

from sluggish.loglines.stamps import ISO, from_iso

APART = timedelta(seconds=60)
"""Between Slurm's own time of a run's end and the time that the node's daemon prints."""
# slurmstepd-node01: error: *** JOB 4 ON node01 CANCELLED AT 2026-11-30T12:53:54 DUE TO NODE
#   FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***                                      (22.05)
_END = re.compile(
    rf"^[^\n]{{0,100}}\*\*\* (?:JOB|STEP) \d{{1,12}}\S{{0,40}} ON \S{{1,253}} CANCELLED AT {ISO}"
    r"[^\n]{0,400}(?:\n|\Z)",
    re.MULTILINE,
)
# srun: error: node01: task 0: Terminated          what the launcher still says of that end
_REST = re.compile(r"(?:[^\n]{0,40}(?:srun|slurmstepd\S{0,255}): [^\n]{0,2000}(?:\n|\Z)|\n)+")
# srun: error: Node failure on node02
_LOST = re.compile(r"srun: error: Node failure on (?P<node>[A-Za-z0-9][\w.-]{0,252})")


def split_runs(text: str, ended: Sequence[datetime], zone: timezone) -> tuple[str, str]:
    """What this run printed, and what the runs before it did, which ended at these times.

    Only a line of Slurm's that tells one of these very ends parts them: nothing is guessed.
    """
    cut = 0
    for found in _END.finditer(text) if ended else ():
        at = from_iso(found, zone)
        if at and any(abs(at - end) <= APART for end in ended):
            cut = found.end()
    if cut and (rest := _REST.match(text, cut)):
        cut = rest.end()
    return text[cut:], text[:cut]


def failed_nodes(text: str) -> Iterator[tuple[str, str]]:
    """The nodes that srun names as failed, each once, and its line."""
    lines: Iterable[re.Match[str]] = _LOST.finditer(text)
    yield from {found["node"].rstrip("."): found[0] for found in lines}.items()
