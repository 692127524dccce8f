"""Stories without a fault: running, saving, evaluating, done, not begun."""

from __future__ import annotations

from ..clock import epoch
from ..world import World, build
from .common import Expected, moving, tell_start


def healthy() -> tuple[World, Expected]:
    world = build(
        "healthy", seed=1, model="B300", nodes=["gpu-11", "gpu-12"], job_id="48377",
        job_name="llm-70b", taken_at=epoch("2026-11-25T10:14:00Z"), age_s=5 * 3600,
        step_at_stall=9430, env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    moving(world, entries=64)
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", told="FSDP over 16 ranks, nothing is wrong.",
        phase="steady",
    )  # fmt: skip


STORIES = (healthy,)
