"""A round ends when it must: at its deadline or at Ctrl-C, with nobody left behind here."""

import subprocess

import pytest

from .cluster import Lab, end, wait_for

CLIENT = """
import sys, time
from sluggish.reach.fanout import ask_all
from sluggish.reach.openssh import OpenSshTransport
from sluggish.reach.ssh import SshTransport

class Nothing:
    ended, noise = False, b""
    def feed(self, data):
        yield from ()
    def close(self):
        return ()

way = SshTransport() if sys.argv[1] == "ssh" else OpenSshTransport()
script = b"echo begun; : >/tmp/begun; sleep 45\\n"
told = []
try:
    answers = ask_all(
        sys.argv[3:], lambda _: script, way, frames=Nothing, deadline_s=40,
        overall_s=float(sys.argv[2]), on_event=lambda event: told.append(event.kind),
    )
    print(" ".join(str(answer.failure) for answer in answers))
except KeyboardInterrupt:
    print("stopped", *told)
way.close()
"""


def begun(lab: Lab, kind: str, overall_s: float) -> subprocess.Popen[bytes]:
    """A round on four nodes whose scripts never end; returns once all of them run."""
    marks = [lab.path(node, "/tmp/begun") for node in lab.nodes]
    for mark in marks:
        mark.unlink(missing_ok=True)
    python = ["env", "PYTHONPATH=/opt/sluggish", "/opt/venv/bin/python", "-B", "-c", CLIENT]
    pipe = subprocess.PIPE
    argv = [*python, kind, str(overall_s), *lab.nodes]
    process = lab.popen("login", argv, None, stdout=pipe, stderr=pipe)
    try:
        wait_for(lambda: all(mark.exists() for mark in marks), 20, "the scripts did not begin")
    except BaseException:
        end(process)
        raise
    return process


def left(lab: Lab) -> list[str]:
    """Our program and its couriers, by what they were called with."""
    lines = lab.sh("login", "ps -eo args").splitlines()
    return [line for line in lines if line.startswith("ssh -T") or "ask_all" in line]


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_the_rounds_end_is_the_programs_end(lab: Lab, kind: str) -> None:
    """Threads that still wait for a node hold nothing up."""
    out, err = begun(lab, kind, 6).communicate(timeout=20)
    assert (out.decode().split(), err) == (["timeout"] * 4, b"")
    assert left(lab) == []


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_ctrl_c_stops_at_once_and_what_came_was_told(lab: Lab, kind: str) -> None:
    process = begun(lab, kind, 60)
    wait_for(lambda: bool(left(lab)), 5, "no client")
    pids = lab.sh("login", "ps -eo pid=,args= | grep ask_al[l] | awk '{print $1}'").split()
    lab.sh("login", f"kill -INT {' '.join(pids)}")
    out, err = process.communicate(timeout=8)
    assert err == b""
    assert out.decode().split() == ["stopped", *["connected"] * 4]
    assert left(lab) == []
