"""Stories of links that are not simply down: an NVSwitch, a flap, a link that lost its lanes."""

from __future__ import annotations

from ..clock import epoch
from ..render import joblog
from ..render.kernel import xid
from ..world import World, build
from .common import RAIL, Expected, culprit, tell_start, whole
from .hardware import train

_NEVER = ["rank_desync", "data_stall", "app_crash", "progressing"]


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {
        "seed": 2, "model": "H100", "job_name": "pretrain", "age_s": 12 * 3600, "timeout_s": 3600,
        "step_at_stall": 22500, "steps_total": 100_000, "nccl": "2.25.1", "cuda": "12.8",
        "env": {"NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"},
    }  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def nvswitch() -> tuple[World, Expected]:
    world = _world("nvswitch", nodes=["ns-06", "ns-07"], job_id="6700",
                   taken_at=epoch("2026-08-28T19:31:00Z"))  # fmt: skip
    t = train(world, ago=500, broken=tuple(range(8, 16)))
    node = world.nodes[1]
    head = "nvidia-nvswitch1: SXid (PCI:0000:c2:00.0): 20034"
    world.kernel(node, t - 0.2, f"{head}, Fatal, Link 22 LTSSM Fault Up")
    data = ", ".join(["0x50610005", "0x00000016", *["0x00000000"] * 7])
    world.kernel(node, t - 0.199, f"{head}, Severity 1 Engine instance 22 Sub-engine instance 00")
    world.kernel(node, t - 0.198, f"{head}, Data {{{data}}}")
    for gpu in node.gpus[2:4]:
        world.kernel(node, t + 0.1, xid(
            gpu.pci, 74, "NVLink: fatal error detected on link 11(0x10000, 0x0, 0x0, 0x0, 0x0, "
            "0x0, 0x0)", pid=gpu.pid, name="pt_main_thread"))  # fmt: skip
    tell_start(world)
    return world, Expected(
        cause="gpu_fault", subtype="nvswitch", culprits=[whole(node)], drains=[node.name],
        told="A link of NVSwitch 1 of the second node trains no more: the driver says Fatal, two "
        "GPUs behind it see Xid 74. Everybody has posted, nobody finishes.",
        must_not=[*_NEVER, "ib_fault"],
    )  # fmt: skip


def link_flap() -> tuple[World, Expected]:
    world = _world("link_flap", nodes=["lf-1", "lf-2", "lf-3"], job_id="9410",
                   taken_at=epoch("2026-09-16T23:02:00Z"))  # fmt: skip
    t = train(world, ago=700, broken=(12,))
    node = world.nodes[1]
    port = node.ports[4]
    port.lifetime |= {"link_downed": 2, "symbol_error": 77, "link_error_recovery": 1}
    world.kernel(node, t - 0.1, f"mlx5_core {port.pci} mlx5_4: Port: 1 Link DOWN")
    world.kernel(node, t + 94.0, f"mlx5_core {port.pci} mlx5_4: Port: 1 Link ACTIVE")
    tell_start(world)
    joblog.async_event(world, t + 0.3, node, "mlx5_4:1 Got async error event: port error")
    for k, r in enumerate((4, 20)):
        joblog.completion_error(world, t + 38 + k, world.ranks[r], node, "mlx5_4", 40900 + k)
    joblog.async_event(world, t + 94.3, node, "mlx5_4:1 Got async error event: port active")
    return world, Expected(
        cause="ib_fault", subtype="port_error", culprits=[culprit(world.ranks[12], RAIL,
                                                                  hca="mlx5_4")],
        told="The link of mlx5_4 on the second node is away for 94 s, longer than NCCL's retries, "
        "and comes back: at the look every port is Active, the queue pairs stay dead. One flap is "
        "no reason to drain.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def link_degraded() -> tuple[World, Expected]:
    world = _world("link_degraded", nodes=["ld-1", "ld-2", "ld-3"], job_id="118",
                   taken_at=epoch("2026-10-05T02:20:00Z"), env={})  # fmt: skip
    train(world, ago=800, broken=(17,))
    node = world.nodes[2]
    port = node.ports[1]
    port.rate_gbps, port.rate_words = 100, "100 Gb/sec (1X NDR)"
    port.lifetime |= {"symbol_error": 65535, "link_downed": 1, "link_error_recovery": 9}
    tell_start(world, nccl=False)
    return world, Expected(
        cause="ib_fault", subtype="link_degraded", culprits=[culprit(world.ranks[17], RAIL,
                                                                     hca="mlx5_1")],
        told="mlx5_1 of the third node retrained to one lane, so noisy that packets of one queue "
        "pair were lost for good. NCCL_DEBUG is unset: all that shows is a hang in which everybody "
        "has posted, and one port at a quarter of its rate.",
        also=[("unknown", "all_joined"), ("ib_fault", "port_error")],
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def peer_unreachable() -> tuple[World, Expected]:
    world = _world("peer_unreachable", nodes=["pu-1", "pu-2", "pu-3", "pu-4"], job_id="20202",
                   taken_at=epoch("2026-04-27T16:26:00Z"))  # fmt: skip
    t = train(world, ago=560, broken=(18,), entries=48)
    node = world.nodes[2]
    tell_start(world, nccl=False)
    joblog.nccl_init(world, world.comms, ranks={r.rank for r in world.ranks if r.local == 2})
    for k, r in enumerate((2, 10, 26)):
        joblog.completion_error(world, t + 38 + k, world.ranks[r], node, "mlx5_2", 41200 + k)
    return world, Expected(
        cause="ib_fault", subtype="unreachable_peer", culprits=[culprit(
            world.ranks[18], (*RAIL, "hca"), hca="mlx5_2")],
        told="The receive side of the cable at mlx5_2 of the third node loses packets; both ports "
        "stay Active. Three peers give up towards that node, it says nothing itself.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def link_errors() -> tuple[World, Expected]:
    world = _world("link_errors", nodes=["le-1", "le-2", "le-3"], job_id="515",
                   taken_at=epoch("2026-12-09T04:44:00Z"), env={})  # fmt: skip
    train(world, ago=400, broken=(7,))
    node = world.nodes[0]
    port = node.ports[7]
    port.lifetime |= {"symbol_error": 3312, "link_error_recovery": 11}
    port.moved |= {"local_link_integrity_errors": 4, "symbol_error": 812, "link_downed": 1}
    tell_start(world, nccl=False)
    return world, Expected(
        cause="ib_fault", subtype="port_error", culprits=[culprit(world.ranks[7], RAIL,
                                                                  hca="mlx5_7")],
        told="A cable of mlx5_7 on the first node is pinched: its link falls and comes back every "
        "few seconds, Active whenever somebody looks; its counters run. NCCL_DEBUG is unset.",
        must_not=[*_NEVER, "gpu_fault", "node_down"],
    )  # fmt: skip


def fabric_not_up() -> tuple[World, Expected]:
    world = _world("fabric_not_up", model="B200", nodes=["fb-1", "fb-2"], job_id="7373",
                   taken_at=epoch("2026-01-09T18:18:00Z"), driver="570.172.08")  # fmt: skip
    train(world, ago=450, broken=(5,))
    rank = world.ranks[5]
    rank.gpu.fabric = ("Completed", "Insufficient Resources")
    world.missing[rank.node.name, "kernel_log"] = "denied"
    tell_start(world)
    return world, Expected(
        cause="gpu_fault", subtype="nvlink", culprits=[culprit(rank)],
        told="GPU 5 of the first node has lost its registration in the NVLink fabric; its kernel "
        "log is denied, all that shows is the fabric status in nvidia-smi.",
        must_not=[*_NEVER, "ib_fault"], also=[("unknown", "all_joined")],
    )  # fmt: skip


STORIES = (nvswitch, link_flap, link_degraded, peer_unreachable, link_errors, fabric_not_up)
