"""The job's logs on the way: read as from a saved bundle, and there when RAS is decided on."""

import os
from pathlib import Path

from sluggish.cli.live import _why_not_ask
from sluggish.evidence.open import text_of
from sluggish.probes import job_log
from sluggish.reach.collect import Look
from sluggish.reach.frames import evidence_of
from sluggish.reach.logs import read_logs
from sluggish.reach.model import Frame

WARN = "gpu-07:1:2 [0] NCCL INFO NCCL version 2.28.9+cuda12.9\n"


def log_of(tmp_path: Path, text: str) -> Path:
    """A file that its owner alone may read, below folders that everybody may pass."""
    file = tmp_path / "job.out"
    file.write_text(text)
    return file


def test_a_long_log_is_read_around_its_known_words_and_not_line_by_line(tmp_path: Path) -> None:
    filler = "2026-11-24 03:00:01,123 - INFO - nothing to see here\n" * 100_000
    file = log_of(tmp_path, WARN + filler)
    (local,) = read_logs((str(file),), os.getuid())
    content = file.read_bytes()
    frame = Frame(probe="job_log", name="/tmp/job.out", content=content)
    far = evidence_of(frame, "gpu-07", path=str(file))
    for made in (local, far):
        assert made.error is None
        text = str(text_of(made, job_log))
        assert len(text) < len(content) / 2
        assert text.startswith(WARN)


def test_the_gate_of_ras_reads_the_logs_of_the_look(tmp_path: Path) -> None:
    look = Look(folder=tmp_path, nodes=("gpu-07",), job="7")
    assert _why_not_ask(look) == "the NCCL version is not known"
    look.logs = read_logs((str(log_of(tmp_path, WARN)),), os.getuid())
    assert "have crashed jobs on NCCL 2.28.9" in (_why_not_ask(look) or "")
