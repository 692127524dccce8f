"""Reports of the fabric's own tools: read strictly, matched by name, never more than a hint."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_facts import healthy, nodes, roots, run
from hypothesis import given
from hypothesis import strategies as st
from storyroom import story

from sluggish.causes import Cause
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.fabric_side import FabricReport, FabricSummary
from sluggish.facts.origin import Origin
from sluggish.findings import Role, Strength
from sluggish.probes import PROBES, ibdiagnet

HERE = Path(__file__).parent / "probes" / "ibdiagnet"
CASES = sorted(HERE.glob("*.yaml"))
FOUR = nodes(4)


def plain(value: Any) -> Any:
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text())
    text = path.with_suffix(".txt").read_text()
    assert ibdiagnet.sniff(text.encode()) is wanted.get("sniff", True)
    if "error" in wanted:
        with pytest.raises(ValueError, match=wanted["error"]):
            list(ibdiagnet.parse(text, Origin()))
        return
    found = list(ibdiagnet.parse(text, Origin()))
    assert [type(fact).__name__ for fact in found] == [f["type"] for f in wanted["facts"]]
    for fact, expected in zip(found, wanted["facts"], strict=True):
        del expected["type"]
        assert {key: plain(getattr(fact, key)) for key in expected} == expected


@given(st.text() | st.text(alphabet='-E I"LinkStage<>()=1/\n'))
def test_any_text_gives_facts_or_a_value_error(text: str) -> None:
    found: list[Any] = []
    with suppress(ValueError):
        found += ibdiagnet.parse(text, Origin())
    assert all(type(fact) in ibdiagnet.FACTS for fact in found)


@pytest.mark.parametrize("junk", ["-E- " + "a/" * 500_000, "-E- Link: " + "a" * 900 + "\n" * 9,
                                 "-I- Stage" + " " * 500_000])  # fmt: skip
def test_a_very_long_line_is_refused_at_once(junk: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        list(ibdiagnet.parse(junk, Origin()))


# the rule ---------------------------------------------------------------------------------------


def report(*ends: str, kind: str = "counter") -> FabricReport:
    return FabricReport(kind=kind, ends=ends, says="symbol_error_counter rose by 27", line="-E-")


def test_a_port_of_a_node_of_the_job_is_a_hint_and_no_drain() -> None:
    [found] = roots(run("IB-REPORT", report("gpu-03/U1/P1"), names=FOUR))
    assert (found.node, found.strength, found.action) == ("gpu-03", Strength.WEAK, "check_fabric")


@pytest.mark.parametrize("end", ["gpu-03.cluster.example/U1/P1", "gpu-03 mlx5_0", "gpu-03:1/2"])
def test_hosts_are_known_by_their_name(end: str) -> None:
    assert [f.node for f in roots(run("IB-REPORT", report(end), names=FOUR))] == ["gpu-03"]


def test_ports_of_two_nodes_are_shared() -> None:
    given = (report("gpu-03/U1/P1"), report("gpu-04/U1/P1"))
    [found] = roots(run("IB-REPORT", *given, names=FOUR))
    assert (found.shared, found.node) == (True, None)


def test_ports_of_others_are_context() -> None:
    found = run("IB-REPORT", report("S7c/N7c/P28", "login1/U1/P1", kind="link"), names=FOUR)
    assert [f.role for f in found] == [Role.CONTEXT]


def test_a_clean_report_of_an_unknown_time_clears_nothing() -> None:
    clean = FabricSummary(stages=(("Port Counters", 3, 0),))
    [found] = run("IB-REPORT", clean, *healthy(FOUR), names=FOUR)
    assert found.role is Role.CONTEXT
    bad = FabricSummary(stages=(("Port Counters", 0, 2), ("Discovery", 0, 0)))
    assert "errors in Port Counters 2" in run("IB-REPORT", bad, names=FOUR)[0].says


# the whole way ----------------------------------------------------------------------------------


def test_a_report_that_lies_beside_a_bundle_changes_no_verdict_and_drains_nobody(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = story("healthy", tmp_path_factory).path("directory")
    text = (HERE / "faulty.txt").read_text().replace("gpu-03", "gpu-11")
    (tmp_path / "fabric-team.log").write_text(text)
    alone = diagnose(load([str(told)], PROBES))
    both = diagnose(load([str(told), str(tmp_path)], PROBES))
    assert (both.verdict.cause, both.verdict.drain_nodes) == (alone.verdict.cause, ())
    assert both.verdict.cause is Cause.PROGRESSING
    assert any(f.rule == "IB-REPORT" and f.node == "gpu-11" for f in both.findings)
    assert [g.why for g in both.verdict.not_checked if g.what == "switch side"] == [
        "only what the fabric's report says, of no known time"
    ]
