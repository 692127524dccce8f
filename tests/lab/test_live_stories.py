"""Real PyTorch ranks of a Slurm job that one fault stops: `sluggish diagnose --job` names it.

Three looks share each hung job: by ssh as root, by ssh as the job's owner, by srun as the owner.
"""

import pytest

from . import live, sims, storage
from .cluster import Lab
from .live import Job, Told

pytestmark = pytest.mark.usefixtures("torch_in_lab")

LEFT, RIGHT = ("node01", "node02"), ("node03", "node04")


def all_name(job: Job, verdict: str, found: dict[str, Told]) -> None:
    """Each look has this verdict and the culprit, and no look drains a node."""
    place = (job.node(job.culprit), job.culprit)
    for way, told in found.items():
        assert (told.verdict, told.places) == (verdict, [place]), (way, told.document["verdict"])
        assert not told.drains, way
    owners_say_what_they_could_not_see(found)


def owners_say_what_they_could_not_see(found: dict[str, Told]) -> None:
    for way in found.keys() & {"owner", "srun"}:
        assert "denied: dmesg" in found[way].gaps, way
    for way in found.keys() & {"root"}:
        assert "denied" not in found[way].gaps


def nobody_is_named(found: dict[str, Told], verdict: str) -> None:
    """Root sees that it moves; whoever lacks the kernel log does not say that all is well."""
    assert (found["root"].verdict, found["root"].code) == (verdict, 0)
    for told in found.values():
        assert (told.places, told.drains) == ([], False)
        assert told.code in (0, 20)


def test_a_rank_in_another_collective(lab: Lab) -> None:
    with live.running(lab, "odd", 2, LEFT) as job:
        job.fault()
        live.wait_quiet(job)
        live.gpus_wait(job, job.culprit)
        found = live.looks(job)
    all_name(job, "rank_desync/collective_mismatch", found)
    for told in found.values():
        (culprit,) = told.document["verdict"]["culprits"]
        assert culprit["source_line"].endswith(" in out_of_data")


def test_a_loader_on_storage_that_does_not_answer(lab: Lab) -> None:
    node = LEFT[1]
    data = storage.mount(lab, node)
    try:
        for number in range(8):
            lab.sh(node, f"head -c 100000 /dev/urandom >{data}/alice/shard{number}")
        with live.running(lab, "loader", 3, LEFT) as job:
            storage.hang(lab, node)
            try:
                live.wait_quiet(job)
                live.gpus_wait(job, job.culprit)
                found = live.looks(job)
            finally:
                storage.mend(lab, node)
            live.wait_on(job)
    finally:
        storage.unmount(lab, node)
    all_name(job, "data_stall/storage", found)


def test_a_gpu_that_fell_off_the_bus(lab: Lab) -> None:
    with live.running(lab, "gpu", 2, RIGHT) as job:
        node = job.node(2)
        sims.gpu_off_the_bus(lab, node, 0)
        try:
            live.wait_quiet(job)
            live.gpus_wait(job, job.culprit, **{"0.lost": "1"})
            found = live.looks(job)
        finally:
            sims.gpus(lab, node)
            sims.clear_kernel(lab, node)
        live.wait_on(job)
    root = found.pop("root")
    assert (root.verdict, root.places) == ("gpu_fault/off_bus", [(node, None)])
    assert root.document["verdict"]["culprits"][0]["gpu"]["pci"] == "0000:1b:00.0"
    # without the kernel log the rank that is missed is all that can be said
    all_name(job, "rank_desync/missing_rank", found)


def test_a_healthy_job_in_mid_epoch(lab: Lab) -> None:
    with live.running(lab, "healthy", -1, LEFT) as job:
        live.gpus_wait(job)
        found = live.looks(job)
    nobody_is_named(found, "progressing/steady")


def test_a_healthy_job_in_a_checkpoint(lab: Lab) -> None:
    with live.running(lab, "checkpoint", -1, LEFT) as job:
        job.fault(0, 2)
        live.wait_quiet(job)
        live.gpus_wait(job)
        found = live.looks(job)
    nobody_is_named(found, "progressing/checkpoint")
