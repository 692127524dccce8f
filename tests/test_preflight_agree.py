"""`agree_on_steps` with real PyTorch ranks (Gloo): the deadlock of unequal data, and without it."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sluggish.preflight import agree_on_steps

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

ROOT = Path(__file__).parents[1]
KINDS = ("ddp", "fsdp", "fully_shard")


def ranks(folder: Path, kind: str, steps: list[int], *, agreed: bool) -> list[tuple[int, str]]:
    """Exit code and log of every rank, all of them at an end."""
    started: list[tuple[subprocess.Popen[bytes], Path]] = []
    told = ",".join(map(str, steps))
    for rank in range(len(steps)):
        log = folder / f"{rank}.log"
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.getenv("PYTHONPATH")])]),
            "RANK": str(rank),
            "WORLD_SIZE": str(len(steps)),
            "STORE": str(folder / "store"),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
        }
        script = ROOT / "tests" / "realranks" / "steps.py"
        command = [sys.executable, script, kind, "yes" if agreed else "no", told]
        with log.open("wb") as out:
            process = subprocess.Popen(command, env=env, cwd=folder, stdout=out, stderr=out)
        started.append((process, log))
    try:
        return [(process.wait(120), log.read_text()) for process, log in started]
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_of_unequal_ranks_ends_for_nobody(kind: str, tmp_path: Path) -> None:
    ended = ranks(tmp_path, kind, [6, 6, 6, 4], agreed=False)
    assert [code == 0 or "done" in log.splitlines() for code, log in ended] == [False] * 4
    assert ["left after" in log for _, log in ended] == [False, False, False, True]
    assert "left after 4" in ended[3][1]
    if kind != "ddp":  # all-reduce against all-reduce: there Gloo compares sizes and aborts
        assert any("Timed out waiting" in log for _, log in ended)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_of_agreed_length_ends_for_all_at_once(kind: str, tmp_path: Path) -> None:
    ended = ranks(tmp_path, kind, [6, 6, 6, 4], agreed=True)
    assert [code for code, _ in ended] == [0] * 4, ended
    assert all(log.splitlines()[-2:] == ["left after 4", "done"] for _, log in ended)
    told = "every rank takes 4 (ranks 0-2 would have taken 2 more). 4: rank 3; 6: ranks 0-2"
    assert f"steps differ, {told}" in ended[0][1]
    assert not any("steps differ" in log for _, log in ended[1:])


def test_ranks_of_a_group_agree_among_themselves(tmp_path: Path) -> None:
    ended = ranks(tmp_path, "ask", [3861, 3854, 3858, 3860], agreed=True)
    told = [
        [line for line in log.splitlines() if re.match("agreed|refused", line)] for _, log in ended
    ]
    assert [lines[0] for lines in told] == ["agreed on 3854"] * 4
    outside = "refused: this rank is not in the group: it has nothing to agree on"
    assert [lines[1] for lines in told] == [outside, outside, *["agreed on 3858"] * 2]
    assert "3,858: rank 2; 3,860: rank 3" in ended[2][1]  # ranks of the world


def test_all_hear_of_one_rank_without_a_count(tmp_path: Path) -> None:
    ended = ranks(tmp_path, "ask", [6, -1, 6, 6], agreed=True)
    words = "refused: no whole number of steps from 0 on, on rank [1]"
    assert [log.splitlines()[0] for _, log in ended] == [words, f"{words}; here -1", words, words]
    assert all(code == 0 and "done" in log for code, log in ended)


def test_equal_counts_are_no_warning(tmp_path: Path) -> None:
    ended = ranks(tmp_path, "ask", [6, 6], agreed=True)
    assert "all 2 ranks have 6 steps" in ended[0][1]
    assert "differ" not in ended[0][1]


def test_one_process_keeps_its_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    assert agree_on_steps(7) == 7
    with pytest.raises(ValueError, match="expected a whole number of steps"):
        agree_on_steps(1.5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_NTASKS"])
def test_one_of_many_does_not_decide_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "16")
    with pytest.raises(RuntimeError, match=f"{name}=16 and no process group"):
        agree_on_steps(7)
