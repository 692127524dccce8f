# ruff: noqa: E501 (log lines are as long as they are)
"""Lines of JAX/XLA, Megatron and NVRx: who did not come, who is slow, what nobody sees."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.correlate.waitgraph import wait_for
from sluggish.facts.collective import LaggingRanks, Wait
from sluggish.facts.derived import Look
from sluggish.facts.log import LogSign
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.loglines import frameworks
from sluggish.loglines.prefix import lines
from sluggish.probes import job_log
from sluggish.ranks import ranks_answer

JOB = "/job:jax_worker/replica:0/task:"


def read(text: str) -> list[LaggingRanks | LogSign]:
    return list(frameworks.parse(lines(text, Origin())))


def kinds(text: str) -> list[tuple[str, str, int | None]]:
    return [(f.kind, f.detail, f.rank) for f in read(text) if isinstance(f, LogSign)]


def answer(text: str, world: int | None = None) -> Wait:
    facts = Facts()
    facts.add(Look(at=None, nodes=(), world_size=world, job_started_at=None, loose=True))
    for fact in read(text):
        facts.add(fact)
    return wait_for(facts)


def barrier(*late: int, came: int, of: int) -> str:
    names = "\n".join(f"{JOB}{task}" for task in late)
    return (
        "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: "
        "[Init]Wait_for_all_tasks_to_register::0. This usually happens because a task triggered "
        "the barrier too early or too slowly. Please look at the task logs (both timed out and "
        "first task) to debug further.\n"
        f"# of tasks that reached the barrier: {came}/{of}.\n"
        f"The first task at the barrier: {JOB}0. Some timed out task names:\n{names}\n\n"
        "RPC: /tensorflow.CoordinationService/Barrier"
    )


def test_the_task_that_did_not_come_to_the_barrier_is_named():
    (fact,) = read(barrier(11, came=15, of=16))
    assert isinstance(fact, LaggingRanks)
    assert (fact.ranks, fact.kind, fact.expected) == ((11,), "jax_barrier", 16)
    wait = answer(barrier(11, came=15, of=16))
    assert (wait.state, [r.rank for r in wait.roots]) == ("host_stuck", [11])
    assert wait.roots[0].waiters == 15
    assert wait.sources == ("coordination service",)


def test_the_first_task_at_the_barrier_is_never_among_the_late():
    (fact,) = read(barrier(3, 5, came=14, of=16))
    assert isinstance(fact, LaggingRanks)
    assert fact.ranks == (3, 5)


def test_where_half_did_not_come_nobody_is_named():
    wait = answer(barrier(*range(8), came=8, of=16))
    assert (wait.state, wait.roots) == ("unobserved", ())
    assert "too early or too late" in wait.confidence_notes[0]


def test_tasks_that_are_not_ranks_are_told_but_not_named_as_ranks():
    wait = answer(barrier(1, came=3, of=4), world=32)
    assert (wait.state, wait.roots) == ("unobserved", ())
    assert "JAX tasks [1]" in wait.confidence_notes[0]


HEARTBEAT = (
    "2026-11-24 03:05:38.568412: E external/xla/xla/tsl/distributed_runtime/coordination/"
    "coordination_service.cc:1170] {job}{task} has been set to ERROR in coordination service: "
    "UNAVAILABLE: Task {job}{task} heartbeat timeout. This indicates that the remote task has "
    "failed, got preempted, or crashed unexpectedly."
)


def test_one_silent_heartbeat_names_its_task_and_several_name_nobody():
    one = HEARTBEAT.format(job=JOB, task=5)
    assert kinds(one) == [("jax_heartbeat", "task 5", 5)]
    assert [r.rank for r in answer(one).roots] == [5]
    more = one + "\n" + HEARTBEAT.format(job=JOB, task=2)
    assert answer(more).roots == ()


def test_who_ends_because_another_task_failed_is_a_victim():
    line = (
        "F1124 03:06:48.594200 104452 client.h:77] Terminating process because the JAX distributed "
        "service detected fatal errors. This most likely indicates that another task died"
    )
    assert kinds(line) == [("jax_ended", "ended because another task failed", None)]
    assert answer(line).roots == ()


STUCK = (
    "E1124 03:07:00.1 7 rendezvous.cc:38] [id=3] This thread has been waiting for `first call to "
    "collective operation 190; run_id=-8513` for 20 seconds and may be stuck. {rest}"
)
LATE = STUCK.format(
    rest="Expected 8 threads to join the rendezvous, but not all of them arrived on time."
)
ALL = STUCK.format(
    rest="All 8 threads joined the rendezvous, however the leader has not marked the rendezvous as completed."
)


def test_a_rendezvous_of_xla_says_who_waits_and_names_nobody():
    operation = "first call to collective operation 190"
    assert kinds(LATE) == [("xla_rendezvous", f"{operation}: a thread is late", None)]
    wait = answer(LATE)
    assert (wait.state, wait.roots, wait.operation) == ("unobserved", (), operation)
    assert answer(ALL).state == "all_joined"


def test_a_thread_that_came_loose_waits_no_more():
    loose = "E1124 03:07:30.1 7 rendezvous.cc:60] Thread is unstuck! Warning above was a false-positive."
    assert answer(f"{LATE}\n{loose}").sources == ()
    assert answer(f"{loose}\n{LATE}").sources == ("XLA",)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[WARNING] [RankMonitorServer:5] Did not get subsequent heartbeat. Waited 171.92 seconds.", 5),
        ("2026-11-24 [WARNING] Did not get initial heartbeat. Waited 600.00 seconds.", None),
        ("[RankMonitorServer:12] Section 'step' has been open for 612.08 seconds. Timeout is 600.00 seconds.", 12),
        ("Was out of section for 601.00 seconds. Timeout is 600.00 seconds.", None),
    ],
)  # fmt: skip
def test_a_monitor_of_nvrx_that_lost_its_rank_blames_nobody(line, rank):
    """In a hang every rank misses its heartbeat."""
    ((kind, _, found),) = kinds(line)
    assert (kind, found) == ("nvrx_timeout", rank)
    assert answer(line).roots == ()


@pytest.mark.parametrize("shown", ["{5, 13}", "[5, 13]", "{StragglerId(rank=5, node='gpu-07'), StragglerId(rank=13, node='gpu-08')}"])  # fmt: skip
def test_stragglers_of_nvrx_are_slow_and_not_stuck(shown):
    line = f"STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {shown}"
    assert [(kind, rank) for kind, _, rank in kinds(line)] == [
        ("nvrx_straggler", 5), ("nvrx_straggler", 13),
    ]  # fmt: skip
    facts = Facts()
    for fact in read(line):
        facts.add(fact)
    told = ranks_answer(facts)
    assert ([c.rank for c in told.slow], told.culprits) == ([5, 13], ())


ETPT = "0: INFO:megatron.core.utils:[2026-11-24 03:07:56] | MnRtt/Rnk: 3453.08ms/8 | MxRtt/Rnk: 8468.20ms/3 | MnEtpt/Rnk: {low}TF/3 | MxEtpt/Rnk: 297.32TF/8"


def test_megatron_names_its_slowest_rank_only_where_it_is_clearly_slower():
    slow = [("megatron_straggler", "estimated 120 TFLOP/s, the fastest 297", 3)]
    assert kinds(ETPT.format(low="120.02")) == slow
    assert kinds(ETPT.format(low="296.02")) == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("INFO deep_ep: buffer of 1 GB per rank over NVSHMEM", "NVSHMEM or DeepEP"),
        ("INFO custom_all_reduce.py:150] Registering 4480 cuda graph addresses", "a custom all-reduce"),
        ("Capturing CUDA graph shapes: 100%|##########| 35/35", "CUDA graphs"),
    ],
)  # fmt: skip
def test_traffic_that_no_recorder_sees_is_named(line, what):
    assert kinds(line) == [("unseen_traffic", what, None)]


@pytest.mark.parametrize(
    "line",
    [
        "WARNING Custom allreduce is disabled because it is not supported on more than two PCIe-only GPUs",
        "DeepEP not available, falling back to all-to-all",
        "barrier of my own timed out",
        "task: heartbeat",
    ],
)
def test_other_lines_say_nothing(line):
    assert read(line) == []


def test_the_job_log_probe_reads_them():
    found = list(job_log.parse(barrier(11, came=15, of=16), Origin(path="job.out")))
    assert [f.ranks for f in found if isinstance(f, LaggingRanks)] == [(11,)]


@given(
    st.text(
        alphabet=st.sampled_from(list("Barrier timed out. Id: task:/job123{}[],\n")), max_size=300
    )
)
@settings(max_examples=60)
def test_any_text_gives_facts_or_nothing(text):
    for fact in read(text):
        assert isinstance(fact, LaggingRanks | LogSign)
