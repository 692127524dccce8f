"""NODE-CLOCK: clocks that stand apart are context, whoever's they are."""

import json
from pathlib import Path

import pytest

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.derived import ClockOffset
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.probes import PROBES
from sluggish.rules.node import node_clock


def run(*offsets: float, error: float = 0.01) -> list[Finding]:
    store = Facts()
    for number, offset in enumerate(offsets):
        store.add(ClockOffset(node=f"n{number}", offset_s=offset, error_s=error))
    return list(ask(node_clock, store))


def test_the_node_apart_from_the_others_is_named_and_is_never_a_cause() -> None:
    (found,) = run(0.0, 0.01, -94.2, 0.02)
    assert (found.node, found.role, found.strength) == ("n2", Role.CONTEXT, Strength.WEAK)
    assert found.says.startswith("clock 94.2 s behind the other nodes' (± 0.01 s)")
    assert "not comparable" in found.says


@pytest.mark.parametrize(("offset", "told"), [(0.9, 0), (1.005, 0), (1.02, 1), (-1.02, 1)])
def test_a_second_and_the_error_of_the_measurement_are_the_bound(offset: float, told: int) -> None:
    assert len(run(0.0, 0.0, offset)) == told


def test_of_two_nodes_the_one_who_looked_is_the_measure() -> None:
    (found,) = run(0.0, 7.0)
    assert "7.0 s ahead of the clock of this look" in found.says


def test_where_all_nodes_agree_the_clock_of_the_look_is_off() -> None:
    (found,) = run(40.0, 40.1, 39.9)
    assert (found.node, found.spots) == (None, ())
    assert "40 s ahead of the clock of this look" in found.says


def test_an_answer_that_took_long_tells_the_clock_roughly() -> None:
    (found,) = run(0.5, 0.0, error=3.0)
    assert "known to 3 s only on n[0-1]" in found.says


def test_beyond_five_minutes_munge_is_named() -> None:
    assert "munge" in run(0.0, 0.0, 301.5)[0].says
    assert "munge" not in run(0.0, 0.0, 299.0)[0].says


def test_many_are_folded() -> None:
    found = run(*[0.0] * 9, *[5.0 + n for n in range(8)])
    assert [f.node for f in found] == ["n9", "n10", "n11", "n12", None]
    assert "4 more nodes stand apart: n[13-16]" in found[-1].says


def test_offsets_come_from_the_manifest_and_one_that_was_not_measured_is_none(
    tmp_path: Path,
) -> None:
    nodes = [{"name": name, "error": None, "clock_offset_s": offset, "clock_error_s": 0.02}
             for name, offset in (("a", 0.0), ("b", 12.5), ("c", None))]  # fmt: skip
    made = {"schema": 1, "taken_at": "2026-11-24T03:00:00Z", "nodes": nodes, "evidence": []}
    (tmp_path / "manifest.json").write_text(json.dumps(made))
    (tmp_path / "job.log").write_text("x\n")
    told = [f for f in diagnose(load([str(tmp_path)], PROBES)).findings if f.rule == "NODE-CLOCK"]
    assert [(f.node, f.says[:19]) for f in told] == [("b", "clock 12.5 s ahead ")]
