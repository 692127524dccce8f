"""What a look is not allowed to see, or what is gone, is told in words and is never "nothing"."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from . import cluster, live, sims
from .cluster import Lab
from .live import Told

NODES = ("node01", "node02")
STEP = "srun sh -c 'while :; do sleep 1; done'"


@pytest.fixture(scope="module")
def gaps(machine: None) -> Iterator[Lab]:
    """Two nodes of its own: Slurm's configuration is changed under it."""
    lab = cluster.up(2, hcas=2)
    yield lab
    lab.down()


@pytest.fixture(scope="module")
def job(gaps: Lab) -> Iterator[str]:
    """alice's, on both nodes, with a rank on each."""
    yield from running(gaps, "alice")


@pytest.fixture(scope="module")
def other(gaps: Lab, job: str) -> Iterator[str]:
    """bob's, on the same nodes."""
    yield from running(gaps, "bob")


def running(lab: Lab, user: str) -> Iterator[str]:
    ask = f'cd; sbatch --parsable -N2 --ntasks-per-node=1 --gres=gpu:2 --wrap "{STEP}"'
    number = lab.sh("login", ask, user).strip()
    show = ["scontrol", "show", "step", f"{number}.0"]
    cluster.wait_for(lambda: lab.exec("ctl", show).returncode == 0, 30, "no step")
    yield number
    lab.sh("ctl", f"scancel {number}")
    queue = ["squeue", "-h", "-j", number]
    cluster.wait_for(lambda: not lab.exec("ctl", queue).stdout.strip(), 30, "the job does not end")


def look(lab: Lab, job: str, user: str | None, *more: str) -> Told:
    argv = ["diagnose", "--job", job, "--transport", "ssh", "--window", "1", "--json", *more]
    return live.told(live.sluggish(lab, argv, user), time.monotonic())


def gap(told: Told, what: str) -> list[tuple[str | None, str]]:
    """Where something was not checked, and why."""
    listed = told.document["verdict"]["not_checked"]
    return [(one["where"], one["why"]) for one in listed if one["what"] == what]


def ruled_out(told: Told) -> str:
    return str(told.document["verdict"]["ruled_out"])


@contextmanager
def private_jobs(lab: Lab) -> Iterator[None]:
    conf = lab.path("ctl", "/etc/slurm/slurm.conf")
    before = conf.read_text()
    conf.write_text(f"{before}PrivateData=jobs\n")
    shown = ["sh", "-c", "scontrol show config | grep PrivateData"]
    try:
        lab.sh("ctl", "scontrol reconfigure")
        cluster.wait_for(lambda: "= jobs" in lab.exec("ctl", shown).stdout, 20, "not private")
        yield
    finally:
        conf.write_text(before)
        lab.sh("ctl", "scontrol reconfigure")
        cluster.wait_for(lambda: "= none" in lab.exec("ctl", shown).stdout, 20, "still private")


def test_private_jobs_hide_who_else_is_there_and_that_is_said(
    gaps: Lab, job: str, other: str
) -> None:
    root = look(gaps, job, None)
    assert f"node[01-02] also run job {other}" in root.notes
    with private_jobs(gaps):
        owner = look(gaps, job, "alice")
        stranger = live.sluggish(gaps, ["diagnose", "--job", job, "--json"], "bob")
        out, err = stranger.communicate(timeout=60)
    assert "PrivateData=jobs" in owner.notes, owner.notes
    assert "PrivateData=jobs" in owner.gaps, owner.gaps
    # to a stranger the job does not exist at all: the last line says why that proves nothing
    assert "PrivateData=jobs" in err.decode().splitlines()[-1]
    assert (stranger.returncode, out) == (30, b"")


def test_hidden_processes_are_a_gap_and_no_lost_ranks(gaps: Lab, job: str) -> None:
    for node in NODES:
        gaps.sh(node, "mount -n -o remount,hidepid=2 /proc")
    try:
        told = look(gaps, job, "bob")
    finally:
        for node in NODES:
            gaps.sh(node, "mount -n -o remount,hidepid=0 /proc")
    why = "denied: environments of uid 5001 are not readable: its processes are not known"
    assert gap(told, "processes") == [("node[01-02]", why)]
    assert (told.verdict, told.places) == ("unknown/unobserved", [])
    assert "rank processes" not in ruled_out(told)


def test_another_pid_namespace_is_a_gap_and_no_lost_ranks(gaps: Lab, job: str) -> None:
    """sshd in a container of its own: /proc there knows nothing of the job."""
    serve = ["/usr/sbin/sshd", "-D", "-p", "2222", "-E", "/var/log/sshd2.log"]
    config = gaps.path("login", "/root/.ssh/config")
    config.write_text("Host node01\n  Port 2222\n")
    null = subprocess.DEVNULL
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", *serve]
    second = gaps.popen("node01", apart, stdin=null, stdout=null, stderr=null)
    try:
        up = ["sh", "-c", "ssh-keyscan -p 2222 node01"]
        cluster.wait_for(lambda: bool(gaps.exec("login", up).stdout), 20, "no second sshd")
        known = gaps.path("login", "/root/.ssh/known_hosts")
        before = known.read_text()
        known.write_text(before + gaps.exec("login", up).stdout)
        told = look(gaps, job, None)
        known.write_text(before)
    finally:
        cluster.end(second)
        config.unlink()
    why = "denied: Slurm lists processes of the job that are not visible here"
    assert gap(told, "processes") == [("node01", why)]
    assert (told.document["verdict"]["cause"], told.places) == ("unknown", [])


def test_a_kernel_log_that_begins_after_the_job_never_says_no_xid(gaps: Lab, job: str) -> None:
    """The ring has wrapped on node01 and the journal was vacuumed; on node02 it is whole."""
    sims.journal(gaps, "node01", there=False)
    gaps.path("node01", "/run/node/kmsg").write_text("")
    sims.kernel(gaps, "node01", "usb 1-1: new high-speed USB device number 5 using xhci_hcd")
    try:
        told = look(gaps, job, None)
    finally:
        sims.journal(gaps, "node01", there=True)
        sims.clear_kernel(gaps, "node01")
    ((where, why),) = gap(told, "kernel log")
    assert where == "node01"
    assert why.startswith("kernel log begins ")
    assert "no Xid" not in ruled_out(told) or "1 of 2" in ruled_out(told)
