"""Bursts: the Xids of a node until 3 minutes of silence, and which of them started it.

A fault is told by many lines: the GPU that failed, its neighbours that lost a link, one line for
every channel that is cleaned up. The root is the earliest line whose code can be a cause.
Source of the 3 minutes: NVIDIA Fleet Intelligence, "Xid bursts".
"""

from collections.abc import Iterable
from datetime import timedelta

from sluggish.correlate.xidrole import ECHOES, NVLINK, RECOVERY, role
from sluggish.facts.gpu import Burst, Xid
from sluggish.facts.store import by_node

SILENCE = timedelta(minutes=3)
PMU_FAILURE = 122
PMU_THEN_MMU = timedelta(seconds=5)
"""A 31 this soon after a 122 on the same GPU is hardware (GPU error study of NCSA Delta)."""


def bursts(xids: Iterable[Xid]) -> tuple[Burst, ...]:
    """Every node's bursts, in order of time; lines without a time form one burst of their own."""
    found: list[Burst] = []
    for node, facts in by_node(xids).items():
        found.extend(_burst(node, group) for group in _groups(facts))
    return tuple(found)


def _groups(facts: list[Xid]) -> list[list[Xid]]:
    timed = sorted((f for f in facts if f.at is not None), key=lambda f: (f.at, f.order))
    groups: list[list[Xid]] = []
    for fact in timed:
        last = groups[-1][-1].at if groups else None
        if last is not None and fact.at is not None and fact.at - last <= SILENCE:
            groups[-1].append(fact)
        else:
            groups.append([fact])
    untimed = [f for f in facts if f.at is None]
    return groups + ([untimed] if untimed else [])


def _burst(node: str | None, group: list[Xid]) -> Burst:
    root, why = _root(group)
    named = _named_cause(group) if root is None else None
    return Burst(node=node, xids=tuple(group), root=root, why=why, named_cause=named)


def _root(group: list[Xid]) -> tuple[Xid | None, str]:
    """The line that started it: hardware before program, fatal link before its victims."""
    able = [x for x in group if x.code not in ECHOES and x.caused_by is None]
    causes = [x for x in able if role(x).hang == "cause"]
    own = [x for x in causes if not role(x).peer]
    if own:
        return own[0], "earliest code that can stop a job"
    if causes:
        return causes[0], "the other end of its link failed"
    failures = pmu_failures(group)
    for fact in able if failures else ():
        if fact.code == 31 and after_pmu_failure(fact, failures):
            return fact, "page fault right after Xid 122 on the same GPU"
    for hang, why in (
        ("cause_app", "earliest fault of a program"),
        ("possible", "earliest code that may stop a job"),
    ):
        if some := [x for x in able if role(x).hang == hang]:
            return some[0], why
    return None, ""


def pmu_failures(group: Iterable[Xid]) -> list[Xid]:
    """The lines of a burst that `after_pmu_failure` needs."""
    return [fact for fact in group if fact.code == PMU_FAILURE]


def after_pmu_failure(fact: Xid, group: Iterable[Xid]) -> bool:
    """Whether a 122 of the same GPU stands up to 5 s before this line."""
    return any(
        other.code == PMU_FAILURE
        and other.pci == fact.pci
        and (
            (other.at is None and fact.at is None and other.order < fact.order)
            or (
                other.at is not None
                and fact.at is not None
                and timedelta(0) <= fact.at - other.at <= PMU_THEN_MMU
            )
        )
        for other in group
    )


def _named_cause(group: list[Xid]) -> int | None:
    """The code that the driver names although its own line is not in the log."""
    seen = {x.code for x in group}
    named = [x.caused_by for x in group if x.caused_by is not None]
    return next((code for code in named if code not in seen and code not in ECHOES), None)


def recovery_of(burst_xids: Iterable[Xid], pci: str) -> int | None:
    """The last recovery action that the driver announced for a GPU; None if it announced none."""
    last = [x.recovery for x in burst_xids if x.code == RECOVERY and x.pci == pci]
    return last[-1] if last else None


def is_follower(fact: Xid, root: Xid) -> bool:
    """Whether another line of the burst is explained by its root.

    On the same GPU everything later is. On other GPUs the link errors are, once a link or a GPU
    has failed; a second GPU with a fault of its own kind stays accused.
    """
    if fact is root or fact.code in ECHOES or fact.caused_by is not None:
        return True
    if fact.pci == root.pci:
        return True
    return fact.code in NVLINK and (role(root).kind in ("nvlink", "bus") or role(fact).downstream)
