"""Pure: what a failed command of Slurm's says, and whether Slurm itself was heard at all."""

import re
from collections.abc import Mapping

from sluggish.reach.command import Ran
from sluggish.reach.pick import hides_jobs
from sluggish.slurmtext.queue import rows
from sluggish.text import safe

LOST = ("timeout", "stuck")
# slurmctld's own no (22.05): `slurm_load_jobs error: Invalid job id specified`, `Job 3_9 not found`
_NO_SUCH = re.compile(r"Invalid job id specified|^Job \d[\d_+]{0,30} not found$", re.MULTILINE)
# the line that names the cause stands between repeated ones and a last one that says nothing:
# scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file
# scontrol: error: slurm_set_addr: Unable to resolve "ctl.example"
# scontrol: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or directory
# slurm_load_jobs error: Unable to contact slurm controller (connect failure)
_TELLING = (
    re.compile(r"(?i)munge (?:en|de)code failed|auth_\w+: |invalid.{0,20}credential"),
    re.compile(r"(?i)unable to resolve|DNS SRV"),
    re.compile(r"(?i)getaddrinfo|name or service not known"),
    re.compile(r"(?i)cannot stat file|configuration source|slurm\.conf"),
    re.compile(r"(?i)unable to contact|timed out|connect|zero bytes|authentication error"),
)
_FROM = re.compile(r"^\w+: (?:error|fatal): ")
_UNREACHABLE = re.compile(r"(?i)unable to contact|communicat|connect|timed out|slurm\.conf|resolve")
_DENIED = re.compile(r"(?i)access|permission|denied|not permitted|invalid user")
_NO_ACCOUNTING = "accounting storage is disabled"


def telling(ran: Ran) -> str:
    """The line of stderr that names the cause, else the first one."""
    lines = [line.strip() for line in ran.stderr[: 64 << 10].splitlines() if line.strip()]
    for pattern in _TELLING:
        for line in lines:
            if pattern.search(line):
                return _FROM.sub("", line)
    return lines[0] if lines else ""


def complaints(ran: Ran, said: Ran | None = None) -> list[str]:
    """What a failed command says, once."""
    if said is not None and (ran.says == said.says or ran.error == said.error is not None):
        return []
    words = [word for word in ran.argv if not word.startswith("-")]
    name = " ".join(words[:3]) if ran.argv[0] == "scontrol" else ran.argv[0]
    if ran.error or ran.exit_code or (ran.says and not ran.stdout.strip()):
        return [f"{name}: {_reason(ran)}"]
    return []


def _reason(ran: Ran) -> str:
    cause = safe(telling(ran), 200)
    if ran.error in LOST:
        waited = f"no answer in {ran.duration_s:.0f} s"
        return f"{waited}: {cause}" if cause else f"{waited}; slurmctld or its storage is stuck"
    return cause or ran.error or "no answer"


def why_empty(ran: Ran) -> str:
    """The error of evidence for an answer without content."""
    if _UNREACHABLE.search(ran.stderr):
        return "unreachable"
    return "denied" if _DENIED.search(ran.stderr) else "not found"


def unheard(job: Ran, queue: Ran) -> str:
    """Why slurmctld told nothing of a job, in a line; empty where it did answer, with yes or no.

    Only its own words count as a no: any other failure leaves the question open.
    """
    if any(_NO_SUCH.search(text) for one in (job, queue) for text in (one.stderr, one.text)):
        return ""
    try:
        rows(queue.text)
    except ValueError:
        return _reason(job if job.error or job.says else queue)
    return ""


def no_job(job: Ran, queue: Ran, accounting: Ran | None, settings: Mapping[str, str]) -> str:
    """The one line for a job of which nothing is known."""
    if "JobId=" in job.text:
        return "Slurm's record of it cannot be read"
    if why := unheard(job, queue):
        return f"Slurm cannot be asked ({why})"
    hidden = f"; {hides_jobs(settings)}" if hides_jobs(settings) else ""
    if accounting is not None and _NO_ACCOUNTING in accounting.stderr:
        return f"slurmctld knows no such job, and there is no accounting here{hidden}"
    if accounting is not None and (accounting.error or accounting.exit_code):
        return (
            f"slurmctld knows no such job, accounting cannot be asked ({_reason(accounting)})"
            f"{hidden}"
        )
    return f"Slurm knows no such job, neither in slurmctld nor in accounting{hidden}"
