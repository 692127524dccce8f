"""What kernel and NCCL saw happen: flaps, dead cards, asynchronous events."""

from dataclasses import replace

import pytest
from fabric_facts import (
    at,
    event,
    fatal,
    flap,
    healthy,
    nodes,
    onset,
    port,
    roots,
    run,
)

from sluggish.facts.fabric import (
    FabricEvent,
)
from sluggish.facts.host import PcieError
from sluggish.facts.log import Version
from sluggish.findings import Role, Strength


@pytest.mark.parametrize(
    ("seconds", "strength"),
    [(5, Strength.WEAK), (30, Strength.WEAK), (31, Strength.STRONG), (None, Strength.STRONG)],
)
def test_the_duration_of_a_flap_decides(seconds: float | None, strength: Strength) -> None:
    version = Version(node=None, rank=None, component="nccl", version="2.27.7")
    given = (*healthy(nodes(4)), *flap("gpu-02", -1, seconds), version, onset())
    [found] = run("IB-FLAP", *given)
    assert (found.role, found.strength, found.spots[0].hca) == (Role.ROOT, strength, "mlx5_2")


def test_the_give_up_time_follows_the_nccl_version() -> None:
    version = Version(node=None, rank=None, component="nccl", version="2.20.5")
    [found] = run("IB-FLAP", *healthy(nodes(4)), *flap("gpu-02", -1, 9), version, onset())
    assert found.strength is Strength.STRONG
    assert "NCCL gives up after 8 s" in found.says


def test_a_flap_before_the_job_or_after_the_abort_is_no_cause() -> None:
    given = (*healthy(nodes(4)), onset(teardown=10))
    assert [f.role for f in run("IB-FLAP", *given, *flap("gpu-02", -900, 60))] == [
        Role.HOUSEKEEPING
    ]
    assert [f.role for f in run("IB-FLAP", *given, *flap("gpu-02", 11, 60))] == [Role.CONSEQUENCE]


def test_flaps_of_two_nodes_are_shared() -> None:
    given = (*healthy(nodes(4)), *flap("gpu-02", -1, 60), *flap("gpu-03", -1, 60), onset())
    [found] = run("IB-FLAP", *given)
    assert (found.shared, found.subtype) == (True, "shared_fabric")


def test_the_flap_of_a_management_link_is_ignored() -> None:
    ports = [*healthy(nodes(4)), port("gpu-02", "mlx5_8", link_layer="ethernet", netdev="eno1")]
    event = FabricEvent(node="gpu-02", at=at(-1), kind="link_down", netdev="eno1", line="x")
    assert run("IB-FLAP", *ports, event, onset()) == ()


def test_without_ports_a_flap_is_only_context() -> None:
    event = FabricEvent(node="gpu-02", at=at(-1), kind="link_down", netdev="ib0", line="x")
    assert [f.role for f in run("IB-FLAP", event, onset())] == [Role.CONTEXT]


def test_dead_firmware_in_the_window_is_decisive_and_named_by_its_bus_address() -> None:
    [found] = run("IB-FATAL", *healthy(nodes(4)), fatal("gpu-02", -1), fatal("gpu-02", 0), onset())
    assert (found.strength, found.subtype, found.shared) == (Strength.DECISIVE, "hca_fatal", False)
    assert [(s.node, s.hca) for s in found.spots] == [("gpu-02", "mlx5_2")]


def test_dead_firmware_of_last_week_is_housekeeping() -> None:
    [found] = run("IB-FATAL", *healthy(nodes(4)), fatal("gpu-02", -9000), onset())
    assert found.role is Role.HOUSEKEEPING


def test_lines_that_reading_counters_provokes_are_noise() -> None:
    event = fatal("gpu-02", -1, line="mlx5_cmd_out_err:838: ACCESS_REG(0x805) op_mod(0x1) failed")
    assert run("IB-FATAL", *healthy(nodes(4)), event, onset()) == ()


def test_a_fatal_pcie_error_counts_only_on_an_hca_of_the_job() -> None:
    hit = PcieError(node="gpu-02", at=at(-1), pci="0000:12:00.0", severity="fatal", line="AER")
    gpu = PcieError(node="gpu-02", at=at(-1), pci="0000:ab:00.0", severity="fatal", line="AER")
    assert len(run("IB-FATAL", *healthy(nodes(4)), hit, onset())) == 1
    assert run("IB-FATAL", *healthy(nodes(4)), gpu, onset()) == ()
    assert run("IB-FATAL", *healthy(nodes(4)), replace(hit, severity="corrected"), onset()) == ()


def test_the_host_that_prints_the_port_error_is_the_one_and_eight_lines_are_one_event() -> None:
    [found] = run("IB-ASYNC", *[event("gpu-07") for _ in range(8)], names=nodes(8))
    assert (found.role, found.strength, found.subtype) == (Role.ROOT, Strength.STRONG, "port_error")
    assert [(s.node, s.hca) for s in found.spots] == [("gpu-07", "mlx5_5")]


def test_port_errors_on_many_hosts_are_the_switch() -> None:
    [found] = run("IB-ASYNC", event("gpu-01"), event("gpu-02"))
    assert (found.shared, found.subtype) == (True, "shared_fabric")


def test_a_port_that_came_back_is_weak_and_other_events_are_context() -> None:
    found = run(
        "IB-ASYNC", event("gpu-01"), event("gpu-01", "port active"), event("gpu-02", "SM change")
    )
    assert [f.strength for f in roots(found)] == [Strength.WEAK]
    assert sorted(f.says for f in found if f.role is Role.CONTEXT) == [
        "NCCL reports: SM change", "NCCL reports: port active"
    ]  # fmt: skip


def test_a_fatal_event_of_a_queue_pair_is_not_the_card() -> None:
    qp = event("gpu-01", "local access violation work queue error", kind="fatal")
    card = event("gpu-01", "IBV_EVENT_DEVICE_FATAL", kind="fatal")
    assert roots(run("IB-ASYNC", qp)) == []
    assert [f.subtype for f in roots(run("IB-ASYNC", card))] == ["hca_fatal"]
