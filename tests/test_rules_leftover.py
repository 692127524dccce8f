"""What a host has besides its ranks: faults of the machine, heat, leftovers, waits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import KernelTrouble
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
START = T0 - timedelta(hours=14)
NODES = ("gpu-07", "gpu-08")
LOOK = Look(
    at=T0 + timedelta(minutes=10), nodes=NODES, world_size=16, job_started_at=START, loose=False
)
ONSET = Onset(earliest=T0 - timedelta(seconds=5), latest=T0, source="watchdog")
TORN = Onset(earliest=T0, latest=T0, source="watchdog", teardown_at=T0 + timedelta(minutes=5))


def run(rule_id: str, *items: Any, saw: dict[type, tuple[str, ...]] | None = None) -> list[Finding]:
    store = Facts()
    for item in items:
        store.add(item)
        store.seen[type(item)].add(getattr(item, "node", None))
    for kind, nodes in (saw or {}).items():
        store.seen[kind] |= set(nodes)
    return list(ask(BY_ID[rule_id], store))


def trouble(kind: str, seconds: float | None = -10, **more: Any) -> KernelTrouble:
    at = None if seconds is None else T0 + timedelta(seconds=seconds)
    return KernelTrouble(**{"node": "gpu-07", "at": at, "kind": kind, "line": kind, **more})


# NODE-FAULT


@pytest.mark.parametrize(
    ("kind", "seconds", "onset", "role", "strength"),
    [
        ("mce", -10, ONSET, Role.ROOT, Strength.STRONG),
        ("panic", -10, ONSET, Role.ROOT, Strength.STRONG),
        ("oops", 60, ONSET, Role.ROOT, Strength.WEAK),
        ("soft_lockup", -10, ONSET, Role.ROOT, Strength.WEAK),
        ("rcu_stall", -10, ONSET, Role.ROOT, Strength.WEAK),
        ("mce", None, ONSET, Role.ROOT, Strength.WEAK),
        ("mce", -10, None, Role.ROOT, Strength.WEAK),
        ("mce", -7200, ONSET, Role.HOUSEKEEPING, Strength.WEAK),
        ("mce", -20 * 3600, ONSET, Role.HOUSEKEEPING, Strength.WEAK),
        ("soft_lockup", -20 * 3600, ONSET, Role.CONTEXT, Strength.WEAK),
        ("oops", 360, TORN, Role.CONSEQUENCE, Strength.WEAK),
    ],
)
def test_a_fault_of_the_host_is_weighed_by_its_kind_and_time(
    kind: str, seconds: float | None, onset: Onset | None, role: Role, strength: Strength
) -> None:
    items = [trouble(kind, seconds), LOOK, *([onset] if onset else [])]
    (found,) = run("NODE-FAULT", *items)
    assert (found.role, found.strength, found.subtype) == (role, strength, "host_fault")


def test_a_lockup_that_comes_again_before_the_stall_is_strong() -> None:
    (found,) = run("NODE-FAULT", trouble("soft_lockup"), trouble("soft_lockup", -36), LOOK, ONSET)
    assert found.strength is Strength.STRONG
    assert "(2 times)" in found.says


def test_a_hard_lockup_is_told_as_one() -> None:
    line = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"
    (found,) = run("NODE-FAULT", trouble("other", line=line), LOOK, ONSET)
    assert (found.strength, "hard lockup" in found.says) == (Strength.STRONG, True)


def test_the_same_on_two_nodes_is_shared_and_other_nodes_and_kinds_are_silent() -> None:
    found = run("NODE-FAULT", trouble("mce"), trouble("mce", node="gpu-08"), LOOK, ONSET)
    assert [f.shared for f in found] == [True, True]
    for fact in (trouble("mce", node="login-1"), trouble("thermal"), trouble("boot")):
        assert run("NODE-FAULT", fact, LOOK, ONSET) == []


# SLOW-HOST: heat


def test_heat_is_a_hint_in_the_jobs_time_and_of_few_nodes_only() -> None:
    (found,) = run("SLOW-HOST", trouble("thermal"), LOOK, ONSET)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.WEAK, "slow_host",
    )  # fmt: skip
    assert run("SLOW-HOST", trouble("thermal", -20 * 3600), LOOK, ONSET) == []
    many = Look(at=T0, nodes=tuple("abcde"), world_size=40, job_started_at=START, loose=False)
    assert run("SLOW-HOST", *(trouble("thermal", node=n) for n in "abcde"), many, ONSET) == []
