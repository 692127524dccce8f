"""Stories without a fault: running, saving, evaluating, done, not begun."""

from __future__ import annotations

from ..clock import epoch, slurm
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


def started_again() -> tuple[World, Expected]:
    """The look-alike of a node failure: its lines are of the run before, in the same log."""
    world = build(
        "started_again", seed=1, model="B300", nodes=["gpu-21", "gpu-22"], job_id="48390",
        job_name="llm-70b", taken_at=epoch("2026-11-26T10:14:00Z"), age_s=5 * 3600,
        step_at_stall=9430, env={"NCCL_DEBUG": "INFO"}, restarts=1,
    )  # fmt: skip
    lost = world.job_started - 180
    start, end, again = slurm(lost - 7200), slurm(lost), slurm(world.job_started)
    j = world.job_id
    world.sacct_rows = [
        f"{j}|{j}|NODE_FAIL|gpu-[21-22]|{start}|{end}|0:0|None",
        f"{j}.0|{j}.0|CANCELLED|gpu-[21-22]|{start}|{end}|0:15|",
        f"{j}|{j}|RUNNING|gpu-[21-22]|{again}|Unknown|0:0|None",
        f"{j}.0|{j}.0|RUNNING|gpu-[21-22]|{again}|Unknown|0:0|",
    ]
    # as slurmstepd and srun of 22.05 print it, into a log that --open-mode=append keeps
    world.say(lost - 40, "step 9120 loss 1.93")
    world.say(lost - 1, "srun: error: Node failure on gpu-22")
    for what in (f"STEP {j}.0", f"JOB {j}"):
        world.say(
            lost,
            f"slurmstepd-gpu-21: error: *** {what} ON gpu-21 CANCELLED AT {end} DUE TO NODE "
            "FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        )
    world.say(lost + 1, "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.")
    world.say(lost + 2, "srun: error: gpu-21: tasks 0-7: Terminated")
    moving(world, entries=64)
    tell_start(world)
    return world, Expected(
        cause="progressing", subtype="steady", phase="steady",
        told="Its first run died with a node; the second one, on the same nodes, trains.",
        must_not=["node_down", "app_crash"],
    )  # fmt: skip


STORIES = (healthy, started_again)
