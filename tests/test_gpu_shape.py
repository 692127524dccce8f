"""Shape: what utilisation and power say of one GPU and of the job, relative to its own limit."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.catalog.gpu_models import model, models
from sluggish.correlate.shape import derive_shapes, gpu_shapes, job_shape
from sluggish.facts.derived import Look, Place
from sluggish.facts.gpu import Gpu, GpuProcess, GpuSample, GpuShape, JobShape
from sluggish.facts.store import Facts
from sluggish.findings import Role, Strength, ask
from sluggish.rules.shape import hang_parked, hang_spin, hang_split

START = datetime(2026, 11, 24, 3, 22, tzinfo=UTC)


def series(
    index: int,
    util: float | None,
    power: float | None,
    *,
    node: str = "a",
    n: int = 10,
    **more: Any,
) -> list[GpuSample]:
    jitter = more.pop("jitter", 0.5)
    base: dict[str, Any] = {
        "power_limit_w": 1100.0, "sm_clock_mhz": 1920, "max_sm_clock_mhz": 1920,
        "memory_utilisation_pct": 0.0, "memory_used_mib": 200_000, **more,
    }  # fmt: skip
    return [
        GpuSample(
            node=node, at=START + timedelta(seconds=s), index=index, pci=f"0000:{index:02x}:00.0",
            utilisation_pct=util, power_w=None if power is None else power + jitter * (s % 2),
            **base,
        )
        for s in range(n)
    ]  # fmt: skip


def state(samples: list[GpuSample], gpu: Gpu | None = None) -> str:
    (shape,) = gpu_shapes(samples, [gpu] if gpu else [])
    return shape.state


@pytest.mark.parametrize(
    ("watts", "limit"), [(190.0, 1100.0), (152.0, 700.0), (93.0, 400.0), (70.0, 300.0)]
)
def test_full_load_at_low_flat_power_spins_on_every_board(watts: float, limit: float) -> None:
    assert state(series(0, 100, watts, power_limit_w=limit)) == "spin"


def test_real_work_moves() -> None:
    assert state(series(0, 99, 900.0, jitter=80, memory_utilisation_pct=40)) == "moving"


def test_power_just_above_the_share_is_not_spin() -> None:
    assert state(series(0, 100, 0.30 * 1100, jitter=0)) == "spin"
    assert state(series(0, 100, 0.31 * 1100, jitter=0)) == "moving"


def test_power_that_swings_is_not_spin() -> None:
    assert state(series(0, 100, 190.0, jitter=0.04 * 1100)) == "moving"


def test_memory_bound_code_at_a_quarter_of_the_limit_is_not_spin() -> None:
    assert state(series(0, 100, 90.0, power_limit_w=400.0, memory_utilisation_pct=60)) == "moving"


def test_a_low_clock_is_slow_and_not_spin() -> None:
    assert state(series(0, 100, 190.0, sm_clock_mhz=400)) == "moving"


def test_nothing_to_do_is_parked_and_with_memory_that_changes_is_not() -> None:
    assert state(series(0, 0, 141.0)) == "parked"
    moving = series(0, 0, 141.0, n=5) + series(0, 0, 141.0, n=5, memory_used_mib=230_000)
    assert state(moving) == "moving"


def test_no_utilisation_and_mig_are_unknown() -> None:
    assert state(series(0, None, 190.0)) == "unknown"
    mig = Gpu(node="a", pci="0000:00:00.0", mig=True)
    assert state(series(0, 100, 190.0), mig) == "unknown"


def test_without_power_full_load_is_unknown() -> None:
    assert state(series(0, 100, None)) == "unknown"
    assert state(series(0, 100, 190.0, power_limit_w=None)) == "unknown"


def test_the_catalogue_stands_in_for_a_limit_that_was_not_printed() -> None:
    gpu = Gpu(node="a", pci="0000:00:00.0", name="NVIDIA B300 SXM6 AC")
    (shape,) = gpu_shapes(series(0, 100, 190.0, power_limit_w=None), [gpu])
    assert (shape.state, shape.power_limit_w, shape.limit_source) == ("spin", 1100.0, "catalogue")


def test_full_load_without_a_process_is_a_stale_counter() -> None:
    bare = Gpu(node="a", pci="0000:00:00.0", processes_listed=True, memory_used_mib=4)
    assert state(series(0, 100, 90.0, memory_used_mib=4), bare) == "ghost"
    hidden = Gpu(node="a", pci="0000:00:00.0", processes_listed=True)
    assert state(series(0, 100, 190.0, memory_used_mib=200_000), hidden) == "spin"


def test_idle_without_a_process_is_empty() -> None:
    bare = Gpu(node="a", pci="0000:00:00.0", processes_listed=True)
    assert state(series(0, 0, 80.0, memory_used_mib=0), bare) == "empty"
    held = Gpu(node="a", pci="0000:00:00.0", processes_listed=True, processes=(GpuProcess(pid=1),))
    assert state(series(0, 0, 80.0, memory_used_mib=0), held) == "parked"


def test_one_look_of_nvidia_smi_stands_in_for_samples() -> None:
    gpu = Gpu(
        node="a", index=3, pci="0000:03:00.0", utilisation_pct=100, power_w=190, power_limit_w=1100
    )
    (shape,) = gpu_shapes([], [gpu])
    assert (shape.state, shape.samples, shape.seconds) == ("spin", 1, 0.0)


def test_masked_uuids_do_not_merge_two_boards() -> None:
    samples = [
        *series(0, 100, 190.0, uuid="GPU-00000000-0000-0000-0000-000000000000"),
        *series(1, 0, 140.0, uuid="GPU-00000000-0000-0000-0000-000000000000"),
    ]
    assert [s.state for s in gpu_shapes(samples, [])] == ["spin", "parked"]


def job(states: str, **look: Any) -> JobShape:
    """One letter a GPU: s spin, p parked, m moving, e empty, g ghost, u unknown; 8 a node."""
    words = {"s": "spin", "p": "parked", "m": "moving", "e": "empty", "g": "ghost", "u": "unknown"}
    shapes = [
        GpuShape(node=f"n{i // 8}", index=i % 8, state=words[c], samples=10, seconds=9.0)
        for i, c in enumerate(states)
    ]
    base: dict[str, Any] = {"at": START, "nodes": ("n0", "n1"), "world_size": 16,
                            "job_started_at": None, "loose": False}  # fmt: skip
    return job_shape(shapes, Look(**{**base, **look}))


@pytest.mark.parametrize(
    ("states", "shape"),
    [
        ("s" * 16, "spin"),
        ("sss" + "p" + "s" * 12, "split"),
        ("s" * 8 + "p" * 7 + "s", "split"),
        ("p" * 16, "parked"),
        ("m" * 16, "moving"),
        ("m" * 8 + "s" * 8, "mixed"),
        ("p" * 10 + "s" * 6, "mixed"),
        ("u" * 16, "unknown"),
        ("s" * 15 + "u", "spin"),
        ("s" * 15 + "e", "split"),
        ("s" * 15 + "g", "spin"),
        ("e" * 16, "unknown"),
    ],
)
def test_the_picture_of_the_job(states: str, shape: str) -> None:
    assert job(states).shape == shape


def test_the_odd_gpu_is_named_and_the_blind_node_too() -> None:
    split = job("sss" + "p" + "s" * 4)
    assert [(o.node, o.index) for o in split.odd] == [("n0", 3)]
    assert split.blind_nodes == ("n1",)


def test_an_empty_gpu_of_a_shared_node_is_nobody_s_loss() -> None:
    assert job("ssss" + "eeee", gpus_per_node=4).shape == "spin"


def _findings(samples: list[GpuSample], *places: Place) -> list[Any]:
    facts = Facts()
    for fact in (*samples, *places):
        facts.add(fact)
    for fact in list(derive_shapes(facts)):
        facts.add(fact)
    return [f for r in (hang_spin, hang_split, hang_parked) for f in ask(r, facts)]


def test_the_seed_picture_names_the_parked_rank_as_context_only() -> None:
    samples = [
        x for i in range(8) for x in series(i, 0 if i == 3 else 100, 141.0 if i == 3 else 190.0)
    ]
    place = Place(rank=3, node="a", gpu_index=3, gpu_pci="0000:03:00.0")
    (found,) = _findings(samples, place)
    assert (found.rule, found.role, found.strength) == ("HANG-SPLIT", Role.CONTEXT, Strength.WEAK)
    assert found.says == (
        "7 GPUs at 100 % and 190 W of 1100 W: waiting; at 0 %: a gpu 3 (rank 3), 9 s seen"
    )
    assert found.spots[0].rank == 3


def test_all_spinning_says_that_and_names_nobody() -> None:
    (found,) = _findings([x for i in range(8) for x in series(i, 100, 190.0)])
    assert (found.rule, found.role, found.spots) == ("HANG-SPIN", Role.CONTEXT, ())
    assert "all 8 GPUs at 100 %" in found.says


def test_a_minute_of_samples_is_more_than_a_glance() -> None:
    (found,) = _findings([x for i in range(8) for x in series(i, 100, 190.0, n=61)])
    assert found.strength is Strength.STRONG


def test_all_parked_and_all_moving_are_told_apart() -> None:
    (parked,) = _findings([x for i in range(8) for x in series(i, 0, 140.0)])
    assert (parked.rule, parked.role) == ("HANG-PARKED", Role.CONTEXT)
    (moving,) = _findings([x for i in range(8) for x in series(i, 99, 900.0, jitter=90)])
    assert (moving.role, moving.strength) == (Role.ALL_CLEAR, Strength.WEAK)
    assert "weak sign of progress" in moving.says


def test_a_ghost_is_housekeeping() -> None:
    facts = Facts()
    for sample in series(0, 100, 90.0, memory_used_mib=4):
        facts.add(sample)
    facts.add(Gpu(node="a", pci="0000:00:00.0", processes_listed=True))
    for fact in list(derive_shapes(facts)):
        facts.add(fact)
    assert [f.role for f in ask(hang_spin, facts)] == [Role.HOUSEKEEPING]


def test_no_gpu_evidence_is_no_shape() -> None:
    assert list(derive_shapes(Facts())) == []


@pytest.mark.parametrize(
    ("name", "limit"),
    [("NVIDIA H100 80GB HBM3", 700), ("NVIDIA H100 PCIe", 350), ("NVIDIA B300 SXM6 AC", 1100),
     ("NVIDIA GB300", 1400), ("NVIDIA A100-SXM4-80GB", 400), ("NVIDIA A100-PCIE-40GB", 250),
     ("NVIDIA H200", 700)],
)  # fmt: skip
def test_a_board_is_found_by_its_name(name: str, limit: float) -> None:
    found = model(name)
    assert found is not None
    assert found.limit_w == limit


def test_every_model_has_a_source_and_an_unknown_one_has_no_entry() -> None:
    assert all(entry.source for entry in models())
    assert model("NVIDIA GeForce RTX 2080") is None
    assert model(None) is None


def test_an_idle_gpu_whose_memory_use_is_not_printed_is_not_parked() -> None:
    idle = Gpu(node="a", index=0, utilisation_pct=0.0, power_w=4.0, processes_listed=True)
    assert state([], idle) == "unknown"
    busy = replace(idle, processes=(GpuProcess(pid=7, name="python3"),))
    assert state([], busy) == "parked"
