"""What Gloo does and records: it ends a rank that is sent too much, and writes no dump for it."""

from typing import Any

import pytest
from fr_scenes import fsdp

from sluggish.correlate._combine import dead_ranks, with_stacks
from sluggish.correlate.stacks import user_line
from sluggish.correlate.waitgraph import wait_for
from sluggish.facts.collective import GroupHead, RankRecord, Wait, WaitRoot
from sluggish.facts.host import RankProcess, Stack, StackFrame
from sluggish.facts.log import LogSign
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Role, ask
from sluggish.probes import flight_recorder, job_log
from sluggish.rules.collective import sync_tie
from sluggish.rules.node.gone import proc_gone

REFUSED = (
    "  what():  [enforce fail at /build/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= "
    "op.nbytes. 2048 vs 512. Received data size doesn't match expected size. Is there a "
    "distributed collective mismatch in your code?"
)


def log_of(rank: int) -> list[Any]:
    text = f"terminate called after throwing an instance of 'gloo::EnforceNotMet'\n{REFUSED}\n"
    assert job_log.sniff(text.encode())
    return [
        f
        for f in job_log.parse(text, Origin(rank=rank, path=f"rank_{rank}.log"))
        if isinstance(f, LogSign)
    ]


def dumps_but_of(*gone: int) -> list[RankRecord | GroupHead]:
    out: list[RankRecord | GroupHead] = []
    for rank, content in fsdp(6, gone[0], "dead").files().items():
        if rank not in gone:
            out += flight_recorder.parse(content, Origin(rank=rank, path=f"fr_{rank}"))
    return out


def process(rank: int, sample: str, state: str = "S") -> RankProcess:
    return RankProcess(
        node="gpu-01", pid=4000 + rank, sample=sample, name="python", state=state, rank=rank
    )


def facts(*rows: Any) -> Facts:
    store = Facts()
    for row in rows:
        store.add(row)
    return store


def roots(wait: Wait) -> list[int]:
    return [root.rank for root in wait.roots]


def test_from_gloos_line_alone_both_sides_are_told_and_nobody_is_blamed():
    store = facts(*log_of(3))
    wait = wait_for(store)
    assert (wait.state, wait.mismatch, roots(wait)) == ("tie", "sizes", [])
    store.add(wait)
    [told] = ask(sync_tie, store)
    assert told.spots == ()
    for words in ("a buffer for 512 bytes (rank", " against 2048 bytes sent"):
        assert words in told.says


def test_the_rank_that_gloo_ended_is_odd_where_all_others_posted_one_size():
    wait = wait_for(facts(*dumps_but_of(2), *log_of(2)))
    assert (wait.state, wait.mismatch, roots(wait)) == ("mismatch", "sizes", [2])
    assert wait.roots[0].waiters == 5


def test_with_one_more_rank_unseen_the_rank_that_gloo_ended_may_be_the_victim():
    wait = wait_for(facts(*dumps_but_of(2, 1), *log_of(2)))
    assert (wait.state, roots(wait), wait.unobserved) == ("unobserved", [], (1, 2))


def test_the_process_that_gloo_ended_is_no_root_by_having_ended():
    seen = [process(r, s) for s in "ab" for r in range(4) if (r, s) != (2, "b")]
    alone, told = facts(*seen), facts(*seen, *log_of(2))
    assert [f.role for f in ask(proc_gone, alone)] == [Role.ROOT]
    assert [f.role for f in ask(proc_gone, told)] == [Role.CONSEQUENCE]
    assert dead_ranks(alone) == {2: "its process has ended"}
    assert dead_ranks(told) == {}


def test_a_stopped_process_without_a_dump_is_who_the_others_wait_for():
    seen = [process(r, s, "T" if r == 2 else "S") for s in "ab" for r in range(6)]
    wait = wait_for(facts(*dumps_but_of(2), *seen))
    assert (wait.state, roots(wait)) == ("host_stuck", [2])
    assert wait.roots[0].doing == "stopped by a signal (state T)"


@pytest.mark.parametrize("stopped", [{1, 2}, set(range(6))])
def test_several_stopped_processes_are_a_suspended_job(stopped: set[int]):
    seen = [process(r, s, "T" if r in stopped else "S") for s in "ab" for r in range(6)]
    assert dead_ranks(facts(*seen)) == {}


def test_the_users_line_is_found_under_the_short_names_that_py_spy_prints():
    names = ("selectors.py", "multiprocessing/connection.py", "torch/utils/data/dataloader.py")
    frames = [StackFrame(function="poll", file=name, line=7) for name in names]
    mine = StackFrame(function="flat", file="pretrain/train.py", line=94)
    stack = Stack(
        node=None, pid=1, rank=0, thread="MainThread", main=True, active=False,
        frames=(*frames, mine),
    )  # fmt: skip
    assert user_line(stack) == "pretrain/train.py:94 in flat"
    stopped = Wait(state="host_stuck", roots=(WaitRoot(rank=0, doing="stopped by a signal"),))
    [root] = with_stacks(stopped, [stack]).roots
    assert (root.doing, root.source_line) == (
        "stopped by a signal",
        "pretrain/train.py:94 in flat",
    )
