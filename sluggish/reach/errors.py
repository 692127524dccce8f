"""What a courier says went wrong -> one of the closed list of failures. Pure.

Texts: OpenSSH 9 (ssh.c, sshconnect.c, sshconnect2.c), Slurm 22.05 (src/srun, slurm_errno.c),
paramiko 5 as measured: one text of paramiko has several causes, so the elapsed time decides.
"""

import re

from sluggish.reach.model import Failure
from sluggish.text import safe

_TEXTS: tuple[tuple[Failure, re.Pattern[str]], ...] = (
    ("host key", re.compile(r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"
                            r"|No \S+ host key is known|not found in known_hosts"
                            r"|does not match: got")),
    ("refused", re.compile(r"Connection refused")),
    ("unreachable", re.compile(r"timed out|No route to host|Network is unreachable|Host is down"
                               r"|Could not resolve hostname|Name or service not known"
                               r"|Unable to connect to port")),
    ("auth denied", re.compile(r"Permission denied|Too many authentication failures"
                               r"|pam_slurm_adopt|Access denied|Authentication failed"
                               r"|No more authentication methods|Access/permission denied"
                               r"|Invalid user|Account .{0,60}(?:locked|expired)")),
    ("no banner", re.compile(r"kex_exchange_identification|banner|Connection reset by peer"
                             r"|Connection closed by remote host|ssh_dispatch_run_fatal")),
    ("not run", re.compile(r"Requested nodes are busy|Job is pending|Invalid job id"
                           r"|already completing or completed|Unable to confirm allocation"
                           r"|Unable to create step|Unable to contact slurm controller"
                           r"|Zero Bytes were transmitted")),
    ("no shell", re.compile(r"sh: (?:command )?not found|: not found|No such file or directory"
                            r"|This account is currently not available|nologin")),
)  # fmt: skip
ADOPT = "likely pam_slurm_adopt: a login needs a job of yours on that node"
_CLOSED = re.compile(r"Connection closed by \S+ port|transport shut down or saw EOF")


def of_text(text: str, *, connected: bool) -> tuple[Failure, str]:
    """The failure and the line that tells it; `connected`: something of the answer had come."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for kind, pattern in _TEXTS:
        for line in lines:
            if pattern.search(line):
                if connected and kind != "not run":
                    return "died", safe(line, 300)
                hint = f" ({ADOPT})" if kind == "auth denied" and _is_adopt(text) else ""
                return kind, safe(line, 300) + hint
    if connected:
        return "died", safe(lines[-1], 300) if lines else "the connection ended in mid-answer"
    if any(_CLOSED.search(line) for line in lines):
        return "auth denied", f"{safe(lines[-1], 300)} ({ADOPT})"
    return "no shell", safe(lines[-1], 300) if lines else "no answer and no word why"


def _is_adopt(text: str) -> bool:
    return "pam_slurm_adopt" in text or "saw EOF" in text or "active jobs on this node" in text
