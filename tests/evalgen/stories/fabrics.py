"""Stories of other networks than InfiniBand, and of what many nodes share.

Lines of NCCL's OFI plugin: NVIDIA/nccl issue 1597; counters: linux drivers/infiniband/hw/efa.
"""

from __future__ import annotations

from dataclasses import replace

from ..clock import epoch
from ..render import joblog
from ..world import Node, World, build
from .common import RAIL, Expected, culprit, moving, tell_start
from .hardware import train

_NEVER = ["rank_desync", "data_stall", "app_crash", "gpu_fault", "node_down"]


def _efa(world: World) -> None:
    """EFA devices in the place of the HCAs: no link layer, no InfiniBand tool, other counters."""
    world.fabric = "EFA"
    world.without |= {"ibstat", "ibstatus", "ibv_devinfo"}
    for node in world.nodes:
        node.ports = [p for p in node.ports if p.rail is not None]
        node.kernel_lines = [(t, s) for t, s in node.kernel_lines if "mlx5_core" not in s]
        for port in node.ports:
            port.hca, port.layer, port.driver = f"rdmap{int(port.pci[5:7], 16)}s0", "Unknown", "efa"
            port.rate_gbps, port.rate_words = 200, "200 Gb/sec (4X HDR)"


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {
        "seed": 5, "model": "H200", "job_name": "pretrain", "age_s": 9 * 3600, "timeout_s": 3600,
        "step_at_stall": 8100, "steps_total": 60_000, "nccl": "2.27.7", "cuda": "12.9",
        "env": {"NCCL_DEBUG": "INFO"},
    }  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def efa_healthy() -> tuple[World, Expected]:
    world = _world("efa_healthy", nodes=["ip-10-1-0-21", "ip-10-1-0-22"], job_id="904",
                   taken_at=epoch("2026-07-02T08:40:00Z"))  # fmt: skip
    _efa(world)
    moving(world, entries=64)
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="FSDP over EFA, nothing is wrong: devices without a link layer, no InfiniBand tool.",
        must_not=["ib_fault", "config"],
    )  # fmt: skip


def efa_lost() -> tuple[World, Expected]:
    world = _world("efa_lost", nodes=["ip-10-1-0-31", "ip-10-1-0-32", "ip-10-1-0-33"],
                   job_id="911", taken_at=epoch("2026-07-03T21:05:00Z"))  # fmt: skip
    _efa(world)
    train(world, ago=800, broken=(12,))
    for node in world.nodes[:2]:
        node.ports[4].moved |= {"retrans_timeout_events": 6, "unresponsive_remote_events": 3}
    tell_start(world)
    return world, Expected(
        cause="unknown", subtype="all_joined",
        told="One path between two EFA devices swallows packets. Everybody has posted, nobody "
        "finishes; the devices say ACTIVE, as they always do, and NCCL prints nothing: the network "
        "cannot be cleared, and nothing names one end.",
        also=[("ib_fault", "port_error")], must_not=[*_NEVER, "progressing"],
    )  # fmt: skip


def efa_unresponsive() -> tuple[World, Expected]:
    world = _world("efa_unresponsive", nodes=[f"ip-10-1-0-{k}" for k in (41, 42, 43, 44)],
                   job_id="915", taken_at=epoch("2026-07-09T03:35:00Z"))  # fmt: skip
    _efa(world)
    t = train(world, ago=700, broken=(18,))
    bad = world.nodes[2]
    for node in (*world.nodes[1:3], world.nodes[3]):
        node.ports[2].moved |= {"unresponsive_remote_events": 2, "retrans_timeout_events": 9}
    tell_start(world)
    pairs = ((10, bad), (26, bad), (18, world.nodes[1]), (18, world.nodes[3]))
    for k, (rank, peer) in enumerate(pairs):
        joblog.ofi_error(world, t + 41 + k, world.ranks[rank], peer)
    return world, Expected(
        cause="ib_fault", subtype="unreachable_peer",
        culprits=[culprit(world.ranks[18], (*RAIL, "hca"), hca=bad.ports[2].hca)],
        told="The third instance's network card stops carrying its packets in either direction; "
        "both neighbours and it lose one another, by the ids of their instances.",
        must_not=[*_NEVER, "progressing"],
    )  # fmt: skip


def _slingshot(world: World) -> None:
    """Four Slingshot adapters a node in the place of the HCAs: no InfiniBand class at all."""
    world.fabric = "CXI"
    world.without |= {"ibstat", "ibstatus", "ibv_devinfo"}
    for node in world.nodes:
        node.ports = [p for p in node.ports if p.rail is not None][:4]
        node.kernel_lines = [(t, s) for t, s in node.kernel_lines if "mlx5_core" not in s]
        for k, port in enumerate(node.ports):
            port.hca, port.layer, port.driver = f"cxi{k}", "Unknown", "cxi"
            port.rate_gbps, port.rate_words = 200, "200 Gb/sec (4X HDR)"
            port.lifetime = {"hni_pcs_uncorrected_cw": 90049, "pct_retry_srb_requests": 512}


def slingshot_healthy() -> tuple[World, Expected]:
    world = _world("slingshot_healthy", nodes=["nid001021", "nid001022"], job_id="5204",
                   taken_at=epoch("2026-08-12T10:20:00Z"))  # fmt: skip
    _slingshot(world)
    moving(world, entries=64)
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="FSDP over Slingshot, nothing is wrong; its links have repaired frames for months.",
        must_not=["ib_fault", "config"],
    )  # fmt: skip


def slingshot_lost() -> tuple[World, Expected]:
    world = _world("slingshot_lost", nodes=["nid001031", "nid001032", "nid001033"],
                   job_id="5211", taken_at=epoch("2026-08-14T23:45:00Z"))  # fmt: skip
    _slingshot(world)
    train(world, ago=800, broken=(12,))
    for node in world.nodes[:2]:
        node.ports[1].moved |= {"pct_spt_timeouts": 40, "pct_retry_srb_requests": 32}
    tell_start(world)
    return world, Expected(
        cause="unknown", subtype="all_joined",
        told="One path of the dragonfly swallows packets: both its ends wait for answers and send "
        "again, every link is up, NCCL prints nothing. The network cannot be cleared, and nothing "
        "names one end.",
        also=[("ib_fault", "port_error")], must_not=[*_NEVER, "progressing"],
    )  # fmt: skip


def uplink_lost() -> tuple[World, Expected]:
    world = _world("uplink_lost", nodes=[f"ul-{k:02d}" for k in range(1, 7)], per_leaf=3,
                   job_id="3310", taken_at=epoch("2026-05-19T11:52:00Z"))  # fmt: skip
    t = train(world, ago=640, broken=(19, 27, 6, 46))
    tell_start(world)
    lost = ((19, 3, 3), (27, 2, 3), (6, 5, 6), (46, 0, 6))
    for k, (rank, peer, rail) in enumerate(lost):
        joblog.completion_error(
            world, t + 31 + k, world.ranks[rank], world.nodes[peer], f"mlx5_{rail}", 43100 + k
        )
    return world, Expected(
        cause="ib_fault", subtype="shared_fabric",
        told="The links between two leaf switches are gone for good: nodes on different leaves "
        "lose one another, nodes on one leaf do not; every port of every node is Active.",
        must_not=[*_NEVER, "progressing"],
    )  # fmt: skip


def _bounced(name: str, job: str, manager: str) -> World:
    """One port lost its link for a moment and was not brought up again."""
    world = _world(name, nodes=[f"bo-{k}" for k in (1, 2, 3)], job_id=job, env={},
                   taken_at=epoch("2026-10-19T01:12:00Z"))  # fmt: skip
    train(world, ago=720, broken=(13,))
    port = world.nodes[1].ports[5]
    port.state, port.lid, port.sm_lid = "INIT", 65535, 0
    port.lifetime |= {"link_downed": 1}
    world.manager = manager
    tell_start(world, nccl=False)
    return world


def manager_silent() -> tuple[World, Expected]:
    world = _bounced("manager_silent", "6121", "silent")
    return world, Expected(
        cause="ib_fault", subtype="subnet_manager",
        told="The subnet manager is dead and nobody noticed, for ports that are Active stay so. "
        "One port of the second node blinked, and now nobody brings it up: sminfo gets no answer.",
        must_not=[*_NEVER, "progressing"],
    )  # fmt: skip


def manager_answers() -> tuple[World, Expected]:
    world = _bounced("manager_answers", "6122", "MASTER")
    node = world.nodes[1]
    return world, Expected(
        cause="ib_fault", subtype="port_down", culprits=[culprit(world.ranks[13], RAIL,
                                                                 hca="mlx5_5")],
        told="The same picture beside a subnet manager that answers: it holds back this one port, "
        "which flapped. It is the port's affair, or of the policy that isolated it.",
        must_not=[*_NEVER, "progressing"], extra={"may_drain": [node.name]},
    )  # fmt: skip


def fabric_could_more() -> tuple[World, Expected]:
    world = _world("fabric_could_more", nodes=["fm-1", "fm-2", "fm-3"], job_id="6130",
                   taken_at=epoch("2026-10-21T14:40:00Z"))  # fmt: skip
    for node in world.nodes:
        for port in node.ports:
            if port.layer == "InfiniBand":
                port.rate_gbps, port.rate_words = 200, "200 Gb/sec (2X NDR)"
    old = world.nodes[2].ports[3]
    old.lifetime |= {"symbol_error": 65535, "link_downed": 255, "port_xmit_wait": 4_000_000_000}
    world.manager = "MASTER"
    moving(world, entries=64)
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="A fabric of split cables: two lanes everywhere, and each link could be wider. One "
        "port's counters have been full for months. Nothing is wrong.",
        must_not=["ib_fault", "straggler", "config"],
    )  # fmt: skip


def _storage_port(node: Node, hca: str, bus: int) -> None:
    """A port for storage on a card of the compute kind, at the rate of an older switch."""
    port = replace(node.ports[0], hca=hca, pci=f"0000:{bus:02x}:00.0", netdev=f"ibs{bus}",
                   guid=node.ports[0].guid + bus, lid=node.ports[0].lid + 500 + bus, rail=None,
                   rate_gbps=200, rate_words="200 Gb/sec (4X HDR)", lifetime={}, moved={},
                   leaf="storage1")  # fmt: skip
    node.ports.append(port)


def storage_ports() -> tuple[World, Expected]:
    world = _world("storage_ports", nodes=["sp-1", "sp-2", "sp-3"], job_id="6140", env={},
                   taken_at=epoch("2026-11-02T09:31:00Z"))  # fmt: skip
    for node in world.nodes:
        node.ports = [p for p in node.ports if p.rail is not None]
        for k in (8, 9):
            _storage_port(node, f"mlx5_{k}", 0xE0 + k)
    away = world.nodes[1].ports[-1]
    away.state, away.phys, away.lid = "DOWN", "Polling", 0
    moving(world, entries=64)
    tell_start(world, nccl=False)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="Two cards of the compute kind serve storage at 200 Gb/s on every node, one of the "
        "six is without a cable. NCCL_DEBUG is unset: no list says which ports are the job's.",
        must_not=["ib_fault", "straggler", "config"],
    )  # fmt: skip


def shifted_names() -> tuple[World, Expected]:
    world = _world("shifted_names", nodes=["sh-1", "sh-2", "sh-3"], job_id="6141", env={},
                   taken_at=epoch("2026-11-03T15:02:00Z"))  # fmt: skip
    for node in world.nodes:
        node.ports = [p for p in node.ports if p.rail is not None]
    node = world.nodes[2]
    for port in node.ports[4:]:
        port.hca = f"mlx5_{int(port.hca[5:]) + 1}"
    _storage_port(node, "mlx5_4", 0x9E)
    moving(world, entries=64)
    tell_start(world, nccl=False)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="The third node has one card more, for storage at 200 Gb/s, in the middle of the "
        "bus: from there on its cards have other numbers than those of its peers.",
        must_not=["ib_fault", "straggler", "config"],
    )  # fmt: skip


STORIES = (
    efa_healthy, efa_lost, efa_unresponsive, slingshot_healthy, slingshot_lost, uplink_lost,
    manager_silent, manager_answers, fabric_could_more, storage_ports, shifted_names,
)  # fmt: skip
