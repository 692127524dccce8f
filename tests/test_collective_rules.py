"""Rules over collectives, the fallbacks to logs and RAS, stacks, and the answer of `ranks`."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from evalgen import flight_recorder as written
from fr_scenes import Job, fsdp, pipeline, tp_dp
from test_one_job import earlier

from sluggish.correlate.late import late_ranks
from sluggish.correlate.stacks import grouped, meaning, odd_one
from sluggish.correlate.waitgraph import wait_for
from sluggish.facts.collective import (
    Fingerprint,
    Group,
    GroupHead,
    LaggingRanks,
    QueuePosition,
    RasCounts,
    RasRank,
    RasReport,
    Wait,
    WaitRoot,
    WatchdogTimeout,
)
from sluggish.facts.derived import Look, Place
from sluggish.facts.host import Stack, StackFrame
from sluggish.facts.log import ProcessExit
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Role, Strength, ask
from sluggish.probes import flight_recorder
from sluggish.ranks import ranks_answer, role_of
from sluggish.rules import collective as rules

AT = datetime(2026, 11, 24, 3, 12, tzinfo=UTC)


def store(*facts: object) -> Facts:
    out = Facts()
    for fact in facts:
        out.add(fact)
    return out


def look(world: int | None) -> Look:
    return Look(at=AT, nodes=(), world_size=world, job_started_at=None, loose=True)


def recorded(job: Job) -> list[object]:
    found: list[object] = []
    for rank, content in job.files().items():
        found += flight_recorder.parse(content, Origin(rank=rank, path=f"rank_{rank}"))
    return found


def judged(*facts: object) -> Facts:
    out = store(*facts)
    out.add(wait_for(out))
    return out


def ids_that_speak(facts: Facts) -> list[str]:
    return [one.id for one in rules.RULES if ask(one, facts)]


# -- rules -------------------------------------------------------------------------------------


def test_a_mismatch_is_decisive_and_places_the_rank():
    place = Place(rank=3, node="gpu-07", pid=912, gpu_index=3, gpu_pci="0000:5d:00.0")
    facts = judged(*recorded(fsdp(16, 3, "operation")), place)
    (one,) = ask(rules.sync_op, facts)
    assert (one.role, one.strength, one.subtype) == (
        Role.ROOT,
        Strength.DECISIVE,
        "collective_mismatch",
    )
    (spot,) = one.spots
    assert (spot.rank, spot.node, spot.pid, spot.gpu_pci) == (3, "gpu-07", 912, "0000:5d:00.0")
    assert (spot.group, spot.seq, spot.operation) == ("default_pg", 9, "all_reduce [1]")
    assert spot.source_line == "/opt/train/train.py:110 in step_of_all_reduce"
    assert "15 ranks wait in reduce_scatter [32768] #9" in one.says
    assert ids_that_speak(facts) == ["SYNC-OP"]


def test_a_mismatch_with_a_dump_missing_is_strong_only():
    facts = [f for f in recorded(fsdp(16, 3, "operation")) if f.rank != 11]
    (one,) = ask(rules.sync_op, judged(*facts))
    assert one.strength is Strength.STRONG


@pytest.mark.parametrize(
    ("job", "rule_id"),
    [
        (fsdp(16, 3, "size"), "SYNC-SIZE"),
        (fsdp(16, 3, "missing"), "SYNC-MISSING"),
        (fsdp(2, 1, "operation"), "SYNC-TIE"),
        (fsdp(16, 3, "dead"), "SYNC-UNSEEN"),
        (tp_dp(4, 4, 6), "SYNC-MISSING"),
        (tp_dp(4, 4, 6, "operation"), "SYNC-OP"),
        (pipeline(8, 4), "SYNC-MISSING"),
    ],
)
def test_one_rule_speaks_for_each_way_to_hang(job, rule_id):
    assert ids_that_speak(judged(*recorded(job))) == [rule_id]


def test_nothing_is_said_of_healthy_jobs():
    for job in (fsdp(16), tp_dp(4, 4), pipeline(8), pipeline(8, batched=True)):
        assert ids_that_speak(judged(*recorded(job))) == []


def test_a_stall_that_everybody_joined_is_context_and_accuses_nobody():
    wait = Wait(state="all_joined", operation="all_gather [8]", seq=4, sources=("flight recorder",))
    (one,) = ask(rules.sync_stall, store(wait))
    assert (one.role, one.spots) == (Role.CONTEXT, ())
    assert "not a desync" in one.says


def test_a_rank_that_is_stuck_on_its_device_is_a_strong_root():
    root = WaitRoot(rank=12, seq=9, doing="posted; 15 peers have finished it", waiters=15)
    wait = Wait(state="device_stuck", roots=(root,), sources=("flight recorder",))
    (one,) = ask(rules.sync_device, store(wait))
    assert (one.strength, one.spots[0].rank) == (Strength.STRONG, 12)


def test_a_cycle_is_an_order_inversion():
    roots = (WaitRoot(rank=0), WaitRoot(rank=1))
    (one,) = ask(rules.sync_cycle, store(Wait(state="cycle", roots=roots)))
    assert (one.subtype, [s.rank for s in one.spots]) == ("order_inversion", [0, 1])


def test_a_cycle_of_one_against_one_tells_both_and_accuses_nobody():
    sides = (("all_reduce [8] in tp", (0,)), ("all_reduce [8] in ep", (1,)))
    (one,) = ask(rules.sync_cycle, store(Wait(state="cycle", sides=sides)))
    assert (one.subtype, one.spots, one.role) == ("order_inversion", (), Role.ROOT)
    assert one.says.startswith(
        "all_reduce [8] in tp (rank 0) against all_reduce [8] in ep (rank 1)"
    )


def test_an_exit_record_turns_the_unobserved_rank_into_the_culprit():
    gone = ProcessExit(node="gpu-02", rank=3, at=AT, exit_code=17)
    facts = judged(*recorded(fsdp(16, 3, "dead")), gone)
    (one,) = ask(rules.sync_missing, facts)
    assert [s.rank for s in one.spots] == [3]
    assert "dead: exit code 17" in (one.spots[0].doing or "")


def test_an_exit_that_all_ranks_share_proves_nothing():
    ends = [ProcessExit(node=None, rank=r, at=AT, signal=6) for r in range(16)]
    wait = wait_for(store(*recorded(fsdp(16, 3, "dead")), *ends))
    assert (wait.state, wait.roots) == ("unobserved", ())


# -- stragglers --------------------------------------------------------------------------------


def test_the_rank_that_waits_least_is_the_late_one():
    facts = judged(*recorded(fsdp(16, late={7: 250_000_000})))
    (one,) = ask(rules.slow_rank, facts)
    assert (one.spots[0].rank, one.subtype) == (7, "late_rank")


def test_the_late_rank_of_an_earlier_job_is_nobody_in_this_one():
    """Its dumps lie in the same folder; this job's own ranks are even."""
    left = earlier(recorded(fsdp(32, late={7: 250_000_000})), timedelta(hours=1), "old/")
    now = recorded(fsdp(16))
    assert [f.spots[0].rank for f in ask(rules.slow_rank, judged(*left))] == [7]
    assert ask(rules.slow_rank, judged(*now, *left)) == ()


def test_equal_ranks_and_short_waits_are_nobodys_fault():
    assert ask(rules.slow_rank, judged(*recorded(fsdp(16)))) == ()
    assert ask(rules.slow_rank, judged(*recorded(fsdp(16, late={7: 9_000_000})))) == ()


def test_late_ranks_are_not_told_while_the_job_hangs():
    assert ask(rules.slow_rank, judged(*recorded(fsdp(16, 3, "missing")))) == ()


def test_when_half_the_group_is_late_nobody_is():
    late = dict.fromkeys(range(8), 250000000)
    heads = [f for f in recorded(fsdp(16, late=late)) if isinstance(f, GroupHead)]
    assert late_ranks(tuple(heads)) == ()


# -- logs alone --------------------------------------------------------------------------------


def timeout(rank: int, seq: int | None, op: str, numel: int = 1, **how) -> WatchdogTimeout:
    base = {"node": None, "group_rank": None, "group": "default_pg", "at": AT}
    base |= {"numel_in": numel, "order": rank, "ran_ms": 600_000}
    unknown = how.pop("rank_unknown", False)
    told = None if unknown else rank
    return WatchdogTimeout(rank=told, seq=seq, op=op, **{**base, **how})


def position(rank: int, enqueued: int, completed: int) -> QueuePosition:
    return QueuePosition(
        node=None, rank=rank, group_rank=None, group="default_pg", last_enqueued=enqueued,
        last_completed=completed,
    )  # fmt: skip


def test_reporters_are_victims_and_the_silent_rank_is_not_seen():
    lines = [timeout(r, 9, "all_reduce") for r in range(8) if r != 5]
    wait = wait_for(store(look(8), *lines))
    assert (wait.state, wait.roots, wait.unobserved) == ("unobserved", (), (5,))
    assert wait.since == AT - timedelta(minutes=10)


def test_a_queue_that_is_empty_before_the_stuck_operation_names_its_rank():
    lines = [timeout(r, 9, "all_reduce") for r in range(8) if r != 5]
    wait = wait_for(store(look(8), *lines, position(5, 8, 8), position(1, 12, 8)))
    assert (wait.state, [r.rank for r in wait.roots]) == ("host_stuck", [5])


def test_an_idle_queue_beside_timeouts_without_rank_names_its_rank_weakly():
    line = timeout(0, None, "all_gather", rank_unknown=True)
    idle = replace(position(1, 21936, 21936), rank=None, group=None, group_rank=1)
    facts = judged(line, idle)
    (one,) = ask(rules.sync_missing, facts)
    assert ([s.rank for s in one.spots], one.strength) == ([1], Strength.WEAK)


def test_more_enqueued_at_the_same_operation_is_run_ahead():
    lines = [timeout(r, 9, "reduce") for r in range(8)]
    wait = wait_for(store(look(8), *lines, position(3, 21, 8), position(4, 9, 8)))
    assert (wait.state, wait.roots) == ("all_joined", ())


def test_the_minority_operation_in_the_lines_is_named():
    lines = [timeout(r, 9, "reduce_scatter", 16) for r in range(8) if r != 3]
    wait = wait_for(store(look(8), *lines, timeout(3, 9, "all_reduce")))
    assert (wait.state, wait.mismatch, [r.rank for r in wait.roots]) == (
        "mismatch", "operation", [3],
    )  # fmt: skip
    facts = judged(look(8), *lines, timeout(3, 9, "all_reduce"))
    assert ask(rules.sync_op, facts)[0].strength is Strength.STRONG


def test_two_sizes_one_against_one_blame_neither():
    wait = wait_for(store(look(2), timeout(0, 9, "all_gather", 4), timeout(1, 9, "all_gather", 5)))
    assert (wait.state, wait.mismatch, wait.roots) == ("tie", "sizes", ())


def test_numbers_of_two_groups_are_not_compared():
    lines = [timeout(r, 9, "all_reduce", group="tp") for r in (0, 1)]
    lines += [timeout(r, 4, "all_gather", group="dp") for r in (2, 3)]
    assert wait_for(store(look(4), *lines)).roots == ()


def test_the_time_of_a_report_changes_nothing():
    lines = [timeout(r, 9, "all_reduce") for r in range(8) if r != 5]
    moved = [replace(w, at=AT + timedelta(seconds=7 * w.order % 5)) for w in lines]
    one, other = wait_for(store(look(8), *lines)), wait_for(store(look(8), *reversed(moved)))
    assert (one.state, one.roots, one.unobserved) == (other.state, other.roots, other.unobserved)


def test_fingerprints_are_counted_as_votes():
    def line(rank: int, other: int, op: str, other_op: str) -> Fingerprint:
        return Fingerprint(node=None, rank=rank, other_rank=other, seq=1, op=op, other_op=other_op)

    votes = [line(r, 2, "all_gather [4]", "all_reduce [4]") for r in (0, 1, 3)]
    votes.append(line(2, 0, "all_reduce [4]", "all_gather [4]"))
    wait = wait_for(store(*votes))
    assert (wait.state, [r.rank for r in wait.roots]) == ("mismatch", [2])
    assert wait.roots[0].operation == "all_reduce [4]"
    pair = [votes[0], votes[3]]
    assert wait_for(store(*pair)).state == "tie"


def test_a_monitored_barrier_names_who_did_not_come():
    late = LaggingRanks(node=None, ranks=(2,), kind="monitored_barrier", reporter=0)
    wait = wait_for(store(late))
    assert (wait.state, [r.rank for r in wait.roots]) == ("host_stuck", [2])


def test_the_watchdog_is_context_and_accuses_nobody():
    facts = judged(look(8), *[timeout(r, 9, "all_reduce") for r in range(8) if r != 5])
    (one,) = ask(rules.sync_watchdog, facts)
    assert (one.role, one.spots) == (Role.CONTEXT, ())
    assert "they waited" in one.says


def test_without_any_source_nothing_is_known():
    wait = wait_for(store())
    assert (wait.state, wait.sources, wait.observed) == ("unobserved", (), 0)
    assert ids_that_speak(judged()) == []


# -- RAS ---------------------------------------------------------------------------------------


def ras(sample: str, counts: dict[int, tuple[int, int]], size: int = 8) -> list[object]:
    rows: list[object] = [
        RasRank(
            node=None, comm="c0", rank=r, size=size, sample=sample, host="10.0.0.1", pid=100 + r,
            counts=(("AllReduce", ar), ("ReduceScatter", rs)), state="running",
        )
        for r, (ar, rs) in counts.items()
    ]  # fmt: skip
    return [RasReport(node=None, sample=sample), *rows]


SEED = dict.fromkeys(range(8), (6, 500)) | {3: (7, 499)}


def test_ras_counts_show_the_odd_rank():
    wait = wait_for(store(look(8), *ras("a", SEED), *ras("b", SEED)))
    assert (wait.state, [r.rank for r in wait.roots]) == ("mismatch", [3])
    assert wait.roots[0].doing == "another collective: AllReduce +1, ReduceScatter -1"


def test_ras_counts_that_move_are_no_hang():
    later = {r: (a, s + 9) for r, (a, s) in SEED.items()}
    wait = wait_for(store(look(8), *ras("a", SEED), *ras("b", later)))
    assert (wait.state, wait.roots) == ("none", ())


def test_equal_ras_counts_are_not_called_healthy():
    same = dict.fromkeys(range(8), (6, 500))
    wait = wait_for(store(look(8), *ras("a", same), *ras("b", same)))
    assert wait.state == "unobserved"
    assert any("no send, recv" in note for note in wait.confidence_notes)


def test_one_ras_answer_is_weak():
    (one,) = ask(rules.sync_op, judged(look(8), *ras("a", SEED)))
    assert one.strength is Strength.WEAK


def test_ras_names_the_lowest_count_and_not_the_listed_leaders():
    leaders = RasCounts(node=None, comm="c0", size=32, op="AllGather",
                        rows=((640, 30, ()), (641, 2, (12, 13))), sample="a")  # fmt: skip
    assert wait_for(store(RasReport(node=None, sample="a"), leaders)).roots == ()
    late = replace(leaders, rows=((639, 2, (12, 13)), (640, 30, ())))
    wait = wait_for(store(RasReport(node=None, sample="a"), late))
    assert (wait.state, [r.rank for r in wait.roots]) == ("host_stuck", [12, 13])


def test_a_ras_answer_of_another_job_is_set_aside():
    place = Place(rank=0, node="gpu-01", pid=4242)
    wait = wait_for(store(look(8), place, *ras("a", SEED), *ras("b", SEED)))
    assert wait.roots == ()
    assert "another job on a shared port (its pids" in wait.confidence_notes[0]


def test_a_ras_answer_of_a_larger_job_is_set_aside():
    wait = wait_for(store(look(4), *ras("a", SEED), *ras("b", SEED)))
    assert (wait.state, wait.roots) == ("unobserved", ())
    assert wait.confidence_notes == (
        "RAS answered for another job on a shared port (8 ranks, this job has 4)",
    )
    many = RasReport(node=None, sample="a", processes=64)
    assert "64 ranks" in wait_for(store(look(8), many)).confidence_notes[0]


def test_a_communicator_that_moves_does_not_excuse_one_that_does_not():
    def other(sample: str, count: int) -> list[object]:
        return [
            replace(r, comm="c1", counts=(("AllReduce", count),))
            for r in ras(sample, SEED)
            if isinstance(r, RasRank)
        ]

    facts = [look(8), *ras("a", SEED), *ras("b", SEED), *other("a", 10), *other("b", 12)]
    wait = wait_for(store(*facts))
    assert (wait.state, [r.rank for r in wait.roots]) == ("mismatch", [3])
    assert any("1 communicators moved" in note for note in wait.confidence_notes)


def test_no_ras_answer_without_a_difference_is_called_healthy():
    """Equal counts, in text or JSON, once or twice: the GPU may stand, send and recv are unseen."""
    equal = dict.fromkeys(range(8), (6, 500))
    text = RasCounts(node=None, comm="c0", size=8, op="AllReduce", rows=((640, 8, ()),), sample="a")
    for facts in (
        ras("a", equal), [*ras("a", equal), *ras("b", equal)],
        [RasReport(node=None, sample="a"), text], [RasReport(node=None, sample="a")],
    ):  # fmt: skip
        wait = wait_for(store(look(8), *facts))
        assert (wait.state, wait.roots) == ("unobserved", ())
        assert "RAS sees no send, recv or all-to-all" in wait.confidence_notes


def test_a_rank_of_a_small_communicator_is_named_by_its_global_number():
    counts = {0: (6, 500), 1: (6, 499), 2: (6, 500), 3: (6, 500)}
    places = [Place(rank=40 + r, node="n", pid=100 + r) for r in range(4)]
    wait = wait_for(store(look(64), *places, *ras("a", counts, 4), *ras("b", counts, 4)))
    assert [r.rank for r in wait.roots] == [41]
    unmapped = wait_for(store(look(64), *ras("a", counts, 4), *ras("b", counts, 4)))
    assert (unmapped.state, unmapped.roots) == ("unobserved", ())


# -- stacks ------------------------------------------------------------------------------------


def stack(rank: int, *frames: tuple[str, str]) -> Stack:
    told = tuple(StackFrame(function=f, file=path, line=7) for f, path in frames)
    return Stack(
        node=None, pid=None, rank=rank, thread="MainThread", main=True, active=None, frames=told
    )


C10D = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOADER = "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
WAITS = (("all_gather", C10D), ("step", "/opt/train.py"))
LOADS = (("wait", "/usr/lib/python3.11/threading.py"), ("get", "/usr/lib/python3.11/queue.py"),
         ("_try_get_data", LOADER), ("next_batch", "/opt/train.py"))  # fmt: skip


def test_equal_stacks_are_grouped_and_the_smallest_group_is_the_suspect():
    stacks = [stack(r, *(LOADS if r == 5 else WAITS)) for r in range(8)]
    assert [g.ranks for g in grouped(stacks)] == [(5,), (0, 1, 2, 3, 4, 6, 7)]
    odd = odd_one(stacks)
    assert odd is not None
    assert (odd.ranks, odd.meaning.kind if odd.meaning else None) == ((5,), "loader")


def test_two_against_two_have_no_odd_one():
    assert odd_one([stack(r, *(LOADS if r < 2 else WAITS)) for r in range(4)]) is None


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (LOADS, "loader"),
        (WAITS, "collective"),
        ((("save", "/v/site-packages/torch/serialization.py"),), "checkpoint"),
        ((("take_gil", ""), ("step", "/opt/train.py")), "gil"),
        ((("pread64", ""), ("read", "/opt/io.py")), "storage"),
        ((("load_batch_stalled", "/opt/train/make.py"),), "loader"),
        ((("frobnicate", "/opt/train.py"),), "user"),
    ],
)
def test_what_a_frame_means(frames, kind):
    told = meaning(stack(0, *frames))
    assert told is not None
    assert told.kind == kind


def test_the_roots_stack_tells_what_it_does():
    facts = judged(*recorded(fsdp(8, 5, "missing")), stack(5, *LOADS))
    (root,) = facts.all(Wait)[0].roots
    assert (root.doing, root.source_line) == (
        "waits for its data loader",
        "/opt/train.py:7 in next_batch",
    )


# -- the answer of `ranks` ---------------------------------------------------------------------


def test_the_answer_names_culprit_groups_and_place():
    place = Place(rank=6, node="gpu-01", pid=66, gpu_index=6, gpu_uuid="GPU-6")
    answer = ranks_answer(store(*recorded(tp_dp(4, 4, 6)), place))
    assert (answer.state, [c.rank for c in answer.culprits]) == ("host_stuck", [6])
    culprit = answer.culprits[0]
    assert (culprit.node, culprit.pid, culprit.gpu.uuid) == ("gpu-01", 66, "GPU-6")
    assert answer.unobserved == ()
    roles = {g.role for g in answer.groups}
    assert roles == {"world", "tp", "dp"}
    (row,) = [g for g in answer.groups if g.role == "tp" and 6 in g.behind]
    assert (row.waiting, row.behind, row.size) == ((4, 5, 7), (6,), 4)


def test_the_answer_of_a_healthy_job_has_no_culprit_and_names_the_slow():
    answer = ranks_answer(store(*recorded(fsdp(16, late={7: 250_000_000}))))
    assert (answer.state, answer.culprits) == ("none", ())
    assert [c.rank for c in answer.slow] == [7]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("mesh_tp", "tp"),
        ("mesh_dp_shard", "dp"),
        ("default_pg", "world"),
        ("7", None),
    ],
)
def test_roles_of_groups_by_their_names(name, role):
    assert role_of(name) == role


def test_group_without_members_is_told_by_its_users():
    head = GroupHead(rank=0, group=Group(name="1", ranks=()))
    assert ranks_answer(store(head)).groups[0].size == 1


def test_with_timing_on_a_rank_is_late_by_its_kernel_and_not_by_its_cpu():
    """The CPU enqueues a whole step ahead: only the kernels' own times show who comes last."""

    def judge(timing: bool):
        group = written.Group(name="0", desc="default_pg", ranks=tuple(range(4)))
        facts = Facts()
        for rank in range(4):
            r = written.Recorder(rank=rank, groups=(group,), timing=timing)
            for k in range(1, 9):
                call = r.collective(group, "all_reduce", [[8]], [[8]], at_ns=k * 10**9)
                ran = 4_000_000 if rank == 2 else 700_000_000
                r.complete(call, at_ns=k * 10**9 + 900_000_000, ran_ns=ran)
            origin = Origin(rank=rank, path=f"nccl_trace_rank_{rank}")
            for fact in flight_recorder.parse(written.pickled(r.dump()), origin):
                facts.add(fact)
        return late_ranks(facts.all(GroupHead))

    assert [row[0] for row in judge(timing=True)] == [2]
    assert judge(timing=False) == ()


# -- what one answer of RAS says where the graph names nobody ------------------------------------


def ras_answer(sample: str = "a") -> list[object]:
    """30 ranks at one count and two ahead of them; one process that does not answer."""
    rows = ((640, 30, ()), (641, 2, (12, 13)))
    counts = RasCounts(node=None, comm="c0", size=32, op="AllGather", rows=rows, sample=sample)
    silent = RasRank(node=None, comm="c0", rank=5, size=32, sample=sample, host="gpu-02", pid=71,
                     state="unresponsive")  # fmt: skip
    return [RasReport(node=None, sample=sample, dead=(("gpu-03", 88),)), counts, silent]


def test_one_answer_of_ras_is_context_that_accuses_nobody():
    found = ask(rules.sync_ras, store(*ras_answer(), Wait(state="unobserved")))
    assert {(f.role, f.strength) for f in found} == {(Role.CONTEXT, Strength.WEAK)}
    assert [f.node for f in found] == [None, None, None]
    says = [f.says for f in found]
    assert "30 at #640, 2 at #641 (ranks 12-13); the lowest count is the suspect" in says[0]
    assert "rank 5 of a communicator of 32 is unresponsive (pid 71 on gpu-02)" in says[1]
    assert "pid 88 on gpu-03 does not answer" in says[2]


def test_of_two_answers_of_ras_the_newer_is_told():
    found = ask(rules.sync_ras, store(*ras_answer("a"), RasReport(node=None, sample="b")))
    assert found == ()


def test_ras_is_silent_where_the_graph_names_a_rank():
    wait = Wait(state="host_stuck", roots=(WaitRoot(rank=3),))
    assert ask(rules.sync_ras, store(*ras_answer(), wait)) == ()
