"""What a courier says went wrong -> one of the closed list of failures. Pure.

Texts: OpenSSH 9 (ssh.c, sshconnect.c, sshconnect2.c), Slurm 22.05 (src/srun, slurm_errno.c),
paramiko 5 as measured. One text of paramiko has several causes, so the phase decides there.
"""

import errno
import re
from typing import Literal

from sluggish.reach.model import Failure
from sluggish.text import safe

Phase = Literal["connect", "banner", "keys", "login", "session"]
"""How far a connection came: TCP, sshd's first line, key exchange, login, the shell's channel."""

ADOPT = "likely pam_slurm_adopt: a login needs a job of yours on that node"
OPENSSH = "--transport openssh"
DEAD_HOME = "the home directory here does not answer, and the keys lie there: use --transport srun"
UNRESOLVED = ("not known", "name resolution", "No address associated", "Unknown host")
"""In what getaddrinfo(3) says of a name, with glibc and musl."""

_TEXTS: tuple[tuple[Failure, re.Pattern[str]], ...] = (
    ("host key", re.compile(r"^Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED"
                            r"|^No \S+ host key is known for")),
    # ssh: Could not resolve hostname node99: Name or service not known
    ("not run", re.compile(r"Could not resolve hostname|^Pseudo-terminal will not"
                           r"|^Unable to negotiate with|^\S*ssh_config\S*( line|: line)? \d+"
                           r"|^(command-line|/\S+): line \d+: Bad|Bad configuration option"
                           r"|open failed: administratively prohibited"
                           r"|open failed: connect failed: (Name or|Temporary failure|No addr)")),
    ("auth denied", re.compile(r"Permission denied \(|Too many authentication failures"
                               r"|^Access denied by pam_|pam_slurm_adopt|No more authentication"
                               r"|Access/permission denied|Your account has expired")),
    # Connection timed out during banner exchange
    ("no banner", re.compile(r"during banner exchange")),
    # ssh: connect to host node03 port 22: Connection refused
    # channel 0: open failed: connect failed: Connection refused (through a jump host)
    ("refused", re.compile(r"Connection refused")),
    ("unreachable", re.compile(r"Connection timed out|Operation timed out|No route to host"
                               r"|Network is unreachable|Host is down"
                               r"|open failed: connect failed")),
    ("no banner", re.compile(r"kex_exchange_identification|banner line|Connection reset by"
                             r"|ssh_dispatch_run_fatal|Bad remote protocol version")),
    # Task launch for StepId=7.3 failed on node node03: Communication connection failure
    ("unreachable", re.compile(r"Task launch for .{0,60}failed on node"
                               r"|Communication connection failure"
                               r"|Required node not available|Node.{0,40}(?:DOWN|not respond)")),
    ("not run", re.compile(r"Requested nodes? (?:are busy|configuration)|Job is pending"
                           r"|Invalid job id|already completing or completed|Job/step already"
                           r"|Unable to confirm allocation|Unable to create step"
                           r"|Unable to contact slurm controller|Zero Bytes were transmitted"
                           r"|^setpriv: |^runuser: |^sudo: ")),
    ("no shell", re.compile(r"sh: (?:command )?not found|: not found$|execve\(\): sh:"
                            r"|sh: No such file or directory|nologin"
                            r"|This account is currently not available")),
)  # fmt: skip
# Connection closed by 10.77.1.1 port 22: after a login that PAM refuses, and of an sshd that dies
_CLOSED = re.compile(r"^Connection closed by \S+ port|^Connection to \S+ closed by remote host")


class NotThrough(Exception):
    """A jump host's sshd opened no channel to a node: RFC 4254 5.1, its code and its words."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


# of a jump host or ProxyCommand that ended before the node spoke: other lines are not the node's
_WAY_ENDED = re.compile(
    r"kex_exchange_identification: Connection closed by remote host\s+"
    r"Connection closed by UNKNOWN port 65535"
)


def of_text(text: str, *, connected: bool) -> tuple[Failure, str]:
    """The failure and the line that tells it; `connected`: the shell had been there."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = safe(lines[-1], 300) if lines else ""
    if connected:
        return "died", last or "the connection ended in mid-answer"
    for kind, pattern in _TEXTS:
        for line in lines:
            if pattern.search(line):
                if _WAY_ENDED.search(text) and "open failed" not in text and "kex_" not in line:
                    return "not run", f"its jump host: {safe(line, 280)}"
                return kind, _with_hint(kind, line, text)
    if any(_CLOSED.search(line) for line in lines):
        return "auth denied", f"{last} ({ADOPT})"
    return "no shell", last or "no answer and no word why"


def _with_hint(kind: Failure, line: str, text: str) -> str:
    words = safe(line, 300)
    if kind == "auth denied" and ("pam_slurm_adopt" in text or "active jobs on this" in text):
        return f"{words} ({ADOPT})"
    return words


def of_ssh(
    problem: Exception, phase: Phase, elapsed_s: float, *, late: bool, log: str = ""
) -> tuple[Failure, str]:
    """Why paramiko brought no shell. `late`: its time was over; `log`: paramiko's own words."""
    words = safe(str(problem).removeprefix("[Errno None] "), 300) or type(problem).__name__
    after = f"after {elapsed_s:.1f} s"
    kinds = {kind.__name__ for kind in type(problem).__mro__}
    late = late or isinstance(problem, TimeoutError)
    late = late or ("SSHException" in kinds and "timeout" in words.lower())
    if phase == "login" or "AuthenticationException" in kinds:
        return _of_login(words, kinds, late, after, log)
    if "IncompatiblePeer" in kinds:
        return "not run", f"{words}: no common algorithm; try {OPENSSH}"
    if phase == "session":
        if late:
            return "auth hangs", f"logged in, and no shell {after}: its home or login files hang"
        return "died", f"logged in, then: {words}"
    if phase in ("banner", "keys"):
        what = "no line of sshd" if phase == "banner" else "sshd's first line, then no keys"
        return "no banner", f"takes the connection; {what} {after} ({words})"
    return _of_connect(problem, words, kinds, late, after)


def _of_login(words: str, kinds: set[str], late: bool, after: str, log: str) -> tuple[Failure, str]:
    if late:
        return "auth hangs", f"no end of the login {after}: its account service or home hangs"
    if "Too many authentication failures" in log + words:
        return "auth denied", "too many keys offered: name one by IdentityFile and IdentitiesOnly"
    if "PasswordRequiredException" in kinds:
        return "auth denied", "the key is encrypted: load it into ssh-agent"
    if "AuthenticationException" in kinds or "No authentication methods" in words:
        lost = "EOF" in words or "shut down" in words
        return "auth denied", f"{words} ({ADOPT})" if lost else words
    return "died", f"the connection broke during the login: {words}"


def _of_connect(
    problem: Exception, words: str, kinds: set[str], late: bool, after: str
) -> tuple[Failure, str]:
    if "gaierror" in kinds:
        return "not run", f"the name does not resolve: {words}"
    if isinstance(problem, NotThrough):
        return _of_jump(problem, words, after)
    if "NoValidConnectionsError" in kinds:
        numbers = {error.errno for error in getattr(problem, "errors", {}).values()}
        # of several addresses one that refuses is enough: its kernel lives
        return ("refused" if errno.ECONNREFUSED in numbers else "unreachable"), words
    if late:
        return "unreachable", f"no answer to the connection {after}"
    if isinstance(problem, OSError) and problem.errno not in (errno.EMFILE, errno.ENFILE):
        return "unreachable", words
    return "not run", f"{type(problem).__name__}: {words}"


def _of_jump(problem: NotThrough, words: str, after: str) -> tuple[Failure, str]:
    if problem.code == 1:
        return "not run", f"the jump host forbids forwarding: {words}"
    says = f"the jump host cannot connect to it: {words} {after}"
    if any(text in words for text in UNRESOLVED):
        return "not run", says  # nothing was heard of the node itself
    return ("refused" if "Connection refused" in words else "unreachable"), says
