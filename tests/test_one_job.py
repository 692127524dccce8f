"""Folders hold dumps of other jobs and of earlier runs: they never name an innocent."""

from dataclasses import replace
from datetime import timedelta

import pytest
from fr_megatron import Megatron
from fr_scenes import fsdp, tp_dp
from test_waitgraph import Facts, ask, blamed, facts_of

from sluggish.facts.collective import GroupHead, RankRecord


def earlier(facts: Facts, by: timedelta, folder: str = "") -> Facts:
    """The same dumps, as a run that was so much earlier would have left them."""
    moved: Facts = []
    for fact in facts:
        if isinstance(fact, RankRecord):
            fact = replace(
                fact,
                **{
                    name: at - by if (at := getattr(fact, name)) else None
                    for name in ("first_created_at", "last_created_at", "taken_at")
                },
            )
        moved.append(replace(fact, path=folder + fact.path))
    return moved


def written(facts: Facts) -> Facts:
    """With the time of the file, half a minute after the last operation."""
    return [
        replace(f, taken_at=f.last_created_at + timedelta(seconds=30))
        if isinstance(f, RankRecord) and f.last_created_at
        else f
        for f in facts
    ]


def test_ranks_that_a_larger_earlier_job_left_are_not_waited_for():
    new = facts_of(fsdp(8, 3, "operation").files())
    old = earlier(facts_of(fsdp(16, 12, "missing").files()), timedelta(days=1))
    wait = ask(new + [f for f in old if f.rank >= 8])
    assert (wait.state, blamed(wait), wait.world_size) == ("mismatch", [3], 8)
    assert any("2 jobs" in note and "worlds of 8, 16" in note for note in wait.confidence_notes)


def test_two_jobs_in_two_folders_are_said_and_the_newest_is_read():
    new = facts_of(fsdp(8, 3, "operation").files())
    old = earlier(facts_of(tp_dp(4, 4, 6).files()), timedelta(hours=2), "old/")
    for facts in (new + old, old + new):
        wait = ask(facts)
        assert (wait.state, blamed(wait)) == ("mismatch", [3])
        assert any("give each job a folder" in note for note in wait.confidence_notes)


@pytest.mark.parametrize("gone", [0, 9, 15])
def test_a_dump_that_an_earlier_run_left_is_no_record_of_this_one(gone):
    facts = facts_of(fsdp(16, 3, "operation").files())
    left = [f for f in earlier(facts_of(fsdp(16).files()), timedelta(hours=3)) if f.rank == gone]
    wait = ask([f for f in facts if f.rank != gone] + left)
    assert (wait.state, blamed(wait), wait.unobserved) == ("mismatch", [3], (gone,))
    assert any("earlier run" in note for note in wait.confidence_notes)


@pytest.mark.parametrize("young", [1, 3, 8])
def test_the_few_dumps_of_a_young_run_are_not_waited_for_by_those_of_the_old_one(young):
    left = earlier(facts_of(fsdp(16, 9, "missing").files()), timedelta(hours=1))
    new = facts_of(fsdp(16, 12, "operation").files())
    wait = ask([f for f in left if f.rank >= young] + [f for f in new if f.rank < young])
    assert (wait.state, blamed(wait)) == ("unobserved", [])
    assert any("left over from an earlier run" in note for note in wait.confidence_notes)


def test_in_wrapped_rings_the_age_of_the_file_decides():
    wrapped = {"buffer_size": 4}
    now = written(facts_of(fsdp(16, 3, "operation", **wrapped).files()))
    old = written(facts_of(fsdp(16, **wrapped).files()))
    left = [f for f in earlier(old, timedelta(hours=3)) if f.rank == 9]
    wait = ask([f for f in now if f.rank != 9] + left)
    assert (blamed(wait), wait.unobserved) == ([3], (9,))


def test_a_rank_that_stopped_long_before_the_others_is_still_named():
    """Its last operation is old, its file is as new as theirs."""
    facts = written(facts_of(fsdp(16, 5, "missing", buffer_size=4).files()))
    early = [
        replace(f, last_created_at=f.last_created_at - timedelta(hours=1))
        if isinstance(f, RankRecord) and f.rank == 5
        else f
        for f in facts
    ]
    assert blamed(ask(early)) == [5]


def test_two_runs_of_the_same_job_in_two_folders_are_not_mixed():
    first = earlier(facts_of(Megatron(host={9: 80}).run().files()), timedelta(minutes=20), "a/")
    second = [
        replace(f, path="b/" + f.path) for f in facts_of(Megatron(host={2: 60}).run().files())
    ]
    second = [f for f in second if f.rank != 9]
    wait = ask(first + second)
    assert (blamed(wait), wait.unobserved) == ([2], (9,))
    assert any("2 runs" in note for note in wait.confidence_notes)


def test_dumps_of_one_job_in_a_folder_a_node_are_read_together():
    facts = [
        replace(f, path=f"nodes/gpu-0{f.rank // 8}/{f.path}")
        for f in facts_of(fsdp(16, 12, "operation").files())
    ]
    wait = ask(facts)
    assert (blamed(wait), wait.unobserved, wait.confidence_notes) == ([12], (), ())


def test_a_second_dump_of_the_same_process_is_no_second_run():
    facts = facts_of(fsdp(8, 3, "operation").files())
    again = [replace(f, path="again/" + f.path) for f in facts]
    wait = ask(facts + again)
    assert blamed(wait) == [3]
    assert isinstance(facts[1], GroupHead)
    assert not any("runs" in note for note in wait.confidence_notes)
