"""Slurm's own no and a Slurm that cannot be asked are two things; texts recorded on 22.05.8."""

from pathlib import Path

import pytest

from sluggish.reach.command import Ran
from sluggish.reach.slurm import look
from sluggish.reach.slurm_says import complaints, no_job, telling

NO = "slurm_load_jobs error: Invalid job id specified\n"
DNS = (
    "scontrol: error: get_addr_info: getaddrinfo() failed: Name or service not known: No error, "
    "attempt number -4\n" * 9 + 'scontrol: error: slurm_set_addr: Unable to resolve "ctl.example"\n'
)
MUNGE = """\
scontrol: error: If munged is up, restart with --num-threads=10
scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file
scontrol: error: slurm_send_node_msg: auth_g_create: REQUEST_FED_INFO has authentication error
slurm_load_jobs error: Protocol authentication error
"""
CONF = (
    "scontrol: error: s_p_parse_file: cannot stat file /etc/slurm/slurm.conf: No such file or "
    "directory, retrying in 1sec up to 60sec\n"
)
DOWN = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
SLOW = "slurm_load_jobs error: Socket timed out on send/recv operation\n"
NONE = "Slurm accounting storage is disabled\n"
HEADER = b"JOBID|JOBID|UID|USER|STATE|NODELIST\n"


def ran(stderr: str, *, out: bytes = b"", code: int | None = 1, error: str | None = None) -> Ran:
    argv = ("scontrol", "-o", "show", "job", "5")
    return Ran(argv=argv, stdout=out, stderr=stderr, exit_code=code, error=error, duration_s=5.0)


@pytest.mark.parametrize(
    ("stderr", "error", "why"),
    [
        (DNS, "timeout", "no answer in 5 s: slurm_set_addr: Unable to resolve"),
        (MUNGE, None, 'Munge encode failed: Failed to access "/run/munge/munge.socket.2"'),
        (CONF, "timeout", "cannot stat file /etc/slurm/slurm.conf"),
        (DOWN, None, "Unable to contact slurm controller (connect failure)"),
        (SLOW, None, "Socket timed out on send/recv operation"),
        ("", "timeout", "no answer in 5 s; slurmctld or its storage is stuck"),
        ("no program scontrol on this machine", "not found", "no program scontrol"),
    ],
)
def test_a_slurm_that_cannot_be_asked_has_not_said_no(
    stderr: str, error: str | None, why: str
) -> None:
    one = ran(stderr, error=error)
    told = no_job(one, one, ran(NONE), {})
    assert told.startswith("Slurm cannot be asked (")
    assert why in told
    assert why in complaints(one)[0]
    assert "knows no such job" not in told


def test_of_two_lines_the_one_that_names_the_cause_is_told() -> None:
    assert telling(ran(DNS)) == 'slurm_set_addr: Unable to resolve "ctl.example"'
    assert telling(ran("x: error: something new\nmore\n")) == "x: error: something new"


@pytest.mark.parametrize("said", [ran(NO), ran("", out=b"Job 5_9 not found\n")])
def test_slurmctlds_own_no_is_a_no(said: Ran) -> None:
    knows = "slurmctld knows no such job, and there is no accounting here"
    assert no_job(said, ran(DOWN), ran(NONE), {}) == knows
    assert no_job(said, said, ran("", code=0), {}).startswith("Slurm knows no such job, neither")
    lost = no_job(said, said, ran("sacct: error: Unable to connect to slurmdbd"), {})
    assert lost.startswith("slurmctld knows no such job, accounting cannot be asked (")


def test_an_empty_table_of_squeue_is_an_answer() -> None:
    empty = ran("", out=HEADER, code=0)
    assert no_job(ran(SLOW), empty, ran("", code=0), {}).startswith("Slurm knows no such job")


def test_hidden_jobs_are_said_beside_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 5001)
    told = no_job(ran(NO), ran(NO), ran("", code=0), {"PrivateData": "jobs"})
    assert "PrivateData=jobs" in told


def test_a_record_that_cannot_be_read_is_no_unknown_job() -> None:
    assert "cannot be read" in no_job(ran("", out=b"JobId=5 x", code=0), ran(NO), None, {})


def test_what_slurm_says_is_harmless_on_a_terminal() -> None:
    told = no_job(ran("\x1b[31mUnable to contact\x07"), ran(""), None, {})
    assert "\x1b" not in told
    assert "\x07" not in told


def test_a_machine_without_slurm_has_not_said_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look("5", timeout_s=2).no_job.startswith("Slurm cannot be asked (no program scontrol")
