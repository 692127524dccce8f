"""What a host has besides its ranks: faults of the machine, heat, leftovers, waits."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.facts.derived import Look, Onset
from sluggish.facts.gpu import Gpu, GpuProcess
from sluggish.facts.host import KernelTrouble, RankProcess, Stack, StackFrame, StorageEvent
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.job import Job, NodeState
from sluggish.probes import kernel_log
from sluggish.rules import RULES

BY_ID = {rule.id: rule for rule in RULES}
T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
START = T0 - timedelta(hours=14)
NODES = ("gpu-07", "gpu-08")
LOOK = Look(
    at=T0 + timedelta(minutes=10), nodes=NODES, world_size=16, job_started_at=START, loose=False
)
ONSET = Onset(earliest=T0 - timedelta(seconds=5), latest=T0, source="watchdog")
TORN = Onset(earliest=T0, latest=T0, source="watchdog", teardown_at=T0 + timedelta(minutes=5))


def run(rule_id: str, *items: Any, saw: dict[type, tuple[str, ...]] | None = None) -> list[Finding]:
    store = Facts()
    for item in items:
        store.add(item)
        store.seen[type(item)].add(getattr(item, "node", None))
    for kind, nodes in (saw or {}).items():
        store.seen[kind] |= set(nodes)
    return list(ask(BY_ID[rule_id], store))


def trouble(kind: str, seconds: float | None = -10, **more: Any) -> KernelTrouble:
    at = None if seconds is None else T0 + timedelta(seconds=seconds)
    return KernelTrouble(**{"node": "gpu-07", "at": at, "kind": kind, "line": kind, **more})


# NODE-FAULT


@pytest.mark.parametrize(
    ("kind", "seconds", "onset", "role", "strength"),
    [
        ("mce", -10, ONSET, Role.ROOT, Strength.STRONG),
        ("panic", -10, ONSET, Role.ROOT, Strength.STRONG),
        ("oops", 60, ONSET, Role.ROOT, Strength.WEAK),
        ("soft_lockup", -10, ONSET, Role.ROOT, Strength.WEAK),
        ("rcu_stall", -10, ONSET, Role.ROOT, Strength.WEAK),
        ("mce", None, ONSET, Role.ROOT, Strength.WEAK),
        ("mce", -10, None, Role.ROOT, Strength.WEAK),
        ("mce", -7200, ONSET, Role.HOUSEKEEPING, Strength.WEAK),
        ("mce", -20 * 3600, ONSET, Role.HOUSEKEEPING, Strength.WEAK),
        ("soft_lockup", -20 * 3600, ONSET, Role.CONTEXT, Strength.WEAK),
        ("oops", 360, TORN, Role.CONSEQUENCE, Strength.WEAK),
    ],
)
def test_a_fault_of_the_host_is_weighed_by_its_kind_and_time(
    kind: str, seconds: float | None, onset: Onset | None, role: Role, strength: Strength
) -> None:
    items = [trouble(kind, seconds), LOOK, *([onset] if onset else [])]
    (found,) = run("NODE-FAULT", *items)
    assert (found.role, found.strength, found.subtype) == (role, strength, "host_fault")


def test_a_lockup_that_comes_again_before_the_stall_is_strong() -> None:
    (found,) = run("NODE-FAULT", trouble("soft_lockup"), trouble("soft_lockup", -36), LOOK, ONSET)
    assert found.strength is Strength.STRONG
    assert "(2 times)" in found.says


def test_a_hard_lockup_is_told_as_one() -> None:
    line = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 3"
    (found,) = run("NODE-FAULT", trouble("other", line=line), LOOK, ONSET)
    assert (found.strength, "hard lockup" in found.says) == (Strength.STRONG, True)


def test_the_same_on_two_nodes_is_shared_and_other_nodes_and_kinds_are_silent() -> None:
    found = run("NODE-FAULT", trouble("mce"), trouble("mce", node="gpu-08"), LOOK, ONSET)
    assert [f.shared for f in found] == [True, True]
    for fact in (trouble("mce", node="login-1"), trouble("thermal"), trouble("boot")):
        assert run("NODE-FAULT", fact, LOOK, ONSET) == []


# SLOW-HOST: heat


def test_heat_is_a_hint_in_the_jobs_time_and_of_few_nodes_only() -> None:
    (found,) = run("SLOW-HOST", trouble("thermal"), LOOK, ONSET)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.WEAK, "slow_host",
    )  # fmt: skip
    assert run("SLOW-HOST", trouble("thermal", -20 * 3600), LOOK, ONSET) == []
    many = Look(at=T0, nodes=tuple("abcde"), world_size=40, job_started_at=START, loose=False)
    assert run("SLOW-HOST", *(trouble("thermal", node=n) for n in "abcde"), many, ONSET) == []


# START-LOCK


def _main(pid: int, file: str = "torch/utils/file_baton.py", node: str = "gpu-07") -> Stack:
    frames = (StackFrame(function="wait", file=file), StackFrame(function="load", file="ops.py"))
    return Stack(node=node, pid=pid, rank=None, thread="MainThread", main=True, active=False,
                 frames=frames)  # fmt: skip


def _process(pid: int, name: str = "python", node: str = "gpu-07", **more: Any) -> RankProcess:
    return RankProcess(**{"node": node, "pid": pid, "name": name, "state": "S", **more})


WAITING = (_main(1), _process(1, rank=0), _process(2, rank=8, node="gpu-08"), LOOK)


def test_all_wait_for_a_lock_and_nobody_builds_is_a_stale_lock() -> None:
    (found,) = run("START-LOCK", *WAITING)
    assert (found.role, found.strength, found.subtype, found.shared) == (
        Role.ROOT, Strength.STRONG, "stale_lock", True,
    )  # fmt: skip
    assert "rank 0 waits for the lock of PyTorch's build" in found.says


@pytest.mark.parametrize("name", ["ninja", "nvcc", "cicc", "cc1plus", "g++"])
def test_while_somebody_builds_the_others_wait_rightly(name: str) -> None:
    (found,) = run("START-LOCK", *WAITING, _process(9, name, node="gpu-08"))
    assert found.role is Role.CONTEXT
    assert f"{name} builds on gpu-08" in found.says


def test_a_lock_is_weak_where_a_node_was_not_seen_and_of_another_kind() -> None:
    assert run("START-LOCK", _main(1), _process(1, rank=0), LOOK)[0].strength is Strength.WEAK
    other = (_main(1, "filelock/_api.py"), *WAITING[1:])
    assert run("START-LOCK", *other)[0].strength is Strength.WEAK
    assert run("START-LOCK", _main(1, "threading.py"), *WAITING[1:]) == []


# NODE-UNKILLABLE


def test_kill_task_failed_is_the_consequence_of_what_a_process_hangs_on() -> None:
    state = NodeState(node="gpu-07", state="IDLE", flags=("DRAIN",), reason="Kill task failed")
    (bare,) = run("NODE-UNKILLABLE", state, LOOK)
    assert (bare.role, bare.strength) == (Role.CONSEQUENCE, Strength.WEAK)
    stuck = _process(5, rank=3, wchan="rpc_wait_bit_killable", state="D")
    (found,) = run("NODE-UNKILLABLE", state, stuck, LOOK)
    assert (found.role, found.strength) == (Role.CONSEQUENCE, Strength.STRONG)
    assert "1 process in state D on rpc_wait_bit_killable cannot be killed" in found.says
    other = NodeState(node="gpu-07", state="IDLE", flags=("DRAIN",), reason="bad disk")
    assert run("NODE-UNKILLABLE", other, stuck, LOOK) == []


def test_a_job_that_does_not_end_names_what_holds_it() -> None:
    job = Job(id="7", raw_id="7", source="scontrol", state="COMPLETING", nodes=NODES)
    stuck = _process(5, wchan="ll_file_read", state="D")
    (found,) = run("NODE-UNKILLABLE", job, stuck, LOOK)
    assert found.says.startswith("the job has ended and does not let go of its nodes")
    running = Job(id="7", raw_id="7", source="scontrol", state="RUNNING", nodes=NODES)
    assert run("NODE-UNKILLABLE", running, stuck, LOOK) == []
    assert run("NODE-UNKILLABLE", job, _process(5), LOOK) == []


# GPU-LEFTOVER


def _gpu(index: int, *processes: GpuProcess, **more: Any) -> Gpu:
    return Gpu(**{"node": "gpu-07", "index": index, "pci": f"0000:0{index}:00.0",
                  "processes": processes, "processes_listed": True, **more})  # fmt: skip


OURS = GpuProcess(pid=1, name="python", kind="C", memory_mib=40_000)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ((_gpu(0, OURS), _gpu(1, GpuProcess(pid=99, name="python", memory_mib=39_000))),
         "pid 99 (python), not of this job, holds 38 GiB"),
        ((_gpu(0, OURS), _gpu(1, memory_used_mib=20_480)),
         "20 GiB are held and no process is listed"),
    ],
)  # fmt: skip
def test_what_was_left_on_a_gpu_is_housekeeping(gpus: tuple[Gpu, ...], words: str) -> None:
    (found,) = run("GPU-LEFTOVER", *gpus, _process(1, rank=0), LOOK)
    assert (found.role, found.subject) == (Role.HOUSEKEEPING, "gpu 1")
    assert words in found.says


@pytest.mark.parametrize(
    "gpus",
    [
        (_gpu(0, OURS), _gpu(1, memory_used_mib=900)),
        (_gpu(0, OURS), _gpu(1, GpuProcess(pid=99, name="Xorg", memory_mib=2_000))),
        (_gpu(0, OURS), _gpu(1, GpuProcess(pid=99, kind="G", memory_mib=2_000))),
        (_gpu(0, OURS), _gpu(1, memory_used_mib=20_480, mig=True)),
        (_gpu(0), _gpu(1, memory_used_mib=20_480)),  # a container lists nobody
    ],
)
def test_monitors_small_contexts_and_what_cannot_be_compared_are_silent(
    gpus: tuple[Gpu, ...],
) -> None:
    assert run("GPU-LEFTOVER", *gpus, _process(1, rank=0), LOOK) == []


# DATA-STORAGE: one target of a file system


def test_an_eviction_is_strong_until_the_same_target_is_back() -> None:
    lines = (
        "[ 100.000001] LustreError: 167-0: scr-OST0007-osc-ff11: This client was evicted by "
        "scr-OST0007; in progress operations using this service will fail.\n"
    )
    back = "[ 130.000001] Lustre: scr-OST0007-osc-ff11: Connection restored to scr-OST0007 (at x)\n"
    origin = Origin(node="gpu-07", boot_at=T0 - timedelta(seconds=105))
    (evicted,) = (f for f in kernel_log.parse(lines, origin) if isinstance(f, StorageEvent))
    assert (evicted.server, evicted.recovered) == ("scr-OST0007", False)
    (found,) = run("DATA-STORAGE", evicted, LOOK, ONSET)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    events = [f for f in kernel_log.parse(lines + back, origin) if isinstance(f, StorageEvent)]
    assert [f for f in run("DATA-STORAGE", *events, LOOK, ONSET) if f.role is Role.ROOT] == []
