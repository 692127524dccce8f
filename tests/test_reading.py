"""How the command line reads: a bar only on a terminal and only where it takes long."""

import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fr_scenes import fsdp

from sluggish.cli import reading
from sluggish.evidence.model import Evidence
from sluggish.facts.store import Parsed

ROOT = Path(__file__).parents[1]


def items(count: int) -> list[Evidence]:
    return [Evidence(node=None, probe="p", path=str(n), size=1) for n in range(count)]


def parsed(item: Evidence) -> Parsed:
    return Parsed(found=[item.path])


def test_results_pass_through_in_order_and_nothing_is_drawn_beside_a_terminal(capsys):
    found = list(reading.mapper()(parsed, items(20)))
    assert [p.found for p in found] == [[str(n)] for n in range(20)]
    assert capsys.readouterr() == ("", "")


def test_a_quick_run_draws_nothing_and_a_slow_one_takes_its_bar_away(monkeypatch):
    drawn: list[str] = []

    class Bar:
        task_ids = (0,)

        def update(self, task: int, completed: int) -> None:
            drawn.append(f"{completed}")

        def refresh(self) -> None:
            pass

        def stop(self) -> None:
            drawn.append("gone")

    monkeypatch.setattr(reading, "_bar", lambda total: Bar())
    results = [Parsed(found=[]) for _ in range(10)]
    assert len(list(reading._with_bar(results, 10, time.monotonic()))) == 10
    assert drawn == []
    list(reading._with_bar(results, 10, time.monotonic() - 10))
    assert drawn == ["0", "gone"]
    stopped = reading._with_bar(results, 10, time.monotonic() - 10)
    next(stopped)
    stopped.close()
    assert drawn[-1] == "gone"


@pytest.mark.skipif(sys.platform != "linux", reason="terminals")
def test_on_a_terminal_a_slow_run_shows_how_far_it_is(tmp_path):
    """The answer on stdout stays clean of it."""
    for rank, content in fsdp(8, 3, "operation").files().items():
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(content)
    ours, theirs = pty.openpty()
    script = (
        "import sluggish.cli.reading as r; r.QUICK_S = r.EVERY_S = 0.0\n"
        "from sluggish.cli.ranks import run\n"
        f"raise SystemExit(run([{str(tmp_path)!r}], as_json=True))"
    )
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    shown = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 12
    assert done.stdout.startswith(b"{\n")
    assert "reading" in shown
    assert "7/8" in shown
