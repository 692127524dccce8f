"""Who waits for whom: every row of the table of public analysers' mistakes, and what must hold."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from evalgen.flight_recorder import Group, hashed_name, pickled
from fr_scenes import STOP, Job, Op, Program, fsdp, pipeline, tp_dp
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.correlate.waitgraph import mirror, who_waits
from sluggish.facts.collective import GroupHead, RankRecord, Wait
from sluggish.facts.origin import Origin
from sluggish.probes import flight_recorder

Facts = list[RankRecord | GroupHead]


def facts_of(files: dict[int, bytes]) -> Facts:
    out: Facts = []
    for rank, content in files.items():
        origin = Origin(rank=rank, path=f"nccl_trace_rank_{rank}")
        out += list(flight_recorder.parse(content, origin))
    return out


def ask(facts: Facts, **how) -> Wait:
    records = [f for f in facts if isinstance(f, RankRecord)]
    return who_waits(records, [f for f in facts if isinstance(f, GroupHead)], **how)


def of(job: Job, **how) -> Wait:
    return ask(facts_of(job.files()), **how)


def blamed(wait: Wait) -> list[int]:
    return [root.rank for root in wait.roots]


FIRST_MIDDLE_LAST = pytest.mark.parametrize("culprit", [0, 7, 15])


@FIRST_MIDDLE_LAST
@pytest.mark.parametrize("run_ahead", [0, 4])
@pytest.mark.parametrize("timing", [False, True])
def test_the_rank_in_another_collective_is_named(culprit, run_ahead, timing):
    wait = of(fsdp(16, culprit, "operation", run_ahead=run_ahead, timing=timing))
    assert (wait.state, wait.mismatch, blamed(wait)) == ("mismatch", "operation", [culprit])
    assert wait.roots[0].operation == "all_reduce [1]"
    assert wait.operation == "reduce_scatter [32768]"
    assert wait.seq == 9
    assert wait.roots[0].waiters == 15
    assert wait.roots[0].source_line == "/opt/train/train.py:110 in step_of_all_reduce"


@FIRST_MIDDLE_LAST
def test_the_rank_with_another_size_is_named(culprit):
    wait = of(fsdp(16, culprit, "size"))
    assert (wait.state, wait.mismatch, blamed(wait)) == ("mismatch", "sizes", [culprit])
    assert wait.sides[1] == ("reduce_scatter [16384]", (culprit,))


@FIRST_MIDDLE_LAST
@pytest.mark.parametrize("run_ahead", [0, 4])
def test_the_rank_that_never_arrives_is_named(culprit, run_ahead):
    wait = of(fsdp(16, culprit, "missing", run_ahead=run_ahead))
    assert (wait.state, blamed(wait), wait.seq) == ("host_stuck", [culprit], 9)
    assert "no collective" in wait.roots[0].doing
    assert wait.roots[0].operation is None


@pytest.mark.parametrize("culprit", [0, 6, 15])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_cascade_over_groups_has_one_root(culprit, hashed):
    wait = of(tp_dp(4, 4, culprit, hashed=hashed))
    assert (wait.state, blamed(wait)) == ("host_stuck", [culprit])
    assert wait.roots[0].waiters == 15


@pytest.mark.parametrize("culprit", [0, 6, 15])
def test_an_operation_that_nobody_joined_names_who_is_in_it(culprit):
    wait = of(tp_dp(4, 4, culprit, "operation"))
    assert (wait.state, wait.mismatch, blamed(wait)) == ("mismatch", "operation", [culprit])
    assert wait.roots[0].operation == "all_reduce [1]"
    assert wait.roots[0].waiters == 15


@pytest.mark.parametrize("culprit", [0, 4, 7])
@pytest.mark.parametrize("batched", [False, True])
def test_a_stuck_pipeline_stage_is_named(culprit, batched):
    wait = of(pipeline(8, culprit, batched=batched))
    expected = [culprit] if culprit else [0]
    assert blamed(wait) == expected
    assert wait.state == "host_stuck"


@pytest.mark.parametrize("batched", [False, True])
def test_the_last_receive_of_a_stuck_stage_is_told_with_the_global_rank(batched):
    (root,) = of(pipeline(8, 4, batched=batched)).roots
    assert (root.doing or "").startswith("no collective; last finished recv from rank 3 [1024] #11")


@pytest.mark.parametrize("batched", [False, True])
def test_a_healthy_pipeline_is_silent(batched):
    wait = of(pipeline(8, None, batched=batched))
    assert (wait.state, wait.roots, wait.waiters) == ("none", (), ())


@pytest.mark.parametrize("job", [fsdp(16), tp_dp(4, 4), fsdp(16, late={7: 250_000_000})])
def test_healthy_and_slow_jobs_are_silent(job):
    assert (of(job).state, of(job).roots) == ("none", ())


@FIRST_MIDDLE_LAST
def test_a_dead_rank_is_unobserved_until_its_end_is_on_record(culprit):
    facts = facts_of(fsdp(16, culprit, "dead").files())
    wait = ask(facts)
    assert (wait.state, wait.roots, wait.unobserved) == ("unobserved", (), (culprit,))
    known = ask(facts, dead={culprit: "exit code 17"})
    assert (known.state, blamed(known)) == ("host_stuck", [culprit])
    assert known.roots[0].doing == "dead: exit code 17"


def test_a_dead_rank_in_a_mesh_is_unobserved_and_no_victim_is_named():
    wait = of(tp_dp(4, 4, 6, "dead"))
    assert (wait.state, wait.roots, wait.unobserved) == ("unobserved", (), (6,))


def test_everybody_joined_and_nobody_finished_is_not_a_desync():
    job = fsdp(16)
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=10**18 * 2 - rank)
    wait = of(job)
    assert (wait.state, wait.roots, len(wait.waiters)) == ("all_joined", (), 16)


def test_one_against_one_blames_neither_and_tells_both():
    wait = of(fsdp(2, 1, "operation"))
    assert (wait.state, wait.roots) == ("tie", ())
    assert wait.sides == (("reduce_scatter [4096]", (0,)), ("all_reduce [1]", (1,)))


def test_eight_against_eight_is_a_tie():
    job = fsdp(16)
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        recorder.collective(g, "all_reduce", [[8 if rank < 8 else 4]], [[8]], at_ns=2 * 10**18)
    assert (of(job).state, of(job).roots, of(job).mismatch) == ("tie", (), "sizes")


def test_a_rank_that_did_not_finish_what_its_peers_finished_is_stuck_on_its_device():
    job = fsdp(16)
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        call = recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18)
        if rank != 12:
            recorder.complete(call, at_ns=2 * 10**18 + TOOK_NS)
            recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18 + 2 * TOOK_NS)
    wait = of(job)
    assert (wait.state, blamed(wait)) == ("device_stuck", [12])
    assert wait.roots[0].waiters == 15


TOOK_NS = 5_000_000


def test_two_groups_in_opposite_order_are_a_cycle():
    a = Group(name="1", desc="A", ranks=(0, 1))
    b = Group(name="2", desc="B", ranks=(0, 1))
    programs: dict[int, Program] = {
        0: [Op(a, "all_reduce"), Op(b, "all_reduce")],
        1: [Op(b, "all_reduce"), Op(a, "all_reduce")],
    }
    for run_ahead in (0, 1):
        wait = of(Job(2, (a, b), programs, run_ahead=run_ahead).run())
        assert (wait.state, blamed(wait)) == ("cycle", [])
        assert wait.sides == (("all_reduce [1024] in A", (0,)), ("all_reduce [1024] in B", (1,)))


def test_a_circle_over_three_groups_is_a_cycle():
    groups = tuple(
        Group(name=str(i + 1), desc=f"ring{i}", ranks=tuple(sorted((i, (i + 1) % 3))))
        for i in range(3)
    )
    programs: dict[int, Program] = {
        r: [Op(groups[r], "all_reduce"), Op(groups[(r + 2) % 3], "all_reduce")] for r in range(3)
    }
    wait = of(Job(3, groups, programs).run())
    assert (wait.state, blamed(wait)) == ("cycle", [])  # any of the three may be the odd one
    assert sorted(ranks for _, ranks in wait.sides) == [(0,), (1,), (2,)]


def test_a_circle_that_goes_through_a_pipeline_blames_nobody():
    world = Group(name="0", desc="default_pg", ranks=(0, 1, 2))
    pair = Group(name="1", desc="pair", ranks=(0, 1))
    start = Op(world, "all_reduce")
    programs: dict[int, Program] = {
        0: [start, Op(pair, "all_reduce"), Op(world, "send", peer=2)],
        1: [start, Op(world, "recv", peer=2), Op(pair, "all_reduce")],
        2: [start, Op(world, "recv", peer=0), Op(world, "send", peer=1)],
    }
    wait = of(Job(3, (world, pair), programs).run())
    assert (wait.state, blamed(wait), wait.waiters) == ("cycle", [], (0, 1, 2))


@pytest.mark.parametrize(("skips", "named"), [((2,), [2]), ((), []), ((2, 3), [2, 3])])
def test_who_waits_beside_the_odd_one_in_its_operation_is_a_victim(skips, named):
    """A rank that leaves a send out comes to the sum of its row early; 3 comes there by right.

    Where 3 leaves its own out as well, its partner waits for it too.
    """
    row = Group(name="1", desc="row", ranks=tuple(range(8)))
    pipe = Group(name="2", desc="pipe", ranks=(0, 2))
    beside = Group(name="3", desc="pipe", ranks=(1, 3))
    total = Op(row, "all_reduce", (1,), (1,))
    programs: dict[int, Program] = {
        0: [Op(pipe, "recv", peer=2), total],
        1: [Op(beside, "recv", peer=3), total],
        2: [Op(pipe, "send", peer=0), total],
        3: [Op(beside, "send", peer=1), total],
    }
    programs |= {rank: [total] for rank in (4, 5, 6, 7)}
    for rank in skips:
        programs[rank] = [total]
    if skips:  # those that pass nothing on wait for 0 elsewhere
        tail = Group(name="4", desc="tail", ranks=(0, 4, 5, 6, 7))
        programs |= {rank: [Op(tail, "all_reduce"), total] for rank in (4, 5, 6, 7)}
        programs[0] = [Op(pipe, "recv", peer=2), Op(tail, "all_reduce"), total]
    groups = tuple({op.group: 0 for p in programs.values() for op in p if isinstance(op, Op)})
    wait = of(Job(8, groups, programs).run())
    assert sorted(blamed(wait)) == named
    assert wait.state == ("mismatch" if skips else "none")


@pytest.mark.parametrize(("ahead", "state", "named"), [(0, "mismatch", [2]), (2, "cycle", [])])
def test_what_all_have_queued_is_no_operation_that_almost_nobody_joined(ahead, state, named):
    """Rank 2 leaves its send out. Where the others have queued the sum it is not odd there."""
    row = Group(name="1", desc="row", ranks=tuple(range(5)))
    pipe = Group(name="2", desc="pipe", ranks=(0, 2))
    tail = Group(name="3", desc="tail", ranks=(0, 1, 3, 4))
    total, other = Op(row, "all_reduce", (1,), (1,)), Op(tail, "all_reduce")
    programs: dict[int, Program] = {r: [other, total] for r in (1, 3, 4)}
    programs |= {0: [Op(pipe, "recv", peer=2), other, total], 2: [total]}
    wait = of(Job(5, (row, pipe, tail), programs, run_ahead=ahead).run())
    assert (wait.state, blamed(wait)) == (state, named)


@pytest.mark.parametrize(("odd", "named"), [(True, [2]), (False, [])])
def test_another_operation_is_odd_where_it_is_queued_behind_what_its_rank_waits_in(odd, named):
    """Rank 2 waits for a message, behind that it has queued what its row does not expect."""
    row = Group(name="1", desc="row", ranks=(0, 1, 2))
    pipe = Group(name="2", desc="pipe", ranks=(2, 3))
    gather, scatter = Op(row, "_all_gather_base"), Op(row, "_reduce_scatter_base")
    total = Op(Group(name="0", desc="default_pg", ranks=(0, 1, 2, 3)), "all_reduce", (1,), (1,))
    programs: dict[int, Program] = {r: [gather, scatter, total] for r in (0, 1)}
    programs[2] = [Op(pipe, "recv", peer=3), scatter if odd else gather, scatter, total]
    programs[3] = [total, Op(pipe, "send", peer=2)]
    wait = of(Job(4, (total.group, row, pipe), programs, run_ahead=3).run())
    assert blamed(wait) == named
    assert wait.state == ("mismatch" if odd else "cycle")


@pytest.mark.parametrize("culprit", [0, 5, 7])
def test_the_one_rank_that_inverts_the_order_of_two_groups_is_named_alone(culprit):
    wait = of(inverted({culprit}))
    assert (wait.state, blamed(wait)) == ("cycle", [culprit])
    assert wait.roots[0].waiters == 7


def test_two_orders_of_equal_number_tell_both_sides_and_no_bystander():
    wait = of(inverted({5, 6}))
    assert (wait.state, blamed(wait)) == ("cycle", [])
    assert sorted(ranks for _, ranks in wait.sides) == [(4, 7), (5, 6)]


@pytest.mark.parametrize("gone", [4, 6, 7])
def test_an_unseen_member_may_turn_the_vote_on_the_order_so_only_the_rarer_is_ever_named(gone):
    facts = [f for f in facts_of(inverted({5}).files()) if f.rank != gone]
    assert ask(facts).state == "unobserved"
    assert blamed(ask(facts)) == []


def inverted(culprits: set[int]) -> Job:
    """Rows of four and the world: most do their row first, the culprits the world."""
    world = Group(name="0", desc="default_pg", ranks=tuple(range(8)))
    rows = [Group(name=str(n), desc="row", ranks=tuple(range(4 * n - 4, 4 * n))) for n in (1, 2)]
    programs: dict[int, Program] = {}
    for rank in range(8):
        both: Program = [Op(rows[rank // 4], "all_reduce"), Op(world, "all_reduce", (1,), (1,))]
        programs[rank] = [*both, *(reversed(both) if rank in culprits else both)]
    return Job(8, (world, *rows), programs).run()


def test_a_rank_that_ended_another_size_and_went_on_is_still_the_mismatch():
    job = fsdp(8)
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        size = 4 if rank == 6 else 8
        call = recorder.collective(g, "all_reduce", [[size]], [[size]], at_ns=2 * 10**18)
        if rank == 6:
            recorder.complete(call, at_ns=2 * 10**18 + TOOK_NS)
            recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18 + 2 * TOOK_NS)
    wait = of(job)
    assert (wait.state, wait.mismatch, blamed(wait)) == ("mismatch", "sizes", [6])
    assert (wait.roots[0].operation, wait.roots[0].waiters) == ("all_reduce [4]", 7)


def test_groups_that_share_a_name_are_told_apart_by_their_members():
    one = Group(name="tp", desc="tp", ranks=(0, 1))
    two = Group(name="tp", desc="tp", ranks=(2, 3))
    programs: dict[int, Program] = {
        0: [Op(one, "all_reduce")] * 3,
        1: [Op(one, "all_reduce"), Op(one, "all_reduce"), STOP],
        2: [Op(two, "all_reduce")] * 9,
        3: [Op(two, "all_reduce")] * 9,
    }
    wait = of(Job(4, (one, two), programs).run())
    assert (wait.state, blamed(wait)) == ("host_stuck", [1])


def test_an_older_dump_of_one_rank_makes_no_false_mismatch():
    job = fsdp(16)
    early = fsdp(16, 9, "missing")
    files = job.files()
    files[9] = early.files()[9]
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        if rank != 9:
            recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18)
            files[rank] = job.files()[rank]
    wait = ask(facts_of(files))
    assert (wait.state, blamed(wait), wait.unobserved) == ("unobserved", [], (9,))


@pytest.mark.parametrize(("failed", "state"), [(1, "host_stuck"), (2, "unobserved")])
def test_on_gloo_one_finished_operation_may_have_failed_and_two_prove_an_older_dump(failed, state):
    job = fsdp(4, backend="gloo")
    g = job.groups[0]
    early = job.files()[2]
    for rank, recorder in job.recorders.items():
        for _ in range(failed):
            call = recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18)
            if rank == 0:
                recorder.complete(call, at_ns=2 * 10**18 + TOOK_NS)
        if rank != 0:
            recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18)
    files = {**job.files(), 2: early}
    assert ask(facts_of(files)).state == state


@pytest.mark.parametrize(
    ("written_after_ms", "state"), [(-4, "none"), (900, "none"), (1100, "host_stuck")]
)
def test_dumps_of_a_moving_job_taken_moments_apart_blame_nobody(written_after_ms, state):
    moved: Facts = []
    for fact in facts_of(fsdp(8, 2, "missing").files()):
        if isinstance(fact, RankRecord):
            assert fact.last_created_at
            late = timedelta(milliseconds=written_after_ms)
            fact = replace(fact, taken_at=fact.last_created_at + late)
        moved.append(fact)
    assert ask(moved).state == state


def test_positions_one_ahead_of_the_entries_are_those_of_a_moving_job_too():
    moved: Facts = []
    for fact in facts_of(fsdp(8).files()):
        if isinstance(fact, RankRecord):
            fact = replace(fact, taken_at=fact.last_created_at)
        elif fact.rank == 5:
            assert fact.last_completed is not None
            fact = replace(fact, last_enqueued=fact.last_completed + 1)
        moved.append(fact)
    assert ask(moved).state == "none"


def test_a_wrapped_ring_still_names_the_rank():
    wait = of(fsdp(16, 5, "operation", buffer_size=4))
    assert (wait.state, blamed(wait)) == ("mismatch", [5])
    wait = of(pipeline(8, 4, buffer_size=5))
    assert blamed(wait) == [4]


def test_only_active_dumps_name_the_rank_too():
    for job, culprit in ((fsdp(16, 5, "missing"), 5), (tp_dp(4, 4, 6), 6)):
        files = {r: pickled(rec.dump(only_active=True)) for r, rec in job.recorders.items()}
        wait = ask(facts_of(files))
        assert (wait.state, blamed(wait)) == ("host_stuck", [culprit])


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.4", "2.7", "2.9", "2.10", "2.11"])
def test_every_format_from_2_1_on_names_the_rank(version):
    assert blamed(of(fsdp(8, 3, "operation", version=version))) == [3]
    assert blamed(of(tp_dp(4, 2, 6, version=version))) == [6]


@pytest.mark.parametrize("backend", ["nccl2", "xccl", "ncclx", "rccl", "hccl", "gloo", "newccl"])
def test_any_backend_names_the_rank(backend):
    assert blamed(of(fsdp(8, 3, "operation", backend=backend))) == [3]
    assert blamed(of(tp_dp(4, 2, 6, backend=backend))) == [6]


def test_json_names_the_same_rank_as_pickle():
    for job in (fsdp(16, 0, "operation"), tp_dp(4, 4, 6), pipeline(8, 4)):
        one, other = of(job), ask(facts_of(job.json_files()))
        assert blamed(one) == blamed(other)
        assert (one.state, one.seq, one.operation) == (other.state, other.seq, other.operation)


def test_most_ranks_idle_and_a_few_waiting_blames_nobody():
    job = fsdp(8)
    job.recorders[2].collective(job.groups[0], "all_reduce", [[1]], [[1]], at_ns=2 * 10**18)
    wait = of(job)
    assert (wait.state, wait.roots) == ("host_stuck", ())


def test_one_waits_in_a_group_whose_others_have_gone_on_or_ended_and_nobody_is_blamed():
    world = Group(name="0", desc="default_pg", ranks=tuple(range(8)))
    part = Group(name="1", desc="part", ranks=(0, 1, 2, 3))
    start, extra = Op(world, "all_reduce"), Op(part, "all_reduce", (1,), (1,))
    programs: dict[int, Program] = {r: [start, *[extra] * (r == 2)] for r in range(8)}
    wait = of(Job(8, (world, part), programs).run())
    assert (wait.state, blamed(wait), wait.waiters) == ("host_stuck", [], (2,))


def test_two_stuck_ranks_are_both_named():
    job = tp_dp(4, 4, 6)
    facts = [f for f in facts_of(job.files()) if f.rank != 9]
    other = [f for f in facts_of(tp_dp(4, 4, 9).files()) if f.rank == 9]
    wait = ask(facts + other)
    assert set(blamed(wait)) <= {6, 9}
    assert 6 in blamed(wait)


def test_two_dumps_of_one_rank_the_newer_counts():
    new, old = facts_of(fsdp(8, 3, "operation").files()), facts_of(fsdp(8, 5, "missing").files())
    stale = [replace(f, path="old/" + f.path) for f in old if f.rank == 5]
    stale = [
        replace(f, last_created_at=f.last_created_at.replace(year=2020))
        if isinstance(f, RankRecord) and f.last_created_at
        else f
        for f in stale
    ]
    for facts in (new + stale, stale + new):
        assert blamed(ask(facts)) == [3]


def emptied(job: Job, rank: int) -> Facts:
    """The dump of this rank has lost all its entries; pg_status is still there."""
    dumps = job.dumps()
    dumps[rank] = {**dumps[rank], "entries": []}
    return facts_of({r: pickled(d) for r, d in dumps.items()})


def test_a_rank_with_an_empty_ring_that_others_wait_for_is_named():
    wait = ask(emptied(fsdp(16, 5, "missing"), 5))
    assert (wait.state, blamed(wait)) == ("host_stuck", [5])
    wait = ask(emptied(tp_dp(4, 4, 6), 6))
    assert (wait.state, blamed(wait)) == ("host_stuck", [6])


def test_a_waiting_rank_with_an_empty_ring_stays_a_victim():
    for victim in (0, 9, 15):
        wait = ask(emptied(fsdp(16, 5, "missing"), victim))
        assert (wait.state, blamed(wait)) == ("host_stuck", [5])
        wait = ask(emptied(fsdp(16, 5, "operation"), victim))
        assert (wait.state, blamed(wait)) == ("mismatch", [5])


def test_an_empty_ring_behind_its_peers_is_stuck_on_its_device():
    job = fsdp(16)
    g = job.groups[0]
    for rank, recorder in job.recorders.items():
        for step in range(2):
            call = recorder.collective(g, "all_reduce", [[8]], [[8]], at_ns=2 * 10**18 + step)
            if rank != 12 and step == 0:
                recorder.complete(call, at_ns=2 * 10**18 + TOOK_NS)
    wait = ask(emptied(job, 12))
    assert (wait.state, blamed(wait)) == ("device_stuck", [12])


def test_no_dump_at_all_is_unobserved():
    assert ask([]).state == "unobserved"


def test_mirror_halves():
    assert mirror("send 1->2") == "recv 2<-1"
    assert mirror("recv 2<-1") == "send 1->2"


# -- what must hold for every job ---------------------------------------------------------------


@st.composite
def hung_jobs(draw) -> tuple[Job, int]:
    kind = draw(st.sampled_from(["fsdp", "mesh", "pipe"]))
    ahead = draw(st.sampled_from([0, 3]))
    if kind == "fsdp":
        world = draw(st.integers(3, 12))
        culprit = draw(st.integers(0, world - 1))
        fault = draw(st.sampled_from(["operation", "size", "missing"]))
        return fsdp(world, culprit, fault, run_ahead=ahead), culprit
    if kind == "mesh":
        tp, dp = draw(st.integers(2, 4)), draw(st.integers(3, 4))
        culprit = draw(st.integers(0, tp * dp - 1))
        fault = draw(st.sampled_from(["operation", "missing"]))
        return tp_dp(tp, dp, culprit, fault, run_ahead=ahead), culprit
    stages = draw(st.integers(3, 8))
    culprit = draw(st.integers(0, stages - 1))
    return pipeline(stages, culprit, batched=draw(st.booleans())), culprit


@given(hung_jobs(), st.randoms())
@settings(max_examples=40, deadline=None)
def test_the_order_of_files_does_not_matter(hung, rng: random.Random):
    job, culprit = hung
    facts = facts_of(job.files())
    before = ask(facts)
    rng.shuffle(facts)
    assert ask(facts) == before
    assert blamed(before) == [culprit]


@given(hung_jobs())
@settings(max_examples=25, deadline=None)
def test_the_names_of_groups_do_not_matter(hung):
    job, culprit = hung
    renamed: Facts = []
    for fact in facts_of(job.files()):
        if isinstance(fact, GroupHead):
            name = hashed_name((*fact.group.ranks, len(fact.group.name)))
            fact = replace(fact, group=replace(fact.group, name=name + fact.group.name))
        renamed.append(fact)
    assert blamed(ask(renamed)) == [culprit]


@given(hung_jobs(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_dump_that_is_missing_never_makes_an_innocent_guilty(hung, data):
    job, culprit = hung
    gone = data.draw(st.integers(0, job.world - 1))
    wait = ask([f for f in facts_of(job.files()) if f.rank != gone])
    assert set(blamed(wait)) <= {culprit}
    if gone == culprit:
        assert blamed(wait) == []
        assert culprit in wait.unobserved
    else:
        assert blamed(wait) == [culprit] or wait.state in ("tie", "unobserved")


# -- sends and receives that meet and do not fit ---------------------------------------------------


@pytest.mark.parametrize("batched", [False, True])
def test_a_send_and_its_recv_of_another_size_are_a_tie_of_the_two(batched):
    job = pipeline(4, 2, batched=batched)
    pipe = job.groups[1]
    for rank, kind, peer, size in ((2, "send", 3, 1024), (3, "recv", 2, 512)):
        post = job.recorders[rank]
        if rank == 3:  # it waits in this recv already: in its place one of another size
            waiting = [c for c in post.ring if c.entry["state"] != "completed" and not c.done]
            for call in [c for c in waiting if c.entry["is_p2p"]]:
                for key in ("input_sizes", "output_sizes"):
                    call.entry[key] = [[size]] if call.entry[key] else []
        elif batched:
            post.batch_p2p(pipe, [(kind, peer, [size])], at_ns=2 * 10**18)
        else:
            post.p2p(pipe, kind, peer, [size], at_ns=2 * 10**18)
    wait = of(job)
    assert (wait.state, wait.mismatch, wait.roots) == ("tie", "sizes", ())
    assert wait.sides == (
        ("send to rank 3 [1024]", (2,)),
        ("recv from rank 2 [512]", (3,)),
    )
