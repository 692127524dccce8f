"""Rules that speak where little was mailed: SIGKILL without a reason, a stack without a graph."""

from dataclasses import replace
from typing import Any

from sluggish.facts.collective import Wait, WaitRoot, WatchdogTimeout
from sluggish.facts.host import KernelSpan, OomKill, Stack, StackFrame
from sluggish.facts.log import LogSign, LogSpan, ProcessExit, SlurmMessage
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.rules import memory, node

RULES = {rule.id: rule for rule in (*memory.RULES, *node.RULES)}
SPAN = LogSpan(node=None, path="job.out", bytes_total=9, bytes_read=9)


def run(rule_id: str, *items: Any) -> list[Finding]:
    facts = Facts()
    for item in items:
        facts.add(item)
        facts.seen[type(item)].add(getattr(item, "node", None))
    return list(ask(RULES[rule_id], facts))


def roots(*items: Any) -> list[Finding]:
    return [f for f in run("MEM-OOM", SPAN, *items) if f.role is Role.ROOT]


def killed(pid: int = 77, **more: Any) -> ProcessExit:
    told: dict[str, Any] = {
        "node": None, "rank": None, "at": None, "pid": pid, "exit_code": -9, "signal": 9,
        "source": "torchrun", "line": "failed (exitcode: -9)", "order": 5,
    }  # fmt: skip
    return ProcessExit(**(told | more))


def test_a_sigkill_that_nobody_explains_is_a_weak_sign_of_the_oom_killer() -> None:
    (found,) = roots(killed())
    assert (found.strength, found.spots) == (Strength.WEAK, ())
    assert "kernel log only" in found.says
    (named,) = roots(killed(node="gpu-07", rank=3))
    assert [(s.rank, s.node) for s in named.spots] == [(3, "gpu-07")]


def test_a_loader_worker_with_sigkill_is_the_same_sign() -> None:
    sign = LogSign(node=None, rank=2, at=None, kind="worker_killed", order=1,
                   line="DataLoader worker (pid 9) is killed by signal: Killed.")  # fmt: skip
    assert [f.subject for f in roots(sign)] == ["a loader worker"]
    assert roots(replace(sign, line="DataLoader worker (pid(s) 9) exited unexpectedly")) == []


def test_a_kernel_log_without_an_oom_kill_speaks_against_it() -> None:
    facts = Facts()
    for item in (SPAN, killed(node="gpu-07")):
        facts.add(item)
    facts.seen[OomKill].add("gpu-07")
    facts.seen[KernelSpan].add("gpu-07")
    assert [f for f in ask(RULES["MEM-OOM"], facts) if f.role is Role.ROOT] == []


def test_many_kills_a_cancelled_step_or_a_timeout_before_explain_a_sigkill() -> None:
    assert roots(killed(1), killed(2), killed(3)) == []
    cancelled = SlurmMessage(node=None, at=None, kind="cancelled", line="CANCELLED AT")
    assert roots(killed(), cancelled) == []
    waited = WatchdogTimeout(
        node=None,
        rank=1,
        group_rank=None,
        at=None,
        group=None,
        seq=4,
        op="ALLREDUCE",
        order=1,
        line="Watchdog",
    )
    assert roots(killed(), waited) == []
    assert len(roots(killed(), replace(waited, order=9))) == 1


def stack(*frames: tuple[str, str], **more: Any) -> Stack:
    told: dict[str, Any] = {
        "node": None, "pid": 42, "rank": None, "thread": "MainThread", "main": True,
        "active": True, "frames": tuple(StackFrame(function=f, file=n, line=9) for f, n in frames),
    }  # fmt: skip
    return Stack(**(told | more))


BARRIER = (("barrier", "torch/distributed/distributed_c10d.py"), ("save", "/opt/job/train.py"))


def test_a_mailed_stack_is_said_in_words_and_accuses_nobody() -> None:
    (found,) = run("PROC-STACK", stack(*BARRIER))
    assert found.role is Role.CONTEXT
    assert found.says == "pid 42: waits in a collective, called at /opt/job/train.py:9 in save"
    (native,) = run(
        "PROC-STACK", stack(("clock_gettime", "libc.so.6"), ("cuStreamSynchronize", ""))
    )
    assert native.says == "pid 42: waits for its GPU"


def test_equal_stacks_are_one_line_and_the_rare_place_comes_first() -> None:
    many = [stack(*BARRIER, rank=r, pid=r) for r in range(5)]
    odd = stack(("_next_data", "torch/utils/data/dataloader.py"), rank=7, pid=7)
    first, second = run("PROC-STACK", *many, odd)
    assert first.says.startswith("rank 7: waits for its data loader")
    assert second.says.startswith("5 ranks: waits in a collective")


def test_where_the_graph_names_somebody_stacks_are_not_said_twice() -> None:
    wait = Wait(state="host_stuck", roots=(WaitRoot(rank=3, group=None, seq=1, waiters=7),))
    assert run("PROC-STACK", stack(*BARRIER), wait) == []
    worker = stack(("get", "multiprocessing/queues.py"), ("_worker_loop", "worker.py"))
    assert run("PROC-STACK", worker) == []
