"""`squeue` for the nodes of a job: which jobs hold a part of them, and whose they are.

Any user; with PrivateData=jobs others see only their own, and then nobody can say "alone". Reads
slurmctld, milliseconds. Traps: `-j 6+1` lists every part of a heterogeneous job; the columns are
chosen so that no user's text stands in them; a user's SQUEUE_FORMAT would win over none.
"""

import re
from collections.abc import Iterator

from sluggish.facts.origin import Origin
from sluggish.job import Neighbour
from sluggish.slurmtext.queue import FORMAT, rows

ID = "squeue"
COMMAND = f"squeue -t running,completing,suspended,stopped -w \"$SLUGGISH_NODES\" -o '{FORMAT}'"
FACTS: tuple[type, ...] = (Neighbour,)
BINARY = False

# JOBID|JOBID|UID|USER|STATE|NODELIST
_SNIFF = re.compile(rb"^JOBID *\|JOBID *\|UID *\|USER *\|STATE *\|NODELIST *\r?$", re.MULTILINE)


def sniff(head: bytes) -> bool:
    """Whether the header of these columns stands here."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[Neighbour]:
    """One Neighbour a row; no row is normal once the job has ended."""
    yield from rows(text)
