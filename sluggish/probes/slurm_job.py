"""`scontrol show job`: what Slurm itself says of the job.

Any user where PrivateData is none; slurmctld answers in milliseconds, or not at all: own timeout.
Traps (slurm.md of the field, seen on 22.05): exit code 0 with no content; a requeued job has lost
its nodes here (sacct -D has them); StartTime of a pending job is a plan, EndTime of a running one
is start + limit; several records for one array or het id; times are local, without a zone.
"""

import re
from collections.abc import Iterator

from sluggish.facts.origin import Origin
from sluggish.job import Job
from sluggish.slurmtext.job import jobs

ID = "slurm_job"
COMMAND = 'scontrol -o show job "$SLUGGISH_JOB"; scontrol -o show step "$SLUGGISH_JOB"'
FACTS: tuple[type, ...] = (Job,)
BINARY = False

# JobId=2 JobName=fsdp UserId=alice(5001) GroupId=alice(5001)
_SNIFF = re.compile(rb"^[ \t]*JobId=\d+ [^\n]{0,2000}JobName=", re.MULTILINE)
_ERROR = re.compile(r"slurm_load_jobs error: [^\n]{1,200}")


def sniff(head: bytes) -> bool:
    """Whether a job record begins here, and no shell script that greps for one."""
    return bool(_SNIFF.search(head) and b"JobState=" in head and b"\nNodeName=" not in head)


def parse(text: str, origin: Origin) -> Iterator[Job]:
    """One Job a record. `Invalid job id specified` is Slurm's no, and no job."""
    error = _ERROR.search(text)
    if error and "JobId=" not in text:
        raise ValueError(f"expected a job record, scontrol says: {error[0][:120]}")
    yield from jobs(text, origin.utc_offset_s)
