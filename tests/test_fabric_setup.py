"""Ports that are set up otherwise than those of the other nodes."""

from typing import Any

import pytest
from fabric_facts import EIGHT, down, healthy, lost, nodes, port, roots, run, without

from sluggish.facts.fabric import NcclTrouble, Port
from sluggish.facts.host import RankProcess
from sluggish.facts.log import Progress
from sluggish.findings import Role, Strength

FOUR = nodes(4)
V2 = ((0, "IB/RoCE v1"), (3, "RoCE v2"))
V1 = ((0, "IB/RoCE v1"),)


def setup(*given: Any, names: tuple[str, ...] = FOUR) -> Any:
    return run("CFG-PORTS", *given, names=names)


def roce(odd: tuple[str, ...] = ("gpu-02",), **more: Any) -> list[Port]:
    plain: dict[str, Any] = {"link_layer": "ethernet", "lid": 0, "sm_lid": 0} | more
    return [port(n, h, gid_types=V1 if n in odd else V2, **plain) for n in FOUR for h in EIGHT]


def asks(index: str) -> RankProcess:
    return RankProcess(node="gpu-01", pid=7, env=(("NCCL_IB_GID_INDEX", index),))


def steps() -> list[Progress]:
    return [Progress(node=None, rank=0, at=None, step=s) for s in (10, 20)]


def modify(words: str = "local GID index 3, local GID ::") -> NcclTrouble:
    return NcclTrouble(node="gpu-02", at=None, pid=1, rank=9, kind="modify_qp", detail=words)


def test_alike_ports_say_nothing() -> None:
    alike = [port(n, h, pkey=0xFFFF, firmware="28.43") for n in FOUR for h in EIGHT]
    assert setup(*alike) == ()
    assert setup(*roce(odd=()), asks("3")) == ()


@pytest.mark.parametrize(
    ("more", "role", "strength"),
    [
        ([], Role.ROOT, Strength.WEAK),
        ([lost("gpu-01", "10.7.1.2")], Role.ROOT, Strength.STRONG),
        ([lost("gpu-01", "10.7.1.2"), *steps()], Role.CONTEXT, Strength.WEAK),
    ],
)
def test_a_limited_member(more: list[Any], role: Role, strength: Strength) -> None:
    spot = ("gpu-03", "mlx5_5")
    ports = [port(p.node, p.hca, pkey=0xFFFF) for p in without(healthy(FOUR), spot)]
    [found] = setup(*ports, port(*spot, pkey=0x7FFF), *more)
    assert (found.role, found.strength, found.subtype) == (role, strength, "hca_gid")
    assert (found.spots[0].node, found.spots[0].hca) == spot
    assert "limited member" in found.says


def test_limited_members_everywhere_are_how_this_fabric_is_set_up() -> None:
    assert setup(*[port(n, h, pkey=0x7FFF) for n in FOUR for h in EIGHT]) == ()


def test_the_index_that_nccl_uses_is_missing_on_one_node() -> None:
    [found] = setup(*roce(), asks("3"), modify())
    assert (found.node, found.strength, found.shared) == ("gpu-02", Strength.STRONG, False)
    assert "no RoCE v2 GID at index 3" in found.says
    [found] = setup(*roce(), modify())  # the index stands in the error too
    assert found.node == "gpu-02"


@pytest.mark.parametrize("index", ["1", "0", "12", "-1", "x"])
def test_an_index_that_nobody_has_or_that_is_not_read_accuses_nobody(index: str) -> None:
    assert roots(setup(*roce(), asks(index))) == []


def test_without_an_index_other_tables_are_context() -> None:
    [found] = setup(*roce())
    assert found.role is Role.CONTEXT
    assert "gpu-02" in found.says


def test_infiniband_has_no_table_to_compare() -> None:
    assert setup(*roce(link_layer="infiniband"), asks("3")) == ()


def test_two_odd_nodes_are_shared() -> None:
    six = nodes(6)
    ports = [port(n, "mlx5_0", pkey=0x7FFF if n in six[:2] else 0xFFFF) for n in six]
    [found] = setup(*ports, names=six)
    assert (found.shared, found.node, len(found.spots)) == (True, None, 2)


def test_two_nodes_have_no_majority() -> None:
    two = nodes(2)
    assert setup(port(two[0], "mlx5_0", pkey=0x7FFF), port(two[1], "mlx5_0", pkey=0xFFFF),
                 names=two) == ()  # fmt: skip


def test_a_port_that_is_down_has_no_settings() -> None:
    ports = without(healthy(FOUR), ("gpu-01", "mlx5_0"))
    assert setup(*ports, down("gpu-01", "mlx5_0", pkey=0x7FFF)) == ()


def test_another_firmware_is_context() -> None:
    ports = [port(n, h, firmware="28.39" if n == "gpu-04" else "28.43")
             for n in FOUR for h in EIGHT]  # fmt: skip
    [found] = setup(*ports)
    assert (found.role, found.node) == (Role.CONTEXT, "gpu-04")
    assert found.says == "mlx5_0 runs firmware 28.39, elsewhere 28.43"
