"""Real PyTorch ranks of a Slurm job that one fault stops: `sluggish diagnose --job` names it.

Three looks share each hung job: by ssh as root, by ssh as the job's owner, by srun as the owner.
"""

import pytest

from . import cluster, live, memory, sims, storage, sysfs
from .cluster import Lab
from .live import Job, Told

pytestmark = pytest.mark.usefixtures("torch_in_lab")

FULL_SPEED_S = 0.1
"""A step of train.py while nothing holds it back."""
LEFT, RIGHT = ("node01", "node02"), ("node03", "node04")


def all_name(job: Job, verdict: str, found: dict[str, Told]) -> None:
    """Each look has this verdict and the culprit, and no look drains a node."""
    place = (job.node(job.culprit), job.culprit)
    for way, told in found.items():
        assert (told.verdict, told.places) == (verdict, [place]), (way, told.document["verdict"])
        assert told.drains == [], way
    owners_say_what_they_could_not_see(found)


def owners_say_what_they_could_not_see(found: dict[str, Told]) -> None:
    for way in found.keys() & {"owner", "srun"}:
        assert "denied: dmesg" in found[way].gaps, way
    for way in found.keys() & {"root"}:
        assert "denied" not in found[way].gaps


def it_moves(found: dict[str, Told], subtype: str, sign: str) -> None:
    """Root sees all and says so. Who was denied the kernel log says that it moves, as far as seen.

    For them exit code 20 is right: "progressing" is only said with every node seen, and a kernel
    log that nobody read may hold an Xid. It must be that log alone that is missing.
    """
    for told in found.values():
        assert (told.places, told.drains) == ([], [])
    root, *owners = (found[way] for way in live.WAYS)
    assert (root.verdict, root.code) == (f"progressing/{subtype}", 0)
    for told in owners:
        assert (told.verdict, told.code) == ("unknown/unobserved", 20)
        next_look = told.document["verdict"]["next_probe"]
        assert next_look.startswith(f"it moves as far as is seen ({sign}")
        assert next_look.endswith("without the kernel log of node[01-02]; look as root, or with "
                                  "--sudo")  # fmt: skip
    owners_say_what_they_could_not_see(found)


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


def test_a_rank_that_was_killed(lab: Lab) -> None:
    with live.running(lab, "killed", 3, RIGHT) as job:
        lab.sh(job.node(3), f"kill -KILL {job.beat(3)[0]}")
        live.wait_quiet(job)
        live.gpus_wait(job, job.culprit)
        found = live.looks(job)
    all_name(job, "app_crash/signal", found)
    sure = {way: told.document["verdict"]["confidence"] for way, told in found.items()}
    assert sure["root"]["level"] == "high"
    # SIGKILL is also what the OOM killer sends, and only the kernel log tells that it did not
    for way in ("owner", "srun"):
        why = "not ruled out: memory (kernel log of node04 not seen)"
        assert sure[way]["level"] == "medium"
        assert sure[way]["why_not_higher"].startswith(why)


def test_a_rank_that_the_limit_of_its_cgroup_killed(lab: Lab) -> None:
    with live.running(lab, "memory", 0, RIGHT) as job:
        node, pid = job.node(0), job.beat(0)[0]
        with memory.limited(lab, node, job.id) as group:
            for rank in (0, 1):  # a step's limit is that of all its ranks on a node
                memory.enter(lab, node, group, job.beat(rank)[0])
            job.fault()
            memory.copy_kill(lab, node, group, pid)
            try:
                live.wait_quiet(job)
                live.gpus_wait(job, job.culprit)
                found = live.looks(job)
            finally:
                sims.clear_kernel(lab, node)
    all_name(job, "memory/cgroup_oom", found)


def test_a_port_that_went_down(lab: Lab) -> None:
    with live.running(lab, "port", 1, LEFT) as job:
        node = job.node(1)
        with live.over_port(job, 1, "mlx5_1"):
            sysfs.port_down(lab, node, "mlx5_1")
            try:
                live.wait_quiet(job)
                live.gpus_wait(job)
                found = live.looks(job)
            finally:
                sysfs.port_up(lab, node, "mlx5_1")
            live.wait_on(job)
    for told in found.values():
        assert told.verdict == "ib_fault/port_down"
        (culprit,) = told.document["verdict"]["culprits"]
        assert (culprit["node"], culprit["hca"]) == (node, "mlx5_1")
        assert set(told.drains) == {node}
    owners_say_what_they_could_not_see(found)


def test_a_loader_on_storage_that_does_not_answer(lab: Lab) -> None:
    node = LEFT[1]
    data = storage.mount(lab, node)
    try:
        # more than the loader can read, and the kernel keep, between forgetting and stopping
        lab.sh(node, f"cd {data}/alice && head -c 38M /dev/zero | split -b 128K -a 4 -d - shard")
        with live.running(lab, "loader", 3, LEFT) as job:
            storage.hang(lab, node)
            try:
                live.wait_quiet(job)  # a busy machine may be as quiet for a while
                stuck = ["sh", "-c", "grep -q ') D ' /proc/[0-9]*/stat"]
                cluster.wait_for(lambda: not lab.exec(node, stuck).returncode, 60, "nobody is in D")
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
    # the Xid stands in the kernel log alone; nvidia-smi misses the GPU for everybody
    kinds = {"root": "off_bus", "owner": "missing", "srun": "missing"}
    for way, told in found.items():
        assert (told.verdict, told.places) == (f"gpu_fault/{kinds[way]}", [(node, 2)]), way
        (culprit,) = told.document["verdict"]["culprits"]
        assert culprit["gpu"]["pci"] == "0000:1b:00.0"
        assert set(told.drains) == {node}
    owners_say_what_they_could_not_see(found)


def test_a_node_that_was_cut_off(machine: None) -> None:
    # Slurm ends the job with the node: a lab of its own, in which that takes long enough to look
    lab = cluster.up(2, slurmd_timeout=300, slurm_conf="MessageTimeout=5\n")
    try:
        with live.running(lab, "cut", 2, LEFT) as job:
            node = job.node(2)
            live.gpus_wait(job)
            lab.cut(node)
            live.wait_quiet(job)
            early = live.looks(job, "root", "owner")
            # whatever it sends to a node tells the controller that the node is silent
            lab.exec("login", ["scancel", "-s", "CONT", job.id], "alice", check=True)
            cluster.wait_for(lambda: lab.state(node) == "mixed*", 60, "Slurm does not notice")
            found = live.looks(job)
            lab.mend(node)
            live.wait_on(job)
    finally:
        lab.down()
    for told in early.values():  # nothing but our own connection is known to fail
        assert told.document["verdict"]["cause"] == "unknown"
        assert (told.places, told.drains) == ([], [])
        assert told.document["verdict"]["next_probe"].startswith(f"does {node} live: ping")
    for told in found.values():
        assert (told.verdict, told.places) == ("node_down/not_responding", [(node, None)])
        assert told.drains == []
        silent = [n for n in told.document["verdict"]["not_checked"] if n["what"] == "processes"]
        assert [(n["where"], n["why"].split(":")[0]) for n in silent] == [(node, "unreachable")]


def test_a_job_that_one_slow_gpu_holds_back(lab: Lab) -> None:
    with live.running(lab, "straggler", 3, LEFT) as job:
        slow = {"1.clocks.sm": "240", "1.clocks_event_reasons.active": "0x88"}
        live.gpus_wait(job, **slow)
        assert live.pace(job) > 4 * FULL_SPEED_S
        found = live.looks(job)
    for way, told in found.items():
        assert (told.verdict, told.places) == ("straggler/slow_gpu", [(job.node(3), 3)]), way
        (culprit,) = told.document["verdict"]["culprits"]
        assert culprit["gpu"]["index"] == 1
        assert told.drains == []
    owners_say_what_they_could_not_see(found)


def test_a_healthy_job_in_mid_epoch(lab: Lab) -> None:
    with live.running(lab, "healthy", -1, LEFT) as job:
        live.gpus_wait(job)
        found = live.looks(job)
    it_moves(found, "steady", "step ")


def test_a_healthy_job_in_a_checkpoint(lab: Lab) -> None:
    with live.running(lab, "checkpoint", -1, LEFT) as job:
        job.fault(0, 2)
        live.wait_quiet(job)
        live.gpus_wait(job)
        found = live.looks(job)
    it_moves(found, "checkpoint", "in a checkpoint for ")
