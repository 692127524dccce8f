"""Live looks get into the ledger; whatever the ledger's disk does, the verdict is printed first."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sluggish.causes import EXIT_CODES

from . import cluster, sims, storage
from .cluster import Lab

NODES = ("node03", "node04")
FREE = ("node01", "node02")
"""Not held by the job that the tests of this file share."""
LOOK = ["--transport", "ssh", "--window", "0", "--json"]


def start(lab: Lab, nodes: tuple[str, ...] = NODES) -> str:
    submit = ["sbatch", "--parsable", "-N2", "-w", ",".join(nodes), "--gres=gpu:8",
              "-o", "/tmp/out", "--wrap", "srun sleep 600"]  # fmt: skip
    job = lab.exec("login", submit, "alice", check=True).stdout.strip()
    running = ["squeue", "-h", "-t", "R", "-j", job]
    cluster.wait_for(lambda: bool(lab.exec("ctl", running).stdout), 30, "the job does not start")
    return job


def end(lab: Lab, job: str) -> None:
    lab.exec("ctl", ["scancel", "-f", job])
    gone = ["squeue", "-h", "-j", job]
    cluster.wait_for(lambda: not lab.exec("ctl", gone).stdout, 30, "the job does not end")


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[str]:
    found = start(lab)
    yield found
    end(lab, found)


def begin(lab: Lab, job: str, db: str, user: str | None = "alice") -> "subprocess.Popen[bytes]":
    """A look with this ledger; one in a folder `sluggish` is that of a home without settings."""
    home = db.partition("/sluggish/")[0]
    where = f"XDG_STATE_HOME={home}" if home != db else f"SLUGGISH_HISTORY_DB={db}"
    argv = ["env", where, "sluggish", "diagnose", "--job", job, *LOOK]
    return lab.popen("login", argv, user, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process: "subprocess.Popen[bytes]") -> tuple[dict[str, Any], list[str]]:
    """The document, and what was said of the ledger."""
    out, err = process.communicate(timeout=90)
    lines = err.decode().splitlines()
    document = json.loads(out)
    assert process.returncode == EXIT_CODES[document["verdict"]["cause"]]
    return document, [line for line in lines if line.startswith("history: ")]


def look(
    lab: Lab, job: str, db: str, user: str | None = "alice"
) -> tuple[dict[str, Any], list[str]]:
    return finish(begin(lab, job, db, user))


def ledger(lab: Lab, db: str, user: str | None = None) -> dict[str, Any]:
    done = lab.exec("login", ["sluggish", "history", "--db", db, "--json"], user)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_a_node_that_comes_back_is_told_and_the_saved_look_says_the_same(lab: Lab) -> None:
    db, node = "/tmp/back/history.db", FREE[1]
    sims.gpu_off_the_bus(lab, node, 3)
    said: list[list[str]] = []
    documents: list[dict[str, Any]] = []
    try:
        for _ in range(2):
            job = start(lab, FREE)
            try:
                found, lines = look(lab, job, db, None)
            finally:
                end(lab, job)
            assert found["verdict"]["cause"] == "gpu_fault", found["verdict"]
            said.append(lines)
            documents.append(found)
    finally:
        sims.gpus(lab, node)
        sims.clear_kernel(lab, node)
    subtype = documents[0]["verdict"]["subtype"]
    told = f"convicted in 1 of 1 failed job it was in (gpu_fault/{subtype} 1); context, no proof"
    assert said == [[], [f"history: {node}: {told}"]]

    again = lab.exec("login", ["sluggish", "diagnose", documents[1]["bundle"]["path"], "--json"])
    offline = json.loads(again.stdout)
    assert offline.pop("bundle")
    assert offline == {k: v for k, v in documents[1].items() if k != "bundle"}
    kept = ledger(lab, db)
    assert [(x["job"], x["cause"], x["convicted"]) for x in kept["looks"]] == [
        (d["job"]["id"], "gpu_fault", [node]) for d in documents
    ]
    (record,) = kept["nodes"]
    assert (record["node"], record["convicted"], record["jobs"]) == (node, 2, 2)


def test_two_looks_at_once_by_two_people_are_both_kept(lab: Lab, job: str) -> None:
    lab.sh("login", "mkdir /tmp/both && chgrp alice /tmp/both && chmod 2770 /tmp/both")
    db = "/tmp/both/history.db"
    both = [begin(lab, job, db, user) for user in (None, "alice")]
    assert [finish(process)[1] for process in both] == [[], []]
    looks = ledger(lab, db, "alice")["looks"]
    assert {x["job"] for x in looks} == {job}
    assert len(looks) in (1, 2)  # looks that end in the same second are one
    assert lab.sh("login", f"stat -c %a {db}").strip() == "660"


DISKS = """
cd /tmp && mkdir full ro brim && mkdir -m 755 theirs
mount -n -t tmpfs -o size=128k,mode=777 x full
mount -n -t tmpfs -o ro x ro
! head -c 1M /dev/zero >full/fill 2>/dev/null
mount -n -t tmpfs -o size=256k,mode=777 x brim
"""
REFUSES = {
    "/tmp/full/history.db": "the disk ",
    "/tmp/ro/sluggish/history.db": "Read-only file system",
    "/tmp/theirs/history.db": "Permission denied",
    "/tmp/brim/history.db": "the disk ",
}


def test_a_disk_that_takes_nothing_is_one_line_after_the_verdict(lab: Lab, job: str) -> None:
    """And a ledger that was filled to the brim is still read."""
    brim = "/tmp/brim/history.db"
    lab.sh("login", DISKS)
    try:
        assert look(lab, job, brim)[1] == []
        lab.sh("login", "! head -c 1M /dev/zero >/tmp/brim/fill 2>/dev/null")
        for db, process in {db: begin(lab, job, db) for db in REFUSES}.items():
            said = finish(process)[1]
            assert [line[: line.rindex(": ") + 2] for line in said] == [
                f"history: {db}: not recorded: "
            ]
            assert REFUSES[db] in said[0]
        assert len(ledger(lab, brim, "alice")["looks"]) == 1
        # and so is one in a folder where the reader may not write
        lab.sh("login", "cp /tmp/brim/history.db /tmp/theirs && chmod 644 /tmp/theirs/history.db")
        assert len(ledger(lab, "/tmp/theirs/history.db", "alice")["looks"]) == 1
    finally:
        lab.sh("login", "cd /tmp; umount -n full ro brim; rm -rf full ro brim theirs")


def test_shared_storage_is_said_and_dead_storage_does_not_hold_the_verdict(
    lab: Lab, job: str
) -> None:
    """A real FUSE: no shared memory there, so no WAL. Then its storage hangs."""
    storage.mount(lab)
    lab.sh("ctl", "mkdir -m 777 /mnt/fuse-ctl/ledger")
    fuse, disk = "/mnt/fuse-ctl/ledger/history.db", "/mnt/shared/alice/history.db"
    try:
        said = look(lab, job, fuse)[1]
        assert "fuse" in said[0]
        assert "rollback journal" in said[0]
        assert ledger(lab, fuse, "alice")["notes"]
        storage.hang(lab)
        began = time.monotonic()
        dead = {db: begin(lab, job, db) for db in (fuse, disk)}
        for db, process in dead.items():
            document, said = finish(process)
            assert document["verdict"]["cause"]
            what = "not recorded: no answer in 4 s: its storage does not answer"
            assert said == [f"history: {db}: {what}"]
        took = time.monotonic() - began
    finally:
        storage.mend(lab)
        storage.unmount(lab)
    assert took < 40
