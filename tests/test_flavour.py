"""Which network a node's traffic takes, and what must be seen before it may be called clean."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fabric_facts import at, counters, facts, healthy, log, nodes, port, run
from storyroom import story

from sluggish.causes import Cause
from sluggish.correlate.fabric_ends import under_hcas
from sluggish.correlate.flavour import flavours
from sluggish.correlate.phase import phase
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricFlavour, NcclNetwork, Port, PortCounters, RdmaDevices
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Role
from sluggish.loglines import nccl_net
from sluggish.loglines.line import Line
from sluggish.probes import PROBES, ib_ports
from sluggish.verdict.case import Case
from sluggish.verdict.coverage import not_answered
from sluggish.verdict.flavour import NEEDS, not_seen
from sluggish.verdict.tree import TREE

TWO = nodes(2)


def net(node: str, network: str | None, **more: Any) -> NcclNetwork:
    return NcclNetwork(node=node, pid=1, rank=None, network=network, **more)


def efa(node: str) -> Port:
    return port(node, "rdmap16s27", link_layer=None, driver="efa", lid=0, sm_lid=0)


def kinds(*given: object, names: tuple[str, ...] = TWO) -> dict[str, str]:
    told = facts(*given, names=names)
    return {f.node: f.kind for f in flavours(told, told.all(Look)[0])}


def two(*made: object) -> list[object]:
    """The same facts on both nodes."""
    return [replace(one, node=name) for name in TWO for one in made]  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ([port("x", "mlx5_0")], "infiniband"),
        ([port("x", "mlx5_0", link_layer="ethernet")], "roce"),
        ([port("x", "mlx5_0", link_layer=None)], "unknown"),
        ([efa("x")], "efa"),
        ([port("x", "efa_0", link_layer=None)], "efa"),
        ([port("x", "mlx5_ib0", virtual=True)], "vf"),
        ([RdmaDevices(node="x", source="ibstat", names=())], "none"),
        ([net("x", "Socket")], "sockets"),
        ([net("x", "OFI", provider="cxi")], "slingshot"),
        ([net("x", "OFI", provider="tcp;ofi_rxm")], "sockets"),
        # what NCCL says of the job stands before what is plugged in
        ([net("x", "OFI", provider="efa"), port("x", "mlx5_0")], "efa"),
        ([net("x", None), net("x", "Socket"), port("x", "mlx5_0")], "sockets"),
    ],
)
def test_the_kind_of_network(given: list[object], kind: str) -> None:
    assert kinds(*two(*given)) == dict.fromkeys(TWO, kind)


def test_one_rank_s_lines_speak_for_the_whole_job() -> None:
    assert kinds(net("gpu-01", "OFI", provider="cxi")) == dict.fromkeys(TWO, "slingshot")


def test_nothing_seen_is_no_kind() -> None:
    assert kinds() == {}


def test_storage_ports_of_another_layer_do_not_make_the_kind() -> None:
    roce = port("x", "mlx5_8", link_layer="ethernet", rate_gbps=100.0, hca_type="MT41692")
    assert kinds(*healthy(TWO), *two(roce)) == dict.fromkeys(TWO, "infiniband")


def case(*given: object, names: tuple[str, ...] = TWO) -> Case:
    told = facts(*given, names=names)
    look = told.all(Look)[0]
    for flavour in tuple(flavours(told, look)):
        told.add(flavour)
    return Case(findings=(), facts=told, look=look, wait=None, onset=None,
                phase=phase(told, look), places={})  # fmt: skip


def missing(*given: object, names: tuple[str, ...] = TWO) -> set[str]:
    return {why for holes in not_seen(case(*given, names=names)).values() for _, why in holes}


def efa_counters(node: str) -> list[PortCounters]:
    return [
        PortCounters(node=node, hca="rdmap16s27", port=1, sample=sample, at=at(18),
                     counters={"rx_drops": 0, "tx_bytes": 5})
        for sample in "ab"
    ]  # fmt: skip


def test_infiniband_needs_no_more_than_the_question_asks() -> None:
    assert missing(*healthy(TWO)) == set()


def test_roce_needs_its_counters_twice() -> None:
    ports = two(port("x", "mlx5_0", link_layer="ethernet"))
    assert len(missing(*ports)) == 1
    once = [c for n in TWO for c in counters(n) if c.sample == "a"]
    assert len(missing(*ports, *once)) == 1
    assert missing(*ports, *[c for n in TWO for c in counters(n)]) == set()


def test_efa_needs_its_own_counters_and_the_plugin_s_word() -> None:
    ports = two(efa("x"))
    both = [c for n in TWO for c in efa_counters(n)]
    said = net("gpu-01", "OFI", provider="efa")
    assert len(missing(*ports)) == 2
    assert len(missing(*ports, *[c for n in TWO for c in counters(n, "rdmap16s27")], said)) == 1
    assert len(missing(*ports, *both)) == 1
    assert missing(*ports, *both, said) == set()
    assert list(not_seen(case(*ports, *efa_counters("gpu-01"), said))) == ["gpu-02"]


@pytest.mark.parametrize("network", [net("x", "Socket"), net("x", "OFI", provider="cxi")])
def test_what_no_probe_reads_is_never_clean(network: NcclNetwork) -> None:
    both = [c for n in TWO for c in counters(n)]
    assert missing(*two(network), *both, log("INFO"))


def cxi(node: str, name: str = "cxi0", state: str = "active") -> Port:
    return Port(node=node, hca=name, port=1, state=state, driver="cxi", rate_gbps=200.0,
                source="slingshot")  # fmt: skip


def test_slingshot_is_known_by_its_ports_and_a_link_that_is_up_clears_nothing() -> None:
    ports = [cxi(n, name) for n in TWO for name in ("cxi0", "cxi1")]
    assert kinds(*ports) == dict.fromkeys(TWO, "slingshot")
    assert missing(*ports, log("INFO"))


def cxi_counters(node: str, **b: int) -> list[PortCounters]:
    base = {"pct_spt_timeouts": 3, "hni_pcs_uncorrected_cw": 7, "hni_sts_tx_ok_octets": 9}
    last = {name: value + b.get(name, 0) for name, value in base.items()}
    return [
        PortCounters(node=node, hca="cxi0", port=1, sample=sample, at=at(minutes), counters=told)
        for sample, minutes, told in (("a", 18, base), ("b", 18.25, last))
    ]


def test_slingshot_needs_its_links_its_own_counters_and_the_plugin_s_word() -> None:
    ports = [cxi(n) for n in TWO]
    both = [c for n in TWO for c in cxi_counters(n)]
    said = net("gpu-01", "OFI", provider="cxi")
    assert len(missing(*ports)) == 2
    assert len(missing(*ports, *both)) == 1
    assert len(missing(*ports, *both, net("gpu-01", "OFI", provider="tcp"))) == 1
    assert len(missing(*both, said)) == 1
    assert len(missing(*ports, *[c for c in both if c.sample == "a"], said)) == 1
    assert missing(*ports, *both, said) == set()
    assert list(not_seen(case(*ports, *cxi_counters("gpu-01"), said))) == ["gpu-02"]


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        ({"pct_spt_timeouts": 1}, "packets are being lost now"),
        ({"hni_pcs_uncorrected_cw": 1}, "frames come damaged over cxi0 of gpu-02"),
        ({"hni_sts_tx_ok_octets": 2_000_000}, "traffic flows on 1 of 2 ports"),
    ],
)
def test_slingshot_s_counters_are_context_and_name_no_culprit(
    moved: dict[str, int], says: str
) -> None:
    given = [*cxi_counters("gpu-01"), *cxi_counters("gpu-02", **moved)]
    found = run("IB-COUNTERS", *[cxi(n) for n in TWO], *given, names=TWO)
    assert any(f.says.startswith(says) for f in found)
    assert {f.role for f in found} <= {Role.CONTEXT, Role.ALL_CLEAR}
    clear = any(f.role is Role.ALL_CLEAR for f in found)
    assert clear is ("hni_sts_tx_ok_octets" in moved)


def test_a_slingshot_link_that_is_down_is_a_port_that_is_down() -> None:
    names = ("gpu-01", "gpu-02", "gpu-03")
    ports = [cxi(n, f"cxi{k}") for n in names for k in range(4) if (n, k) != ("gpu-02", 1)]
    found = run("IB-PORT", *ports, cxi("gpu-02", "cxi1", "down"), names=names)
    (bad,) = [f for f in found if f.role is Role.ROOT]
    assert (bad.node, bad.subtype) == ("gpu-02", "port_down")
    assert "cxi1" in bad.says


def test_virtual_functions_need_nccl_s_word() -> None:
    ports = two(port("x", "mlx5_ib0", virtual=True))
    assert missing(*ports, log(None))
    assert missing(*ports, log("WARN")) == set()


def test_one_node_needs_no_network() -> None:
    gone = RdmaDevices(node="gpu-01", source="ibstat", names=())
    assert missing(gone, names=("gpu-01",)) == set()
    assert missing(*two(gone))


def test_every_kind_has_its_list() -> None:
    kinds_known = {"infiniband", "roce", "efa", "slingshot", "vf", "sockets", "none", "unknown"}
    assert set(NEEDS) == kinds_known


# rules ------------------------------------------------------------------------------------------


def test_active_efa_devices_clear_nothing() -> None:
    kind = [FabricFlavour(node=n, kind="efa") for n in TWO]
    found = run("IB-PORT", *two(efa("x")), *kind, names=TWO)
    assert [f.role for f in found] == [Role.CONTEXT]


def test_silence_proves_nothing_where_nccl_has_no_queue_pairs() -> None:
    given = (*healthy(TWO), log("WARN"), Onset(earliest=at(0), latest=at(0), source="log"))
    kind = [FabricFlavour(node=n, kind="efa") for n in TWO]
    assert [f.role for f in run("IB-QUIET", *given, names=TWO)] == [Role.ALL_CLEAR]
    assert run("IB-QUIET", *given, *kind, names=TWO) == ()


def test_fewer_efa_devices_on_one_node_are_unequal_sets() -> None:
    given = [net(n, "OFI", provider="efa", nics=16) for n in nodes(3)]
    given.append(net("gpu-04", "OFI", provider="efa", nics=15))
    found = [f for f in run("CFG-HCASET", *given) if f.role is Role.ROOT]
    assert [(f.node, f.subtype) for f in found] == [("gpu-04", "hca_mismatch")]


def test_a_node_that_fell_back_to_tcp_under_the_plugin_is_the_odd_one() -> None:
    given = [net(n, "OFI", provider="efa") for n in nodes(3)]
    given += [net("gpu-04", "OFI", provider="tcp"), net("gpu-04", "Libfabric")]
    found = [f for f in run("CFG-HCASET", *given) if f.role is Role.ROOT]
    assert [(f.node, f.subtype) for f in found] == [("gpu-04", "hca_mismatch")]
    assert not [f for f in run("CFG-HCASET", *given[:3], net("gpu-04", "AWS Libfabric"))
                if f.role is Role.ROOT]  # fmt: skip


def test_efa_traffic_is_counted_in_bytes() -> None:
    a, b = efa_counters("gpu-01")
    moved = replace(b, counters={"rx_drops": 0, "tx_bytes": 900_000})
    found = run("IB-COUNTERS", efa("gpu-01"), a, moved, names=("gpu-01",))
    assert any(f.says.startswith("no traffic on any of 1 ports") for f in found)
    lost = replace(b, counters={"rx_drops": 9, "tx_bytes": 9_000_000})
    found = run("IB-COUNTERS", efa("gpu-01"), a, lost, names=("gpu-01",))
    assert any("rx_drops" in f.says and f.role is Role.CONTEXT for f in found)


# reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "provider", "nics"),
    [
        ("NET/OFI Selected Provider is efa (found 16 nics)", "efa", 16),
        ("NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)", "efa", 8),
        ("NET/OFI Selected provider is efa", "efa", None),
        ("NET/OFI Selected Provider is cxi (found 4 nics)", "cxi", 4),
        ("NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "tcp;ofi_rxm", 1),
    ],
)
def test_the_plugin_s_line(words: str, provider: str, nics: int | None) -> None:
    text = f"8h200-3:6310:6318 [0] NCCL INFO {words}"
    [fact] = nccl_net.parse([Line(text=text, raw=text, order=0)])
    assert isinstance(fact, NcclNetwork)
    assert (fact.network, fact.provider, fact.nics) == ("OFI", provider, nics)
    assert any(needle in text.encode() for needle in nccl_net.NEEDLES)


def test_driver_and_gid_types_are_read() -> None:
    ca = "/sys/class/infiniband/mlx5_0"
    text = (
        f"{ca}/device:../../../0000:0d:00.0\n{ca}/device/driver:../../../bus/pci/drivers/efa\n"
        f"{ca}/ports/1/state:4: ACTIVE\n{ca}/ports/1/gids/3:0000::ffff:0a01:0001\n"
        f"{ca}/ports/1/gid_attrs/types/0:IB/RoCE v1\n{ca}/ports/1/gid_attrs/types/3:RoCE v2\n"
    )
    found = [f for f in ib_ports.parse(text, Origin()) if isinstance(f, Port)]
    assert found[0].driver == "efa"
    assert found[0].gid_types == ((0, "IB/RoCE v1"), (3, "RoCE v2"))


# the whole way ----------------------------------------------------------------------------------


def test_the_network_is_ruled_out_over_efa_only_with_its_own_evidence(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path: Path = story("efa_healthy", tmp_path_factory).path("directory")
    bundle = load([str(path)], PROBES)
    assert Cause.IB_FAULT in {out.cause for out in diagnose(bundle).verdict.ruled_out}
    for gone, sample in (("ib_counters", "b"), ("job_log", "")):
        kept = tuple(e for e in bundle.evidence if (e.probe, e.sample) != (gone, sample))
        less = diagnose(replace(bundle, evidence=kept)).verdict
        assert Cause.IB_FAULT not in {out.cause for out in less.ruled_out}, gone
        assert any("EFA" in hole.why for hole in less.not_checked), gone


def test_facts_made_by_hand_have_no_flavour_by_themselves() -> None:
    assert Facts().all(FabricFlavour) == ()


def test_no_slingshot_on_a_machine_tells_nothing_of_its_ports() -> None:
    fabric = next(question for question in TREE if question.id == "fabric")
    for given, unseen in (([], set(TWO)), ([cxi("gpu-01")], {"gpu-02"})):
        asked = case(*given)
        for probe in ("slingshot", "kernel_log"):
            asked.facts.answered[probe] = set(TWO)
        holes = not_answered(fabric, asked)
        assert {node for node, missing in holes.items() if missing[0][0] == "ib_ports"} == unseen


def test_counters_under_the_name_of_a_network_device_are_its_hca_s() -> None:
    roce = port("gpu-01", "mlx5_2", link_layer="ethernet", netdev="ens1np0")
    moved = {"rx_prio3_pause": 9, "link_down_events_phy": 1}
    told = facts(
        roce,
        *[
            PortCounters(node="gpu-01", hca=name, port=1, sample=sample, at=at(minutes),
                         counters={k: v * times for k, v in moved.items()})
            for name in ("ens1np0", "ens9np0")
            for sample, minutes, times in (("a", 18, 0), ("b", 18.25, 1))
        ],
    )  # fmt: skip
    told.add(PortCounters(node="gpu-01", hca="mlx5_2", port=1, sample="a", at=at(18),
                          counters={"out_of_sequence": 4}))  # fmt: skip
    under_hcas(told)
    assert [c.hca for c in told.all(PortCounters)] == ["mlx5_2"] * 2 + ["ens9np0"] * 2
    assert told.all(PortCounters)[0].counters == {
        "rx_prio3_pause": 0, "link_down_events_phy": 0, "out_of_sequence": 4,
    }  # fmt: skip
    found = run("IB-COUNTERS", roce, *told.all(PortCounters), names=("gpu-01",))
    assert [(f.node, f.spots[0].hca) for f in found if f.role is Role.ROOT] == [
        ("gpu-01", "mlx5_2")
    ]
