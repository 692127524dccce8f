"""The script that a node runs: what gets into its text, and a whole look at this machine."""

import re
import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.host import RankProcess
from sluggish.facts.origin import Origin
from sluggish.probes import PROBES, rank_procs
from sluggish.reach.frames import Frames, clock_of, evidence_of
from sluggish.reach.model import Ask, Frame
from sluggish.reach.script import PARTS, SUDO_COMMANDS, build

BOUNDARY = "0123456789abcdef" * 2
TEXT = "\n".join(files("sluggish.reach").joinpath(name).read_text("utf-8") for name in PARTS)


def look(ask: Ask, shell: str = "sh", env: dict[str, str] | None = None) -> list[Frame]:
    """What this machine answers."""
    boundary = secrets.token_hex(16)
    done = subprocess.run(
        [*shell.split(), "-s"], input=build(ask, boundary, PROBES), capture_output=True, timeout=60,
        check=True, env=env,
    )  # fmt: skip
    frames = Frames(boundary)
    found = list(frames.feed(done.stdout))
    assert frames.ended
    return found


@pytest.mark.parametrize(
    "ask",
    [
        Ask(job="1; touch x"), Ask(job="12\n"), Ask(job="$(id)"), Ask(uid=-1), Ask(job="１２"),
        Ask(logs=("relative",)), Ask(logs=("/two\nlines",)), Ask(dumps=("/nul\0",)),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_not_in_shape_does_not_come_near_a_shell(ask: Ask) -> None:
    with pytest.raises(ValueError, match="not fit for a script"):
        build(ask, BOUNDARY, PROBES)


def test_an_old_fabric_report_that_lies_on_a_node_is_not_evidence_of_now() -> None:
    assert b"ibdiagnet" not in build(Ask(), BOUNDARY, PROBES)


def test_a_probe_of_no_known_name_is_not_in_the_text() -> None:
    assert b"id;id" not in build(Ask(probes=("memory", "id;id")), BOUNDARY, PROBES)


@pytest.mark.parametrize("boundary", ["", "short", "0" * 31 + "'", "A" * 32])
def test_a_boundary_is_32_hex_digits(boundary: str) -> None:
    with pytest.raises(ValueError, match="not fit"):
        build(Ask(), boundary, PROBES)


@given(st.text(st.characters(exclude_characters="\0\n", codec="utf-8"), max_size=60))
def test_any_path_is_one_quoted_word(path: str) -> None:
    script = build(Ask(logs=(f"/{path}",)), BOUNDARY, PROBES)
    line = next(line for line in script.split(b"\n") if line.startswith(b"LOGS="))
    told = subprocess.run(
        ["sh", "-c", line.decode() + '\nprintf %s "$LOGS"'], capture_output=True, check=True
    )
    assert told.stdout.decode() == f"/{path}"
    assert told.stderr == b""


def test_sudo_runs_the_documented_lines_and_no_other() -> None:
    ran = re.findall(r"sudo -n ([^|\n]+?) *(?:\||$)", TEXT, re.MULTILINE)
    assert sorted(ran) == sorted(SUDO_COMMANDS)
    page = Path(__file__).parents[2].joinpath("docs/permissions.md").read_text()
    assert all(f"bin/{command}" in page for command in SUDO_COMMANDS)
    assert len(SUDO_COMMANDS) <= 6


def test_nothing_is_ever_killed_the_hard_way() -> None:
    assert set(re.findall(r"\bkill (\S+)", TEXT)) == {"-TERM"}


@pytest.mark.parametrize("shell", ["sh", "dash", "bash --posix", "busybox sh"])
def test_a_look_at_this_machine_is_evidence_that_its_probes_read(
    shell: str, tmp_path: Path
) -> None:
    if shutil.which(shell.split()[0]) is None:
        pytest.skip(f"no {shell} here")
    sent = datetime.now(UTC)
    frames = look(Ask(window_s=0.5, probe_s=6.0), shell)
    by_id = {probe.ID: probe for probe in PROBES}
    told = {frame.probe + frame.sample: frame for frame in frames}
    assert {"identity", "kernel_log", "memorya", "memoryb", "mounts", "gpu_bus"} <= set(told)
    clock = clock_of(told["identity"], "here", sent, datetime.now(UTC))
    assert clock.offset_s is not None
    assert abs(clock.offset_s) < 10
    for number, frame in enumerate(frames):
        file = tmp_path / str(number)
        file.write_bytes(frame.content)
        made = evidence_of(frame, "here", path=str(file))
        assert (made.open(), made.size) == (frame.content, len(frame.content))
        if made.error is None and frame.probe in ("identity", "memory", "mounts", "gpu_bus"):
            text = frame.content.decode("utf-8", "replace")
            origin = Origin(node="here", exit_code=frame.exit_code, stderr=frame.stderr)
            list(by_id[frame.probe].parse(text, origin))


def test_a_missing_tool_is_not_found_and_no_empty_answer() -> None:
    told = {f.probe: f.error for f in look(Ask(window_s=0.0, probes=("nvidia_smi",)))}
    if shutil.which("nvidia-smi") is None:
        assert told == {"nvidia_smi": "not found"}


def test_the_marks_of_a_frame_in_a_tool_s_output_forge_none(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\ntr '\\0' '\\n' </proc/$PPID/environ; set; echo \"$BOUNDARY|x|\"\n")
    tool.chmod(0o755)
    boundary = secrets.token_hex(16)
    script = build(Ask(window_s=0.0, probes=("nvidia_smi",)), boundary, PROBES)
    env = {"PATH": f"/usr/bin:/bin:{tmp_path}"}
    out = subprocess.run(["sh", "-s"], input=script, capture_output=True, check=True, env=env)
    (smi,) = Frames(boundary).feed(out.stdout)
    if shutil.which("nvidia-smi") is None:
        assert b"PATH=" in smi.content
    assert boundary.encode() not in smi.content


def test_a_process_is_kept_with_what_found_it() -> None:
    env = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "987654", "RANK": "5"}
    rank = subprocess.Popen(["sleep", "600"], env=env)
    try:
        frames = look(Ask(job="987654", window_s=0.0, probes=("rank_procs",)))
    finally:
        rank.terminate()
        rank.wait()
    (frame,) = frames
    found = list(rank_procs.parse(frame.content.decode(), Origin(node="here", exit_code=0)))
    assert [type(one) for one in found] == [RankProcess]
    assert [(one.pid, one.rank, one.found_by) for one in found] == [(rank.pid, 5, "environment")]
