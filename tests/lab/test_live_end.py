"""How a live look ends: saved, stopped by Ctrl-C, two of them read together. One hung job."""

import contextlib
import json
import re
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import cluster, live
from .cluster import Lab
from .live import Job

pytestmark = pytest.mark.usefixtures("torch_in_lab")

ODD = "rank_desync/collective_mismatch"


@pytest.fixture(scope="module")
def job(lab: Lab) -> Iterator[Job]:
    """Four ranks, of which rank 2 waits in another collective."""
    with live.running(lab, "odd", 2, ("node01", "node02")) as found:
        found.fault()
        live.wait_quiet(found)
        live.gpus_wait(found, found.culprit)
        yield found


def saved(notes: str) -> str:
    """Where a look says that its bundle lies, on the node that looked."""
    return re.findall(r"evidence saved: (\S+)", notes)[-1]


def elsewhere(*bundles: Path) -> tuple[int, dict[str, Any]]:
    """What the machine says of bundles, where there is neither this Slurm nor these nodes."""
    argv = [sys.executable, "-m", "sluggish", "diagnose", *map(str, bundles), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd="/", check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def but_for_bundle(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "bundle"}


def test_what_was_collected_is_diagnosed_elsewhere_as_it_was_here(job: Job, lab: Lab) -> None:
    """The live look and the file that it saved say the same, and so does what collect saved."""
    out = "/home/alice/collected.tar.gz"
    began = time.monotonic()
    look = ["--job", job.id, "--transport", "ssh", "--window", "3"]
    taking = live.sluggish(lab, ["collect", *look, "-o", out], "alice")
    here = live.told(live.sluggish(lab, ["diagnose", *look, "--json"], "alice"), began)
    said, notes = taking.communicate(timeout=60)
    assert (taking.returncode, said.decode()) == (0, f"{out}\n"), notes.decode()

    code, told = elsewhere(lab.path("login", saved(here.notes)))
    assert (code, but_for_bundle(told)) == (here.code, but_for_bundle(here.document))
    code, told = elsewhere(lab.path("login", out))
    verdict = told["verdict"]
    assert code == here.code
    assert f"{verdict['cause']}/{verdict['subtype']}" == ODD == here.verdict
    assert verdict["culprits"] == here.document["verdict"]["culprits"]
    on_login = lab.exec("login", ["sluggish", "diagnose", out, "--json"], "alice")
    assert but_for_bundle(json.loads(on_login.stdout)) == but_for_bundle(told)


def test_ctrl_c_in_the_middle_keeps_what_has_come(job: Job, lab: Lab) -> None:
    """The window of a minute is cut short: bundle, verdict of what is there, exit 130."""
    argv = ["diagnose", "--job", job.id, "--transport", "ssh", "--window", "60"]
    process = live.sluggish(lab, argv, None)
    try:
        # the dumps of all four ranks are home, the second samples are not
        cluster.wait_for(lambda: came_home(lab, job, b"pg_config") == 4, 30, "no dumps come")
        began = time.monotonic()
        # nobody but this one on the whole node: the programs before it have become it
        lab.exec("login", ["pkill", "-INT", "-f", f"sluggish diagnose --job {job.id}"], check=True)
        out, err = process.communicate(timeout=30)
    finally:
        cluster.end(process)
    took = time.monotonic() - began
    notes, screen = err.decode(), " ".join(out.decode().split())
    assert process.returncode == 130, notes
    assert took < 10
    assert "stopped: the verdict rests on what has come home so far" in notes
    assert "Traceback" not in notes
    bundle = lab.path("login", saved(notes))
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (bundle, bundle.parent)]
    assert modes == [0o600, 0o700]
    assert "VERDICT RANK DESYNC" in screen
    assert "node[01-02] second samples (not run: stopped before its whole" in screen, screen[-900:]
    code, told = elsewhere(bundle)
    verdict = told["verdict"]
    assert (code, f"{verdict['cause']}/{verdict['subtype']}") == (12, ODD)
    for node in job.nodes:
        cluster.wait_for(lambda node=node: not sampling(lab, node), 10, f"{node}: still at it")


def came_home(lab: Lab, job: Job, word: bytes) -> int:
    """Answers that hold this word, of the look that root is at."""
    place = lab.path("login", f"/root/.local/state/sluggish/{job.id}")
    found = 0
    for file in place.glob(".sluggish-*/*"):
        with contextlib.suppress(FileNotFoundError):
            found += word in file.read_bytes()
    return found


def sampling(lab: Lab, node: str) -> bool:
    """Whether a look has reached its window on this node."""
    found = ["sh", "-c", "ls -d /tmp/sluggish.*/gpu_samples.out"]
    return lab.exec(node, found).returncode == 0


def test_two_views_of_one_job_make_one_verdict(job: Job, lab: Lab) -> None:
    """root did not reach node02, the owner may not read kernel logs."""
    argv = ["diagnose", "--job", job.id, "--transport", "ssh", "--window", "3", "--json"]
    lab.cut("node02")
    try:
        root = live.told(live.sluggish(lab, argv, None), time.monotonic())
    finally:
        lab.mend("node02")
    cluster.wait_for(lambda: "*" not in lab.state("node02"), 30, "node02 does not answer")
    owner = live.told(live.sluggish(lab, argv, "alice"), time.monotonic())
    places = [lab.path("login", saved(told.notes)) for told in (root, owner)]
    for order in (places, places[::-1]):
        code, told = elsewhere(*order)
        verdict = told["verdict"]
        assert (code, f"{verdict['cause']}/{verdict['subtype']}") == (12, ODD), verdict
        assert [(c["node"], c["rank"]) for c in verdict["culprits"]] == [("node02", 2)]
        denied = [gap["where"] for gap in verdict["not_checked"] if "denied: dmesg" in gap["why"]]
        assert set(denied) == {"node02"}
        assert "unreachable" not in json.dumps(verdict["not_checked"])
    assert "unreachable" in root.gaps
    assert "denied: dmesg" in owner.gaps
