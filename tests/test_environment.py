"""What of a process's environment may be kept on disk."""

from pathlib import Path

from sluggish.evidence.environment import allowed
from sluggish.evidence.model import Bundle, Evidence
from sluggish.evidence.open import load
from sluggish.evidence.save import save
from sluggish.probes import PROBES

TEXT = b"""==> /proc/7/cmdline <==
python PATH=/x
==> /proc/7/environ <==
RANK=3
HOME=/home/alice
NCCL_DEBUG=INFO
SLURM_JWT=eyJh
MYRANK=1
 RANK=4
==> /proc/7/wchan <==
HOME=0
"""
KEPT = TEXT.replace(b"HOME=/home/alice\n", b"").replace(b"SLURM_JWT=eyJh\nMYRANK=1\n RANK=4\n", b"")


def test_only_listed_variables_of_environments_are_kept() -> None:
    assert allowed(TEXT) == KEPT
    assert allowed(KEPT) == KEPT
    assert allowed(b"") == b""


def test_a_saved_bundle_holds_no_other_variable(tmp_path: Path) -> None:
    item = Evidence(node="n1", probe="rank_procs", path="", size=len(TEXT), open=lambda: TEXT)
    save(Bundle(nodes=("n1",), evidence=(item,)), tmp_path / "b.tar.gz")
    (back,) = load([str(tmp_path / "b.tar.gz")], PROBES).evidence
    assert back.open() == KEPT
