"""The printed drain lines, run by an administrator and by a plain user on a real Slurm."""

from sluggish.causes import Cause
from sluggish.findings import Finding, Role, Spot, Strength
from sluggish.job import Job, NodeState
from sluggish.remedies import remedies
from sluggish.slurmtext.node import node_states
from sluggish.verdict.model import Culprit, Remedy, Verdict

from .cluster import Lab

NODE = "node02"
LOST = Finding(node=NODE, subject="gpu 5", role=Role.ROOT, strength=Strength.DECISIVE,
               rule="GPU-LOST", says="Xid 79: GPU has fallen off the bus",
               spots=(Spot(node=NODE, gpu_index=5),), action="reboot_node")  # fmt: skip
VERDICT = Verdict(cause=Cause.GPU_FAULT, subtype="off_bus",
                  culprits=(Culprit(node=NODE, gpu_index=5),))  # fmt: skip


def state(lab: Lab) -> NodeState:
    (found,) = node_states(lab.sh("login", f"scontrol -o show node {NODE}"), 0)
    return found


def advice(lab: Lab) -> tuple[Remedy, ...]:
    job = Job(id="7", state="RUNNING", requeue=True)
    return remedies(VERDICT, (LOST,), job, (state(lab),), (NODE,))


def lines(steps: tuple[Remedy, ...], word: str) -> list[str]:
    return [line for step in steps for line in step.commands if word in line]


def test_the_drain_line_does_what_it_says_and_alice_is_refused(lab: Lab) -> None:
    steps = advice(lab)
    (drain,) = lines(steps, "State=DRAIN")
    (resume,) = lines(steps, "State=RESUME")
    assert lab.exec("login", ["sh", "-c", drain], "alice").returncode != 0
    assert "DRAIN" not in state(lab).flags
    try:
        lab.sh("login", drain)
        found = state(lab)
        assert "DRAIN" in (found.state, *found.flags)
        assert found.reason == "sluggish: GPU-LOST Xid79 gpu5 job=7"
        again = advice(lab)
        assert lines(again, "State=") == []  # a second one would overwrite the reason
        assert "already out of service" in again[0].title
    finally:
        lab.sh("ctl", f"scontrol update NodeName={NODE} State=UNDRAIN")
    assert resume.startswith(f"scontrol update NodeName={NODE} State=RESUME")
    assert next(s for s in steps if drain in s.commands).needs == "slurm administrator"
