"""Which HCAs the job uses; ports, subnet and speed: fires, silent, boundary, blind."""

from dataclasses import replace

import pytest
from fabric_facts import (
    EIGHT,
    T0,
    at,
    down,
    healthy,
    initializing,
    look,
    nodes,
    onset,
    port,
    roots,
    run,
    using,
    without,
)

from sluggish.correlate.hcas import keys, odd_nodes, ports_of_job, used
from sluggish.facts.fabric import (
    FabricEvent,
    NcclAsyncEvent,
    RdmaDevices,
)
from sluggish.findings import Role, Strength


def test_nccls_lists_decide_which_ports_are_the_jobs() -> None:
    mine = used([*healthy(nodes(2)), down("gpu-01", "mlx5_9")], [using("gpu-01"), using("gpu-02")])
    assert mine.listed
    assert mine.keys == {(h, 1) for h in EIGHT}
    assert [(a.hca, a.why) for a in mine.aside] == [("mlx5_9", "not in NCCL's list")]


def test_merged_devices_are_both_in_use() -> None:
    assert keys("mlx5_0+mlx5_1:1") == (("mlx5_0", 1), ("mlx5_1", 1))
    assert keys("mlx5_0:2") == (("mlx5_0", 2),)


def test_without_lists_the_majority_sets_storage_and_management_aside() -> None:
    ports = healthy(nodes(3))
    for node in nodes(3):
        ports.append(port(node, "mlx5_bond_0", link_layer="ethernet", rate_gbps=200.0))
        ports.append(port(node, "mlx5_8", rate_gbps=100.0, hca_type="MT4125"))
        ports.append(down(node, "mlx5_9", phys="disabled", link_layer="ethernet"))
        ports.append(port(node, "mlx5_12", functions_in_slot=4))
        ports.append(port(node, "mlx5_an0"))
    mine = used(ports, [])
    assert {hca for hca, _ in mine.keys} == set(EIGHT)
    assert {a.hca: a.why.split(":")[0] for a in mine.aside} == {
        "mlx5_bond_0": "another link layer than the job's ports",
        "mlx5_8": "100 Gb/s, most ports run 400",
        "mlx5_9": "Active on no node",
        "mlx5_12": "manages NVSwitch",
        "mlx5_an0": "accelerated networking, not InfiniBand",
    }


def test_a_faulted_roce_port_is_told_from_an_unused_one_by_its_peers() -> None:
    ports = [port(n, h, link_layer="ethernet") for n in nodes(3) for h in EIGHT]
    ports = without(ports, ("gpu-02", "mlx5_5"))
    ports.append(down("gpu-02", "mlx5_5", phys="disabled", link_layer="ethernet"))
    assert ("mlx5_5", 1) in used(ports, []).keys


def test_a_virtual_function_stands_in_where_there_is_nothing_else() -> None:
    virtual = [port("gpu-01", h, virtual=True) for h in EIGHT]
    assert len(used(virtual, []).keys) == 8
    both = [*virtual, port("gpu-01", "mlx5_20", virtual=False)]
    assert used(both, []).keys == {("mlx5_20", 1)}


def test_sources_are_merged_and_the_worse_state_counts() -> None:
    seen = [port("gpu-01.site.org", "mlx5_0", source="ibstat", hca_type="MT4129", pci=None)]
    seen.append(down("gpu-01", "mlx5_0", pci="0000:18:00.0", hca_type=None))
    [one] = ports_of_job(seen, look(nodes(1)))
    assert (one.node, one.state, one.pci, one.hca_type) == (
        "gpu-01",
        "down",
        "0000:18:00.0",
        "MT4129",
    )


def test_ports_of_other_nodes_are_not_looked_at() -> None:
    assert ports_of_job([port("login-1", "mlx5_0")], look(nodes(2))) == ()


def test_the_odd_node_needs_a_majority_of_the_others() -> None:
    assert odd_nodes({"a": 400, "b": 400, "c": 100}) == (400, ("c",))
    assert odd_nodes({"a": 400, "b": 100}) == (None, ())
    assert odd_nodes({"a": 1, "b": 2, "c": 3}) == (None, ())
    assert odd_nodes({"a": 4}) == (4, ())


def test_a_port_in_polling_is_a_link_with_two_ends() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    [found] = roots(run("IB-PORT", *ports, *[using(n) for n in nodes(4)]))
    assert found.says.startswith("link gpu-03 mlx5_5 - switch: port Down, Polling")
    assert (found.strength, found.subtype, found.shared) == (Strength.DECISIVE, "port_down", False)
    assert [(s.node, s.hca) for s in found.spots] == [("gpu-03", "mlx5_5")]


def test_a_down_storage_hca_is_ignored_and_said_so() -> None:
    ports = [*healthy(nodes(4)), down("gpu-03", "mlx5_8", hca_type="MT4125")]
    found = run("IB-PORT", *ports, *[using(n) for n in nodes(4)])
    assert roots(found) == []
    assert [f.says for f in found if f.role is Role.CONTEXT] == [
        "mlx5_8 is not Active on gpu-03, ignored: not in NCCL's list"
    ]
    assert [f.role for f in found if f.role is Role.ALL_CLEAR] == [Role.ALL_CLEAR]


def test_twenty_nodes_of_one_leaf_are_one_shared_cause_without_drains() -> None:
    names = nodes(64)
    bad = {(n, "mlx5_3") for n in names[:20]}
    ports = [*without(healthy(names), *bad), *[down(n, h) for n, h in sorted(bad)]]
    [found] = roots(run("IB-PORT", *ports, names=names))
    assert (found.shared, found.subtype, found.node) == (True, "shared_fabric", None)
    assert len(found.spots) == 20
    assert "not Active on 20 of 64 nodes" in found.says


def test_two_nodes_make_it_shared_and_one_does_not() -> None:
    one = [*without(healthy(nodes(4)), ("gpu-01", "mlx5_1")), down("gpu-01", "mlx5_1")]
    two = [*without(one, ("gpu-02", "mlx5_6")), down("gpu-02", "mlx5_6")]
    assert [f.shared for f in roots(run("IB-PORT", *one))] == [False]
    assert [f.shared for f in roots(run("IB-PORT", *two))] == [True, True]


def test_a_disabled_port_asks_for_a_look_at_the_switch_not_for_a_drain() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5"))]
    [found] = roots(run("IB-PORT", *ports, down("gpu-03", "mlx5_5", phys="disabled")))
    assert found.action == "check_fabric"


def test_without_peers_a_down_port_is_only_weak() -> None:
    ports = [*healthy(nodes(1), EIGHT[:7]), down("gpu-01", "mlx5_7")]
    assert [f.strength for f in roots(run("IB-PORT", *ports, names=nodes(1)))] == [Strength.WEAK]


def test_disabled_ports_that_nobody_is_seen_to_use_are_context_not_a_fault() -> None:
    off = [down("gpu-01", h, "disabled") for h in ("mlx5_2", "mlx5_11")]
    found = run("IB-PORT", *off, names=())
    assert roots(found) == []
    assert [f.role for f in found] == [Role.CONTEXT, Role.CONTEXT]
    event = FabricEvent(node="gpu-01", at=at(1), kind="link_down", hca="mlx5_2", line="x")
    assert [f.subject for f in roots(run("IB-PORT", *off, event, names=()))] == ["mlx5_2/1"]
    listed = using("gpu-01", ("mlx5_2", "mlx5_11"))
    assert len(roots(run("IB-PORT", *off, listed, names=()))) == 2


def test_with_two_nodes_active_beats_down() -> None:
    ports = [*without(healthy(nodes(2)), ("gpu-02", "mlx5_7")), down("gpu-02", "mlx5_7")]
    [found] = roots(run("IB-PORT", *ports, names=nodes(2)))
    assert (found.node, found.strength) == ("gpu-02", Strength.STRONG)


def test_down_on_every_node_is_by_design_or_a_rail_and_accuses_nobody() -> None:
    ports = [*healthy(nodes(4), EIGHT[:7]), *[down(n, "mlx5_7") for n in nodes(4)]]
    found = run("IB-PORT", *ports)
    assert roots(found) == []
    assert any("Active on no node" in f.says for f in found)


def test_a_port_that_nccl_left_out_at_its_start_is_context() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    lists = [using(n) for n in nodes(4) if n != "gpu-03"]
    found = run(
        "IB-PORT", *ports, *lists, using("gpu-03", tuple(h for h in EIGHT if h != "mlx5_5"))
    )
    assert roots(found) == []
    assert [f.role for f in found if "left it out" in f.says] == [Role.CONTEXT]
    assert not any(f.role is Role.ALL_CLEAR for f in found)


def test_a_link_lost_after_the_first_abort_is_a_consequence() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    event = FabricEvent(node="gpu-03", at=at(12), kind="link_down", hca="mlx5_5", line="Link down")
    found = run("IB-PORT", *ports, event, onset(teardown=10))
    assert [f.role for f in found if f.subtype == "port_down"] == [Role.CONSEQUENCE]


def test_only_nccls_own_list_makes_a_down_port_decisive() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    [found] = roots(run("IB-PORT", *ports))
    assert found.strength is Strength.STRONG


def test_a_network_without_a_manager_beside_a_working_one_is_by_design() -> None:
    ports = [*healthy(nodes(4)), *[initializing(n, "mlx5_9") for n in nodes(4)]]
    assert run("IB-SM", *ports) == ()
    found = run("IB-PORT", *ports)
    assert roots(found) == []
    assert any(f.says.startswith("mlx5_9 is not Active on gpu-01") for f in found)


def test_two_readings_that_differ_are_a_flap_not_a_proof() -> None:
    ports = [*healthy(nodes(4)), down("gpu-03", "mlx5_5", source="ibstat")]
    [found] = roots(run("IB-PORT", *ports, *[using(n) for n in nodes(4)]))
    assert found.strength is Strength.STRONG
    assert "Active in ib_ports: it flaps" in found.says


def test_a_node_without_any_device_is_a_fault_where_its_peers_have_some() -> None:
    names = nodes(3)
    lists = [RdmaDevices(node=n, source="ibstat", names=EIGHT) for n in names[:2]]
    none = RdmaDevices(node="gpu-03", source="ibstat", names=())
    [found] = roots(run("IB-PORT", *healthy(names[:2]), *lists, none, names=names))
    assert (found.node, found.subtype, found.strength) == ("gpu-03", "hca_fatal", Strength.STRONG)
    sysfs = RdmaDevices(node="gpu-03", source="ib_ports", names=EIGHT)
    assert roots(run("IB-PORT", *healthy(names), *lists, none, sysfs, names=names)) == []


def test_a_cluster_without_rdma_is_not_accused() -> None:
    none = [RdmaDevices(node=n, source="ibstat", names=()) for n in nodes(2)]
    assert run("IB-PORT", *none, names=nodes(2)) == ()


def test_the_all_clear_says_what_it_covers_and_who_is_blind() -> None:
    [found] = run("IB-PORT", *healthy(nodes(2)), names=nodes(2))
    assert found.role is Role.ALL_CLEAR
    assert found.says == "16/16 host ports Active at 400 Gb/s (switches: not checked)"
    [found] = run("IB-PORT", *healthy(nodes(2)), names=nodes(3))
    assert found.says.endswith("but blind on gpu-03")


def test_a_port_whose_state_was_cut_off_is_no_all_clear() -> None:
    ports = [*without(healthy(nodes(2)), ("gpu-02", "mlx5_7"))]
    ports.append(port("gpu-02", "mlx5_7", state="unknown"))
    assert [f.role for f in run("IB-PORT", *ports, names=nodes(2))] == [Role.CONTEXT]


def test_initializing_on_several_nodes_is_the_subnet_not_the_ports() -> None:
    bad = [("gpu-01", "mlx5_1"), ("gpu-02", "mlx5_4")]
    ports = [*without(healthy(nodes(4)), *bad), *[initializing(n, h) for n, h in bad]]
    ports += [using(n) for n in nodes(4)]
    [found] = run("IB-SM", *ports)
    assert (found.subtype, found.shared, found.strength) == (
        "subnet_manager",
        True,
        Strength.DECISIVE,
    )
    assert "2 ports on 2 nodes" in found.says
    assert roots(run("IB-PORT", *ports)) == []
    assert not any(f.role is Role.ALL_CLEAR for f in run("IB-PORT", *ports))


def test_one_initializing_port_is_that_port_and_never_a_drain() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-01", "mlx5_1")), initializing("gpu-01", "mlx5_1")]
    ports += [using(n) for n in nodes(4)]
    assert run("IB-SM", *ports) == ()
    [found] = roots(run("IB-PORT", *ports))
    assert "no subnet manager" in found.says
    assert (found.action, found.strength) == ("check_fabric", Strength.STRONG)


def test_a_slower_link_is_weak_for_a_hang_and_strong_for_a_straggler() -> None:
    ports = without(healthy(nodes(4)), ("gpu-02", "mlx5_3"))
    ports.append(port("gpu-02", "mlx5_3", rate_gbps=100.0, width="1X"))
    [rate], [slow] = run("IB-RATE", *ports), run("SLOW-LINK", *ports)
    assert rate.says == "mlx5_3: 100 Gb/s (1X), its peers 400"
    assert (rate.strength, rate.subtype) == (Strength.WEAK, "link_degraded")
    assert (slow.strength, slow.subtype) == (Strength.STRONG, "slow_link")


def test_the_rate_of_a_down_port_means_nothing() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-02", "mlx5_3")), down("gpu-02", "mlx5_3")]
    assert run("IB-RATE", *ports) == ()


def test_two_lanes_everywhere_are_legitimate() -> None:
    ports = [port(n, h, rate_gbps=200.0, width="2X") for n in nodes(4) for h in EIGHT]
    assert run("IB-RATE", *ports) == ()


def test_of_two_nodes_the_slower_is_the_suspect() -> None:
    ports = without(healthy(nodes(2)), ("gpu-02", "mlx5_3"))
    [found] = run("IB-RATE", *ports, port("gpu-02", "mlx5_3", rate_gbps=200.0), names=nodes(2))
    assert found.node == "gpu-02"


def test_a_narrow_pcie_slot_is_a_slow_link_only_if_most_are_wide() -> None:
    wide = {
        "pcie_width": 16,
        "pcie_max_width": 16,
        "pcie_speed": "32.0 GT/s",
        "pcie_max_speed": "32.0 GT/s",
    }
    ports = [port(n, "mlx5_0", **wide) for n in nodes(3)]
    narrow = port("gpu-04", "mlx5_0", **{**wide, "pcie_width": 8})
    [found] = run("SLOW-LINK", *ports, narrow)
    assert (found.node, found.says) == ("gpu-04", "mlx5_0: PCIe x8 32.0 GT/s of x16 32.0 GT/s")
    all_narrow = [replace(p, pcie_width=8) for p in (*ports, narrow)]
    assert run("SLOW-LINK", *all_narrow) == ()


def test_nccls_own_speed_change_is_a_slow_link() -> None:
    event = NcclAsyncEvent(
        node="gpu-02", at=at(-5), pid=1, rank=None, kind="speed_change", hca="mlx5_3", port=1,
        event="speed change detected: 400000 -> 200000 Mbps",
    )  # fmt: skip
    [found] = run("SLOW-LINK", *healthy(nodes(2)), event, event, names=nodes(2))
    assert found.spots[0].hca == "mlx5_3"


def test_the_second_port_without_a_cable_accuses_nobody() -> None:
    """Dual-port cards with one cable each: port 2 is Down by design, on one node as on many."""
    for names in (nodes(1), nodes(3)):
        second = [down(n, h, port=2) for n in names for h in ("mlx5_0", "mlx5_1")]
        found = run("IB-PORT", *healthy(names, ("mlx5_0", "mlx5_1")), *second, names=names)
        assert roots(found) == []
        assert any(f.says.startswith("mlx5_0:2 is not Active") for f in found)
        assert any(f.role is Role.ALL_CLEAR for f in found)


def test_a_second_port_that_works_on_the_other_cards_is_a_fault() -> None:
    names = nodes(1)
    first = healthy(names, ("mlx5_0", "mlx5_1", "mlx5_2"))
    second = [port(names[0], h, port=2) for h in ("mlx5_0", "mlx5_1")]
    found = run("IB-PORT", *first, *second, down(names[0], "mlx5_2", port=2), names=names)
    (bad,) = roots(found)
    assert bad.spots[0].hca == "mlx5_2:2"


def test_a_second_network_of_one_node_is_no_slow_link() -> None:
    names = nodes(1)
    storage = [port(names[0], h, rate_gbps=100.0) for h in ("mlx5_8", "mlx5_9")]
    assert roots(run("SLOW-LINK", *healthy(names), *storage, names=names)) == []
    assert roots(run("SLOW-LINK", *healthy(names), storage[0], names=names)) == []
    (doubt,) = run("IB-RATE", *healthy(names), storage[0], names=names)
    assert doubt.role is Role.CONTEXT
    assert doubt.says == (
        "mlx5_8: 100 Gb/s (4X), its peers 400: a link that degraded, or a storage or management "
        "port: no peer tells"
    )


def test_a_slower_port_of_one_node_is_slow_where_nccl_uses_it_or_lanes_are_lost() -> None:
    names = nodes(1)
    nine = (*EIGHT, "mlx5_8")
    slow = port(names[0], "mlx5_8", rate_gbps=200.0)
    narrow = port(names[0], "mlx5_8", rate_gbps=100.0, width="1X")
    for given in ([slow, using(names[0], nine)], [narrow]):
        for rule in ("SLOW-LINK", "IB-RATE"):
            (one,) = roots(run(rule, *healthy(names), *given, names=names))
            assert one.spots[0].hca == "mlx5_8"
    aside = run("IB-RATE", *healthy(names), slow, using(names[0]), names=names)
    assert aside == ()


def test_equal_cards_that_are_slower_on_every_node_are_a_storage_network() -> None:
    storage = [port(n, h, rate_gbps=200.0) for n in nodes(3) for h in ("mlx5_8", "mlx5_9")]
    found = used([*healthy(nodes(3)), *storage], ())
    assert {a.hca: a.why for a in found.aside} == dict.fromkeys(
        ("mlx5_8", "mlx5_9"), "200 Gb/s on every node, most ports run 400: storage or management"
    )
    off = [*without(storage, ("gpu-02", "mlx5_9")), down("gpu-02", "mlx5_9")]
    found_off = run("IB-PORT", *healthy(nodes(3)), *off, names=nodes(3))
    assert roots(found_off) == []
    assert any(f.says.startswith("mlx5_9 is not Active on gpu-02, ignored") for f in found_off)


def test_two_halves_of_two_rates_are_both_the_jobs() -> None:
    half = [port(n, h, rate_gbps=200.0) for n in nodes(3) for h in EIGHT[4:]]
    mixed = [*healthy(nodes(3), EIGHT[:4]), *half]
    assert used(mixed, ()).aside == ()
    gone = [*without(mixed, ("gpu-02", "mlx5_5")), down("gpu-02", "mlx5_5")]
    assert [f.node for f in roots(run("IB-PORT", *gone, names=nodes(3)))] == ["gpu-02"]


def test_a_node_whose_names_are_shifted_has_no_slow_link() -> None:
    names, nine = nodes(4), (*EIGHT, "mlx5_8")
    plain = [p for p in healthy(names) if p.node != "gpu-02"]
    shifted = [port("gpu-02", h, rate_gbps=200.0 if h == "mlx5_3" else 400.0) for h in nine]
    for rule in ("SLOW-LINK", "IB-RATE"):
        assert roots(run(rule, *plain, *shifted, names=names)) == []
    assert any("under other names" in f.says for f in run("IB-RATE", *plain, *shifted, names=names))
    # one link less of the full rate: it is slow, whatever else stands there
    for rule in ("SLOW-LINK", "IB-RATE"):
        lost = shifted[:-1]
        assert [f.node for f in roots(run(rule, *plain, *lost, names=names))] == ["gpu-02"]


def test_a_slower_port_that_nccl_left_out_on_that_node_is_not_its_link() -> None:
    names = nodes(3)
    ports = without(healthy(names), ("gpu-02", "mlx5_3"))
    ports.append(port("gpu-02", "mlx5_3", rate_gbps=200.0))
    lists = [using(n, EIGHT if n != "gpu-02" else (*EIGHT[:3], *EIGHT[4:])) for n in names]
    found = run("IB-RATE", *ports, *lists, names=names)
    assert [(f.role, f.node) for f in found] == [(Role.CONTEXT, "gpu-02")]
    assert [f.node for f in roots(run("IB-RATE", *ports, lists[0], names=names))] == ["gpu-02"]


def test_a_card_with_two_idle_ports_is_named_once_a_node() -> None:
    both = [down("gpu-01", "mlx5_9"), down("gpu-01", "mlx5_9", port=2)]
    (aside,) = used([*healthy(nodes(2)), *both], []).aside
    assert aside.not_active_on == ("gpu-01",)


@pytest.mark.parametrize(
    ("active", "spare", "role"),
    [
        pytest.param(8, 4, "context", id="eight rails, four ports of storage without a cable"),
        pytest.param(7, 1, "root_candidate", id="the eighth rail"),
        pytest.param(6, 2, "root_candidate", id="two of eight rails"),
        pytest.param(4, 4, "root_candidate", id="half of them: nobody can tell"),
    ],
)
def test_of_one_node_alone_what_is_down_beside_all_rails_accuses_nobody(
    active: int, spare: int, role: str
) -> None:
    hcas = [f"mlx5_{i}" for i in range(active + spare)]
    ports = [port("gpu-01", h) for h in hcas[:active]] + [down("gpu-01", h) for h in hcas[active:]]
    found = run("IB-PORT", *ports)
    assert [f.role.value for f in found] == [role] * spare


def test_a_link_that_went_down_is_no_spare_port() -> None:
    hcas = [f"mlx5_{i}" for i in range(9)]
    ports = [port("gpu-01", h) for h in hcas[:8]] + [down("gpu-01", hcas[8])]
    event = FabricEvent(node="gpu-01", at=T0, kind="link_down", hca=hcas[8])
    (found,) = run("IB-PORT", *ports, event)
    assert found.role is Role.ROOT
