"""Slurm's switches: how they are read, and faults that all hang on one of them."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_facts import (
    book,
    down,
    event,
    flap,
    healthy,
    lost,
    nodes,
    onset,
    roots,
    run,
    using,
    without,
)
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.fabric import Switch
from sluggish.facts.origin import Origin
from sluggish.findings import Role, Strength
from sluggish.probes import topology

HERE = Path(__file__).parent / "probes" / "topology"
CASES = sorted(HERE.glob("*.yaml"))
SIX = nodes(6)
LEAVES = (
    Switch(name="leaf1", level=0, nodes=SIX[:3]),
    Switch(name="leaf2", level=0, nodes=SIX[3:]),
    Switch(name="spine", level=1, nodes=SIX),
)


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text())
    text = path.with_suffix(".txt").read_text()
    assert topology.sniff(text.encode()) is wanted.get("sniff", True)
    if "error" in wanted:
        with pytest.raises(ValueError, match=wanted["error"]):
            list(topology.parse(text, Origin()))
        return
    found = list(topology.parse(text, Origin()))
    assert len(found) == len(wanted["facts"])
    for fact, expected in zip(found, wanted["facts"], strict=True):
        del expected["type"]
        expected["nodes"] = tuple(expected["nodes"])
        assert {key: getattr(fact, key) for key in expected} == expected


def test_every_kind_of_case_is_there() -> None:
    kinds = {"normal", "faulty", "empty", "truncated", "version", "junk"}
    assert {path.stem for path in CASES} >= kinds


def test_a_flat_cluster_that_answers_nothing_is_no_failure() -> None:
    assert list(topology.parse("", Origin(exit_code=0))) == []


@given(st.text() | st.text(alphabet="SwitchName=Level0 Nodes[1-9],\n"))
def test_any_text_gives_switches_or_a_value_error(text: str) -> None:
    found: list[Any] = []
    with suppress(ValueError):
        found += topology.parse(text, Origin())
    assert all(isinstance(fact, Switch) for fact in found)


@pytest.mark.parametrize("junk", ["SwitchName=a Level=0" + " X=" * 300_000,
                                 "SwitchName=" + "a" * 500_000, "Nodes=[" * 100_000])  # fmt: skip
def test_a_very_long_line_is_refused_at_once(junk: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        list(topology.parse(junk, Origin()))


# the rule ---------------------------------------------------------------------------------------


def leaf(*given: Any, switches: tuple[Switch, ...] = LEAVES) -> Any:
    return run("IB-LEAF", *switches, *given, names=SIX)


def ports_down(*on: str) -> list[Any]:
    spots = [(name, "mlx5_5") for name in on]
    return [*without(healthy(SIX), *spots), *[down(*spot) for spot in spots], *map(using, SIX)]


def test_ports_down_on_one_leaf_alone_name_the_leaf_and_drain_nobody() -> None:
    [found] = roots(leaf(*ports_down("gpu-01", "gpu-03")))
    assert (found.node, found.shared, found.subtype) == (None, True, "shared_fabric")
    assert found.strength is Strength.STRONG
    assert "all on switch leaf1; none on the 3 nodes of the other switches" in found.says
    assert {spot.node for spot in found.spots} == {"gpu-01", "gpu-03"}


def test_one_node_is_a_question_of_that_node() -> None:
    assert leaf(*ports_down("gpu-01")) == ()


def test_two_leaves_name_none() -> None:
    found = leaf(*ports_down("gpu-01", "gpu-04"))
    assert roots(found) == []
    assert [f.role for f in found] == [Role.CONTEXT]


def test_without_the_tree_or_with_one_leaf_or_blocks_alone_nothing_is_said() -> None:
    given = ports_down("gpu-01", "gpu-03")
    assert leaf(*given, switches=(Switch(name="all", level=0, nodes=SIX),)) == ()
    blocks = tuple(Switch(name=s.name, level=0, nodes=s.nodes, block=True) for s in LEAVES)
    assert leaf(*given, switches=blocks) == ()
    assert roots(leaf(*given, switches=LEAVES[1:])) == []


def test_a_node_on_two_leaves_is_on_none() -> None:
    both = (*LEAVES, Switch(name="leaf9", level=0, nodes=("gpu-01",)))
    assert roots(leaf(*ports_down("gpu-01", "gpu-03"), switches=both)) == []


def test_different_signs_are_never_added_up() -> None:
    given = [*ports_down("gpu-01"), *flap("gpu-02", 0, 60), event("gpu-03"), onset()]
    assert roots(leaf(*given)) == []


def test_flaps_of_last_week_name_no_leaf() -> None:
    week = -7 * 24 * 60
    old = [*healthy(SIX), *flap("gpu-01", week, 60), *flap("gpu-02", week, 60), onset()]
    assert leaf(*old) == ()
    new = [*healthy(SIX), *flap("gpu-01", 0, 60), *flap("gpu-02", 0, 60), onset()]
    assert len(roots(leaf(*new))) == 1


def test_pairs_lost_across_the_border_alone_name_the_border() -> None:
    given = [*book(SIX), lost("gpu-03", "10.7.1.4"), lost("gpu-01", "10.7.1.6"), onset()]
    [found] = roots(leaf(*given))
    assert (found.shared, found.spots) == (True, ())
    assert "across the border of switch leaf1 or leaf2, none inside" in found.says


@pytest.mark.parametrize(
    "pairs",
    [
        [("gpu-03", 4), ("gpu-02", 4)],  # one node on a side
        [("gpu-03", 4), ("gpu-01", 6), ("gpu-01", 2)],  # one pair inside a leaf
        [("gpu-03", 4)],
    ],
)
def test_a_single_end_or_a_pair_inside_a_leaf_is_no_border(pairs: list[tuple[str, int]]) -> None:
    given = [*book(SIX), *[lost(one, f"10.7.1.{other}") for one, other in pairs], onset()]
    assert roots(leaf(*given)) == []


def test_of_three_leaves_the_common_one_is_named() -> None:
    three = tuple(Switch(name=f"leaf{k}", level=0, nodes=SIX[2 * k : 2 * k + 2]) for k in range(3))
    given = [*book(SIX), lost("gpu-01", "10.7.1.3"), lost("gpu-02", "10.7.1.5"), onset()]
    [found] = roots(leaf(*given, switches=three))
    assert "border of switch leaf0, none" in found.says
