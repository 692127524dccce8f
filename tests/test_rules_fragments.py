"""Rules that speak where little was mailed: SIGKILL without a reason, a stack without a graph."""

from dataclasses import replace
from typing import Any

import pytest

from sluggish.facts.collective import Wait, WaitRoot, WatchdogTimeout
from sluggish.facts.gpu import PciAcs
from sluggish.facts.host import KernelSpan, OomKill, Stack, StackFrame
from sluggish.facts.log import (
    LogSign,
    LogSpan,
    ProcessExit,
    Progress,
    PythonError,
    SlurmMessage,
)
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.job import Job
from sluggish.rules import app, config, data, memory, node, progress

RULES = {
    rule.id: rule
    for rule in (
        *app.RULES, *config.RULES, *data.RULES, *memory.RULES, *node.RULES, *progress.RULES,
    )
}  # fmt: skip
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


def sign(kind: str, **more: Any) -> LogSign:
    told: dict[str, Any] = {"node": None, "rank": None, "at": None, "line": kind, "order": 5}
    return LogSign(kind=kind, **(told | more))


def steps() -> list[Progress]:
    return [Progress(node=None, rank=0, at=None, step=n, order=n) for n in range(3)]


@pytest.mark.parametrize("kind", ["rank_count", "port_in_use", "container_failed"])
def test_what_keeps_a_job_from_starting_is_no_cause_of_one_that_stepped(kind: str) -> None:
    (found,) = run("CFG-LAUNCH", SPAN, sign(kind))
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    assert run("CFG-LAUNCH", SPAN, sign(kind), *steps()) == []


@pytest.mark.parametrize("kind", ["store_no_route", "store_unresolved"])
def test_an_unreachable_rendezvous_is_a_setting_before_the_first_step_only(kind: str) -> None:
    (found,) = run("CFG-IFACE", SPAN, sign(kind, detail="gpu-01"))
    assert (found.role, found.strength, found.spots) == (Role.ROOT, Strength.STRONG, ())
    assert "gpu-01" in found.says
    (late,) = run("CFG-IFACE", SPAN, sign(kind, detail="gpu-01"), *steps())
    assert late.role is Role.CONTEXT


def test_a_stale_handle_after_the_first_timeout_is_a_consequence() -> None:
    stale = sign("storage_error", detail="[Errno 116] Stale file handle", rank=4, order=5)
    (found,) = run("DATA-STORAGE", SPAN, stale)
    assert (found.role, found.strength, found.spots[0].rank) == (Role.ROOT, Strength.STRONG, 4)
    waited = WatchdogTimeout(node=None, rank=1, group_rank=None, at=None, group=None, seq=4,
                             op="ALLREDUCE", order=1, line="Watchdog")  # fmt: skip
    (late,) = run("DATA-STORAGE", SPAN, stale, waited)
    assert (late.role, late.spots) == (Role.CONSEQUENCE, ())


def test_an_exit_code_beside_nothing_but_echoes_is_not_explained_by_them() -> None:
    ended = ProcessExit(node="gpu-05", rank=10, at=None, exit_code=1, source="torchrun", order=3,
                        line="exitcode  : 1 (pid: 9)")  # fmt: skip
    echo = PythonError(node=None, rank=None, at=None, type="ChildFailedError", message="", order=4)
    assert [f.role for f in run("APP-EXIT", SPAN, ended, echo)] == [Role.ROOT]
    own = replace(echo, type="KeyError", message="'x'", order=1)
    assert [f.role for f in run("APP-EXIT", SPAN, ended, own)] == [Role.CONSEQUENCE]


def test_a_rendezvous_without_a_count_is_only_weak() -> None:
    (found,) = run("START-RENDEZVOUS", sign("rendezvous_timeout"))
    assert (found.strength, found.spots) == (Strength.WEAK, ())
    (counted,) = run("START-RENDEZVOUS", sign("rendezvous_timeout", detail="63/64"))
    assert counted.strength is Strength.STRONG


def test_slurms_own_line_in_the_log_says_how_it_ended_where_nobody_asked_slurm() -> None:
    ended = SlurmMessage(node=None, at=None, kind="time_limit", line="DUE TO TIME LIMIT")
    (found,) = run("JOB-STATE", ended)
    assert (found.role, found.subtype) == (Role.CONTEXT, "time_limit")
    assert run("JOB-STATE", SlurmMessage(node=None, at=None, kind="other", line="x")) == []
    asked = Job(id="1", raw_id="1", source="scontrol", state="RUNNING", nodes=("a",))
    assert [f.role for f in run("JOB-STATE", ended, asked)] == [Role.ALL_CLEAR]


def test_an_illegal_access_that_only_the_watchdog_printed_is_the_programs() -> None:
    line = "watchdog thread terminated with exception: CUDA error: an illegal memory access"
    told = sign("cuda_error", detail="an illegal memory access was encountered", rank=3, line=line)
    (found,) = [f for f in run("APP-EXCEPTION", SPAN, told) if f.role is Role.ROOT]
    assert (found.strength, found.spots[0].rank) == (Strength.STRONG, 3)
    elsewhere = replace(told, line="RuntimeError: CUDA error: an illegal memory access")
    assert [f for f in run("APP-EXCEPTION", SPAN, elsewhere) if f.role is Role.ROOT] == []


def test_acs_that_redirects_is_a_weak_sign_and_none_in_a_job_that_stepped() -> None:
    bridge = PciAcs(node=None, pci="0000:40:01.1", bridge=True, redirects=True, line="ACSCtl:")
    (found,) = run("CFG-P2P", bridge, replace(bridge, pci="0000:40:02.1"))
    assert (found.role, found.strength) == (Role.ROOT, Strength.WEAK)
    assert "2 bridges" in found.says
    (late,) = run("CFG-P2P", bridge, *steps())
    assert late.role is Role.CONTEXT
    quiet = (replace(bridge, redirects=False), replace(bridge, bridge=False))
    assert run("CFG-P2P", *quiet) == []
