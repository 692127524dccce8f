"""Tensor, pipeline, data and expert parallel groups at once: the culprit and never an innocent."""

from functools import cache

import pytest
from fr_megatron import Megatron, Shape
from hypothesis import given, settings
from hypothesis import strategies as st
from test_waitgraph import ask, blamed, facts_of

from sluggish.facts.collective import Wait
from sluggish.ranks import role_of

SHAPES = (Shape(), Shape(2, 4, 2, 2), Shape(2, 2, 4, 4), Shape(4, 2, 2, 4), Shape(1, 4, 4, 2))


@cache
def job(shape: Shape, fault: str, rank: int, at: int) -> Megatron:
    return Megatron(shape=shape, **{fault: {rank: at}}).run()


def of(hung: Megatron, *, gone: tuple[int, ...] = (), emptied: tuple[int, ...] = ()) -> Wait:
    files = hung.files(emptied)
    return ask(facts_of({rank: files[rank] for rank in files if rank not in gone}))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_job_is_silent(shape):
    wait = of(Megatron(shape=shape).run())
    assert (wait.state, wait.roots, wait.waiters) == ("none", (), ())


@pytest.mark.parametrize("rank", [0, 5, 9, 14, 15])
@pytest.mark.parametrize("at", [3, 40, 97, 118])
def test_a_host_that_stops_is_named_alone(rank, at):
    """A GIL that is held, a loader that sleeps: enqueued operations end, nothing new comes."""
    wait = of(job(Shape(), "host", rank, at))
    assert (wait.state, blamed(wait)) == ("host_stuck", [rank])
    assert wait.roots[0].waiters >= 1


@pytest.mark.parametrize("rank", [3, 12])
def test_its_emptied_ring_changes_nothing(rank):
    wait = of(job(Shape(), "host", rank, 97), emptied=(rank,))
    assert (wait.state, blamed(wait)) == ("host_stuck", [rank])


def test_two_hosts_that_stop_in_two_stages_are_both_named():
    hung = Megatron(host={9: 80, 14: 74}).run()
    wait = of(hung)
    assert (wait.state, sorted(blamed(wait))) == ("host_stuck", [9, 14])


def test_a_gpu_of_a_pair_that_does_not_finish_what_the_other_has_is_named():
    hung = job(Shape(), "half", 12, 31)
    wait = of(hung)
    assert (wait.state, blamed(wait)) == ("device_stuck", [12])
    assert "finished" in (wait.roots[0].doing or "")


@pytest.mark.parametrize("rank", [2, 12])
def test_a_gpu_that_dies_between_operations_looks_like_its_peers_and_nobody_is_blamed(rank):
    wait = of(job(Shape(), "gpu", rank, 60))
    assert (wait.state, wait.roots) == ("all_joined", ())


@pytest.mark.parametrize("rank", [2, 13])
def test_a_gpu_that_died_and_whose_ring_is_empty_never_turns_a_peer_into_the_culprit(rank):
    for at in (20, 60, 100):
        wait = of(job(Shape(), "gpu", rank, at), emptied=(rank,))
        assert set(blamed(wait)) <= {rank}
        assert f"the ring of rank {rank} is empty: look there first" in wait.confidence_notes


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_whatever_is_missing_no_innocent_is_named(data):
    shape = data.draw(st.sampled_from(SHAPES))
    rank = data.draw(st.integers(0, shape.world - 1))
    fault = data.draw(st.sampled_from(["host", "gpu", "half"]))
    hung = job(shape, fault, rank, data.draw(st.sampled_from([2, 17, 50, 83, 110])))
    node = data.draw(st.integers(0, shape.world // 4 - 1))
    gone = tuple(range(4 * node, 4 * node + 4))
    wait = of(hung, gone=gone)
    assert set(blamed(wait)) <= {rank}
    if rank in gone:
        assert blamed(wait) == []
        assert set(gone) <= set(wait.unobserved)
    elif fault == "host":
        assert blamed(wait) == [rank]


@pytest.mark.parametrize("version", ["2.1", "2.4", "2.7"])
def test_older_formats_name_the_same_rank(version):
    hung = Megatron(host={9: 80}, version=version).run()
    assert blamed(of(hung)) == [9]


def test_a_wrapped_ring_names_the_same_rank():
    wait = of(Megatron(host={9: 120}, buffer_size=40).run())
    assert set(blamed(wait)) <= {9}


def test_the_role_of_a_group_is_read_from_its_name():
    names = {
        "default_pg": "world", "TENSOR_MODEL_PARALLEL_GROUP": "tp", "mesh_tp": "tp",
        "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "EMBEDDING_GROUP": "pp",
        "EXPERT_MODEL_PARALLEL_GROUP": "ep", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP": "ep",
        "EXPERT_DATA_PARALLEL_GROUP": "ep", "DATA_PARALLEL_GROUP_WITH_CP": "dp",
        "CONTEXT_PARALLEL_GROUP": "cp", "mesh_dp_shard": "dp", "MODEL_PARALLEL_GROUP": "mp",
        "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp", "7": None,
        "mesh_sp": "sp",
    }  # fmt: skip
    assert {name: role_of(name) for name in names} == names


def test_of_those_who_wait_the_ones_in_the_shown_operation_are_counted():
    wait = of(job(Shape(), "host", 9, 97))
    assert 0 < wait.inside < len(wait.waiters) == 15
    assert wait.operation == "send to rank 9 [4096x1x5120]"
