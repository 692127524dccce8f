"""Completion errors, their vote, their absence; unequal HCA lists."""

from dataclasses import replace

import pytest
from fabric_facts import (
    EIGHT,
    at,
    book,
    down,
    event,
    healthy,
    log,
    look,
    lost,
    nodes,
    onset,
    port,
    ring,
    roots,
    run,
    using,
    without,
)

from sluggish.causes import Phase
from sluggish.correlate.ib_vote import Edge, address_book, vote
from sluggish.facts.derived import PhaseFact, Place
from sluggish.facts.fabric import (
    NcclAddress,
    NcclNetwork,
    NcclTrouble,
)
from sluggish.facts.gpu import Xid
from sluggish.facts.host import NodeIdentity, OomKill, RankProcess
from sluggish.facts.log import ProcessExit, Version
from sluggish.findings import Role, Strength
from sluggish.loglines import nccl_net
from sluggish.loglines.line import Line


def test_many_reporters_and_one_peer_name_the_peer_and_the_reverse_names_the_reporter() -> None:
    names = nodes(8)
    many = [lost(n, "10.7.1.7") for n in names if n != "gpu-07"]
    one = [lost("gpu-07", f"10.7.1.{i}") for i in (1, 2, 3, 4)]
    for given in (many, one, ring(7)):
        [found] = roots(run("IB-NCCL", *book(names), *given, names=names))
        assert (found.node, found.strength) == ("gpu-07", Strength.STRONG)
        assert found.subtype == "unreachable_peer"


def test_the_order_and_time_of_the_reports_change_nothing() -> None:
    names = nodes(8)
    one = run("IB-NCCL", *book(names), *ring(4), names=names)
    late = [replace(c, at=at(9 - i)) for i, c in enumerate(reversed(ring(4)))]
    other = run("IB-NCCL", *book(names), *late, names=names)
    assert [f.node for f in roots(one)] == [f.node for f in roots(other)] == ["gpu-04"]


def test_two_nodes_allow_no_vote() -> None:
    given = [lost("gpu-01", "10.7.1.2"), lost("gpu-02", "10.7.1.1")]
    [found] = roots(run("IB-NCCL", *book(nodes(2)), *given, names=nodes(2)))
    assert (found.node, found.strength) == (None, Strength.WEAK)
    assert "either side or the switch" in found.says


def test_a_tie_names_nobody() -> None:
    given = [lost("gpu-01", "10.7.1.2"), lost("gpu-03", "10.7.1.4")]
    [found] = roots(run("IB-NCCL", *book(nodes(4)), *given))
    assert (found.node, found.strength) == (None, Strength.WEAK)
    assert "tie" in found.says


def test_one_rail_on_many_hosts_is_shared() -> None:
    names = nodes(6)
    pairs = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 1)]
    given = [lost(f"gpu-{a:02d}", f"10.7.1.{b}", hca="mlx5_3") for a, b in pairs]
    [found] = roots(run("IB-NCCL", *book(names), *given, names=names))
    assert (found.shared, found.subtype) == (True, "shared_fabric")
    assert "mlx5_3" in found.says


@pytest.mark.parametrize("status", [5, 4, 10, 9])
def test_flushes_and_local_errors_are_no_vote(status: int) -> None:
    given = [replace(c, status=status) for c in ring(3)]
    assert roots(run("IB-NCCL", *book(nodes(5)), *given, names=nodes(5))) == []


def test_closed_connections_alone_are_a_consequence() -> None:
    closed = NcclTrouble(node="gpu-01", at=at(1), pid=1, rank=None, kind="peer_closed", line="x")
    assert [f.role for f in run("IB-NCCL", closed)] == [Role.CONSEQUENCE]


@pytest.mark.parametrize(
    "death",
    [
        OomKill(node="gpu-03", at=at(0.5), pid=9, process="python"),
        Xid(node="gpu-03", at=at(0.5), pci="0000:65:00.0", code=79),
        ProcessExit(node="gpu-03", rank=None, at=at(0.5), exit_code=1),
        ProcessExit(node=None, rank=17, at=None, signal=9),
        NodeIdentity(node="gpu-03", boot_at=at(0.2)),
    ],
    ids=lambda fact: type(fact).__name__,
)
def test_a_dead_peer_process_is_not_the_fabric(death: object) -> None:
    place = Place(rank=17, node="gpu-03")
    given = (*book(nodes(5)), *ring(3), place, death, onset())
    found = run("IB-NCCL", *given, names=nodes(5))
    assert roots(found) == []
    assert [f.node for f in found if f.role is Role.CONSEQUENCE] == ["gpu-03"]


def test_a_death_after_the_reports_or_last_week_does_not_clear_the_link() -> None:
    for death in (
        ProcessExit(node="gpu-03", rank=None, at=at(5), exit_code=1),
        Xid(node="gpu-03", at=at(-9000), pci="0000:65:00.0", code=79),
        OomKill(node="gpu-01", at=at(0.5), pid=9, process="python"),
    ):
        given = (*book(nodes(5)), *ring(3), death, onset())
        assert [f.node for f in roots(run("IB-NCCL", *given, names=nodes(5)))] == ["gpu-03"]


def test_status_12_at_the_start_is_as_likely_configuration() -> None:
    phase = PhaseFact(phase=Phase.FIRST_STEP)
    [found] = roots(run("IB-NCCL", *book(nodes(5)), *ring(3), phase, names=nodes(5)))
    assert found.strength is Strength.WEAK


def test_after_the_first_abort_the_reports_are_a_consequence() -> None:
    given = [replace(c, at=at(12)) for c in ring(3)]
    found = run("IB-NCCL", *book(nodes(5)), *given, onset(teardown=10), names=nodes(5))
    assert roots(found) == []


def test_a_reporter_known_only_by_its_rank_votes_from_its_node() -> None:
    given = [replace(c, node=None, rank=i) for i, c in enumerate(ring(3))]
    places = [Place(rank=i, node=c.node) for i, c in enumerate(ring(3))]
    [found] = roots(run("IB-NCCL", *book(nodes(5)), *given, *places, names=nodes(5)))
    assert found.node == "gpu-03"


def test_an_unknown_address_wins_without_accusing_a_node() -> None:
    given = [lost(n, "192.0.2.77") for n in nodes(4)]
    [found] = roots(run("IB-NCCL", *given))
    assert (found.node, found.strength) == (None, Strength.WEAK)


def test_an_unmapped_address_is_never_a_place() -> None:
    given = [lost(n, f"192.0.2.{i}", hca="mlx5_3") for i, n in enumerate(nodes(4))]
    [found] = roots(run("IB-NCCL", *given))
    assert {s.node for s in found.spots} == set(nodes(4))
    loose = [replace(c, peer="192.0.2.9") for c in given]
    [found] = roots(run("IB-NCCL", *loose, names=()))
    assert (found.node, found.spots) == (None, ())


def test_an_accused_host_that_gave_no_evidence_is_only_weakly_accused() -> None:
    names = nodes(5)
    seen = [port(n, "mlx5_0") for n in names if n != "gpu-03"]
    [found] = roots(run("IB-NCCL", *book(names), *ring(3), *seen, names=names))
    assert (found.node, found.strength) == ("gpu-03", Strength.WEAK)
    [found] = roots(run("IB-NCCL", *book(names), *ring(3), *healthy(names), names=names))
    assert found.strength is Strength.STRONG


def test_a_link_local_address_that_several_hosts_have_names_nobody() -> None:
    lists = [using(n, address="fe80::1%ib0") for n in nodes(3)]
    assert address_book(lists, [], look(nodes(3))) == {}
    [found] = run("IB-NCCL", *lists, *[lost(n, "fe80::1%ib0") for n in nodes(3)])
    assert (found.node, found.spots, found.strength) == (None, (), Strength.WEAK)


def test_of_a_pair_with_a_bare_address_the_printer_alone_is_not_the_culprit() -> None:
    [found] = roots(run("IB-NCCL", lost("gpu-01", "192.0.2.77", hca="mlx5_4"), names=()))
    assert (found.node, found.spots) == (None, ())
    assert "192.0.2.77" in found.says
    assert "gpu-01" in found.says
    assert "mlx5_4" in found.says


def test_status_12_of_an_unknown_host_is_a_weak_sign_that_accuses_nobody() -> None:
    [found] = roots(run("IB-NCCL", replace(lost("gpu-01", "192.0.2.7"), node=None), names=()))
    assert (found.strength, found.spots, found.subtype) == (
        Strength.WEAK, (), "unreachable_peer",
    )  # fmt: skip
    assert "no answer from 192.0.2.7" in found.says
    [old] = roots(run("IB-NCCL", replace(lost("gpu-01", "x"), peer=None), names=()))
    assert "does not name" in old.says


def test_a_node_on_sockets_among_nodes_on_hcas_is_named() -> None:
    socket = NcclNetwork(node="gpu-03", pid=1, rank=None, network="Socket")
    lists = [using(n) for n in ("gpu-01", "gpu-02")]
    found = roots(run("CFG-HCASET", *lists, socket, names=nodes(3)))
    assert [(f.node, f.subtype) for f in found] == [("gpu-03", "hca_mismatch")]
    everywhere = [replace(socket, node=n) for n in nodes(3)]
    assert run("CFG-HCASET", *everywhere, names=nodes(3)) == ()
    # HCAs were listed, then a plugin or sockets were chosen on the same node: no odd one
    assert roots(run("CFG-HCASET", *lists, replace(socket, node="gpu-01"), names=nodes(2))) == []


def test_the_vote_counts_hosts_never_lines() -> None:
    one = lost("a", "b")
    edges = [Edge(reporter="a", peer="b", hca=f"mlx5_{i}", first=one) for i in range(8)]
    assert vote(edges).winner is None
    assert vote(edges).tied == ("a", "b")


def test_silence_longer_than_the_retry_budget_speaks_against_the_fabric() -> None:
    version = Version(node=None, rank=None, component="nccl", version="2.27.7")
    [found] = run("IB-QUIET", *healthy(nodes(2)), log("WARN"), version, onset(), names=nodes(2))
    assert found.role is Role.ALL_CLEAR
    assert "18 min" in found.says
    raised = RankProcess(node="gpu-01", pid=1, env=(("NCCL_IB_TIMEOUT", "24"),))
    assert run("IB-QUIET", log("WARN"), version, raised, onset()) == ()


def test_without_nccl_lines_silence_says_nothing() -> None:
    assert [f.role for f in run("IB-QUIET", log(None), onset())] == [Role.CONTEXT]


def test_a_completion_error_or_a_down_port_is_not_quiet() -> None:
    ports = [*without(healthy(nodes(4)), ("gpu-03", "mlx5_5")), down("gpu-03", "mlx5_5")]
    assert run("IB-QUIET", log("WARN"), onset(), lost("gpu-01", "gpu-02")) == ()
    assert run("IB-QUIET", log("WARN"), onset(), event("gpu-01")) == ()
    assert run("IB-QUIET", log("WARN"), onset(), *ports) == ()


def test_a_node_with_fewer_hcas_is_a_mismatch_not_a_drain() -> None:
    seven = tuple(h for h in EIGHT if h != "mlx5_3")
    lists = [using("gpu-01"), using("gpu-02", seven), using("gpu-03"), using("gpu-04")]
    [found] = run("CFG-HCASET", *lists)
    assert found.says == "gpu-02 uses 7 HCAs, the other nodes 8, without mlx5_3"
    assert (found.subtype, found.strength) == ("hca_mismatch", Strength.STRONG)
    assert [(s.node, s.hca) for s in found.spots] == [("gpu-02", "mlx5_3")]


def test_a_node_with_one_hca_more_is_as_odd() -> None:
    lists = [using("gpu-01"), using("gpu-02"), using("gpu-03", (*EIGHT, "mlx5_8"))]
    [found] = run("CFG-HCASET", *lists, names=nodes(3))
    assert found.says == "gpu-03 uses 9 HCAs, the other nodes 8, and mlx5_8 besides"


def test_of_two_nodes_the_one_with_fewer_hcas_is_named() -> None:
    [found] = run("CFG-HCASET", using("gpu-01"), using("gpu-02", EIGHT[:4]), names=nodes(2))
    assert found.node == "gpu-02"


def test_other_names_of_as_many_hcas_are_no_mismatch() -> None:
    other = using("gpu-02", tuple(f"ibp{i}s0" for i in range(8)))
    assert [f.role for f in run("CFG-HCASET", using("gpu-01"), other)] == [Role.ALL_CLEAR]


def test_nccls_own_word_of_mixed_devices_counts() -> None:
    told = NcclTrouble(
        node="gpu-01", at=at(-60), pid=1, rank=None, kind="mixed_hcas", line="Detected"
    )
    assert [f.subtype for f in roots(run("CFG-HCASET", told))] == ["hca_mismatch"]


def test_one_node_or_no_list_says_nothing() -> None:
    assert run("CFG-HCASET", using("gpu-01")) == ()


@pytest.mark.parametrize("words", [
    "sharp_plugin.c:365 NCCL WARN NET/IB : SHARP coll init error: Cannot create SHARP job(-11)",
    "transport.cc:384 NCCL WARN Cannot initialize CollNet, using point-to-point network instead",
])  # fmt: skip
def test_sharp_that_did_not_start_is_context(words: str) -> None:
    text = f"gpu36:20775:20825 [0] {words}"
    [trouble] = nccl_net.parse([Line(text=text, raw=text, order=0)])
    assert isinstance(trouble, NcclTrouble)
    found = run("IB-NCCL", trouble)
    assert [(f.subject, f.role) for f in found] == [("SHARP", Role.CONTEXT)]


# EFA: its errors name both ends by the provider's instance ids ------------------------------------


def efa(reporter: str, peer: str, status: int = 12) -> list[object]:
    """What a node prints of a peer that does not answer: its own id, and the peer's."""
    own = NcclAddress(node=reporter, pid=1, rank=None, interface="efa", address=f"i-{reporter}")
    return [own, lost(reporter, f"i-{peer}", status=status, network="EFA")]


def test_efa_s_errors_are_a_vote_by_the_ids_that_the_nodes_print() -> None:
    bad = "gpu-02"
    given = [f for a, b in (("gpu-01", bad), ("gpu-03", bad), (bad, "gpu-01"))
             for f in efa(a, b)]  # fmt: skip
    [found] = roots(run("IB-NCCL", *given))
    assert (found.node, found.subtype, found.strength) == (bad, "unreachable_peer", Strength.STRONG)
    assert found.says.startswith("EFA: no answer: 2 hosts and gpu-02 lost one another")


def test_an_instance_that_printed_nothing_is_told_by_its_id_and_accuses_no_node() -> None:
    given = [f for a in ("gpu-01", "gpu-03") for f in efa(a, "gpu-02")]
    [found] = roots(run("IB-NCCL", *given))
    assert (found.node, found.strength, found.spots) == (None, Strength.WEAK, ())
    assert "i-gpu-02" in found.says


def test_an_efa_peer_that_was_killed_before_is_no_network() -> None:
    killed = OomKill(node="gpu-02", at=at(0.1), pid=7, process="python", line="oom")
    given = [f for a, b in (("gpu-01", "gpu-02"), ("gpu-03", "gpu-02"), ("gpu-02", "gpu-01"))
             for f in efa(a, b)]  # fmt: skip
    found = [f for f in run("IB-NCCL", *given, killed) if "oom-kill" in f.says]
    assert [f.role for f in found] == [Role.CONSEQUENCE]


def test_another_failed_request_of_the_plugin_is_context() -> None:
    trouble = NcclTrouble(node="gpu-01", at=at(1), pid=1, rank=None, kind="ofi",
                          detail="RC 5: 16 (NO_SPACE)", line="x")  # fmt: skip
    [found] = run("IB-NCCL", trouble)
    assert (found.role, found.node) == (Role.CONTEXT, None)
    assert "RC 5: 16 (NO_SPACE)" in found.says
