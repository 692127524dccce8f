"""Known incidents with noise around them: the verdict stays, at most its confidence goes down."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..world import World
from . import desync, hardware, host, others, quiet
from .common import GPU, Expected, Story

Change = Callable[[World], None]


def _again(
    name: str, story: Story, told: str, change: Change, hide: tuple[str, ...] = (), **other: Any
) -> Story:
    """The story with something in the way: `hide` cannot be seen any more of the culprits, and
    `other` reads otherwise in the expected verdict."""

    def noisy() -> tuple[World, Expected]:
        world, expected = story()
        change(world)
        for one in expected.culprits:
            one["hidden"] |= {name: one[name] for name in hide}
            one |= dict.fromkeys(hide)
        return world, replace(expected, told=f"{expected.told} {told}", **other)

    noisy.__name__ = name
    return noisy


def _log(*kinds: str) -> Change:
    def change(world: World) -> None:
        world.noise = kinds

    return change


def _denied(number: int, probe: str = "kernel_log") -> Change:
    def change(world: World) -> None:
        world.missing[world.nodes[number].name, probe] = "denied"

    return change


def _in_driver(number: int) -> Change:
    """The rank's process hangs on a lock of the driver, and that is seen."""

    def change(world: World) -> None:
        rank = world.ranks[number]
        rank.wchan = "os_acquire_rwlock_write"
        world.missing[rank.node.name, "kernel_log"] = "denied"

    return change


def _hung_smi(number: int) -> Change:
    """The tool itself hangs (a driver that was up for 66 days does it), the GPUs are sound."""

    def change(world: World) -> None:
        world.nodes[number].smi = "stuck"

    return change


def _no_dump(rank: int) -> Change:
    def change(world: World) -> None:
        world.ranks[rank].dumps = False

    return change


def _zone(number: int) -> Change:
    """One node's local time is an hour ahead; its clock itself is right."""

    def change(world: World) -> None:
        world.nodes[number].zone_s = 3600
        world.nodes[number].log_form = "short-iso"

    return change


def _old_driver(number: int) -> Change:
    def change(world: World) -> None:
        world.nodes[number].driver = "570.172.08"

    return change


STORIES = (
    _again("seed_colours", desync.seed, "The log was pasted from a coloured terminal on Windows.",
           _log("colours", "windows")),
    _again("seed_torn", desync.seed, "Sixteen writers tear one another's lines.",
           _log("torn", "pulse")),
    _again("exception_colours", host.python_exception, "The log is coloured, with CR LF.",
           _log("colours", "windows")),
    _again("exception_torn", host.python_exception, "Other lines of the log are torn.",
           _log("torn", "pulse")),
    _again("seed_denied", desync.seed, "Nobody may read the kernel log of the second node.",
           _denied(1)),
    _again("xid79_denied", hardware.xid79, "The kernel log of the sound node is denied.",
           _denied(0)),
    _again("remap_denied", others.remap_failed, "Nobody may read the kernel log of its node: only "
           "nvidia-smi tells.", _denied(1)),
    _again("missing_denied", hardware.xid79, "Nobody may read the kernel log of its node: one GPU "
           "does not answer nvidia-smi.", _denied(1), subtype="missing"),
    _again("vanished_denied", others.gpu_vanished, "Nobody may read the kernel log of its node: "
           "one GPU fewer than its peers have is all that shows, and where its rank hangs.",
           _denied(0),
           hide=GPU),
    _again("gsp_denied", hardware.gsp_119, "Nobody may read the kernel log of its node: nvidia-smi "
           "that never returns and a process in the driver are all that shows.", _in_driver(2),
           hide=GPU, subtype="driver_stuck", drains=[]),
    _again("nvlink_denied", hardware.nvlink_burst, "Nobody may read the kernel log of its node: "
           "nvidia-smi asks for a reset of the GPU.", _denied(1), subtype="xid"),
    _again("loader_hung_smi", host.loader_nfs, "nvidia-smi hangs on the node that is sound.",
           _hung_smi(1)),
    _again("seed_no_dump", desync.seed, "Rank 12, one of the victims, left no dump.", _no_dump(12)),
    _again("exception_zone", host.python_exception, "The second node's zone is an hour ahead.",
           _zone(1)),
    _again("ecc_zone", hardware.contained_ecc, "The node of the fault is an hour ahead.", _zone(0)),
    _again("seed_drivers", desync.seed, "The second node runs an older driver.", _old_driver(1)),
    _again("healthy_drivers", quiet.healthy, "The second node runs an older driver.",
           _old_driver(1)),
    _again("healthy_denied", quiet.healthy, "The kernel log of the second node is denied: "
           "whether all is well cannot be known.", _denied(1), cause="unknown",
           subtype="unobserved", phase=None),
)  # fmt: skip
