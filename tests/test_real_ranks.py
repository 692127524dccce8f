"""Real PyTorch ranks (Gloo, loopback) really hang; their evidence names the right one.

Everything is taken while they hang: dumps and stacks by a thread of each rank, py-spy, logs, and
/proc. Gloo's dumps are poorer than NCCL's: no state but "scheduled", a failed operation looks
finished, no members of groups; a stopped, killed or aborted rank leaves none.
"""

import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from realranks import evidence
from realranks.job import Case, hang, launched, run_and_end, started

from sluggish.cli.diagnose import run as run_diagnose
from sluggish.cli.ranks import run as run_ranks

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]

ROOT = Path(__file__).parents[1]
PARTS = (("dumps",), ("logs",), ("stacks",), ("procs",), ("dumps", "logs"), ("logs", "procs"))


@dataclass(frozen=True)
class Told:
    """One answer of the command line."""

    code: int
    document: dict[str, Any]

    @property
    def verdict(self) -> tuple[str, str]:
        return self.document["verdict"]["cause"], self.document["verdict"]["subtype"]

    @property
    def culprits(self) -> list[dict[str, Any]]:
        return self.document.get("verdict", self.document)["culprits"]

    @property
    def ranks(self) -> list[int]:
        return sorted(culprit["rank"] for culprit in self.culprits)


def sluggish(command: str, *paths: Path) -> Told:
    done = subprocess.run(
        [sys.executable, "-m", "sluggish", command, *paths, "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    return Told(done.returncode, json.loads(done.stdout))


def quick(command: str, *paths: Path) -> Told:
    """The same without a process of its own."""
    run = {"diagnose": run_diagnose, "ranks": run_ranks}[command]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run([str(path) for path in paths], as_json=True)
    return Told(code, json.loads(out.getvalue()))


def hung(case: Case, folder: Path) -> Path:
    """Run a case into its hang; its evidence, and what holds of every hang is asserted."""
    with started(case, folder) as job:
        hang(job)
        pid = job.processes[case.culprit].pid
        living = [r for r, p in enumerate(job.processes) if p.poll() is None]
    if evidence.may_trace():
        spied = {p.stem for p in (job.evidence / "stacks").glob("pyspy_*")}
        assert spied == {f"pyspy_rank_{rank}" for rank in living}
    no_innocent_is_named(case, job.evidence)
    whole = sluggish("diagnose", job.evidence)
    assert [c["pid"] for c in whole.culprits] == [pid]
    assert sluggish("ranks", job.evidence).ranks == [case.culprit]
    return job.evidence


def no_innocent_is_named(case: Case, found: Path) -> None:
    """Whatever part of the evidence somebody has: the culprit, or nobody; and never all is well."""
    for parts in PARTS:
        for command in ("diagnose", "ranks") if "dumps" in parts else ("diagnose",):
            told = quick(command, *(found / part for part in parts))
            assert set(told.ranks) <= {case.culprit}, (command, parts)
            assert told.code != 0, (command, parts)
    assert "scontrol update" not in json.dumps(quick("diagnose", found).document)


def test_a_rank_in_another_collective_is_a_mismatch_with_its_source_line(tmp_path: Path):
    found = hung(Case(name="odd_collective", world=6, culprit=0), tmp_path)
    for paths in ([found / "dumps"], [found]):
        told = sluggish("diagnose", *paths)
        assert (told.verdict, told.ranks) == (("rank_desync", "collective_mismatch"), [0])
        assert told.culprits[0]["operation"] == "all_reduce [1]"
        assert told.culprits[0]["source_line"].endswith(" in out_of_data")
    answer = sluggish("ranks", found / "dumps")
    assert (answer.code, answer.document["state"]) == (12, "mismatch")


def test_a_rank_whose_loader_waits_never_arrives(tmp_path: Path):
    found = hung(Case(name="never_arrives", world=4, culprit=2), tmp_path)
    by_dumps = sluggish("diagnose", found / "dumps")
    assert (by_dumps.verdict, by_dumps.ranks) == (("rank_desync", "missing_rank"), [2])
    whole = sluggish("diagnose", found)
    assert (whole.verdict, whole.ranks) == (("data_stall", "loader_wait"), [2])
    assert whole.culprits[0]["source_line"].endswith(" in flat")


def test_a_cascade_over_sub_groups_of_a_mesh_has_one_root(tmp_path: Path):
    found = hung(Case(name="cascade", world=16, culprit=6), tmp_path)
    for paths in ([found / "dumps"], [found]):
        told = sluggish("diagnose", *paths)
        assert (told.verdict, told.ranks) == (("rank_desync", "missing_rank"), [6])
        assert set(told.document["verdict"]["victims"]) == set(range(16)) - {6}
    assert whole_line(found).endswith(" in load_batch")
    assert {g["desc"] for g in sluggish("ranks", found).document["groups"]} >= {
        "mesh_tp",
        "mesh_dp",
    }


def whole_line(found: Path) -> str:
    return sluggish("diagnose", found).culprits[0]["source_line"]


def test_the_rank_that_inverts_the_order_of_two_groups_is_named(tmp_path: Path):
    found = hung(Case(name="inversion", world=8, culprit=5), tmp_path)
    told = sluggish("diagnose", found / "dumps")
    assert (told.verdict, told.ranks) == (("rank_desync", "order_inversion"), [5])
    assert sluggish("ranks", found / "dumps").document["state"] == "cycle"
    assert whole_line(found).endswith(" in clip_norm")


def test_an_exception_in_one_rank_is_the_crash_for_which_the_others_wait(tmp_path: Path):
    found = hung(Case(name="exception", world=5, culprit=1), tmp_path)
    by_dumps = sluggish("diagnose", found / "dumps")
    assert (by_dumps.verdict, by_dumps.ranks) == (("rank_desync", "missing_rank"), [1])
    for paths in ([found / "logs"], [found]):
        told = sluggish("diagnose", *paths)
        assert (told.verdict, told.ranks) == (("app_crash", "exception"), [1])
        assert told.culprits[0]["source_line"].endswith(" in train_step")


def test_a_stopped_rank_is_unobserved_until_its_process_is_seen(tmp_path: Path):
    case = Case(name="sigstop", world=4, culprit=3, signal=signal.SIGSTOP, silent=(3,))
    found = hung(case, tmp_path)
    by_dumps = sluggish("diagnose", found / "dumps")
    assert (by_dumps.verdict, by_dumps.ranks) == (("unknown", "unobserved"), [])
    assert sluggish("ranks", found / "dumps").document["unobserved"] == [3]
    told = sluggish("diagnose", found)
    assert (told.verdict, told.ranks) == (("rank_desync", "missing_rank"), [3])
    assert told.culprits[0]["doing"] == "stopped by a signal (state T)"


def test_a_killed_rank_is_unobserved_until_its_process_is_missed(tmp_path: Path):
    case = Case(name="sigkill", world=8, culprit=3, signal=signal.SIGKILL, silent=(3,))
    found = hung(case, tmp_path)
    for parts in (["dumps"], ["dumps", "logs"]):
        told = sluggish("diagnose", *(found / part for part in parts))
        assert (told.verdict, told.ranks) == (("unknown", "unobserved"), [])
        assert sluggish("ranks", *(found / p for p in parts)).document["unobserved"] == [3]
    told = sluggish("diagnose", found)
    assert (told.verdict, told.ranks) == (("app_crash", "exit"), [3])


def test_a_smaller_tensor_makes_gloo_abort_its_own_rank(tmp_path: Path):
    found = hung(Case(name="size_small", world=6, culprit=2, silent=(2,)), tmp_path)
    by_dumps = sluggish("diagnose", found / "dumps")
    assert (by_dumps.verdict, by_dumps.ranks) == (("unknown", "unobserved"), [])
    told = sluggish("diagnose", found)
    assert (told.verdict, told.ranks) == (("rank_desync", "size_mismatch"), [2])


def test_a_larger_tensor_makes_gloo_abort_its_innocent_neighbour(tmp_path: Path):
    case = Case(name="size_large", world=6, culprit=2, silent=(3,))
    with started(case, tmp_path) as job:
        hang(job)
    for parts in (["dumps"], ["dumps", "logs"], ["dumps", "procs"], ["."]):
        told = sluggish("diagnose", *(job.evidence / part for part in parts))
        assert (told.verdict, told.ranks) == (("rank_desync", "size_mismatch"), [2]), parts
    for parts in (["logs"], ["stacks"], ["logs", "procs"]):
        assert sluggish("diagnose", *(job.evidence / part for part in parts)).ranks == [], parts


def test_a_healthy_job_is_never_blamed_in_mid_run_or_at_its_end(tmp_path: Path):
    with started(Case(name="healthy", world=4, culprit=-1), tmp_path) as job:
        in_mid_run = run_and_end(job, tmp_path / "running")
        assert [process.returncode for process in job.processes] == [0] * 4
    for dumps in (in_mid_run, tmp_path / "finished" / "dumps"):
        assert len(list(dumps.iterdir())) == 4
        answer = sluggish("ranks", dumps)
        assert (answer.code, answer.document["state"]) == (0, "none")
        for paths in ([dumps], [dumps, job.evidence / "logs"]):
            told = sluggish("diagnose", *paths)
            assert told.ranks == []
            assert told.verdict[0] in ("progressing", "unknown", "not_running")


def test_under_torchrun_the_rank_that_raised_is_named_from_the_log(tmp_path: Path):
    code, log = launched(Case(name="raised", world=4, culprit=2), tmp_path)
    assert code == 1
    told = sluggish("diagnose", log)
    assert (told.verdict, told.ranks) == (("app_crash", "exception"), [2])


def test_under_torchrun_the_rank_that_was_killed_is_named_and_why_stays_open(tmp_path: Path):
    code, log = launched(Case(name="killed", world=4, culprit=2), tmp_path)
    assert code == 1
    told = sluggish("diagnose", log)
    assert (told.verdict[0] in ("app_crash", "memory"), told.ranks) == (True, [2])
    assert told.document["verdict"]["confidence"]["level"] != "high"
