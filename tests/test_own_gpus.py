"""Which of a shared node's GPUs are the job's, and what it changes when one of them is lost."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from sluggish.correlate.owngpus import own_gpus, with_the_last
from sluggish.facts.derived import Look, OwnGpus, Place
from sluggish.facts.gpu import Gpu, GpuCount, SmiFailure
from sluggish.facts.host import RankProcess
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.job import NodeState
from sluggish.rules.gpu.missing import gpu_missing

T0 = datetime(2026, 11, 30, 9, tzinfo=UTC)
BUS = [f"0000:{n:02x}:00.0" for n in range(8)]
STEP = {"env": (("SLURM_STEP_GPUS", "0,1"),)}


def rank(number: int, **more: Any) -> RankProcess:
    return RankProcess(node="a", pid=70 + number, rank=number, **(STEP | more))


def place(number: int, gpu: int | None = None) -> Place:
    pci = None if gpu is None else BUS[gpu]
    return Place(rank=number, node="a", pid=70 + number, gpu_pci=pci)


def held(
    places: Sequence[Place], *more: Any, bus: Sequence[str] = BUS, configured: int | None = 8
) -> tuple[OwnGpus, ...]:
    facts = Facts()
    listing = GpuCount(node="a", source="pci", count=len(bus), pci=tuple(bus))
    state = NodeState(node="a", state="MIXED", gpus=configured)
    for fact in (rank(0), rank(1), listing, state, *more):
        facts.add(fact)
    return tuple(own_gpus(facts, places))


def test_slurms_numbers_are_addresses_where_a_rank_is_seen_on_one() -> None:
    assert held([place(0), place(1, 1)]) == (OwnGpus(node="a", pci=(BUS[0], BUS[1])),)


def test_a_share_that_no_rank_is_seen_on_is_not_known() -> None:
    assert held([place(0), place(1)]) == ()


def test_ranks_on_other_gpus_than_slurms_numbers_say_that_the_site_counts_otherwise() -> None:
    assert held([place(0, 7), place(1, 1)]) == ()


def test_the_whole_node_needs_no_second_sign() -> None:
    every = ",".join(str(n) for n in range(8))
    (own,) = held([place(0)], rank(2, env=(("SLURM_JOB_GPUS", every),)))
    assert own.pci == tuple(BUS)


def test_a_card_that_no_listing_shows_would_shift_the_numbers() -> None:
    places = [place(0), place(1, 1)]
    assert held(places, bus=BUS[1:]) == ()
    lost = SmiFailure(node="a", at=T0, kind="gpu_lost", pci=BUS[0])
    (own,) = held(places, lost, bus=BUS[1:])  # its error names it
    assert own.pci == (BUS[0], BUS[1])
    assert held(places, configured=None) == ()


@pytest.mark.parametrize("words", ["GPU-1087a3cd", "0-1", "", "0,9999"])
def test_words_that_are_no_numbers_add_none(words: str) -> None:
    (own,) = held([place(1, 1)], rank(2, env=(("SLURM_STEP_GPUS", words),)))
    assert own.pci == (BUS[0], BUS[1])


def test_a_number_beyond_the_nodes_gpus_is_another_count() -> None:
    assert held([place(1, 1)], rank(2, env=(("SLURM_STEP_GPUS", "9"),))) == ()


def test_instances_are_not_counted_as_gpus() -> None:
    assert held([place(0), place(1, 1)], Gpu(node="a", pci=BUS[0], mig=True)) == ()


def test_the_rank_that_is_left_has_the_gpu_that_is_left() -> None:
    own = (OwnGpus(node="a", pci=(BUS[0], BUS[1])),)
    first, second = with_the_last((place(0), place(1, 1)), own)
    assert (first.gpu_pci, second.gpu_pci) == (BUS[0], BUS[1])
    assert with_the_last((place(0), place(1)), own) == (place(0), place(1))
    assert with_the_last((place(1, 1),), own) == (place(1, 1),)
    assert with_the_last((place(0), place(1, 1)), ()) == (place(0), place(1, 1))


def missing(*facts: Any, listed: Sequence[int] = range(1, 8)) -> list[Finding]:
    store = Facts()
    look = Look(
        at=T0, nodes=("a",), world_size=None, job_started_at=T0, loose=False, gpus_per_node=2
    )
    smi = GpuCount(
        node="a", source="nvidia-smi", count=len(listed), pci=tuple(BUS[n] for n in listed)
    )
    for fact in (look, smi, *facts):
        store.add(fact)
        store.seen[type(fact)].add("a")
    return list(ask(gpu_missing, store))


def test_a_lost_gpu_of_the_job_is_decisive_on_a_node_that_has_more() -> None:
    lost = SmiFailure(node="a", at=T0, kind="gpu_lost", pci=BUS[0], line="Unable to determine ...")
    (found,) = missing(OwnGpus(node="a", pci=(BUS[0], BUS[1])), lost)
    assert (found.role, found.strength) == (Role.ROOT, Strength.DECISIVE)
    assert found.spots[0].gpu_pci == BUS[0]
    (others,) = missing(OwnGpus(node="a", pci=(BUS[2], BUS[3])), lost)
    assert others.strength is Strength.WEAK
    (unknown,) = missing(lost)
    assert unknown.strength is Strength.WEAK


def test_a_gpu_of_the_job_that_is_left_out_without_a_word_is_named() -> None:
    (found,) = missing(OwnGpus(node="a", pci=(BUS[0], BUS[1])))
    assert (found.strength, found.spots[0].gpu_pci) == (Strength.DECISIVE, BUS[0])
    assert found.says == "nvidia-smi does not list the GPU, which Slurm gave to the job"
    (clear,) = missing(OwnGpus(node="a", pci=(BUS[2], BUS[3])))
    assert clear.role is Role.ALL_CLEAR


def test_where_a_cgroup_shows_less_than_the_job_has_the_number_counts() -> None:
    (found,) = missing(OwnGpus(node="a", pci=(BUS[0], BUS[1])), listed=[1])
    assert found.says == "nvidia-smi lists 1 GPUs, the job has 2 on this node"
