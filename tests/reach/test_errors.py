"""What a courier says -> the failure. The lines are those of OpenSSH 9.2 and Slurm 22.05."""

import errno

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paramiko.ssh_exception import NoValidConnectionsError

from sluggish.reach.errors import NotThrough, of_ssh, of_text

WAY_ENDED = (
    "stdio forwarding failed\nkex_exchange_identification: Connection closed by remote host\r\n"
    "Connection closed by UNKNOWN port 65535\r\n"
)
SAID = {
    "ssh: connect to host node03 port 22: Connection refused": "refused",
    "ssh: connect to host node03 port 22: Connection timed out": "unreachable",
    "ssh: connect to host node03 port 22: No route to host": "unreachable",
    "ssh: Could not resolve hostname node99: Name or service not known": "not run",
    "Connection timed out during banner exchange\nConnection to 10.77.0.2 port 2301 timed out":
        "no banner",
    "kex_exchange_identification: Connection closed by remote host\n"
    "Connection closed by 10.77.1.1 port 22": "no banner",
    "kex_exchange_identification: read: Connection reset by peer": "no banner",
    "alice@node01: Permission denied (publickey).": "auth denied",
    "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures": "auth denied",
    "Access denied by pam_slurm_adopt: you have no active jobs on this node\n"
    "Connection closed by 10.77.1.1 port 22": "auth denied",
    "Connection closed by 10.77.1.1 port 22": "auth denied",
    "No ED25519 host key is known for node03 and you have requested strict checking.\n"
    "Host key verification failed.": "host key",
    "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nsome\n"
    "Host key verification failed.": "host key",
    "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n"
    "kex_exchange_identification: Connection closed by remote host": "refused",
    f"channel 0: open failed: connect failed: Name or service not known\n{WAY_ENDED}": "not run",
    f"channel 0: open failed: connect failed: No route to host\n{WAY_ENDED}": "unreachable",
    f"channel 0: open failed: administratively prohibited: open failed\n{WAY_ENDED}": "not run",
    f"ssh: connect to host login port 2299: Connection refused\n{WAY_ENDED}": "not run",
    f"nobody@login: Permission denied (publickey).\n{WAY_ENDED}": "not run",
    f"No ED25519 host key is known for login and\nHost key verification failed.\n{WAY_ENDED}":
        "not run",
    f"Welcome to login\n{WAY_ENDED}": "no banner",
    "Unable to negotiate with 10.0.0.1 port 22: no matching key exchange method found": "not run",
    "/home/a/.ssh/config: line 3: Bad configuration option: foo": "not run",
    "srun: error: Unable to create step for job 2: Access/permission denied": "auth denied",
    "srun: error: Unable to create step for job 2: Requested nodes are busy": "not run",
    "srun: error: Unable to confirm allocation for job 1: Job is pending execution": "not run",
    "srun: error: Unable to confirm allocation for job 9: Invalid job id specified": "not run",
    "srun: error: Task launch for StepId=1.3 failed on node node04: Communication connection "
    "failure\nsrun: error: Application launch failed: Communication connection failure":
        "unreachable",
    "slurmstepd: error: execve(): sh: No such file or directory": "no shell",
    "bash: line 1: sh: command not found": "no shell",
    "This account is currently not available.": "no shell",
    "": "no shell",
}  # fmt: skip


@pytest.mark.parametrize("text", SAID)
def test_a_line_of_a_courier_tells_the_failure(text: str) -> None:
    assert of_text(text, connected=False)[0] == SAID[text]


def test_once_the_shell_was_there_everything_is_a_death() -> None:
    for text in SAID:
        assert of_text(text, connected=True)[0] == "died"


def test_a_closed_connection_names_the_likely_reason_for_it() -> None:
    assert "likely pam_slurm_adopt" in of_text("Connection closed by 10.0.0.1 port 22",
                                               connected=False)[1]  # fmt: skip


@given(st.text(max_size=500), st.booleans())
def test_any_text_gives_one_printable_line(text: str, connected: bool) -> None:
    says = of_text(text, connected=connected)[1]
    assert says
    assert "\n" not in says
    assert "\x1b" not in says


def ssh(problem: Exception, phase: str, *, after: float = 0.1, late: bool = False, log: str = ""):
    return of_ssh(problem, phase, after, late=late, log=log)[0]  # pyright: ignore


def connecting(number: int) -> NoValidConnectionsError:
    return NoValidConnectionsError({("10.0.0.1", 22): OSError(number, "no")})


def test_a_closed_port_and_a_dead_host_are_told_apart_by_errno() -> None:
    assert ssh(connecting(errno.ECONNREFUSED), "connect") == "refused"
    assert ssh(connecting(errno.EHOSTUNREACH), "connect", after=3) == "unreachable"
    both = {("fe80::1", 22): OSError(errno.EHOSTUNREACH, "no")}
    both[("10.0.0.1", 22)] = OSError(errno.ECONNREFUSED, "no")
    assert ssh(NoValidConnectionsError(both), "connect") == "refused"


def test_the_phase_decides_what_the_same_exception_means() -> None:
    assert ssh(EOFError(), "banner") == "no banner"
    assert ssh(EOFError(), "keys") == "no banner"
    assert ssh(EOFError(), "login") == "died"
    assert ssh(EOFError(), "session") == "died"
    assert ssh(EOFError(), "session", late=True) == "auth hangs"


def test_a_login_without_an_end_hangs_and_a_refused_one_is_denied() -> None:
    denied = paramiko.AuthenticationException("Authentication failed.")
    assert ssh(denied, "login") == "auth denied"
    assert ssh(paramiko.AuthenticationException("Authentication timeout."), "login") == "auth hangs"
    assert ssh(denied, "login", late=True) == "auth hangs"


def test_too_many_keys_are_told_by_the_log_and_are_not_pam() -> None:
    lost = paramiko.AuthenticationException("transport shut down or saw EOF")
    assert "likely pam_slurm_adopt" in of_ssh(lost, "login", 0.1, late=False)[1]
    log = "Disconnect (code 2): Too many authentication failures"
    assert "IdentitiesOnly" in of_ssh(lost, "login", 0.1, late=False, log=log)[1]


def test_what_is_wrong_here_accuses_no_node() -> None:
    assert ssh(OSError(errno.EMFILE, "Too many open files"), "connect") == "not run"
    assert ssh(paramiko.ssh_exception.IncompatiblePeer("no kex"), "keys") == "not run"
    assert ssh(AttributeError("timeouts"), "connect") == "not run"


@pytest.mark.parametrize(
    ("code", "words", "failure"),
    [
        (1, "open failed", "not run"),
        (2, "Connection refused", "refused"),
        (2, "No route to host", "unreachable"),
        (2, "Connection timed out", "unreachable"),
        (2, "Name or service not known", "not run"),
        (2, "Temporary failure in name resolution", "not run"),
        (4, "", "unreachable"),
    ],
)
def test_a_jump_host_says_why_it_does_not_get_through(code: int, words: str, failure: str) -> None:
    told, says = of_ssh(NotThrough(code, words), "connect", 0.1, late=False)
    assert (told, words in says, "jump host" in says) == (failure, True, True)
