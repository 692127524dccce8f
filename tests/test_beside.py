"""Several ranks in no collective that may wait for one another where no recorder looks."""

from dataclasses import replace

import pytest
from evalgen.flight_recorder import mesh
from fr_scenes import STOP, Job, Op, Program
from test_waitgraph import Facts, ask, blamed, facts_of

from sluggish.correlate._combine import with_stacks
from sluggish.facts.collective import RankRecord, Wait
from sluggish.facts.host import Stack, StackFrame

DP, TP = 4, 2


def job(idle: set[int], *, began: bool = True) -> Job:
    """Two steps over 4 x 2 ranks, then the idle ones sleep, e.g. in a barrier on Gloo.

    `began`: all have used their column before; else its communicator starts in the last step.
    """
    groups = mesh((DP, TP), ("DATA_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP"))
    world = groups[0]
    programs: dict[int, Program] = {}
    for rank in range(DP * TP):
        row = next(g for g in groups if g.desc.startswith("TENSOR") and rank in g.ranks)
        column = next(g for g in groups if g.desc.startswith("DATA") and rank in g.ranks)
        step = (
            [Op(row, "all_reduce"), Op(column, "all_reduce")] if began else [Op(row, "all_reduce")]
        )
        program: Program = [Op(world, "all_reduce_barrier", (1,), (1,)), *step, *step]
        if rank in idle:
            program.append(STOP)
        programs[rank] = [*program, Op(column, "all_reduce"), Op(world, "all_reduce")]
    return Job(DP * TP, groups, programs).run()


COLUMN = {0, 2, 4, 6}


def test_a_whole_group_in_no_collective_is_listed_and_nobody_named():
    wait = ask(facts_of(job(COLUMN).files()))
    assert (wait.state, blamed(wait)) == ("host_stuck", [])
    assert wait.sides == (("no collective", (0, 2, 4, 6)),)
    assert "their stacks tell" in wait.confidence_notes[-1]


def test_all_but_one_of_a_group_are_named():
    """The last one waits in that group: no barrier of them all holds them."""
    wait = ask(facts_of(job(COLUMN - {6}).files()))
    assert (wait.state, sorted(blamed(wait))) == ("host_stuck", [0, 2, 4])


def test_an_unseen_member_may_wait_there_too():
    files = job(COLUMN).files()
    del files[6]
    wait = ask(facts_of(files))
    assert (wait.state, blamed(wait), wait.unobserved) == ("host_stuck", [], (6,))


def test_a_dead_member_explains_the_others():
    files = job(COLUMN).files()
    del files[4]
    wait = ask(facts_of(files), dead={4: "killed for memory"})
    assert (wait.state, blamed(wait)) == ("host_stuck", [4])


@pytest.mark.parametrize(
    ("nodes", "named"),
    [(["n1"] * 8, [0, 2, 4, 6]), (["n1", "n2"] * 4, [0, 2, 4, 6]), (["n1"] * 4 + ["n2"] * 4, [])],
)
def test_on_one_node_they_share_its_trouble(nodes, named):
    facts: Facts = [
        replace(f, node=nodes[f.rank]) if isinstance(f, RankRecord) else f
        for f in facts_of(job(COLUMN).files())
    ]
    assert sorted(blamed(ask(facts))) == named


def test_two_ranks_whose_communicator_has_not_begun_may_wait_for_its_start():
    """The others use their columns already; 0 and 3 are in two columns and two rows."""
    hung = job({0, 3}, began=False)
    wait = ask(facts_of(hung.files()))
    assert (wait.state, blamed(wait)) == ("host_stuck", [])
    assert wait.sides == (("no collective", (0, 3)),)


@pytest.mark.parametrize(("idle", "began"), [({0}, False), ({0, 3}, True)])
def test_one_rank_alone_or_two_that_have_begun_are_named(idle, began):
    wait = ask(facts_of(job(idle, began=began).files()))
    assert (wait.state, set(blamed(wait))) == ("host_stuck", idle)


def stack(rank: int, function: str, file: str) -> Stack:
    frames = (StackFrame(function=function, file=file, line=1),)
    return Stack(
        node=None, pid=rank, rank=rank, thread="MainThread", main=True, active=None, frames=frames
    )


BARRIER = ("barrier", "torch/distributed/distributed_c10d.py")
SAVES = ("_save", "torch/serialization.py")


@pytest.mark.parametrize(
    ("saving", "in_barrier", "named"),
    [({4}, {0, 2, 6}, [4]), ({0, 2}, {4, 6}, []), (set[int](), COLUMN, []), ({4}, {0, 2}, [])],
)
def test_stacks_tell_who_does_something_else(saving, in_barrier, named):
    wait = ask(facts_of(job(COLUMN).files()))
    stacks = [stack(r, *SAVES) for r in saving] + [stack(r, *BARRIER) for r in in_barrier]
    told = with_stacks(wait, stacks)
    assert blamed(told) == named
    if named:
        assert (told.roots[0].doing, told.sides) == ("saves a checkpoint", ())


def test_a_state_without_sides_is_left_as_it_is():
    assert with_stacks(Wait(state="host_stuck"), [stack(0, *SAVES)]) == Wait(state="host_stuck")


# -- one waits for one ---------------------------------------------------------------------------


def pair(extra: int, missing: int) -> Job:
    """Two ranks: the first may post a collective too many, the second one too few."""
    world = mesh((2,), ("x",))[0]
    step = Op(world, "all_reduce")
    programs: dict[int, Program] = {0: [step] * (3 + extra), 1: [*[step] * (3 - missing), STOP]}
    return Job(2, (world,), programs).run()


@pytest.mark.parametrize(("extra", "missing"), [(1, 0), (0, 1)])
def test_one_too_many_and_one_too_few_look_alike_in_a_world_of_two(extra, missing):
    wait = ask(facts_of(pair(extra, missing).files()))
    assert (wait.state, blamed(wait), wait.waiters) == ("tie", [], (0,))
    told = (("all_reduce [1024] in default_pg", (0,)), ("no collective", (1,)))
    assert wait.sides == told


@pytest.mark.parametrize(
    ("frame", "named"),
    [(SAVES, [1]), (BARRIER, []), (("_exit_function", "multiprocessing/util.py"), [])],
)
def test_the_stack_of_the_other_tells_why_it_does_not_come(frame, named):
    """Not where it waits for another too, or is done."""
    told = with_stacks(ask(facts_of(pair(0, 1).files())), [stack(1, *frame)])
    assert (told.state, blamed(told)) == (("host_stuck", named) if named else ("tie", []))


def test_its_death_names_it():
    facts = [f for f in facts_of(pair(0, 1).files()) if f.rank == 0]
    assert blamed(ask(facts, dead={1: "signal 9"})) == [1]


@pytest.mark.parametrize(("others", "named"), [(4, [1]), (3, [])])
def test_groups_of_the_same_kind_tell_how_far_all_should_come(others, named):
    """Rank 0 waits for 1 in their row, the rest is done: the other row came as far, or did not."""
    groups = mesh((2, 2), ("DATA_PARALLEL_GROUP", "TENSOR_MODEL_PARALLEL_GROUP"))
    row, other = (g for g in groups if g.desc.startswith("TENSOR"))
    programs: dict[int, Program] = {0: [Op(row, "all_reduce")] * 4, 1: [Op(row, "all_reduce")] * 3}
    programs |= {r: [Op(other, "all_reduce")] * others for r in other.ranks}
    wait = ask(facts_of(Job(4, groups, programs).run().files()))
    assert blamed(wait) == named
