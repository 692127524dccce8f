"""What the stories share: the expected verdict, a run that stalls, a run that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..flight_recorder import Group
from ..program import SITES, Op, fsdp, run
from ..render import joblog
from ..render.collective import Comm
from ..world import Node, Rank, World

EXIT = {
    "progressing": 0, "gpu_fault": 10, "ib_fault": 11, "rank_desync": 12, "data_stall": 13,
    "memory": 14, "straggler": 15, "app_crash": 16, "config": 17, "node_down": 18,
    "not_running": 19, "unknown": 20,
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Expected:
    """What a specialist would say of this world, and why."""

    cause: str
    subtype: str
    told: str
    """What was put into the world, and which parallel plan yields this picture."""
    culprits: list[dict[str, Any]] = field(default_factory=list)
    drains: list[str] = field(default_factory=list)
    also: list[tuple[str, str]] = field(default_factory=list)
    """Further (cause, subtype) that this evidence allows as well."""
    must_not: list[str] = field(default_factory=list)
    """Causes that would be wrong, over and above every drain not listed."""
    phase: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def document(self, world: World) -> dict[str, Any]:
        return {
            "told": self.told, "cause": self.cause, "subtype": self.subtype,
            "culprits": self.culprits, "drains": self.drains,
            "also": [list(pair) for pair in self.also], "exit_code": EXIT[self.cause],
            "must_not": self.must_not, "phase": self.phase, "world_size": len(world.ranks),
            "nodes": [n.name for n in world.nodes], "taken_at": world.taken_at, **self.extra,
        }  # fmt: skip


Story = Callable[[], tuple[World, Expected]]


def everybody(world: World) -> Group:
    return Group(name="0", desc="default_pg", ranks=tuple(r.rank for r in world.ranks))


GPU = ("gpu_index",)
"""Hidden where the process is gone and no NCCL line or driver record ties the rank to its GPU."""
RAIL = ("rank", "gpu_index")
"""Hidden where an HCA is to blame: several ranks may send through it, none owns it."""


def culprit(rank: Rank | None = None, hidden: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """The place to blame. `hidden` fields are true, but nothing in the evidence shows them."""
    out: dict[str, Any] = {"rank": None, "node": None, "gpu_index": None, "hca": None}
    if rank is not None:
        out |= {"rank": rank.rank, "node": rank.node.name, "gpu_index": rank.local}
    out |= more
    return out | {"hidden": {k: out.pop(k) for k in hidden}} | dict.fromkeys(hidden)


def whole(node: Node) -> dict[str, Any]:
    """A node is to blame, no single part of it."""
    return culprit(node=node.name)


def ring(entries: int = 128) -> dict[str, Any]:
    """A recorder whose ring has long wrapped: TORCH_FR_BUFFER_SIZE=entries."""
    return {"buffer_size": entries, "first_record": 341_208, "first_seq": 341_200}


def comms_of(world: World, groups: Sequence[Group], before: int = 170_000) -> None:
    """One communicator a group."""
    world.comms = [
        Comm(group=g, hash=world.rng.getrandbits(64) | 1 << 60, before=before) for g in groups
    ]


def tell_start(world: World, *, nccl: bool = True, every: int = 10) -> None:
    """The log up to the last step before the stall, or up to the look."""
    joblog.start(world)
    if nccl:
        quiet = set(range(len(world.ranks))) if len(world.ranks) <= 32 else None
        joblog.nccl_init(world, world.comms, ranks=quiet)
    if world.stalled_at is not None or world.state == "RUNNING":
        until = world.stalled_at if world.stalled_at is not None else world.taken_at - 31
        joblog.progress(world, until - 0.4, every=every)


def stall(
    world: World,
    programs: dict[int, list[Op]],
    groups: tuple[Group, ...],
    *,
    ago: float,
    warm_s: float,
    **more: Any,
) -> None:
    """Run so that the ranks come to a halt about `ago` seconds before the look."""
    _size(world, more)
    run(world, programs, groups, starts_at=world.taken_at - ago - warm_s, **more)
    waits = [
        r.pending[0].entry["time_created_ns"] / 1e9 - r.node.offset_s
        for r in world.ranks
        if r.pending
    ]
    world.stalled_at = min(waits) if waits else world.taken_at - ago
    main_stacks(world)


def _size(world: World, more: dict[str, Any]) -> None:
    if more.get("buffer_size", 2000) != 2000:
        world.env["TORCH_FR_BUFFER_SIZE"] = str(more["buffer_size"])


def moving(
    world: World,
    step: Callable[[Group], list[Op]] = fsdp,
    *,
    warm: int = 14,
    entries: int = 128,
) -> None:
    """A healthy run up to the look."""
    g = everybody(world)
    comms_of(world, [g])
    ops = [op for _ in range(warm + 8) for op in step(g)]
    _size(world, ring(entries))
    run(
        world, {r.rank: ops for r in world.ranks}, (g,),
        starts_at=world.taken_at - warm * world.step_s, **ring(entries),
    )  # fmt: skip
    main_stacks(world)


_ITEM = [
    ("train_step", "/opt/train/train.py", 250), ("train_epoch", "/opt/train/train.py", 288),
    ("main", "/opt/train/train.py", 402), ("<module>", "/opt/train/train.py", 431),
]  # fmt: skip


def main_stacks(world: World) -> None:
    """Main threads: waiting ranks sit in loss.item(), or where their CPU stopped."""
    for rank in world.ranks:
        if rank.stack:
            continue
        rank.stack = list(_ITEM)
        calls = rank.pending
        if calls and calls[-1].entry["frames"] == SITES["barrier"]:
            frames = SITES["barrier"] if rank.doing == "host" else SITES["barrier"][2:]
            rank.stack = [(f["name"], f["filename"], f["line"]) for f in frames]
            if rank.doing != "host":
                rank.stack.insert(
                    0, ("synchronize", "/opt/venv/lib/python3.11/site-packages/torch/cuda/"
                        "__init__.py", 1083),
                )  # fmt: skip


def loader_workers(rank: Rank, n: int = 4, **state: Any) -> None:
    """Data-loader workers of a rank; no two processes of a node share a pid."""
    rank.workers = [{"off": 400 + 40 * rank.local + 3 * k, **state} for k in range(n)]


LOADER_STACK = [
    ("wait", "/usr/lib/python3.11/threading.py", 331),
    ("get", "/usr/lib/python3.11/queue.py", 180),
    ("_try_get_data",
     "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1251),
    ("_get_data",
     "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1415),
    ("_next_data",
     "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 1464),
    ("__next__",
     "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 734),
    ("train_epoch", "/opt/train/train.py", 279), ("main", "/opt/train/train.py", 402),
    ("<module>", "/opt/train/train.py", 431),
]  # fmt: skip
