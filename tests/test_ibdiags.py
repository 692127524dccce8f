"""The fabric's own tools: read strictly, laid at a port only by its name or by its own LID."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from fabric_facts import T0, book, facts, healthy, initializing, nodes, onset, port, roots, run
from hypothesis import given
from hypothesis import strategies as st

from sluggish.correlate.fabric_ends import Ends, hca_of, queried
from sluggish.facts.derived import Look
from sluggish.facts.fabric import Port, PortCounters
from sluggish.facts.fabric_side import (
    FabricLink,
    FabricMember,
    FabricSummary,
    PortQuery,
    PortTotals,
    SubnetManager,
)
from sluggish.facts.origin import Origin
from sluggish.findings import Finding, Role, Strength
from sluggish.probes import ibdiags

HERE = Path(__file__).parent / "probes" / "ibdiags"
CASES = sorted(HERE.glob("*.yaml"))
FOUR = nodes(4)
LEAF = "MF0;leaf1:MQM9700/U1"


def plain(value: Any) -> Any:
    return [plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text())
    text = path.with_suffix(".txt").read_text()
    assert ibdiags.sniff(text.encode()) is wanted.get("sniff", True)
    found = iter_all(text)
    if "error" in wanted:
        with pytest.raises(ValueError, match=wanted["error"]):
            list(ibdiags.parse(text, Origin()))
    else:
        assert len(found) == len(list(ibdiags.parse(text, Origin())))
    expected = wanted.get("facts", [])
    assert [type(fact).__name__ for fact in found] == [f["type"] for f in expected]
    for fact, one in zip(found, expected, strict=True):
        del one["type"]
        assert {key: plain(getattr(fact, key)) for key in one} == one


def iter_all(text: str) -> list[Any]:
    """The facts before the error."""
    out: list[Any] = []
    with suppress(ValueError):
        for fact in ibdiags.parse(text, Origin()):
            out.append(fact)
    return out


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_pasted_with_windows_line_ends_it_reads_the_same(path: Path) -> None:
    text = path.with_suffix(".txt").read_text()
    strip = [str(fact).replace("\\r", "") for fact in iter_all(text.replace("\n", "\r\n"))]
    assert strip == [str(fact) for fact in iter_all(text)]


ALPHABET = '# Portcountes:Lid 0123[]=()><"X./GUIDErrorsfmsginf\n\t'


@given(st.text() | st.text(alphabet=ALPHABET))
def test_any_text_gives_facts_or_a_value_error(text: str) -> None:
    ibdiags.sniff(text.encode("utf-8", "replace"))
    assert all(type(fact) in ibdiags.FACTS for fact in iter_all(text))


@pytest.mark.parametrize("junk", ["# Port counters: Lid 4 " + " " * 500_000, "[1](" * 200_000,
                                 "] ==(" * 200_000, "\n".join(["] ==( 4X" + " " * 1900] * 500),
                                 "CA: " + ":" * 900_000])  # fmt: skip
def test_a_very_long_line_is_refused_at_once(junk: str) -> None:
    ibdiags.sniff(junk.encode())
    with pytest.raises(ValueError, match="expected"):
        list(ibdiags.parse(junk, Origin()))


def test_a_full_counter_of_32_bits_is_no_traffic_that_stands_still() -> None:
    head = "# Port counters: Lid 4 port 1 (CapMask: 0x1200)\n"
    told = f"{head}PortXmitData:....................4294967295\nPortRcvData:..........7\n"
    [query] = ibdiags.parse(told, Origin())
    assert isinstance(query, PortQuery)
    assert query.counters == {"port_rcv_data": 7}


# whose it is ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "node", "hca"),
    [
        ("gpu-03 mlx5_3", "gpu-03", "mlx5_3"),
        ("gpu-03.cluster.example mlx5_3", "gpu-03", "mlx5_3"),
        ("gpu-03/U1/P1", "gpu-03", None),
        ("gpu-03 HCA-4", "gpu-03", None),
        ("gpu-03", "gpu-03", None),
        ("gpu-030 mlx5_3", None, None),
        ("MT4129 ConnectX7   Mellanox Technologies", None, None),
        (LEAF, None, None),
    ],
)
def test_a_host_is_known_by_its_name(end: str, node: str | None, hca: str | None) -> None:
    [look] = facts(names=FOUR).all(Look)
    found, rest = Ends(look).of(end)
    assert (found, hca_of(rest)) == (node, hca)


def query(lid: int, minutes: float = 0, **more: Any) -> PortQuery:
    plain: dict[str, Any] = {"node": None, "port": 1, "sample": "", "counters": {"link_downed": 3}}
    return PortQuery(lid=lid, at=T0 + timedelta(minutes=minutes), **(plain | more))


def lids(*given: object, names: tuple[str, ...] = FOUR) -> list[PortCounters]:
    told = facts(*given, names=names)
    return list(queried(told, told.all(Look)[0]))


def numbered(
    names: tuple[str, ...] = FOUR, hcas: Sequence[str] = ("mlx5_0", "mlx5_1")
) -> list[Port]:
    return [port(n, h, lid=10 * i + k + 1) for i, n in enumerate(names) for k, h in enumerate(hcas)]


def test_a_lid_that_one_port_has_names_it() -> None:
    [found] = lids(*numbered(), query(12))
    assert (found.node, found.hca, found.port, found.sample) == ("gpu-02", "mlx5_1", 1, "")


def test_a_lid_of_two_ports_names_none_unless_the_file_s_node_has_one() -> None:
    ports = [port(n, "mlx5_0", lid=12) for n in FOUR[:2]]
    assert lids(*ports, query(12)) == []
    assert [c.node for c in lids(*ports, query(12, node="gpu-02"))] == ["gpu-02"]
    assert lids(*ports, query(12, node="gpu-04")) == []


@pytest.mark.parametrize("given", [query(99), query(12, port=2)])
def test_a_lid_or_port_that_nobody_has_is_nobody_s(given: PortQuery) -> None:
    assert lids(*numbered(), given) == []
    found = run("IB-REPORT", *numbered(), given)
    assert [f.role for f in found] == [Role.CONTEXT]
    assert found[0].says.startswith(f"perfquery of LID {given.lid}: no port of the job")


def test_the_sum_of_all_ports_is_that_of_the_only_one() -> None:
    assert [c.hca for c in lids(*numbered(), query(12, port=None))] == ["mlx5_1"]


def test_ethernet_ports_have_no_lid() -> None:
    assert lids(port("gpu-01", "mlx5_0", lid=12, link_layer="ethernet"), query(12)) == []


def test_two_readings_are_two_samples_by_time_or_by_name() -> None:
    later = {"link_downed": 4}
    for two in ((query(12), query(12, 5, counters=later)),
                (query(12, sample="b", counters=later), query(12, sample="a"))):  # fmt: skip
        a, b = lids(*numbered(), *two)
        assert [(c.sample, c.counters["link_downed"]) for c in (a, b)] == [("a", 3), ("b", 4)]


def test_narrow_and_wide_counters_are_not_two_samples() -> None:
    wide = query(12, 5, wide=True, counters={"port_xmit_data": 5})
    [one] = lids(*numbered(), query(12), wide)
    assert (one.sample, one.counters) == ("", {"link_downed": 3, "port_xmit_data": 5})


def test_what_the_node_itself_read_stands() -> None:
    own = PortCounters(node="gpu-02", hca="mlx5_1", port=1, sample="a", at=T0, counters={})
    assert lids(*numbered(), own, query(12)) == []


def counted(*given: PortQuery) -> tuple[Finding, ...]:
    told = facts(*numbered(), *given)
    return run("IB-COUNTERS", *numbered(), *queried(told, told.all(Look)[0]))


def test_a_counter_that_moved_between_two_queries_is_that_port_s() -> None:
    [found] = roots(counted(query(12), query(12, 5, counters={"link_downed": 4})))
    assert (found.node, found.subject, found.strength) == ("gpu-02", "mlx5_1/1", Strength.STRONG)


@pytest.mark.parametrize(("value", "full"), [(254, False), (255, True), (256, False)])
def test_one_reading_tells_a_full_counter_and_nothing_else(value: int, full: bool) -> None:
    found = counted(query(12, counters={"link_downed": value}))
    assert [f.role for f in found] == ([Role.HOUSEKEEPING] if full else [])


def test_counters_of_traffic_alone_clear_no_port() -> None:
    data = [query(12, m, wide=True, counters={"port_xmit_data": 9**m}) for m in (1, 20)]
    assert [f.role for f in counted(*data)] == [Role.CONTEXT]
    both = [query(12, m, counters={"port_xmit_data": 9**m, "link_downed": 3}) for m in (1, 20)]
    assert Role.ALL_CLEAR in {f.role for f in counted(*both)}


# links ------------------------------------------------------------------------------------------


def link(node: str, rail: str = "mlx5_0", **more: Any) -> FabricLink:
    plain: dict[str, Any] = {
        "tool": "iblinkinfo", "ports": (1, 7), "state": "active", "lanes": 4, "lane_gbps": 100.0,
        "could_be": "", "line": f"{node} {rail}",
    }  # fmt: skip
    return FabricLink(ends=(f"{node} {rail}", LEAF), **(plain | more))


def cabled(names: tuple[str, ...] = FOUR, **more: Any) -> list[FabricLink]:
    return [link(n, h, **more) for n in names for h in ("mlx5_0", "mlx5_1")]


def but(links: list[FabricLink], *odd: FabricLink) -> list[FabricLink]:
    gone = {one.ends[0] for one in odd}
    return [one for one in links if one.ends[0] not in gone] + list(odd)


def test_a_link_slower_than_its_rail_and_than_both_its_ends_is_a_hint() -> None:
    odd = link("gpu-02", "mlx5_1", lanes=1, could_be="4X")
    [found] = roots(run("IB-REPORT", *but(cabled(), odd)))
    assert (found.node, found.subtype, found.strength) == ("gpu-02", "link_degraded", Strength.WEAK)
    assert found.says == (
        f"iblinkinfo: link gpu-02 mlx5_1 - {LEAF} runs 100 Gb/s (1X), its peers 400, could be 4X"
    )


def test_the_end_may_stand_on_either_side() -> None:
    odd = link("gpu-02", "mlx5_1", lanes=1, could_be="4X")
    turned = [
        FabricLink(tool=o.tool, ends=o.ends[::-1], ports=o.ports[::-1], state=o.state,
                   lanes=o.lanes, lane_gbps=o.lane_gbps, could_be=o.could_be)
        for o in but(cabled(), odd)
    ]  # fmt: skip
    assert [f.node for f in roots(run("IB-REPORT", *turned))] == ["gpu-02"]


LOOK_ALIKES: dict[str, list[object]] = {
    "every link could be more": [*cabled(could_be="12X")],
    "two lanes everywhere, as a split cable has": [*cabled(lanes=2, could_be="4X")],
    "a slower rail on every node": [
        *cabled(), *(link(n, "mlx5_8", lanes=1, could_be="4X") for n in FOUR),
    ],
    "an end that can do no more": but(cabled(), link("gpu-02", "mlx5_1", lanes=1)),
    "a storage port of one node, not the job's": [
        *cabled(), link("gpu-02", "mlx5_8", lanes=1, could_be="4X"), *healthy(FOUR),
        port("gpu-02", "mlx5_8", link_layer="ethernet", rate_gbps=100.0),
    ],
    "the node itself reads it at full rate": [
        *but(cabled(), link("gpu-02", "mlx5_1", lanes=1, could_be="4X")), *healthy(FOUR),
    ],
    "a host of another job": [*cabled(), link("login-1", "mlx5_0", lanes=1, could_be="4X")],
    "faster than the others": but(cabled(could_be="8X"), link("gpu-02", "mlx5_1", lanes=8)),
}  # fmt: skip


@pytest.mark.parametrize("given", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_slow_look_alike_accuses_nobody(given: list[object]) -> None:
    assert roots(run("IB-REPORT", *given)) == []


def test_a_node_that_reads_the_port_well_now_makes_the_report_another_time() -> None:
    odd = link("gpu-02", "mlx5_1", state="initializing")
    found = run("IB-REPORT", *but(cabled(), odd), *healthy(FOUR))
    assert [f.role for f in found] == [Role.CONTEXT]
    assert found[0].says.endswith("gpu-02 itself reads this port well: another time")


def test_slow_links_of_two_nodes_are_of_what_they_share() -> None:
    odd = [link(n, "mlx5_1", lanes=1, could_be="4X") for n in FOUR[1:3]]
    [found] = roots(run("IB-REPORT", *but(cabled(), *odd)))
    assert (found.node, found.shared, found.subtype) == (None, True, "shared_fabric")
    assert {s.node for s in found.spots} == set(FOUR[1:3])


def test_old_names_of_cards_are_a_node_and_no_hca() -> None:
    links = [link(n, "HCA-2") for n in FOUR[:3]]
    [found] = roots(run("IB-REPORT", *links, link("gpu-04", "HCA-2", lanes=1, could_be="4X")))
    assert (found.node, found.spots[0].hca) == ("gpu-04", None)


def test_links_that_are_up_and_not_brought_up_are_a_hint() -> None:
    odd = link("gpu-02", "mlx5_1", state="initializing", could_be="12X")
    [found] = roots(run("IB-REPORT", *but(cabled(), odd)))
    assert (found.node, found.subtype) == ("gpu-02", "port_down")
    assert "no subnet manager has brought it up" in found.says
    everywhere = roots(run("IB-REPORT", *cabled(state="initializing")))
    assert [(f.node, f.shared) for f in everywhere] == [(None, True)]


# HCAs that answered -----------------------------------------------------------------------------


def members(*gone: str, names: tuple[str, ...] = FOUR) -> list[FabricMember]:
    ends = [f"{n} {h}" for n in names for h in ("mlx5_0", "mlx5_1")]
    return [FabricMember(tool="ibhosts", end=e) for e in ends if e not in gone]


def test_an_hca_that_only_one_node_does_not_show_is_a_hint() -> None:
    [found] = roots(run("IB-REPORT", *members("gpu-02 mlx5_1")))
    assert (found.node, found.strength, found.spots[0].hca) == ("gpu-02", Strength.WEAK, "mlx5_1")
    assert found.says == ("ibhosts: gpu-02 mlx5_1 does not answer, that of 3 of 3 other nodes does")


def test_an_hca_that_two_nodes_do_not_show_is_shared() -> None:
    [found] = roots(run("IB-REPORT", *members("gpu-01 mlx5_1", "gpu-02 mlx5_1")))
    assert (found.node, found.shared) == (None, True)


@pytest.mark.parametrize(
    "given",
    [
        members(),
        members(*(f"{n} mlx5_1" for n in FOUR[:3])),  # one has it, most have not
        members("gpu-02 mlx5_0", "gpu-02 mlx5_1"),  # a list of other hosts, or another name
        [*members(), FabricMember(tool="ibhosts", end="gpu-02 mlx5_8")],  # one more than the rest
        [*members(names=FOUR[:2])[:3]],  # two nodes, no majority
        [*members("gpu-02 mlx5_1"), *healthy(FOUR)],  # it is Active: another time
    ],
)
def test_lists_of_hosts_that_accuse_nobody(given: list[object]) -> None:
    assert roots(run("IB-REPORT", *given)) == []


def test_a_node_that_no_tool_names_is_said() -> None:
    found = run("IB-REPORT", *members("gpu-02 mlx5_0", "gpu-02 mlx5_1"))
    assert [f.says for f in found] == [
        "the fabric's tools name no HCA of gpu-02: another name, or not there"
    ]


# totals -----------------------------------------------------------------------------------------


def total(end: str, **values: int) -> PortTotals:
    return PortTotals(end=end, port=1, counters=values, line="GUID")


def test_totals_are_context_and_a_full_one_is_said() -> None:
    given = (total("gpu-02 mlx5_1", link_downed=255, port_xmit_wait=9), total(LEAF, symbol_error=9),
             total("gpu-03 mlx5_1", port_xmit_wait=4_000_000_000))  # fmt: skip
    ours, others, full = run("IB-REPORT", *given)
    assert [f.role for f in (ours, others)] == [Role.CONTEXT] * 2
    assert ours.says.startswith("error totals of the job: gpu-02 mlx5_1 port 1 (link_downed 255):")
    assert others.says.startswith(f"error totals of no node of the job: {LEAF} port 1 (symbol")
    assert (full.role, full.node) == (Role.HOUSEKEEPING, "gpu-02")


def test_a_run_of_ibqueryerrors_without_errors_clears_nothing() -> None:
    clean = FabricSummary(tool="ibqueryerrors", stages=(("48 ports", 0, 0),))
    [found] = run("IB-REPORT", clean)
    assert found.role is Role.CONTEXT
    assert found.says.endswith("48 ports checked, none beyond its thresholds, at an unknown time")


# the subnet manager -----------------------------------------------------------------------------

SILENT = SubnetManager(answers=False, line="sminfo: iberror: failed: query")
MASTER = SubnetManager(answers=True, lid=1, state="MASTER")


def waiting(*names: str) -> list[Port]:
    ports = [port(n, h) for n in FOUR for h in ("mlx5_0", "mlx5_1")]
    kept = [p for p in ports if (p.node, p.hca) not in {(n, "mlx5_1") for n in names}]
    return kept + [initializing(n, "mlx5_1") for n in names]


def test_one_port_that_waits_for_a_manager_that_is_silent_is_not_its_node() -> None:
    given = (*waiting("gpu-02"), onset(), *book(FOUR), SILENT)
    assert roots(run("IB-PORT", *given)) == []
    [found] = roots(run("IB-SM", *given))
    assert (found.node, found.subtype, found.shared) == (None, "subnet_manager", True)
    assert (found.strength, found.quote) == (Strength.STRONG, SILENT.line)


def test_sminfo_asked_on_the_node_whose_port_waits_clears_nobody() -> None:
    there = SubnetManager(answers=False, node="gpu-02", line=SILENT.line)
    elsewhere = SubnetManager(answers=False, node="gpu-01", line=SILENT.line)
    given = (*waiting("gpu-02"), onset(), *book(FOUR))
    assert [f.node for f in roots(run("IB-PORT", *given, there))] == ["gpu-02"]
    assert roots(run("IB-SM", *given, there)) == []
    for asked in ((elsewhere,), (there, elsewhere)):
        assert roots(run("IB-PORT", *given, *asked)) == []
        assert [f.subtype for f in roots(run("IB-SM", *given, *asked))] == ["subnet_manager"]


@pytest.mark.parametrize("asked", [(), (MASTER,), (SILENT, MASTER)])
def test_one_port_beside_a_manager_that_answers_is_that_port(asked: tuple[object, ...]) -> None:
    given = (*waiting("gpu-02"), onset(), *book(FOUR), *asked)
    assert [f.node for f in roots(run("IB-PORT", *given))] == ["gpu-02"]
    assert roots(run("IB-SM", *given)) == []


def test_a_silent_manager_alone_breaks_no_port_that_is_up() -> None:
    [found] = run("IB-SM", *healthy(FOUR), SILENT)
    assert found.role is Role.CONTEXT
    assert found.says.endswith("ports that are Active stay so without one")
    assert run("IB-SM", *healthy(FOUR), MASTER) == ()


def test_a_manager_that_is_no_master_is_said() -> None:
    [found] = run("IB-SM", SubnetManager(answers=True, lid=3, state="STANDBY"))
    assert (found.role, found.says) == (
        Role.CONTEXT, "sminfo: the subnet manager of LID 3 answers as STANDBY, no MASTER",
    )  # fmt: skip


def test_a_master_that_left_ports_of_two_nodes_waiting_is_named_beside_them() -> None:
    found = run("IB-SM", *waiting("gpu-02", "gpu-03"), MASTER)
    assert [f.role for f in found] == [Role.CONTEXT, Role.ROOT]
    assert found[0].says.endswith("answers as MASTER and has not brought up these ports")


def test_a_link_that_waits_for_a_silent_manager_is_not_its_node_either() -> None:
    odd = link("gpu-02", "mlx5_1", state="initializing")
    [found] = roots(run("IB-REPORT", *but(cabled(), odd), SILENT))
    assert (found.node, found.shared, found.subtype) == (None, True, "subnet_manager")
    assert found.spots == ()


def test_a_full_counter_that_the_node_told_itself_is_told_once() -> None:
    own = PortCounters(node="gpu-02", hca="mlx5_1", port=1, sample="a", at=T0, counters={})
    found = run("IB-REPORT", total("gpu-02 mlx5_1", link_downed=255), own)
    assert [f.role for f in found] == [Role.CONTEXT]
