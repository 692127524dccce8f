"""Stories of other networks than InfiniBand, and of what many nodes share.

Lines of NCCL's OFI plugin: NVIDIA/nccl issue 1597; counters: linux drivers/infiniband/hw/efa.
"""

from __future__ import annotations

from ..clock import epoch
from ..render import joblog
from ..world import World, build
from .common import Expected, moving, tell_start
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


STORIES = (efa_healthy, efa_lost, uplink_lost)
