"""Preliminary lines of nvidia-smi: the failure at once, and its GPUs are not read for it."""

from pathlib import Path

import pytest

from sluggish.cli.notes import Notes
from sluggish.evidence.model import Evidence
from sluggish.probes import nvidia_smi
from sluggish.reach.model import Progress

HERE = Path(__file__).parent


def told(text: str, capsys: pytest.CaptureFixture[str], *, stderr: str = "") -> str:
    body = text.encode()
    made = Evidence(
        node="gpu-07", probe="nvidia_smi", path="x", size=len(body), open=lambda: body,
        stderr=stderr, exit_code=15 if stderr else 0,
    )  # fmt: skip
    Notes().of_node(Progress(node="gpu-07", kind="frame"), made, None)
    return capsys.readouterr().err


def test_the_loss_of_a_gpu_is_said_without_reading_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = (HERE / "probes/nvidia_smi/normal.txt").read_text()
    lost = "Unable to determine the device handle for GPU3: 0000:5F:00.0: Unknown Error\n"
    monkeypatch.setattr(nvidia_smi, "_read", None)
    assert f"gpu-07: nvidia-smi: {lost.strip()}" in told(answer, capsys, stderr=lost)
    assert told(answer, capsys) == ""


def test_the_quick_reading_finds_the_same_failures_as_the_whole_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (HERE / "probes/nvidia_smi/lost.txt").read_text()
    assert "nvidia-smi: Unable to determine" in told(text, capsys)
