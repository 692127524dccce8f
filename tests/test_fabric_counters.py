"""Counters of two samples, and what holds for all fabric rules."""

from dataclasses import replace

import pytest
from fabric_facts import (
    EIGHT,
    counters,
    down,
    event,
    facts,
    fatal,
    flap,
    healthy,
    nodes,
    onset,
    port,
    ring,
    roots,
    run,
    without,
)

from sluggish.causes import SUBTYPES, Cause
from sluggish.facts.fabric import PortCounters
from sluggish.facts.store import Facts
from sluggish.findings import Role, Strength, ask
from sluggish.rules import fabric


def test_totals_since_boot_change_nothing() -> None:
    given = [c for n in nodes(2) for c in counters(n)]
    found = run("IB-COUNTERS", *healthy(nodes(2)), *given, names=nodes(2))
    assert roots(found) == []
    assert any(f.says.startswith("no error counter moved on 2 ports in 15 s") for f in found)
    for one in "ab":
        assert run("IB-COUNTERS", *[c for c in given if c.sample == one], names=nodes(2)) == ()


@pytest.mark.parametrize(
    ("moved", "strength"),
    [
        ({"link_downed": 1}, Strength.STRONG),
        ({"symbol_error": 151}, Strength.WEAK),
        ({"symbol_error": 150}, None),
        ({"port_xmit_wait": 10**9}, None),
        ({"req_cqe_flush_error": 900}, None),
        ({"link_downed": -3}, None),
    ],
)
def test_a_counter_counts_by_its_step(moved: dict[str, int], strength: Strength | None) -> None:
    given = [*counters("gpu-01", **moved), *counters("gpu-02"), *counters("gpu-03")]
    found = roots(run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3)))
    assert [f.strength for f in found] == ([strength] if strength else [])
    assert all(f.spots[0].node == "gpu-01" for f in found)


def test_lost_packets_accuse_nobody() -> None:
    given = [c for n in nodes(3) for c in counters(n, local_ack_timeout_err=50)]
    found = run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3))
    assert roots(found) == []
    assert any("both ends of a bad path" in f.says for f in found)


def test_a_saturated_counter_is_said_to_be_blind() -> None:
    a, b = counters("gpu-01")
    full = [replace(c, counters={**c.counters, "link_downed": 255}) for c in (a, b)]
    found = run("IB-COUNTERS", *healthy(nodes(1)), *full, names=nodes(1))
    assert [f.says for f in found if f.role is Role.HOUSEKEEPING] == [
        "mlx5_0: link_downed saturated, a new event cannot show; clear it (perfquery -R) once the "
        "node is drained"
    ]


def test_links_that_drop_on_two_nodes_are_shared() -> None:
    given = [*counters("gpu-01", link_downed=1), *counters("gpu-02", link_downed=1)]
    [found] = roots(run("IB-COUNTERS", *healthy(nodes(2)), *given, names=nodes(2)))
    assert (found.shared, len(found.spots)) == (True, 2)


def test_no_traffic_means_stuck_above_the_network() -> None:
    given = [c for n in nodes(2) for h in EIGHT for c in counters(n, h, port_xmit_data=900)]
    found = run("IB-COUNTERS", *healthy(nodes(2)), *given, names=nodes(2))
    assert any(f.says.startswith("no traffic on any of 16 ports") for f in found)


def test_a_dead_rail_beside_busy_ones_is_told() -> None:
    words = {h: 0 if h == "mlx5_3" else 10**8 for h in EIGHT}
    given = [c for n in nodes(2) for h in EIGHT for c in counters(n, h, port_xmit_data=words[h])]
    found = run("IB-COUNTERS", *healthy(nodes(2)), *given, names=nodes(2))
    assert any(f.says.startswith("no traffic on mlx5_3 of all nodes") for f in found)


def test_counters_of_an_unused_hca_are_not_looked_at() -> None:
    ports = [*healthy(nodes(2)), port("gpu-01", "mlx5_8", link_layer="ethernet")]
    given = counters("gpu-01", "mlx5_8", link_downed=4)
    assert roots(run("IB-COUNTERS", *ports, *given, names=nodes(2))) == []


def test_every_subtype_that_a_rule_names_is_one_of_the_closed_list() -> None:
    legal = {*SUBTYPES[Cause.IB_FAULT], *SUBTYPES[Cause.STRAGGLER], *SUBTYPES[Cause.CONFIG]}
    bad = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    given = (*bad, *ring(3), *flap("gpu-02", -1, 60), fatal("gpu-01", -1), event("gpu-02"), onset())
    found = [f for rule in fabric.RULES for f in ask(rule, facts(*given))]
    assert {f.subtype for f in roots(tuple(found))} <= legal
    assert {f.rule for f in found} >= {"IB-PORT", "IB-NCCL", "IB-FLAP", "IB-FATAL", "IB-ASYNC"}


def test_renamed_nodes_rename_the_culprit() -> None:
    names = tuple(f"x{i}" for i in range(4))
    ports = [*[port(n, h) for n in names for h in EIGHT if (n, h) != ("x2", "mlx5_5")]]
    [found] = roots(run("IB-PORT", *ports, down("x2", "mlx5_5"), names=names))
    assert found.node == "x2"


def test_no_rule_speaks_without_facts() -> None:
    assert [f for rule in fabric.RULES for f in ask(rule, Facts())] == []


def test_two_samples_without_a_time_between_them_make_no_rate_look_higher() -> None:
    """Mailed files may all carry one time: 300 errors are then at least five a second, not 300."""
    given = [*counters("gpu-01", symbol_error=300), *counters("gpu-02"), *counters("gpu-03")]
    once = [replace(c, at=given[0].at) for c in given]
    assert len(roots(run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3)))) == 1
    assert roots(run("IB-COUNTERS", *healthy(nodes(3)), *once, names=nodes(3))) == []


def busy(node: str, **moved: int) -> list[PortCounters]:
    a, b = counters(node)
    start = dict.fromkeys(moved, 5)
    end = {name: 5 + step for name, step in moved.items()}
    return [replace(a, counters=a.counters | start), replace(b, counters=b.counters | end)]


def test_congestion_is_context_and_accuses_nobody() -> None:
    given = [c for n in nodes(3) for c in busy(n, rp_cnp_handled=900, rx_prio3_pause=40)]
    found = run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3))
    assert roots(found) == []
    [told] = [f for f in found if f.subject == "congestion"]
    assert (told.role, told.spots) == (Role.CONTEXT, ())
    assert "on gpu-01, gpu-02, gpu-03 (rp_cnp_handled, rx_prio3_pause)" in told.says


@pytest.mark.parametrize(
    "name", ["rx_prio3_discards", "tx_prio5_pause", "rx_global_pause", "rx_discards_phy",
             "rx_out_of_buffer"]
)  # fmt: skip
def test_pauses_and_discards_of_the_driver_are_congestion(name: str) -> None:
    given = [c for n in nodes(3) for c in busy(n, **{name: 40})]
    found = run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3))
    assert [f.says for f in found if f.subject == "congestion"] == [
        f"the network is congested now, on gpu-01, gpu-02, gpu-03 ({name}): slow, rarely a hang"
    ]
    assert roots(found) == []


def test_a_link_that_the_driver_saw_go_down_in_the_window_is_a_fault_of_its_port() -> None:
    given = [*busy("gpu-01", link_down_events_phy=1), *counters("gpu-02"), *counters("gpu-03")]
    (found,) = roots(run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3)))
    assert (found.node, found.strength) == ("gpu-01", Strength.STRONG)


def test_a_node_that_stands_out_in_congestion_is_named_as_such() -> None:
    given = [
        *busy("gpu-01", np_cnp_sent=9000),
        *busy("gpu-02", np_cnp_sent=90),
        *counters("gpu-03"),
    ]
    found = run("IB-COUNTERS", *healthy(nodes(3)), *given, names=nodes(3))
    assert any("most on gpu-01" in f.says for f in found)
    still = [c for n in nodes(3) for c in busy(n, np_cnp_sent=0)]
    found = run("IB-COUNTERS", *healthy(nodes(3)), *still, names=nodes(3))
    assert not [f for f in found if f.subject == "congestion"]
