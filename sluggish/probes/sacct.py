"""`sacct -D -P`: the runs of a job in Slurm's accounting, with steps and exit codes.

Any user for own jobs. Traps (seen on 22.05): one unknown field fails the whole call, and fields
differ by version, so a minimal set is asked; rows lag slurmctld by seconds; only `-D` shows the
earlier runs of a requeued job and their nodes; `CANCELLED by 5001` is a state.
"""

import re
from collections.abc import Iterator

from sluggish.facts.origin import Origin
from sluggish.job import Job
from sluggish.slurmtext.sacct import runs

ID = "sacct"
COMMAND = (
    'sacct -D -P -j "$SLUGGISH_JOB" '
    "-o JobID,JobIDRaw,State,NodeList,Start,End,ExitCode,Reason,JobName"
)
FACTS: tuple[type, ...] = (Job,)
BINARY = False

# JobID|JobIDRaw|State|NodeList|Start|End|ExitCode|Reason
_SNIFF = re.compile(rb"^(?=[^\n]{0,2000}\bJobID\|)(?=[^\n]{0,2000}\bState\b)[A-Za-z|]{9,2000}\r?$",
                    re.MULTILINE)  # fmt: skip


def sniff(head: bytes) -> bool:
    """Whether sacct's header line stands here."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[Job]:
    """One Job a run, oldest first. A header without rows: accounting knows no such job."""
    found = runs(text, origin.utc_offset_s)
    if not found:
        raise ValueError("expected rows below sacct's header: accounting does not know the job")
    yield from found
