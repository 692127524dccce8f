"""The job's logs on the way: read as from a saved bundle, and there when RAS is decided on."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sluggish.cli.live import _why_not_ask
from sluggish.evidence import logslices
from sluggish.evidence.open import text_of
from sluggish.evidence.save import redact
from sluggish.facts.log import LogSpan, PythonError
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.probes import job_log
from sluggish.reach import logs
from sluggish.reach.collect import Look
from sluggish.reach.frames import evidence_of
from sluggish.reach.logs import read_logs
from sluggish.reach.model import Frame
from sluggish.verdict import coverage

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


STEP = b"2026-11-24 03:00:01,123 - INFO - step %07d loss 2.5\n"
ERROR = b"""[rank3]: Traceback (most recent call last):
[rank3]:   File "/opt/train.py", line 5, in main
[rank3]: ValueError: odd shape
"""


def long_log(tmp_path: Path) -> Path:
    """10 MB, beyond what comes whole; the only exception lies neither in its head nor its tail."""
    lines = [STEP % n for n in range(200_000)]
    file = tmp_path / "long.out"
    file.write_bytes(b"".join([*lines[:40_000], ERROR, *lines[40_000:]]))
    return file


def span_of(text: str) -> LogSpan:
    return job_log._span(text, (), Origin())


def test_a_log_of_any_length_is_searched_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "TAIL", 1 << 20)
    file = long_log(tmp_path)
    (first,) = logs.read_logs((str(file),), os.getuid())
    (made,) = logs.read_logs((str(file),), os.getuid(), search=True)
    assert b"ValueError: odd" not in first.open()
    assert span_of(first.open().decode()).bytes_unsearched > 8e6
    kept = redact(made.open()).decode()
    assert len(kept) < 2_000_000
    text = str(text_of(made, job_log))
    assert text == kept  # what is cut once is not cut again
    (error,) = (f for f in job_log.parse(text, Origin()) if isinstance(f, PythonError))
    assert (error.type, error.rank) == ("ValueError", 3)
    span = span_of(text)
    assert (span.bytes_total, span.bytes_unsearched) == (file.stat().st_size, 0)


def test_every_slice_tells_its_offset(tmp_path: Path) -> None:
    file = long_log(tmp_path)
    whole = file.read_bytes()
    (made,) = logs.read_logs((str(file),), os.getuid(), search=True)
    text = made.open()
    marks = list(logs_marks(text))
    assert len(marks) >= 2
    for end, offset in marks:
        assert text[end : end + 200] == whole[offset : offset + 200]


def logs_marks(text: bytes) -> list[tuple[int, int]]:
    """Where the slice behind each mark begins here, and in the whole log."""
    found: list[tuple[int, int]] = []
    at = 0
    for line in text.splitlines(keepends=True):
        at += len(line)
        if line.startswith(b"[... "):
            found.append((at, int(line.split(b"next is byte ")[1].split()[0])))
    return found


@pytest.mark.parametrize(("seconds", "most", "least"), [(60.0, 0, 0), (0.0, 6e6, 4e6)])
def test_what_the_time_did_not_suffice_for_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, most: float, least: float
) -> None:
    monkeypatch.setattr(logslices, "LATE", 4 << 20)
    file = long_log(tmp_path)
    size = file.stat().st_size
    with file.open("rb") as opened:
        text = logslices.slices(opened.fileno(), size, job_log.NEEDLES, job_log.AHEAD, seconds)
    span = span_of(text)
    assert abs(span.bytes_total - size) <= 1  # a line cut in two gets an end
    assert least <= span.bytes_unsearched <= most
    assert ("ValueError: odd" in text) == (seconds > 0)
    assert text.endswith((STEP % 199_999).decode())


def test_a_search_that_fails_leaves_head_tail_and_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "SEARCH_LOST_S", 0.01)
    monkeypatch.setattr(logs, "TAIL", 1 << 20)
    file = long_log(tmp_path)
    (made,) = logs.read_logs((str(file),), os.getuid(), search=True)
    assert made.error is None
    span = span_of(str(text_of(made, job_log)))
    left_out = file.stat().st_size - logs.HEAD - logs.TAIL
    assert span.bytes_unsearched == left_out


def test_a_search_follows_no_link_and_reads_the_owners_files_alone(tmp_path: Path) -> None:
    file = long_log(tmp_path)
    link = tmp_path / "link.out"
    link.symlink_to(file)
    (linked,) = logs.read_logs((str(link),), os.getuid(), search=True)
    (foreign,) = logs.read_logs((str(file),), os.getuid() + 1, search=True)
    assert (linked.error, foreign.error) == ("denied", "denied")
    slices = logs.read_slices(
        str(file), uid=os.getuid(), head=10, tail=10, timeout_s=logs.TIMEOUT_S
    )
    file.rename(tmp_path / "away")
    file.symlink_to("/etc/shadow")  # changed between the two looks
    assert logs._searched(slices, os.getuid()) is None


def test_what_was_not_searched_is_not_called_searched() -> None:
    facts = Facts()
    span = LogSpan(node=None, path="a.out", bytes_total=90_000_000, bytes_read=34_000_000)
    facts.add(span)
    facts.add(replace(span, path="b.out", bytes_unsearched=50_000_000))
    one, other = coverage._read_in_part(facts)
    assert one.why.startswith("searched for known words; read")
    assert other.why == "50.0 MB not searched; read: 34.0 of 90.0 MB"
