"""Many files over several processes: the same answer, one gap for one bad file."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from evalgen.flight_recorder import pickled
from fr_scenes import fsdp, tp_dp

from sluggish.evidence import workers
from sluggish.evidence.model import Evidence
from sluggish.evidence.open import load, text_of
from sluggish.evidence.workers import Lost, forked, spread
from sluggish.facts.collective import Group, GroupHead
from sluggish.facts.store import read
from sluggish.probes import PROBES

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")


@dataclass(frozen=True)
class Table:
    rows: tuple[int, ...]


def test_results_come_in_the_order_of_the_items():
    def slow_first(item: int) -> int:
        time.sleep(0.002 * (item % 7 == 0))
        return item * item

    found = list(forked(slow_first, range(300), workers=3))
    assert found == [n * n for n in range(300)]


def test_a_worker_that_dies_costs_one_item():
    def work(item: int) -> int:
        if item in (17, 18, 40):
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    found = list(forked(work, range(50), workers=2))
    lost = [n for n, result in enumerate(found) if isinstance(result, Lost)]
    assert lost == [17, 18, 40]
    assert found[17].why == "the process that read it died (SIGKILL)"
    assert [r for r in found if not isinstance(r, Lost)] == [n for n in range(50) if n not in lost]


def test_an_error_of_ours_is_raised_and_no_worker_stays():
    before = children()

    def work(item: int) -> int:
        return 1 // (item - 5)

    with pytest.raises(ZeroDivisionError):
        list(forked(work, range(20), workers=2))
    assert children() == before


def test_a_shared_object_is_sent_once_a_worker_and_stays_one_object():
    tables = (Table(tuple(range(1000))), Table((1,)))
    found = list(forked(lambda n: (n, tables[n % 2]), range(40), workers=1, shared=(Table,)))
    assert {id(table) for _, table in found} == {id(found[0][1]), id(found[1][1])}
    assert found[4] == (4, tables[0])


def test_stopping_half_way_ends_the_workers():
    before = children()
    results = forked(lambda n: n, range(10_000), workers=2)
    assert next(results) == 0
    results.close()
    assert children() == before


def children() -> str:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()


def write(folder: Path, files: dict[int, bytes]) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, content in files.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    return str(folder)


def test_facts_are_the_same_with_one_process_and_with_three(tmp_path):
    files = tp_dp(4, 4, 6).files()
    files[3] = b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueq\x00tR." + b"pg_config pg_status"
    files[9] = files[9][:-40]
    bundle = load([write(tmp_path, files)], PROBES)

    def three(work, items):
        return forked(work, items, workers=3, shared=(Group,))

    one, many = read(bundle, PROBES, text_of), read(bundle, PROBES, text_of, three)
    assert many.facts == one.facts
    assert many.gaps == one.gaps
    assert many.seen == one.seen
    assert {gap.why for gap in one.gaps if gap.path.endswith("rank_3")} == {
        "not understood: refused: the dump wants to run os.system"
    }
    assert len({gap.path for gap in one.gaps}) == 2


def test_a_reader_that_is_killed_is_one_gap(tmp_path):
    bundle = load([write(tmp_path, fsdp(8, 3, "operation").files())], PROBES)

    def fatal(item: Evidence, probe):
        if item.rank == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return text_of(item, probe)

    facts = read(bundle, PROBES, fatal, lambda work, items: forked(work, items, workers=2))
    assert {head.rank for head in facts.all(GroupHead)} == {0, 1, 2, 3, 4, 6, 7}
    assert {gap.why for gap in facts.gaps} == {
        "not readable: the process that read it died (SIGKILL)"
    }


def test_few_or_small_files_are_read_in_this_process(monkeypatch):
    monkeypatch.setattr(workers, "forked", None)  # would fail if it were called
    few = [Evidence(node=None, probe="p", path=str(n), size=1 << 30) for n in range(64)]
    small = [Evidence(node=None, probe="p", path=str(n), size=1000) for n in range(5_000)]
    for items in (few, small):
        assert len(list(spread(lambda item: item.path, items))) == len(items)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core: nothing is forked")
def test_ctrl_c_ends_it_without_a_traceback_and_leaves_no_process(tmp_path):
    content = pickled(fsdp(4).dumps()[0])
    padding = b"." * 700_000  # after STOP: read, never looked at
    write(tmp_path, dict.fromkeys(range(1000), content + padding))
    for _ in range(10):  # a run that ended before the signal reached it shows nothing
        code, err, workers_seen = interrupted([sys.executable, "-m", "sluggish", "ranks", tmp_path])
        if code == 130:
            break
    assert code == 130
    assert err in ("", "sluggish: stopped\n")
    assert workers_seen
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers_seen)


def interrupted(command: list[str | Path]) -> tuple[int, str, list[str]]:
    """Exit code and stderr of a run that got SIGINT once it had workers, and who they were."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # a test run in the background of a shell inherits "ignore SIGINT"
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers_seen: list[str] = []
    while process.poll() is None and not workers_seen:
        workers_seen = told.read_text().split()
        time.sleep(0.01)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    return process.returncode, err, workers_seen
