"""NCCL's init lines name global ranks only where they are those of the world's communicator."""

import pytest

from sluggish.correlate.locate import places
from sluggish.facts.collective import Group, GroupHead
from sluggish.facts.host import RankProcess
from sluggish.facts.log import NcclInit
from sluggish.facts.store import Facts


def lines(*homes: tuple[int, str], size: int) -> Facts:
    facts = Facts()
    for number, (rank, node) in enumerate(homes):
        facts.add(NcclInit(node=node, rank=rank, world_size=size, pid=100 + number))
    return facts


def where(facts: Facts) -> dict[int, str | None]:
    return {place.rank: place.node for place in places(facts)}


def test_the_lines_of_the_world_place_its_ranks_and_those_of_its_parts_do_not():
    facts = lines((0, "a"), (1, "a"), (2, "b"), (3, "b"), size=4)
    facts.add(NcclInit(node="b", rank=0, world_size=2, pid=102))
    assert where(facts) == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_parts_of_a_world_that_has_no_communicator_place_nobody():
    """Rank 0 of a node's own part is not rank 0 of the job."""
    assert where(lines((0, "a"), (1, "a"), (0, "b"), (1, "b"), size=2)) == {}


def test_a_run_that_began_again_with_one_node_replaced_still_places_its_ranks():
    facts = lines((0, "a"), (1, "a"), (2, "b"), (0, "a"), (1, "a"), (2, "c"), size=3)
    assert where(facts)[0] == where(facts)[1] == "a"


@pytest.mark.parametrize(("size", "placed"), [(4, {}), (2, {0: "a", 1: "a"})])
@pytest.mark.parametrize("source", ["group", "process"])
def test_another_source_that_tells_of_a_larger_world(source, size, placed):
    facts = lines((0, "a"), (1, "a"), size=2)
    if source == "group":
        group = Group(name="0", desc="default_pg", ranks=tuple(range(size)))
        facts.add(GroupHead(rank=0, group=group))
    else:
        facts.add(RankProcess(node="z", pid=9, rank=None, world_size=size))
    assert where(facts) == placed
