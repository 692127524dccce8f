"""Stories on disk, each made once a test session: as a bundle, an archive, and as mailed files."""

import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from evalgen.bundle import files
from evalgen.stories import STORIES

from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.probes import PROBES
from sluggish.verdict.model import Culprit, Diagnosis

NEVER_ASKED = frozenset({"fabric_manager", "ibdiagnet", "ibdiags", "imex", "slingshot"})
"""Probes of files that others make, or that only other machines have (a rack-wide NVLink domain,
Slingshot): no packaged story holds them."""
MAILED = {
    "kernel_log": "dmesg.txt",
    "nvidia_smi": "nvidia-smi-q.xml",
    "gpu_samples": "smi.csv",
    "gpu_bus": "pci.txt",
    "imex": "imex.txt",
    "slingshot": "cxi.txt",
    "ibstat": "ibstat.out",
    "ibstatus": "ibstatus.out",
    "ibv_devinfo": "ibv.log",
    "ib_ports": "sys-ib.txt",
    "ib_counters": "counters.txt",
    "rank_procs": "procs.txt",
    "memory": "mem.txt",
    "mounts": "mounts.txt",
    "sockets": "ss.txt",
    "identity": "host.txt",
    "slurm_job": "scontrol_job.txt",
    "slurm_node": "nodes.txt",
    "sacct": "sacct.txt",
    "squeue": "queue.txt",
    "job_log": "slurm.out",
    "nccl_ras": "ras.txt",
    "topology": "switches.txt",
    "ibdiags": "fabric.txt",
}
"""Names that people give: none of them is a probe's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story as it lies on disk, with what is expected of it."""

    name: str
    root: Path
    expected: dict[str, Any]

    def path(self, form: str) -> Path:
        return self.root / {"directory": "bundle", "archive": "bundle.tar.gz"}.get(form, form)


def story(name: str, factory: pytest.TempPathFactory) -> Story:
    """The story, made by whichever worker asks first; the others find it there."""
    shared = factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent
    root = shared / "stories" / name
    if not root.exists():
        made = factory.mktemp("story")
        _make(name, made)
        root.parent.mkdir(exist_ok=True)
        try:
            made.rename(root)
        except OSError:
            assert root.exists()  # another worker was faster, with the same content
    return Story(name=name, root=root, expected=json.loads((root / "expected.json").read_text()))


def _make(name: str, root: Path) -> None:
    world, expected = STORIES[name]()
    out = files(world)
    taken = expected.document(world)["taken_at"]
    for path, content in out.items():
        _put(root / "bundle" / path, content)
    with tarfile.open(root / "bundle.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.add(root / "bundle", arcname=f"look-{world.job_id}")
    rows = json.loads(out["manifest.json"])["evidence"]
    for row in rows:
        if row["path"] is None:
            continue
        # > file 2>&1
        text = out.get(row["path"].removesuffix(".txt") + ".err", b"") + out[row["path"]]
        if not text:  # nobody mails an empty file
            continue
        began = datetime.fromisoformat(row["started_at"]).timestamp()
        _put(root / "flat" / mailed(row, flat=True), text, mtime=began)
        # saved from a mail the day after: the times of the files say nothing
        _put(root / "folders" / mailed(row, flat=False), text, mtime=taken + 86400)
    (root / "expected.json").write_text(json.dumps(expected.document(world)))


def mailed(row: dict[str, Any], *, flat: bool) -> str:
    """The name under which somebody mails this piece of evidence."""
    probe, rank = row["probe"], row["rank"]
    if probe == "flight_recorder":
        return f"nccl_trace_rank_{rank}" if flat else f"fr/dump_{rank}"
    if probe == "stacks":
        return f"pyspy-rank{rank}.txt" if flat else f"pyspy/rank_{rank}.txt"
    name = MAILED[probe]
    if row["sample"]:
        stem, _, end = name.rpartition(".")
        name = f"{stem}.{'12'[row['sample'] == 'b']}.{end}"
    if row["node"] is None:
        return name
    return f"{row['node']}_{name}" if flat else f"{row['node']}/{name}"


def _put(path: Path, content: bytes, *, mtime: float | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if mtime is not None:
        os.utime(path, (mtime, mtime))


def look(path: Path) -> Diagnosis:
    """The whole way from evidence to verdict, in this process."""
    return diagnose(load([str(path)], PROBES))


PLACE = ("rank", "node", "gpu_index", "hca")


def place(culprit: Culprit) -> dict[str, Any]:
    return {name: getattr(culprit, name) for name in PLACE}


def blame(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    return [place(culprit) for culprit in diagnosis.verdict.culprits]


def misses(told: Iterable[dict[str, Any]], expected: Iterable[dict[str, Any]]) -> list[str]:
    """Why the culprits are not the expected ones; empty where they are.

    An expected field must be told. A field of `hidden` is true of the world but not to be seen in
    this evidence: it may be told, and then must be right. Anything else must not be told.
    """
    left, out = list(told), []
    for want in expected:
        mine = next((one for one in left if _fits(one, want)), None)
        if mine is None:
            out.append(f"nobody is {want}")
        else:
            left.remove(mine)
    return out + [f"{one} is innocent" for one in left]


def _fits(told: dict[str, Any], want: dict[str, Any]) -> bool:
    hidden = want.get("hidden", {})
    for name in PLACE:
        if want[name] is not None and told[name] != want[name]:
            return False
        if want[name] is None and told[name] not in (None, hidden.get(name)):
            return False
    return True
