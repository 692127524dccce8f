"""Preflight on real nodes: each has its own verdict, and what was not seen is never ok."""

import json

from sluggish.preflight.leftover import FRESH_S

from . import cluster, sims, storage, sysfs
from .cluster import Lab
from .fit import PROGRAM, healed, hold, leftover, nodes, said, verdicts

ALL = "node[01-04]"


def test_healthy_nodes_are_fit_and_a_user_is_told_what_his_rights_do_not_show(lab: Lab) -> None:
    found = nodes(lab, "--transport", "ssh", "--nodes", ALL)
    assert verdicts(found) == ["ok"] * 4, found
    found = nodes(lab, "--transport", "ssh", "--nodes", "node[01-02]", user="alice")
    assert verdicts(found) == ["not checked"] * 2
    assert said(found, "node01", "not checked").startswith("kernel log: denied: ")


def test_each_node_has_its_own_verdict(lab: Lab) -> None:
    with healed(lab), leftover(lab, "node04") as pid:
        sims.gpu_off_the_bus(lab, "node02", 3)
        sysfs.port_down(lab, "node03", "mlx5_3")
        hold(lab, "node04", pid)
        found = nodes(lab, "--transport", "ssh", "--nodes", ALL, code=40)
        assert verdicts(found) == ["ok", "fail", "fail", "fail"]
        assert [found[n]["hardware"] for n in sorted(found)] == [False, True, True, False]
        assert "nvidia-smi lists 7 GPUs, 8 are plugged in" in said(found, "node02", "fail")
        assert "mlx5_3 - switch: port Down, Polling" in said(found, "node03", "fail")
        assert f"gpu 5: pid {pid} (python), of no Slurm job" in said(found, "node04", "fail")
        assert nodes(lab, "--nodes", "node[01,04]", "--hardware-only")  # exit 0


def test_a_node_that_does_not_answer_is_not_checked_and_never_ok(lab: Lab) -> None:
    with healed(lab):
        lab.cut("node03")
        found = nodes(lab, "--transport", "ssh", "--nodes", ALL)
        assert verdicts(found) == ["ok", "ok", "not checked", "ok"]
        assert said(found, "node03", "not checked").startswith("gave no answer: unreachable")
        assert nodes(lab, "--nodes", "node03", "--transport", "ssh", code=30)


def test_what_nvidia_smi_says_is_told_by_node(lab: Lab) -> None:
    with healed(lab):
        words = "Failed to initialize NVML: Driver/library version mismatch"
        sims.gpus(lab, "node01", {"fail": words, "exit": "18"})
        sims.gpus(lab, "node02", {"2.remapped_rows.failure": "1"})
        sims.gpus(lab, "node03", {"2.remapped_rows.pending": "1", "*.driver_version": "575.57.08"})
        found = nodes(lab, "--transport", "ssh", "--nodes", ALL, code=40)
        assert verdicts(found) == ["fail", "fail", "warn", "ok"], json.dumps(found)
        assert [found[n]["hardware"] for n in sorted(found)] == [False, True, False, False]
        assert "kernel module of the driver differ" in said(found, "node01", "fail")
        told = said(found, "node03", "warn")
        assert "row remap pending" in told
        assert "driver: 575.57.08, on the other nodes 580.95.05" in told


def test_full_memory_files_and_a_mount_that_hangs_are_unfit_on_their_nodes_alone(
    lab: Lab,
) -> None:
    size = lab.sh("node02", "df -P -k /dev/shm | awk 'NR == 2 {print $2}'").strip()
    fill = "dd if=/dev/zero of=/dev/shm/x bs=64k count=15"
    lab.sh("node02", f"mount -n -o remount,size=1m /dev/shm; {fill}")
    try:
        storage.mount(lab, "node04")
        try:
            storage.hang(lab, "node04")
            found = nodes(lab, "--transport", "ssh", "--nodes", ALL, code=40)
        finally:
            storage.mend(lab, "node04")
            storage.unmount(lab, "node04")
        assert verdicts(found) == ["ok", "fail", "ok", "fail"], json.dumps(found)
        assert not any(found[n]["hardware"] for n in found)
        assert "/dev/shm: 94% of 1 MiB is used" in said(found, "node02", "fail")
        assert "size of /dev/shm" in said(found, "node02", "warn")
        assert "mount /mnt/fuse-node04" in said(found, "node04", "fail")
        # who waits for the dead mount does not hold up the probe's answer
        assert said(found, "node04", "not checked") == ""
    finally:
        lab.sh("node02", f"rm /dev/shm/x; mount -n -o remount,size={size}k /dev/shm")


def test_training_programs_of_no_job_are_leftovers_and_a_job_s_are_not(lab: Lab) -> None:
    wrap = f"srun /opt/venv/bin/python -c '{PROGRAM}'"
    make = f'cd; sbatch --parsable -w node01 -o /dev/null --wrap "{wrap}"'
    job = lab.sh("login", make, "alice").strip()
    try:
        with healed(lab), leftover(lab, "node02"):
            running = ["pgrep", "-u", "alice", "python"]
            cluster.wait_for(lambda: lab.exec("node01", running).stdout, 20, "the job's program")
            pid = int(lab.exec("node01", running).stdout.split()[0])
            old = f"[ $(ps -o etimes= -p {pid}) -ge {FRESH_S} ]"
            cluster.wait_for(lambda: not lab.exec("node01", ["sh", "-c", old]).returncode, 40, "")
            hold(lab, "node01", pid)
            found = nodes(lab, "--transport", "ssh", "--nodes", "node[01-02]")
            assert verdicts(found) == ["warn", "warn"], json.dumps(found)
            assert "processes of no Slurm job: python" in said(found, "node02", "warn")
            assert f"of job {job} holds 90,000 MiB: the node is shared" in said(
                found, "node01", "warn"
            )
            own = nodes(lab, "--job", job, "--transport", "ssh")
            assert verdicts(own) == ["ok"], json.dumps(own)
    finally:
        lab.exec("ctl", ["scancel", job])
        gone = ["squeue", "-h", "-j", job]
        cluster.wait_for(lambda: not lab.exec("ctl", gone).stdout, 20, "the job's end")


def test_a_job_without_nodes_is_one_line(lab: Lab) -> None:
    done = lab.exec("login", ["sluggish", "preflight", "--job", "999999"])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("sluggish: job 999999: no nodes yet")


SCRIPTS = {
    "unix": ("#!/bin/sh\n#SBATCH -N1\ntrue\n", True),
    "blank": ("#!/bin/sh\n\n   # a comment\n#SBATCH--nodes=1\ntrue\n", True),
    "dos": ("#!/bin/sh\r\n#SBATCH -N1\r\ntrue\r\n", False),
    "one": ("#!/bin/sh\n#SBATCH -N1\ntrue\r\n", False),
    "mark": ("\ufeff#!/bin/sh\n#SBATCH -N1\ntrue\n", False),
    "bare": ("#SBATCH -N1\ntrue\n", False),
    "late": ("#!/bin/sh\ntrue\n#SBATCH --nodes=none\n", True),
    "shifted": ("#!/bin/sh\n #SBATCH --nodes=none\ntrue\n", True),
    "here": ("#!/bin/sh\n: <<E\n#SBATCH --nodes=none\nE\n", True),
}
"""A wrong option shows that sbatch never read it."""


def test_what_a_real_sbatch_refuses_is_unfit_and_what_it_passes_over_is_told(lab: Lab) -> None:
    taken: list[str] = []
    try:
        for name, (text, is_taken) in SCRIPTS.items():
            file = f"/tmp/{name}.sbatch"
            lab.exec("login", ["sh", "-c", f"cat >{file}"], input=text)
            sent = lab.exec("login", ["sbatch", "--parsable", "-o", "/dev/null", file])
            assert (sent.returncode == 0) is is_taken, (name, sent.stderr)
            taken += [sent.stdout.strip()] * is_taken
            told = lab.exec("login", ["sluggish", "preflight", "--script", file, "--json"])
            assert told.returncode == (0 if is_taken else 40), (name, told.stdout)
            lost = [n for n in json.loads(told.stdout)["notes"] if "#SBATCH" in n["says"]]
            assert bool(lost) is (name in ("late", "shifted")), (name, lost)
    finally:
        lab.exec("ctl", ["scancel", *taken])
