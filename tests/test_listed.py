"""Lists of nvidia-smi that were handed in: each tells one thing, and nothing else is claimed."""

from pathlib import Path
from typing import Any

import pytest

from sluggish.correlate.listed import with_processes
from sluggish.correlate.locate import places
from sluggish.correlate.shape import gpu_shapes
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.facts.gpu import Gpu, GpuApps, GpuProcess
from sluggish.facts.host import RankProcess
from sluggish.facts.store import Facts
from sluggish.probes import PROBES

CASES = Path(__file__).parent / "probes/nvidia_smi"
PYTHON = GpuProcess(pid=4711, name="python3", kind="C", memory_mib=71000)


def facts(*items: Any) -> Facts:
    store = Facts()
    for item in items:
        store.add(item)
    with_processes(store)
    return store


def test_a_process_of_a_list_ties_its_rank_to_the_gpu() -> None:
    rank = RankProcess(node="a", pid=4711, rank=3, sample="a")
    apps = GpuApps(node="a", uuid="GPU-1", processes=(PYTHON,))
    described = Gpu(node="a", index=1, pci="0000:02:00.0", uuid="GPU-1", power_limit_w=700.0)
    (place,) = places(facts(rank, apps, described))
    assert (place.gpu_index, place.gpu_pci) == (1, "0000:02:00.0")
    (place,) = places(facts(rank, apps))
    assert place.gpu_uuid == "GPU-1"


@pytest.mark.parametrize("key", [{"index": 1}, {"pci": "0000:02:00.0"}, {"uuid": "GPU-1"}])
def test_a_gpu_s_own_report_stays_and_only_lacks_what_the_list_adds(key: dict[str, Any]) -> None:
    apps = GpuApps(node="a", processes=(PYTHON,), **key)
    bare = Gpu(node="a", index=1, pci="0000:02:00.0", uuid="GPU-1", power_limit_w=700.0)
    (gpu,) = facts(bare, apps).all(Gpu)
    assert (gpu.power_limit_w, gpu.processes, gpu.processes_listed) == (700.0, (PYTHON,), True)
    full = Gpu(node="a", index=1, pci="0000:02:00.0", uuid="GPU-1", processes_listed=True)
    (gpu,) = facts(full, apps).all(Gpu)
    assert gpu.processes == ()  # its own report is of one moment with the rest


def test_a_number_alone_is_no_gpu_where_others_describe_the_node() -> None:
    apps = GpuApps(node="a", index=9, processes=(PYTHON,))
    assert len(facts(apps, Gpu(node="a", index=1)).all(Gpu)) == 1
    assert len(facts(apps, Gpu(node="b", index=1)).all(Gpu)) == 2


def test_a_busy_gpu_without_a_process_is_a_ghost_by_the_list_too() -> None:
    busy = Gpu(
        node="a", index=0, utilisation_pct=100.0, power_w=90.0, power_limit_w=700.0,
        memory_used_mib=4, memory_utilisation_pct=0.0,
    )  # fmt: skip
    store = facts(busy, GpuApps(node="a", index=0))
    (shape,) = gpu_shapes([], store.all(Gpu))
    assert shape.state == "ghost"


@pytest.mark.parametrize(
    "name", ["list", "nvlink_status", "nvlink_errors", "pmon", "apps", "apps_none"]
)
def test_a_list_alone_rules_nothing_out_and_accuses_nobody(tmp_path: Path, name: str) -> None:
    (tmp_path / "gpu-07.txt").write_bytes((CASES / f"{name}.txt").read_bytes())
    told = diagnose(load([str(tmp_path)], PROBES))
    assert (told.verdict.cause, told.verdict.culprits) == ("unknown", ())
    assert told.verdict.ruled_out == ()
    assert any(hole.what == "nvidia-smi" or hole.where for hole in told.verdict.not_checked)


def test_a_node_that_lists_fewer_than_its_peers_is_told(tmp_path: Path) -> None:
    lines = (CASES / "list.txt").read_text().splitlines(keepends=True)
    for node, count in (("gpu-07", 4), ("gpu-08", 3), ("gpu-09", 4)):
        text = "".join(lines[:count]).replace("11111111", node[-2:] * 4)
        (tmp_path / f"{node}.txt").write_text(text)
    told = diagnose(load([str(tmp_path)], PROBES)).findings
    assert [(f.node, f.says) for f in told if f.rule == "GPU-MISSING"] == [
        ("gpu-08", "nvidia-smi lists 3 GPUs, 4 on the other nodes")
    ]


def test_a_lost_link_is_a_hint_of_low_confidence_that_drains_nothing(tmp_path: Path) -> None:
    one = "GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-11111111-2222-3333-4444-55555555555{i})\n"
    text = "".join(
        one.format(i=i)
        + "".join(
            f"\t Link {k}: {'<inactive>' if (i, k) == (5, 3) else '26.562 GB/s'}\n"
            for k in range(18)
        )
        for i in range(8)
    )
    (tmp_path / "gpu-07.txt").write_text(text)
    told = diagnose(load([str(tmp_path)], PROBES))
    assert (told.verdict.cause, told.verdict.subtype) == ("gpu_fault", "nvlink")
    assert told.verdict.confidence.level == "low"
    assert [(c.node, c.gpu_index) for c in told.verdict.culprits] == [("gpu-07", 5)]
    assert told.verdict.drain_nodes == ()
    assert not any(step.disruptive and "reset" in step.title for step in told.remedies)
