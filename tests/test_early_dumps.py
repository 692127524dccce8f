"""Dumps that do not show the hang: older than what the others have finished, or of a moving job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from evalgen.flight_recorder import Group, pickled
from fr_scenes import STOP, T0, Job, Op, Program, fsdp
from test_waitgraph import Facts, ask, blamed, facts_of

from sluggish.facts.collective import RankRecord

WORLD = Group(name="0", desc="default_pg", ranks=(0, 1, 2, 3))
SHARD = Group(name="1", desc="mesh_dp_shard", ranks=(0, 1, 2, 3))
BARRIER, STEP = Op(WORLD, "all_reduce_barrier", (1,), (1,)), Op(SHARD, "_reduce_scatter_base")


def hung(posted: dict[int, int], **how) -> Job:
    """A barrier, then so many steps on another group as each rank posts; then it sleeps."""
    programs: dict[int, Program] = {r: [BARRIER, *[STEP] * n, STOP] for r, n in posted.items()}
    return Job(4, (WORLD, SHARD), programs, **how).run()


def test_a_dump_from_before_the_first_use_of_a_group_is_no_record_of_a_later_hang():
    """Rank 3 asked at the start; 2 is stuck now, after its peers and it have finished four."""
    files = hung({0: 5, 1: 5, 2: 4, 3: 5}).files() | {
        3: hung(dict.fromkeys(range(4), 0)).files()[3]
    }
    wait = ask(facts_of(files))
    assert (wait.state, blamed(wait), wait.unobserved) == ("host_stuck", [2], (3,))
    assert any("older than what their peers have finished" in n for n in wait.confidence_notes)


def test_dumps_taken_apart_of_a_job_that_moves_are_all_seen():
    """Whose dump is older came, after it, to what the others have finished: nothing is pending."""
    whole, half = ({r: [BARRIER, *[STEP] * n] for r in range(4)} for n in (5, 2))
    late, early = (Job(4, (WORLD, SHARD), programs).run().files() for programs in (whole, half))
    wait = ask(facts_of(early | {3: late[3]}))
    assert (wait.state, blamed(wait), wait.unobserved, wait.observed) == ("none", [], (), 4)
    wait = ask(facts_of({0: early[0], 3: late[3]}))  # the others left none: these are not seen
    assert (wait.state, blamed(wait), wait.unobserved) == ("none", [], (1, 2))


def test_a_rank_that_never_used_the_group_in_which_nothing_was_ever_finished_is_named():
    wait = ask(facts_of(hung({0: 1, 1: 1, 2: 1, 3: 0}).files()))
    assert (wait.state, blamed(wait), wait.unobserved) == ("host_stuck", [3], ())


@pytest.mark.parametrize(("backend", "unseen"), [("nccl", (3,)), ("gloo", ())])
def test_pg_config_keeps_what_has_left_a_wrapped_ring_so_it_proves_an_older_dump(backend, unseen):
    """Gloo's keeps nothing: there rank 3, whose ring is full of barriers, may be no member."""
    programs: dict[int, Program] = {
        r: [*[BARRIER] * 6, *[STEP] * (8 if r == 2 else 9), STOP] for r in range(4)
    }
    job = Job(4, (WORLD, SHARD), programs, buffer_size=5, backend=backend).run()
    start: dict[int, Program] = {r: [BARRIER] * 6 for r in range(4)}
    early = Job(4, (WORLD, SHARD), start, buffer_size=5, backend=backend).run()
    wait = ask(facts_of(job.files() | {3: early.files()[3]}), world_size=4)
    assert (blamed(wait), wait.unobserved) == ([2], unseen)


def test_an_operation_that_runs_in_an_older_dump_is_not_stuck_on_its_device():
    """Peers have finished it, and a later one of the group that needs this rank too."""
    job = hung({0: 5, 1: 5, 2: 4, 3: 5})
    early = hung({0: 2, 1: 2, 2: 1, 3: 2}).files()[3]  # in its second step, which is over by now
    wait = ask(facts_of(job.files() | {3: early}))
    assert (wait.state, blamed(wait), wait.unobserved) == ("host_stuck", [2], (3,))


def taken(facts: Facts, seconds: dict[int, float]) -> Facts:
    """Each dump written so long after the first call of the job."""
    start = datetime.fromtimestamp(T0 / 1e9, UTC)
    return [
        replace(f, taken_at=start + timedelta(seconds=seconds.get(f.rank, 600)))
        if isinstance(f, RankRecord)
        else f
        for f in facts
    ]


@pytest.mark.parametrize(("late", "named"), [(59, [2, 3]), (120, [2])])
def test_an_empty_ring_is_told_by_the_time_of_its_file(late, named):
    """Only-active dumps show nothing finished: what is a minute older than the wait is set aside.

    Less may be the dump of a rank that raised just before the others came.
    """
    job = fsdp(4, 2, "missing")
    for rank in (0, 1):
        pending = next(e for e in job.recorders[rank].dump()["entries"] if not e["retired"])
        pending["time_created_ns"] = T0 + late * 10**9
    pending = job.recorders[3].dump()["entries"][-1]
    pending.update(state="completed", retired=True, time_discovered_completed_ns=T0 + 1)
    files = {r: pickled(rec.dump(only_active=True)) for r, rec in job.recorders.items()}
    files[3] = files[2]
    wait = ask(taken(facts_of(files), {3: 0.001}))
    assert sorted(blamed(wait)) == named


@pytest.mark.parametrize(("newest_s", "state"), [(599.5, "none"), (598.5, "host_stuck")])
def test_a_host_that_still_queues_moves_however_long_its_oldest_operation_waits(newest_s, state):
    """The GPU may be many steps behind the host."""
    facts = taken(facts_of(fsdp(4, 2, "missing", run_ahead=3).files()), {})
    newest = datetime.fromtimestamp(T0 / 1e9, UTC) + timedelta(seconds=newest_s)
    facts = [replace(f, last_created_at=newest) if isinstance(f, RankRecord) else f for f in facts]
    assert ask(facts).state == state


@pytest.mark.parametrize(("unseen", "named"), [((), [2]), ((3,), [])])
def test_a_dump_from_before_the_wait_is_a_weak_sign_where_another_member_left_none(unseen, named):
    """Rank 2 wrote it 20 s before the others came: it may have raised, or gone on."""
    job = hung({0: 4, 1: 4, 2: 3, 3: 4})
    facts = taken(facts_of({r: f for r, f in job.files().items() if r not in unseen}), {2: 0})
    wait = ask(facts, world_size=4)
    assert blamed(wait) == named
    assert wait.unobserved == ((2, 3) if unseen else ())


@pytest.mark.parametrize(("ring", "state"), [(2000, "all_joined"), (6, "unobserved")])
def test_a_ring_full_of_what_was_queued_behind_does_not_tell_that_all_have_joined(ring, state):
    """What is the oldest in it is not what the ranks wait in."""
    start = job_of_one(ring, queued=8)
    wait = ask(facts_of(start))
    assert (wait.state, wait.roots) == (state, ())
    lost = any("what they wait in was lost" in note for note in wait.confidence_notes)
    assert lost == (state == "unobserved")


@pytest.mark.parametrize("ring", [2000, 6])
def test_a_rank_that_never_arrives_is_named_by_what_others_queued_behind_too(ring):
    files = job_of_one(ring, queued=8) | {3: hung(dict.fromkeys(range(4), 2)).files()[3]}
    assert blamed(ask(facts_of(files))) == [3]


def job_of_one(ring: int, queued: int) -> dict[int, bytes]:
    """Three steps; the third hangs on all ranks, and more are queued behind it."""
    job = hung(dict.fromkeys(range(4), 2), buffer_size=ring)
    for rank, recorder in job.recorders.items():
        for n in range(1 + queued):
            at = 2 * 10**18 + n * 1000 + rank
            recorder.collective(SHARD, "_reduce_scatter_base", [[1024]], [[1024]], at_ns=at)
    return job.files()


def passed(
    stages: int, batches: int, stops: int | None = None, ring: int = 2000
) -> dict[int, bytes]:
    """Micro-batches from stage to stage; the last one sleeps before its n-th receive."""
    pipe = Group(name="1", desc="PIPELINE_MODEL_PARALLEL_GROUP", ranks=tuple(range(stages)))
    programs: dict[int, Program] = {}
    for rank in range(stages):
        program: Program = []
        for n in range(batches):
            if rank == stages - 1 and n == stops:
                program.append(STOP)
            program += [Op(pipe, "recv", peer=rank - 1)] * (rank > 0)
            program += [Op(pipe, "send", peer=rank + 1)] * (rank < stages - 1)
        programs[rank] = program
    return Job(stages, (pipe,), programs, buffer_size=ring).run().files()


@pytest.mark.parametrize(
    ("early", "ring", "unseen"), [(1, 2000, (1,)), (0, 2000, (1,)), (0, 4, (1,)), (6, 4, ())]
)
def test_who_has_not_sent_what_its_peer_has_received_left_an_older_dump(early, ring, unseen):
    """Stage 3 sleeps; stage 1 was asked at the start, after its first send, or when it hung."""
    files = passed(4, 9, stops=6, ring=ring)
    if unseen:
        files[1] = passed(4, early)[1]
    wait = ask(facts_of(files), world_size=4)
    assert (blamed(wait), wait.unobserved) == ([3], unseen)


@pytest.mark.parametrize(("young", "named"), [((), [2]), ((5,), [2]), ((4, 5), []), ((0, 2), [])])
def test_where_some_ranks_still_post_the_job_may_move_and_nobody_is_named(young, named):
    """One may have been asked the moment it raised; the others were asked ten minutes later."""
    facts = taken(facts_of(fsdp(8, 2, "missing").files()), {})
    facts = [
        replace(f, last_created_at=f.taken_at - timedelta(seconds=0.4))
        if isinstance(f, RankRecord) and f.rank in young and f.taken_at
        else f
        for f in facts
    ]
    wait = ask(facts)
    assert (wait.state, blamed(wait)) == ("host_stuck", named)
