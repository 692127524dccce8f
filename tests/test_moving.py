"""A job that moves as far as is seen, while one probe could not run: neither fine nor hanging."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from sluggish.causes import Cause, Family, Phase
from sluggish.facts.derived import Look, Onset, PhaseFact
from sluggish.facts.host import KernelSpan
from sluggish.facts.store import Facts, Gap
from sluggish.findings import Finding, Role, Strength
from sluggish.rules.progress.common import span
from sluggish.verdict.case import Case
from sluggish.verdict.decide import decide
from sluggish.verdict.model import Verdict

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
NODES = ("a1", "a2")
DENIED = "denied: dmesg: read kernel buffer failed: Operation not permitted"


def sign(rule: str, says: str, strength: Strength = Strength.STRONG) -> Finding:
    return Finding(
        node=None, subject="job", role=Role.ROOT, strength=strength, says=says, rule=rule,
        family=Family.PROCESS,
    )  # fmt: skip


def verdict(
    *findings: Finding, kernel_log: bool = False, onset: bool = False, gaps: Sequence[Gap] = ()
) -> Verdict:
    facts = Facts()
    facts.gaps += gaps
    for probe in ("slurm_node", "memory", "nvidia_smi", "ib_ports", "rank_procs", "mounts"):
        facts.answered[probe] |= set(NODES)
    for probe in ("slurm_job", "job_log"):
        facts.answered[probe].add(None)
    for node in NODES:
        if kernel_log:
            facts.answered["kernel_log"].add(node)
            facts.add(KernelSpan(node=node, first_at=NOW, last_at=NOW, lines=9, from_boot=True))
        else:
            facts.gaps.append(Gap(node=node, fact=None, probe="kernel_log", why=DENIED, path=""))
    look = Look(at=NOW, nodes=NODES, world_size=4, job_started_at=None, loose=False)
    stall = NOW - timedelta(minutes=1)
    return decide(
        Case(
            findings=findings, facts=facts, look=look, wait=None, places={},
            onset=Onset(earliest=stall, latest=stall, source="log") if onset else None,
            phase=PhaseFact(phase=Phase.STEADY),
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [
        sign("PROG-STEPS", "step 54 printed 0 s before the look"),
        sign("PROG-CKPT", "in a checkpoint for 8 s, 2 MB/s written"),
    ],
    ids=lambda found: found.rule,
)
def test_what_moves_is_not_called_a_hang_because_a_log_was_denied(found: Finding) -> None:
    shape = sign("HANG-SPIN", "all GPUs wait")
    told = verdict(found, shape)
    assert (told.cause, told.subtype, told.culprits) == (Cause.UNKNOWN, "unobserved", ())
    assert told.next_probe == (
        f"it moves as far as is seen ({found.says}); that no fault is behind it is not known "
        "without the kernel log of a[1-2]; look as root, or with --sudo"
    )
    assert verdict(found, shape, kernel_log=True).cause is Cause.PROGRESSING


def test_weak_signs_and_steps_before_a_stall_show_no_motion() -> None:
    shape = sign("HANG-SPIN", "all GPUs wait")
    weak = sign("PROG-CKPT", "in a checkpoint for 8 s", Strength.WEAK)
    assert verdict(weak, shape).subtype == "hang"
    assert verdict(sign("PROG-STEPS", "step 54"), shape, onset=True).subtype == "hang"


def test_whether_a_node_lives_that_nobody_reaches_is_asked_before_its_ranks() -> None:
    def after(why: str, *nodes: str) -> str:
        gaps = [Gap(node=node, fact=None, probe="identity", why=why) for node in nodes]
        return verdict(sign("HANG-SPIN", "all GPUs wait"), gaps=gaps).next_probe or ""

    assert after("unreachable: no answer to the connection after 6.0 s", "a2") == (
        "does a2 live: ping, its console and BMC, scontrol show node a2; Slurm notices a node that "
        "is gone only after minutes"
    )
    assert not after("auth denied: Permission denied", "a2").startswith("does ")
    # with none reached it is our own way to them
    assert not after("unreachable: No route to host", *NODES).startswith("does ")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.107, "0.11 s"), (1.9, "1.9 s"), (45.9, "45 s"), (720, "12 min"), (-3, "0 s")],
)
def test_a_job_of_many_steps_a_second_has_a_pace_too(seconds: float, words: str) -> None:
    assert span(seconds) == words
