"""The benchmark's dumps: no two alike, and the odd rank is the answer."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sluggish.cli.ranks import run

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench" / "ranks.py"


@pytest.fixture
def bench(monkeypatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_ranks", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_ranks", module)  # dataclasses look there
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ENTRIES", 60)
    return module


def test_no_two_dumps_are_equal_and_the_odd_rank_is_named(bench, tmp_path, capsys):
    bench.write(tmp_path, 12, 8)
    contents = [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(set(contents)) == 12
    assert run([str(tmp_path)], as_json=True) == 12
    told = capsys.readouterr().out
    assert [c["rank"] for c in json.loads(told)["culprits"]] == [8]
    right = bench.Cost(cpu_s=0, wall_s=0, rss_mb=0, exit_code=12, out=told)
    assert bench.answers(right, 8)
    assert not bench.answers(right, 9)


def test_what_a_program_used_is_measured_with_its_children(bench):
    child = "import os; os.wait() if os.fork() else [i * i for i in range(3_000_000)]"
    cost = bench.measured(["python3", "-c", child])
    assert cost.exit_code == 0
    assert cost.cpu_s > 0.02
