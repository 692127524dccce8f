"""Rules on storage, loader, checkpoint and imports, and the deltas that they stand on."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.causes import Phase
from sluggish.correlate.procs import deltas, odd_cpu, what_it_waits_on
from sluggish.facts.collective import Wait, WaitRoot
from sluggish.facts.derived import Look, Onset, PhaseFact
from sluggish.facts.host import (
    HungTask,
    Mount,
    NodeIdentity,
    RankProcess,
    Stack,
    StackFrame,
    StorageEvent,
)
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts, Gap
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.rules import data

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
NODES = ("gpu-07", "gpu-08")
RULES = {rule.id: rule for rule in data.RULES}
LOOK = Look(
    at=T0 + timedelta(minutes=10), nodes=NODES, world_size=16,
    job_started_at=T0 - timedelta(hours=14), loose=False,
)  # fmt: skip
ONSET = Onset(earliest=T0 - timedelta(seconds=5), latest=T0, source="watchdog")


def run(rule_id: str, *items: Any) -> list[Finding]:
    facts = Facts()
    for item in items:
        facts.add(item)
    return list(ask(RULES[rule_id], facts))


def roots(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.role is Role.ROOT]


def process(pid: int, **more: Any) -> RankProcess:
    return RankProcess(**{"node": "gpu-07", "pid": pid, "name": "python", "state": "S", **more})


def both(pid: int, grew: dict[str, float] | None = None, **more: Any) -> list[RankProcess]:
    """Two samples 10 s apart; `grew` is what was added to cpu_s, read_bytes, written_bytes."""
    base: dict[str, Any] = {"cpu_s": 100.0, "read_bytes": 5000, "written_bytes": 5000, **more}
    later = {key: base[key] + value for key, value in (grew or {}).items()}
    return [
        process(pid, sample="a", at=T0, **base),
        process(pid, sample="b", at=T0 + timedelta(seconds=10), **{**base, **later}),
    ]


def dead(node: str = "gpu-07", path: str = "/data") -> Mount:
    return Mount(node=node, path=path, fstype="nfs4", source="fs1:/data", answered=False,
                 waited_s=5.0)  # fmt: skip


NFS = {"state": "D", "wchan": "rpc_wait_bit_killable"}


# correlate/procs


def test_a_delta_is_the_growth_between_the_two_samples() -> None:
    grew = {"cpu_s": 5.0, "written_bytes": 70_000}
    (found,) = deltas(both(1, grew, rank=3))
    assert (found.role, found.rank, found.seconds) == ("rank", 3, 10.0)
    assert (found.cpu_rate, found.written_bytes, found.read_bytes) == (0.5, 70_000, 0)


def test_one_sample_gives_no_rates_but_its_state() -> None:
    (found,) = deltas([process(1, rank=3, cpu_s=9.0, **NFS)])
    assert (found.seconds, found.cpu_rate, found.state, found.gone) == (None, None, "D", False)


def test_a_pid_that_was_used_again_is_a_process_that_left() -> None:
    old = process(1, sample="a", rank=3, started_at=T0 - timedelta(hours=2))
    new = process(1, sample="b", started_at=T0)
    (found,) = deltas([old, new])
    assert found.gone


def test_a_grandchild_of_a_rank_is_its_worker_and_a_loop_of_parents_ends() -> None:
    found = deltas([process(1, rank=3, ppid=9), process(2, ppid=1), process(3, ppid=2),
                    process(8, ppid=9), process(9, ppid=8)])  # fmt: skip
    assert [(d.pid, d.role, d.rank) for d in found] == [
        (1, "rank", 3), (2, "worker", 3), (3, "worker", 3), (8, "other", None), (9, "other", None),
    ]  # fmt: skip


def test_what_a_process_in_d_waits_on_is_read_from_wchan_stack_and_threads() -> None:
    assert what_it_waits_on(process(1, **NFS)) == "network"
    assert what_it_waits_on(process(1, state="D", wchan="folio_wait_bit_common")) == "disk"
    over_nfs = ("folio_wait_bit_common", "nfs_file_read")
    assert what_it_waits_on(process(1, state="D", wchan="folio_wait_bit_common",
                                    kernel_stack=over_nfs)) == "network"  # fmt: skip
    assert what_it_waits_on(process(1, state="D", wchan="uvm_va_block_lock")) == "gpu"
    assert what_it_waits_on(process(1, state="D", wchan="io_schedule")) == "disk"
    assert what_it_waits_on(process(1, state="D", wchan="do_exit")) == "other"
    assert what_it_waits_on(process(1, state="S", wchan="rpc_wait_bit_killable")) is None
    thread = process(1, state="S", blocked_threads=((2, "cl_sync_io_wait"),))
    assert what_it_waits_on(thread) == "network"


def test_three_ranks_have_no_odd_one() -> None:
    three = [p for r in range(3) for p in both(r + 1, {"cpu_s": 10.0 * (r > 0)}, rank=r)]
    assert odd_cpu(deltas(three)) == ()


@given(
    st.lists(
        st.builds(
            RankProcess,
            node=st.sampled_from([None, "a", "b"]),
            pid=st.integers(1, 6),
            ppid=st.one_of(st.none(), st.integers(1, 6)),
            sample=st.sampled_from(["", "a", "b"]),
            at=st.one_of(st.none(), st.just(T0)),
            rank=st.one_of(st.none(), st.integers(0, 3)),
            cpu_s=st.one_of(st.none(), st.floats(0, 1e9)),
            rss_bytes=st.one_of(st.none(), st.integers(0, 1 << 50)),
        )
    )
)
def test_every_process_has_one_delta(listed: list[RankProcess]) -> None:
    found = deltas(listed)
    assert {(d.node, d.pid) for d in found} == {(p.node, p.pid) for p in listed}
    assert len(found) == len({(d.node, d.pid) for d in found})


# DATA-STORAGE


def test_a_dead_mount_with_a_rank_in_d_is_decisive() -> None:
    (found,) = run("DATA-STORAGE", dead(), *both(11, rank=3, **NFS), LOOK, ONSET)
    assert (found.role, found.strength, found.subtype) == (Role.ROOT, Strength.DECISIVE, "storage")
    assert found.says == (
        "/data (fs1:/data) does not answer; 1 process in D on rpc_wait_bit_killable, rank 3"
    )
    assert (found.node, found.spots[0].rank, found.shared) == ("gpu-07", 3, False)


def test_a_dead_mount_that_no_process_waits_for_is_weak_and_without_processes_strong() -> None:
    assert run("DATA-STORAGE", dead(), *both(11, rank=3), LOOK)[0].strength is Strength.WEAK
    assert run("DATA-STORAGE", dead(), LOOK)[0].strength is Strength.STRONG


def test_the_same_storage_dead_on_two_nodes_is_shared_and_told_once() -> None:
    (found,) = run("DATA-STORAGE", dead(), dead("gpu-08"), LOOK)
    assert (found.node, found.shared) == (None, True)
    assert found.says == "gpu-[07-08]: /data (fs1:/data) does not answer"
    assert {spot.node for spot in found.spots} == set(NODES)


def test_a_loader_worker_stuck_in_d_in_both_samples_is_strong() -> None:
    rank = both(11, rank=3)
    worker = both(12, ppid=11, rank=3, inherited_rank=True, **NFS)
    (found,) = run("DATA-STORAGE", *rank, *worker, LOOK)
    assert (found.strength, found.spots[0].rank, found.spots[0].pid) == (Strength.STRONG, 3, 12)


def test_of_many_blocked_ranks_those_that_the_others_wait_for_are_named() -> None:
    blocked = [p for r in range(4) for p in both(11 + r, rank=r, **NFS)]
    wait = Wait(state="host_stuck", roots=(WaitRoot(rank=2),))
    (found,) = run("DATA-STORAGE", *blocked, wait, LOOK)
    assert [spot.rank for spot in found.spots] == [2]
    elsewhere = Wait(state="host_stuck", roots=(WaitRoot(rank=9),))
    (found,) = run("DATA-STORAGE", *blocked, elsewhere, LOOK)
    assert [spot.rank for spot in found.spots] == [0, 1, 2, 3]


def test_a_process_in_d_that_moves_bytes_works() -> None:
    reads = both(11, {"read_bytes": 1 << 20}, rank=3, **NFS)
    assert roots(run("DATA-STORAGE", *reads, LOOK)) == []
    slow = both(11, {"read_bytes": (1 << 20) - 1}, rank=3, **NFS)
    assert len(roots(run("DATA-STORAGE", *slow, LOOK))) == 1


def test_one_look_at_one_process_in_d_is_weak_two_processes_are_strong() -> None:
    one = process(11, rank=3, **NFS)
    two = process(12, rank=4, **NFS)
    assert run("DATA-STORAGE", one, LOOK)[0].strength is Strength.WEAK
    assert run("DATA-STORAGE", one, two, LOOK)[0].strength is Strength.STRONG


def test_a_process_outside_the_job_in_d_is_nothing() -> None:
    assert roots(run("DATA-STORAGE", process(11, name="updatedb", **NFS), LOOK)) == []


def test_d_in_the_gpu_driver_is_not_storage() -> None:
    stuck = both(11, rank=3, state="D", wchan="uvm_va_block_lock")
    assert roots(run("DATA-STORAGE", *stuck, LOOK)) == []


def event(at: datetime, **more: Any) -> StorageEvent:
    return StorageEvent(**{"node": "gpu-07", "at": at, "kind": "nfs", "server": "fs1",
                           "line": "nfs: server fs1 not responding", **more})  # fmt: skip


def test_an_open_server_line_is_strong_and_one_with_its_recovery_nothing() -> None:
    lost = event(T0 - timedelta(seconds=30))
    assert run("DATA-STORAGE", lost, LOOK, ONSET)[0].strength is Strength.STRONG
    back = event(T0, recovered=True)
    assert run("DATA-STORAGE", back, lost, LOOK, ONSET) == []
    other = event(T0, recovered=True, server="fs2")
    assert len(roots(run("DATA-STORAGE", lost, other, LOOK, ONSET))) == 1


def test_lustre_noise_alone_is_weak_and_old_lines_are_history() -> None:
    (found,) = run("DATA-STORAGE", event(T0, kind="lustre"), LOOK, ONSET)
    assert found.strength is Strength.WEAK
    assert run("DATA-STORAGE", event(T0 - timedelta(days=3)), LOOK, ONSET) == []


def test_a_task_hung_in_nfs_is_strong_and_one_hung_elsewhere_nothing() -> None:
    def hung(*stack: str) -> HungTask:
        return HungTask(node="gpu-07", at=T0, process="python", pid=11, stack=stack)

    assert run("DATA-STORAGE", hung("nfs_file_read"), LOOK, ONSET)[0].strength is Strength.STRONG
    assert run("DATA-STORAGE", hung("mutex_lock"), LOOK, ONSET) == []


def test_the_all_clear_counts_mounts_and_names_the_blind_node() -> None:
    good = Mount(node="gpu-07", path="/data", fstype="nfs", answered=True)
    (found,) = run("DATA-STORAGE", good, *both(11, rank=3), LOOK)
    assert found.role is Role.ALL_CLEAR
    assert found.says == (
        "1 network mounts answer on gpu-07; not seen on gpu-08, "
        "no process of the job stuck on storage"
    )
    unasked = Mount(node="gpu-07", path="/data", fstype="nfs")
    assert run("DATA-STORAGE", unasked, LOOK) == []


# DATA-LOADER


def stack(rank: int, *frames: tuple[str, str], **more: Any) -> Stack:
    plain: dict[str, Any] = {
        "node": NODES[rank // 8], "pid": 100 + rank, "rank": rank, "thread": "MainThread",
        "main": True, "active": False,
    }  # fmt: skip
    told = tuple(StackFrame(function=f, file=file) for f, file in frames)
    return Stack(**{**plain, "frames": told, **more})


LOADER = (
    ("poll", "multiprocessing/connection.py"),
    ("_try_get_data", "torch/utils/data/dataloader.py"),
    ("_next_data", "torch/utils/data/dataloader.py"),
    ("__next__", "torch/utils/data/dataloader.py"),
    ("train", "train.py"),
)
REDUCE = (("all_reduce", "torch/distributed/distributed_c10d.py"), ("train", "train.py"))


def test_one_rank_in_the_loader_among_ranks_in_collectives_is_named() -> None:
    stacks = [stack(r, *(LOADER if r == 5 else REDUCE)) for r in range(8)]
    (found,) = run("DATA-LOADER", *stacks)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.STRONG, "loader_wait",
    )  # fmt: skip
    assert found.says == "rank 5 waits for the data loader, 7 other main threads do not"
    assert [s.rank for s in found.spots] == [5]
    assert not found.shared


def test_every_rank_in_the_loader_is_a_shared_cause() -> None:
    (found,) = run("DATA-LOADER", *(stack(r, *LOADER) for r in range(16)))
    assert (found.shared, found.node) == (True, None)


def test_a_workers_own_wait_and_a_training_stack_are_silent() -> None:
    worker = stack(5, *LOADER[:1], ("_worker_loop", "torch/utils/data/_utils/worker.py"))
    assert run("DATA-LOADER", worker) == []
    assert run("DATA-LOADER", *(stack(r, *REDUCE) for r in range(8))) == []
    other = stack(5, *LOADER, main=False, thread="Thread-3")
    assert run("DATA-LOADER", other) == []


def test_what_the_workers_do_is_told() -> None:
    rank = process(105, rank=5)
    workers = [process(200 + n, ppid=105, name="pt_data_worker", state="Z") for n in range(2)]
    (found,) = run("DATA-LOADER", stack(5, *LOADER), rank, *workers)
    assert found.says.endswith("; 2 of its workers are dead")
    stuck = [process(200, ppid=105, name="pt_data_worker", **NFS)]
    (found,) = run("DATA-LOADER", stack(5, *LOADER), rank, *stuck)
    assert found.says.endswith("; 1 of 1 workers in D on rpc_wait_bit_killable")


def test_dead_workers_are_weak_and_a_batch_that_came_too_late_is_strong() -> None:
    zombie = process(200, ppid=105, name="pt_data_worker", state="Z")
    (found,) = run("DATA-LOADER", process(105, rank=5), zombie)
    assert (found.strength, found.spots[0].rank) == (Strength.WEAK, 5)
    sign = LogSign(node="gpu-07", rank=5, at=T0, kind="worker_killed", line="exited unexpectedly")
    assert run("DATA-LOADER", sign, LOOK, ONSET)[0].strength is Strength.WEAK
    late = replace(sign, kind="loader_timeout", line="DataLoader timed out after 120 seconds")
    assert run("DATA-LOADER", late, LOOK, ONSET)[0].strength is Strength.STRONG


def test_what_killed_a_loader_worker_is_told_by_other_rules() -> None:
    killed = LogSign(node="gpu-07", rank=5, at=T0, kind="worker_killed",
                     line="DataLoader worker (pid 7) is killed by signal: Killed.")  # fmt: skip
    assert [f for f in run("DATA-LOADER", killed, LOOK, ONSET) if f.role is Role.ROOT] == []
    gone = replace(killed, line="DataLoader worker (pid(s) 7) exited unexpectedly")
    full = replace(killed, kind="shm_full", line="Bus error")
    assert [f for f in run("DATA-LOADER", gone, full, LOOK, ONSET) if f.role is Role.ROOT] == []


def test_one_process_in_the_loader_at_one_look_is_weak() -> None:
    (found,) = run("DATA-LOADER", replace(stack(0, *LOADER), node=None, rank=None))
    assert (found.strength, found.says) == (Strength.WEAK, "a process waits for the data loader")


def test_a_kernel_stack_in_a_network_file_system_is_a_weak_sign_of_storage() -> None:
    frames = tuple(StackFrame(function=f, file="sunrpc") for f in ("rpc_wait_bit_killable", "x"))
    sleeps = Stack(node=None, pid=None, rank=None, thread="t", main=True, active=None,
                   frames=frames, source="kernel")  # fmt: skip
    (found,) = run("DATA-STORAGE", sleeps)
    assert (found.strength, found.subtype) == (Strength.WEAK, "storage")
    spins = replace(sleeps, frames=(StackFrame(function="futex_wait_queue", file=""),))
    assert run("DATA-STORAGE", spins) == []


def test_a_plain_ps_tells_a_training_program_in_d_by_its_name() -> None:
    stuck = process(88, name="python", state="D", wchan="nfs_wait_bit_killable")
    daemon = process(89, name="rpc.statd", state="D", wchan="nfs_wait_bit_killable")
    (found,) = run("DATA-STORAGE", stuck)
    assert found.strength is Strength.WEAK
    assert [f for f in run("DATA-STORAGE", daemon) if f.role is Role.ROOT] == []
    late = LogSign(node="gpu-07", rank=5, at=T0 + timedelta(minutes=3), kind="worker_killed")
    assert run("DATA-LOADER", late, LOOK, ONSET) == []


# DATA-CKPT

CKPT = {"rank": 0, "open_files": ("/ckpt/global_step100/model.pt",)}


def test_a_rank_that_writes_its_checkpoint_moves() -> None:
    (found,) = run("DATA-CKPT", *both(100, {"written_bytes": 10_000_000}, **CKPT))
    assert (found.role, found.subtype) == (Role.CONTEXT, "checkpoint")
    assert found.says == (
        "rank 0 writes 1 MB/s to /ckpt/global_step100/model.pt: a checkpoint that moves"
    )
    assert run("DATA-CKPT", *both(100, {"written_bytes": 9_999_999}, **CKPT)) == []


def test_a_writer_that_stands_in_d_during_the_checkpoint_is_strong() -> None:
    phase = PhaseFact(phase=Phase.CHECKPOINT)
    (found,) = run("DATA-CKPT", *both(100, **CKPT, **NFS), phase)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.STRONG, "checkpoint",
    )  # fmt: skip


def test_an_open_weights_file_outside_a_checkpoint_is_nothing() -> None:
    assert run("DATA-CKPT", *both(100, **CKPT)) == []


SAVE = (("_save", "torch/serialization.py"), ("save_checkpoint", "train.py"))


def test_a_stack_in_save_that_does_nothing_is_weak_and_one_that_computes_moves() -> None:
    assert run("DATA-CKPT", stack(0, *SAVE), *both(100, rank=0))[0].strength is Strength.WEAK
    busy = run("DATA-CKPT", stack(0, *SAVE), *both(100, {"cpu_s": 10.0}, rank=0))
    assert (busy[0].role, "serialises on 1.0 cores" in busy[0].says) == (Role.CONTEXT, True)


# DATA-IMPORT

IMPORT = (("get_code", "<frozen importlib._bootstrap_external>"), ("<module>", "train.py"))
START = PhaseFact(phase=Phase.START_UP)


def test_many_ranks_in_import_at_start_up_are_a_shared_storm() -> None:
    stacks = [stack(r, *IMPORT) for r in range(8)]
    stuck = [p for r in range(8) for p in both(100 + r, rank=r, **NFS)]
    (found,) = run("DATA-IMPORT", *stacks, *stuck, START)
    assert (found.role, found.strength, found.subtype, found.shared) == (
        Role.ROOT, Strength.STRONG, "import_storm", True,
    )  # fmt: skip
    assert found.says == (
        "8 of 8 ranks seen import Python modules, 8 of them in D on rpc_wait_bit_killable"
    )


def test_imports_that_move_are_healthy_and_few_or_late_ones_are_silent() -> None:
    stacks = [stack(r, *IMPORT) for r in range(8)]
    going = [p for r in range(8) for p in both(100 + r, {"read_bytes": 50_000_000}, rank=r)]
    assert run("DATA-IMPORT", *stacks, *going, START)[0].role is Role.CONTEXT
    few = [stack(r, *(IMPORT if r < 3 else REDUCE)) for r in range(8)]
    assert run("DATA-IMPORT", *few, START) == []
    assert run("DATA-IMPORT", *stacks, PhaseFact(phase=Phase.STEADY)) == []


def test_an_image_import_moves_or_stands() -> None:
    image = {"name": "unsquashfs", "cmdline": "unsquashfs -d /run/enroot image.sqsh"}
    moving = run("DATA-IMPORT", *both(50, {"read_bytes": 1 << 30}, **image), START)
    assert (moving[0].role, moving[0].subtype) == (Role.CONTEXT, "image_import")
    stuck = run("DATA-IMPORT", *both(50, **image, **NFS), START)
    assert (stuck[0].role, stuck[0].strength, stuck[0].node) == (
        Role.ROOT, Strength.STRONG, "gpu-07",
    )  # fmt: skip
    assert stuck[0].says == (
        "gpu-07 still imports the container image (unsquashfs), and no byte moves"
    )


def test_slow_reads_of_most_ranks_at_start_up_are_weak_without_stacks() -> None:
    slow = [p for r in range(8) for p in both(100 + r, {"read_bytes": 2_000_000}, rank=r, **NFS)]
    (found,) = run("DATA-IMPORT", *slow, START)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.WEAK, "import_storm",
    )  # fmt: skip
    assert run("DATA-IMPORT", *slow) == []
    three = [p for p in slow if (p.rank or 0) < 3]
    assert run("DATA-IMPORT", *three, START) == []


def test_a_node_without_ranks_while_the_image_is_imported_is_named_after_ten_minutes() -> None:
    sign = LogSign(node=None, rank=None, at=None, kind="image_import", line="pyxis: importing")
    facts = Facts()
    for item in (sign, START, LOOK, *both(11, rank=3)):
        facts.add(item)
    facts.seen[RankProcess] |= set(NODES)
    (found,) = ask(RULES["DATA-IMPORT"], facts)
    assert (found.role, found.node, found.subtype) == (Role.ROOT, "gpu-08", "image_import")
    facts.seen[RankProcess].discard("gpu-08")
    assert list(ask(RULES["DATA-IMPORT"], facts)) == []


# -- DATA-AUTH ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "role"), [(("gpu-07",), Role.CONTEXT), (NODES, Role.ROOT)], ids=["one", "both"]
)
def test_logins_that_hang_on_several_nodes_are_storage_and_drain_nothing(
    nodes: tuple[str, ...], role: Role
) -> None:
    store = Facts()
    store.add(LOOK)
    for node in nodes:
        gap = Gap(
            node=node, fact=NodeIdentity, probe="identity", why="auth hangs: no answer in 4 s"
        )
        store.gaps.append(gap)
    (found,) = ask(RULES["DATA-AUTH"], store)
    assert (found.role, found.strength, found.subtype) == (role, Strength.WEAK, "storage")


def test_a_login_that_was_denied_is_no_storage_trouble() -> None:
    store = Facts()
    store.gaps += [
        Gap(node=n, fact=NodeIdentity, probe="identity", why="auth denied") for n in NODES
    ]
    assert not list(ask(RULES["DATA-AUTH"], store))


@pytest.mark.parametrize(
    ("processes", "strength"),
    [
        pytest.param([], Strength.STRONG, id="nobody looked at the processes"),
        pytest.param(both(41, rank=0), Strength.WEAK, id="the rank waits elsewhere"),
        pytest.param(
            both(41, state="D", wchan="nfs_wait_bit_killable", rank=0), Strength.STRONG,
            id="the rank waits for it",
        ),
    ],
)  # fmt: skip
def test_a_silent_file_server_that_no_process_of_the_job_waits_for_is_a_hint(
    processes: list[RankProcess], strength: Strength
) -> None:
    line = "nfs: server home01 not responding, still trying"
    event = StorageEvent(node="gpu-07", at=T0, kind="nfs", server="home01", line=line)
    (found,) = roots(run("DATA-STORAGE", event, LOOK, ONSET, *processes))
    assert found.strength is strength
