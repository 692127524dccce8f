"""Rules on what the job's log and its launcher say: facts by hand, one behaviour each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.causes import Phase
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Onset, PhaseFact, Place
from sluggish.facts.fabric import NcclAddress, NcclCompletion, NcclHcas, NcclPath, NcclTrouble
from sluggish.facts.gpu import Gpu, SmiFailure
from sluggish.facts.host import Filesystem, Mount, NodeIdentity, OomKill, RankProcess, Segfault
from sluggish.facts.log import (
    LogSign,
    LogSpan,
    ProcessExit,
    Progress,
    PythonError,
    SlurmMessage,
    Version,
)
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Rule, Spot, Strength, ask
from sluggish.job import Job
from sluggish.rules import app, config, progress

NOW = datetime(2026, 11, 24, 3, 22, tzinfo=UTC)
RULES: dict[str, Rule] = {r.id: r for r in (*app.RULES, *config.RULES, *progress.RULES)}
SPAN = LogSpan(node=None, path="job.out", bytes_total=900, bytes_read=900)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def look(**more: Any) -> Look:
    told: dict[str, Any] = {
        "at": NOW, "nodes": ("a", "b"), "world_size": 16, "job_started_at": ago(7200),
        "loose": False, "gpus_per_node": 8,
    }  # fmt: skip
    return Look(**(told | more))


def run(rule: str, *facts: object) -> list[Finding]:
    store = Facts()
    for fact in facts:
        store.add(fact)
    return list(ask(RULES[rule], store))


def only(rule: str, *facts: object) -> Finding:
    (found,) = run(rule, *facts)
    return found


def error(rank: int | None = 3, **more: Any) -> PythonError:
    told: dict[str, Any] = {
        "node": None, "rank": rank, "at": None, "type": "ValueError", "message": "bad shape",
        "frame": "/opt/train.py:118 in main", "order": 10,
    }  # fmt: skip
    return PythonError(**(told | more))


def timeout(rank: int = 0, at: datetime | None = None, order: int = 50, **more: Any) -> Any:
    told: dict[str, Any] = {
        "node": None, "rank": rank, "group_rank": rank, "group": "0", "at": at, "seq": 9,
        "op": "allreduce", "order": order, "timeout_ms": 1_800_000,
    }  # fmt: skip
    return WatchdogTimeout(**(told | more))


def step(number: int, seconds_ago: float, rank: int | None = 0, **more: Any) -> Progress:
    told: dict[str, Any] = {"order": int(100_000 - seconds_ago)}
    return Progress(node=None, rank=rank, at=ago(seconds_ago), step=number, **(told | more))


def mark(kind: str, seconds_ago: float | None, **more: Any) -> Progress:
    at = None if seconds_ago is None else ago(seconds_ago)
    told: dict[str, Any] = {"node": None, "rank": None, "order": int(100_000 - (seconds_ago or 0))}
    return Progress(at=at, kind=kind, **(told | more))


def sign(kind: str, detail: str = "", **more: Any) -> LogSign:
    told: dict[str, Any] = {"node": None, "rank": None, "at": None}
    return LogSign(kind=kind, detail=detail, **(told | more))


def end(**more: Any) -> ProcessExit:
    told: dict[str, Any] = {"node": "a", "rank": 3, "at": None, "source": "srun", "order": 20}
    return ProcessExit(**(told | more))


# APP-EXCEPTION


def test_an_exception_before_the_first_timeout_is_the_root_with_its_line() -> None:
    found = only("APP-EXCEPTION", SPAN, error(), timeout())
    assert (found.role, found.strength) == (Role.ROOT, Strength.DECISIVE)
    assert found.spots[0].rank == 3
    assert found.spots[0].source_line == "/opt/train.py:118 in main"
    assert found.says == "ValueError: bad shape at /opt/train.py:118 in main"


def test_an_exception_after_the_first_timeout_is_a_consequence() -> None:
    found = only("APP-EXCEPTION", SPAN, error(order=60), timeout())
    assert found.role is Role.CONSEQUENCE


def test_times_beat_the_order_in_the_file() -> None:
    late = error(order=10, at=ago(100))
    assert only("APP-EXCEPTION", SPAN, late, timeout(at=ago(500))).role is Role.CONSEQUENCE


def test_of_two_logs_without_times_the_order_is_not_known_and_the_exception_weak() -> None:
    other = LogSpan(node=None, path="job.err", bytes_total=9, bytes_read=9)
    found = only("APP-EXCEPTION", SPAN, other, error(), timeout())
    assert (found.role, found.strength) == (Role.ROOT, Strength.WEAK)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("torch.distributed.DistBackendError", "NCCL error in: x"),
        ("RuntimeError", "Connection closed by peer [10.0.0.1]:7"),
        ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "train.py FAILED"),
        ("RuntimeError", "Detected mismatch between collectives on ranks."),
    ],
)
def test_fallout_is_never_a_root(kind: str, message: str) -> None:
    found = run("APP-EXCEPTION", SPAN, error(type=kind, message=message))
    assert {f.role for f in found} == {Role.CONSEQUENCE}


def test_who_timed_out_waited_and_nothing_ended_elsewhere() -> None:
    gloo = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 600000ms for recv oper"
    closed = "Connection closed by peer [10.0.0.1]:7"
    for message, why in ((gloo, "waited in vain"), (closed, "follows from an end elsewhere")):
        found = only("APP-EXCEPTION", SPAN, error(type="RuntimeError", message=message))
        assert found.role is Role.CONSEQUENCE
        assert why in found.says


@pytest.mark.parametrize(
    "message",
    [
        "DDP expects same model across all ranks, but Rank 0 has 9 params",
        "[Errno 28] No space left on device",
        "DataLoader worker (pid 5) is killed by signal: Killed.",
        "CUDA error: uncorrectable ECC error encountered",
        "CUDA error: unknown error",
        "CUDA out of memory. Tried to allocate 2 GiB",
    ],
)
def test_messages_that_other_rules_read_or_that_mislead_are_left_alone(message: str) -> None:
    assert run("APP-EXCEPTION", SPAN, error(type="RuntimeError", message=message)) == []


def test_the_same_exception_on_all_ranks_is_one_shared_finding_without_a_rank() -> None:
    found = only("APP-EXCEPTION", SPAN, *(error(rank=r, order=r) for r in range(16)))
    assert found.shared
    assert found.spots[0].rank is None
    assert found.says.endswith("on 16 ranks")


def test_only_the_first_of_several_exceptions_is_a_root() -> None:
    later = error(rank=5, type="KeyError", message="'x'", order=30)
    found = run("APP-EXCEPTION", SPAN, later, error(order=10))
    assert [(f.subject, f.role) for f in found] == [
        ("rank 3", Role.ROOT), ("rank 5", Role.CONSEQUENCE),
    ]  # fmt: skip


def test_an_exception_after_which_training_went_on_is_context() -> None:
    steps = [step(i, 900 - i, order=100 + i) for i in range(5)]
    assert only("APP-EXCEPTION", SPAN, error(), *steps).role is Role.CONTEXT


def test_an_exception_from_before_the_job_is_history() -> None:
    old = error(at=ago(9000))
    assert run("APP-EXCEPTION", SPAN, look(), old) == []


def test_a_log_without_exceptions_is_an_all_clear_that_says_if_it_was_read_in_part() -> None:
    partly = LogSpan(node=None, path="x", bytes_total=9_000, bytes_read=900)
    assert only("APP-EXCEPTION", SPAN).says == "no Python exception in the job's log"
    assert only("APP-EXCEPTION", partly).says.endswith("; the log was read in part")
    assert run("APP-EXCEPTION") == []


# GPU-CUDA


def test_an_ecc_error_in_the_log_accuses_the_gpu_and_not_the_program() -> None:
    place = Place(rank=3, node="a", gpu_index=3, gpu_pci="0000:5d:00.0")
    ecc = error(type="RuntimeError", message="CUDA error: uncorrectable ECC error encountered")
    found = only("GPU-CUDA", SPAN, ecc, place)
    assert (found.role, found.strength, found.subtype) == (Role.ROOT, Strength.STRONG, "ecc")
    assert found.spots[0].gpu_pci == "0000:5d:00.0"


def test_an_unclear_cuda_error_is_context_for_the_kernel_log_to_decide() -> None:
    assert only("GPU-CUDA", sign("cuda_error", "unknown error")).role is Role.CONTEXT


def test_a_cuda_error_of_the_program_is_no_sign_of_the_gpu() -> None:
    assert run("GPU-CUDA", sign("cuda_error", "device-side assert triggered")) == []


# MEM-CUDA


def oom(**more: Any) -> PythonError:
    told = {"type": "torch.cuda.OutOfMemoryError",
            "message": "CUDA out of memory. Tried to allocate 2.00 GiB."}  # fmt: skip
    return error(**(told | more))


def test_gpu_memory_that_ran_out_before_the_timeouts_is_the_root() -> None:
    found = only("MEM-CUDA", SPAN, oom(), timeout())
    assert (found.role, found.strength, found.spots[0].rank) == (Role.ROOT, Strength.DECISIVE, 3)


def test_more_than_an_exabyte_is_fallout_and_not_memory() -> None:
    absurd = oom(message="CUDA out of memory. Tried to allocate more than 1EB memory.")
    assert only("MEM-CUDA", SPAN, absurd).role is Role.CONSEQUENCE


def test_gpu_memory_after_the_timeout_is_a_consequence() -> None:
    assert only("MEM-CUDA", SPAN, oom(order=60), timeout()).role is Role.CONSEQUENCE


def test_out_of_memory_without_a_size_is_weak_as_a_bad_gpu_says_it_too() -> None:
    bare = oom(type="RuntimeError", message="CUDA error: out of memory")
    assert only("MEM-CUDA", SPAN, bare).strength is Strength.WEAK


# APP-SIGNAL, APP-EXIT


def test_a_segmentation_fault_before_the_timeouts_is_strong() -> None:
    found = only("APP-SIGNAL", SPAN, end(signal=11), timeout())
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    assert found.says == "ended by SIGSEGV"


@pytest.mark.parametrize("number", [1, 2, 15])
def test_a_process_that_was_asked_to_end_is_a_consequence(number: int) -> None:
    assert only("APP-SIGNAL", SPAN, end(signal=number)).role is Role.CONSEQUENCE


def test_a_bare_kill_is_weak_and_many_together_are_the_teardown() -> None:
    assert only("APP-SIGNAL", SPAN, end(signal=9)).strength is Strength.WEAK
    many = run("APP-SIGNAL", SPAN, *(end(signal=9, rank=r) for r in range(3)))
    assert {f.role for f in many} == {Role.CONSEQUENCE}


def test_a_kill_that_an_oom_record_explains_is_its_consequence() -> None:
    kernel = OomKill(node="a", at=None, pid=4182, process="python")
    assert only("APP-SIGNAL", SPAN, end(signal=9, pid=4182), kernel).role is Role.CONSEQUENCE
    slurm = SlurmMessage(node=None, at=None, kind="oom")
    assert only("APP-SIGNAL", SPAN, end(signal=9), slurm).role is Role.CONSEQUENCE


def test_an_abort_is_the_watchdogs_own_if_anybody_timed_out() -> None:
    assert only("APP-SIGNAL", SPAN, end(signal=6), timeout()).role is Role.CONSEQUENCE
    assert only("APP-SIGNAL", SPAN, end(signal=6)).role is Role.ROOT


def test_a_signal_after_the_teardown_is_a_consequence() -> None:
    onset = Onset(earliest=ago(900), latest=ago(890), source="x", teardown_at=ago(300))
    late = end(signal=11, at=ago(200))
    assert only("APP-SIGNAL", SPAN, late, onset).role is Role.CONSEQUENCE


def test_a_kernel_segfault_of_a_rank_names_the_rank() -> None:
    fault = Segfault(node="a", at=ago(900), process="python", pid=4182, library="libcuda.so")
    found = only("APP-SIGNAL", fault, Place(rank=3, node="a", pid=4182))
    assert (found.subject, found.strength) == ("rank 3", Strength.STRONG)
    assert only("APP-SIGNAL", fault).strength is Strength.WEAK
    other = Segfault(node="a", at=None, process="gzip", pid=7)
    assert run("APP-SIGNAL", other) == []


def test_a_task_is_the_rank_only_where_there_are_as_many_tasks_as_ranks() -> None:
    gone = end(rank=None, task=9, signal=11)
    as_many = Job(id="1", num_tasks=16)
    assert only("APP-SIGNAL", SPAN, gone, look(), as_many).subject == "rank 9"
    assert only("APP-SIGNAL", SPAN, gone, look(), Job(id="1", num_tasks=2)).subject == "task 9"


def test_an_exit_code_is_the_root_where_nothing_else_was_said() -> None:
    found = only("APP-EXIT", SPAN, end(exit_code=1), timeout())
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)


@pytest.mark.parametrize("also", [error(), timeout(order=5)])
def test_an_exit_that_an_exception_or_a_timeout_explains_is_a_consequence(also: object) -> None:
    assert only("APP-EXIT", SPAN, end(exit_code=1), also).role is Role.CONSEQUENCE


def test_an_exit_with_code_0_is_no_finding() -> None:
    assert run("APP-EXIT", SPAN, end(exit_code=0)) == []


# CFG-*


def address(node: str, interface: str) -> NcclAddress:
    return NcclAddress(node=node, pid=1, rank=None, interface=interface, address="10.0.0.1")


def test_a_bridge_as_interface_is_the_root_and_the_odd_node_is_named() -> None:
    odd = only("CFG-IFACE", SPAN, address("a", "eth0"), address("b", "eth0"),
               address("c", "virbr0"))  # fmt: skip
    assert (odd.node, odd.strength, odd.shared) == ("c", Strength.STRONG, False)
    everywhere = only("CFG-IFACE", SPAN, address("a", "docker0"), address("b", "docker0"))
    assert (everywhere.node, everywhere.shared) == (None, True)


def test_an_interface_with_which_the_job_has_trained_is_context() -> None:
    found = only("CFG-IFACE", SPAN, address("a", "veth7"), step(1, 90), step(2, 80))
    assert found.role is Role.CONTEXT


def test_a_virtual_interface_beside_the_real_one_is_a_root_before_any_step() -> None:
    beside = sign("virtual_interface", "veth7")
    assert only("CFG-IFACE", SPAN, beside).strength is Strength.STRONG
    assert only("CFG-IFACE", SPAN, beside, step(1, 90), step(2, 80)).role is Role.CONTEXT


def test_an_ordinary_interface_is_no_finding() -> None:
    assert run("CFG-IFACE", SPAN, address("a", "eth0"), address("b", "bond0")) == []


def completion(node: str, status: int = 12, peer: str = "10.0.0.9", vendor: int = 129) -> Any:
    return NcclCompletion(node=node, at=None, pid=1, rank=None, device=0, peer=peer,
                          status=status, vendor_error=vendor)  # fmt: skip


ROCE = NcclHcas(node="a", pid=1, rank=None, hcas=("mlx5_0:1",), layers=("RoCE",))
IB = NcclHcas(node="a", pid=1, rank=None, hcas=("mlx5_0:1",), layers=("IB",))


def test_no_answer_at_the_first_transfers_over_roce_is_a_setting() -> None:
    pair = (completion("a"), completion("b", peer="10.0.0.8"))
    assert only("CFG-GID", SPAN, ROCE, *pair).strength is Strength.STRONG
    assert run("CFG-GID", SPAN, IB, *pair) == []
    assert run("CFG-GID", SPAN, ROCE, *pair, step(1, 90), step(2, 80)) == []
    assert run("CFG-GID", ROCE, *pair) == []  # no log: "no step yet" means nothing


def test_a_fragment_without_steps_is_not_a_job_that_made_none() -> None:
    pair = [replace(completion(n), local_gid="::ffff:10.1.1.2") for n in ("a", "b")]
    assert run("CFG-GID", SPAN, *pair) == []
    begins = Version(node="a", rank=None, component="nccl", version="2.21.5")
    assert only("CFG-GID", SPAN, begins, *pair).subject == "job"


def test_status_4_speaks_of_the_printing_hosts_own_memory() -> None:
    found = only("CFG-P2P", SPAN, completion("a", status=4, vendor=81))
    assert (found.node, found.strength) == ("a", Strength.WEAK)
    assert run("CFG-P2P", SPAN, completion("a", status=12)) == []


def test_a_hint_at_acs_is_strong_only_with_the_kernels_word_and_before_any_step() -> None:
    hint = sign("p2p_hint")
    kernel = NodeIdentity(node="a", kernel_cmdline="quiet intel_iommu=on")
    assert only("CFG-P2P", SPAN, hint).strength is Strength.WEAK
    assert only("CFG-P2P", SPAN, hint, kernel).strength is Strength.STRONG
    assert only("CFG-P2P", SPAN, hint, step(1, 9), step(2, 8)).role is Role.CONTEXT


def way(node: str, *, direct: bool) -> NcclPath:
    return NcclPath(node=node, pid=1, direct=direct, line=f"via NET/IB/1 {node}")


def test_the_node_that_copies_through_host_memory_is_housekeeping() -> None:
    found = only("CFG-P2P", way("a", direct=True), way("b", direct=True), way("c", direct=False))
    assert (found.node, found.role) == ("c", Role.HOUSEKEEPING)
    assert "no GPUDirect RDMA on c" in found.says
    assert run("CFG-P2P", way("a", direct=False), way("b", direct=False)) == []
    assert run("CFG-P2P", way("a", direct=False), way("a", direct=True)) == []


def test_cannot_allocate_at_registration_is_the_limit_and_not_ram() -> None:
    small = RankProcess(node="a", pid=1, rank=0, memlock_bytes=8 << 20)
    assert only("CFG-LIMITS", sign("memlock")).strength is Strength.STRONG
    both = only("CFG-LIMITS", sign("memlock"), small)
    assert (both.role, both.strength) == (Role.ROOT, Strength.DECISIVE)
    assert "8192 KiB" in both.says


def test_a_limit_of_one_node_names_it_and_one_of_many_is_shared() -> None:
    def refused(node: str) -> NcclTrouble:
        words = "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory"
        return NcclTrouble(node=node, at=None, pid=1, rank=None, kind="reg_mr", line=words)

    one = only("CFG-LIMITS", refused("b"), refused("b"))
    assert ([s.node for s in one.spots], one.shared) == (["b"], False)
    many = only("CFG-LIMITS", refused("a"), refused("b"))
    assert (many.spots, many.shared) == ((), True)


def test_a_small_limit_that_nothing_ran_into_is_housekeeping() -> None:
    small = RankProcess(node="a", pid=1, rank=0, memlock_bytes=65536)
    unlimited = RankProcess(node="a", pid=1, rank=0, memlock_bytes=-1)
    assert only("CFG-LIMITS", small).role is Role.HOUSEKEEPING
    assert run("CFG-LIMITS", unlimited) == []


def test_shared_memory_is_decisive_when_full_and_weak_when_roomy() -> None:
    full = Filesystem(node="a", path="/dev/shm", size_bytes=100, used_bytes=99)
    roomy = Filesystem(node="a", path="/dev/shm", size_bytes=100, used_bytes=1)
    assert only("CFG-LIMITS", sign("shm_full"), full).strength is Strength.DECISIVE
    assert only("CFG-LIMITS", sign("shm_full")).strength is Strength.STRONG
    assert only("CFG-LIMITS", sign("shm_full"), roomy).strength is Strength.WEAK


def test_no_space_beside_a_shared_memory_message_is_not_the_disk() -> None:
    found = only("CFG-LIMITS", sign("shm_full"), sign("disk_full"))
    assert "/dev/shm" in found.says
    assert only("CFG-LIMITS", sign("disk_full", "/ckpt/x")).says == "no space left: /ckpt/x"


def test_a_quota_is_no_full_disk() -> None:
    line = "OSError: [Errno 122] Disk quota exceeded: '/home/a/ckpt.pt'"
    found = only("CFG-LIMITS", sign("disk_full", "/home/a/ckpt.pt", line=line))
    assert (found.says, found.strength) == ("quota exceeded: /home/a/ckpt.pt", Strength.STRONG)


def space(path: str, used: int, node: str = "a") -> Filesystem:
    return Filesystem(node=node, path=path, size_bytes=1000, used_bytes=used)


def test_a_full_local_disk_is_named_with_its_node_beside_the_message() -> None:
    disks = (space("/", 400), space("/local", 1000), space("/local", 990, "b"))
    found = only("CFG-LIMITS", sign("disk_full", "/local/tmp/x"), *disks)
    assert found.says == "no space left: /local/tmp/x; /local is full on a,b"
    assert "full" not in only("CFG-LIMITS", sign("disk_full", "/localx"), *disks).says


def test_a_full_disk_that_nothing_ran_into_is_housekeeping_and_an_image_is_none() -> None:
    needed = RankProcess(node="a", pid=1)
    found = only("CFG-LIMITS", needed, space("/local", 995))
    assert (found.role, found.says) == (
        Role.HOUSEKEEPING, "no space left on a local disk: /local on a",
    )  # fmt: skip
    image = Mount(node="a", path="/snap/x", fstype="squashfs")
    media = Mount(node="a", path="/cd", fstype="udf", read_only=True)
    full = (image, media, space("/snap/x", 1000), space("/cd", 1000), space("/dev/shm", 1000))
    assert run("CFG-LIMITS", needed, *full, space("/local", 980)) == []


def test_two_ranks_on_one_gpu_is_decisive() -> None:
    assert only("CFG-LAUNCH", sign("duplicate_gpu", "3 and rank 0")).strength is Strength.DECISIVE


def test_srun_without_kill_on_bad_exit_is_housekeeping_where_a_process_has_ended() -> None:
    started = sign("launch_flags", "srun --label python train.py")
    running = Job(id="1", state="RUNNING")
    assert only("CFG-LAUNCH", started, running, end(exit_code=1)).role is Role.HOUSEKEEPING
    assert run("CFG-LAUNCH", started, running) == []
    careful = sign("launch_flags", "srun -K1 python train.py")
    assert run("CFG-LAUNCH", careful, running, end(exit_code=1)) == []


def test_work_of_one_rank_as_long_as_the_timeout_is_a_short_timeout() -> None:
    bar = mark("bar", None, line="Map: 44%|#| 9/20 [30:11<38:27, 2.1s/it]")
    assert only("CFG-TIMEOUT", timeout(at=ago(60)), bar).strength is Strength.STRONG
    brief = mark("bar", None, line="Map: 44%|#| 9/20 [10:11<38:27, 2.1s/it]")
    assert run("CFG-TIMEOUT", timeout(at=ago(60)), brief) == []


def test_a_checkpoint_that_ended_while_the_others_waited_is_a_short_timeout() -> None:
    onset = Onset(earliest=ago(1900), latest=ago(1890), source="x")
    assert run("CFG-TIMEOUT", timeout(at=ago(90)), onset, mark("checkpoint_end", 1880)) == []
    found = only("CFG-TIMEOUT", timeout(at=ago(90)), onset, mark("checkpoint_end", 100))
    assert "1800 s" in found.says


def test_a_rank_that_still_starts_while_the_others_time_out_has_a_timeout_too_short() -> None:
    onset = Onset(earliest=ago(1900), latest=ago(1890), source="x")
    late = timeout(at=ago(90))
    for still in (mark("init", 200), sign("compile", at=ago(200))):
        assert "still starting" in only("CFG-TIMEOUT", late, onset, still).says
        # of a job that has trained, or after the timeout, it is another start's
        assert run("CFG-TIMEOUT", late, onset, still, step(1, 4000), step(2, 3990)) == []
    for other in (mark("init", 60), mark("init", 1800), sign("compile", at=ago(80))):
        assert run("CFG-TIMEOUT", late, onset, other) == []


def version(number: str, node: str | None = None) -> Version:
    return Version(node=node, rank=None, component="nccl", version=number)


def test_two_versions_of_nccl_are_strong_only_in_a_job_that_never_stepped() -> None:
    pair = (version("2.27.7", "a"), version("2.21.5", "b"))
    assert only("CFG-VERSIONS", *pair).strength is Strength.STRONG
    assert only("CFG-VERSIONS", *pair, step(1, 9), step(2, 8)).role is Role.HOUSEKEEPING
    assert run("CFG-VERSIONS", version("2.27.7", "a"), version("2.27.7+cuda13", "b")) == []


def test_the_one_node_with_another_version_is_named_and_of_two_neither() -> None:
    three = [version("2.27.7", n) for n in "abc"]
    found = only("CFG-VERSIONS", *three, version("2.21.5", "d"))
    assert (found.node, found.shared, found.spots) == ("d", False, (Spot(node="d"),))
    assert only("CFG-VERSIONS", *three[:1], version("2.21.5", "d")).spots == ()
    assert only("CFG-VERSIONS", *three, version("2.21.5")).spots == ()


def test_another_pytorch_is_weak() -> None:
    pair = [Version(node=n, rank=None, component="torch", version=v)
            for n, v in (("a", "2.9.1+cu130"), ("b", "2.8.0+cu130"))]  # fmt: skip
    found = only("CFG-VERSIONS", *pair)
    assert found.strength is Strength.WEAK
    assert found.says == "different PyTorch versions in one job: 2.8.0 on b; 2.9.1 on a"


def test_a_driver_updated_under_its_module_is_the_node_s_and_no_crash_of_the_program() -> None:
    words = "Error 803: system has unsupported display driver / cuda driver combination"
    says = error(type="RuntimeError", message=f"cudaGetDeviceCount(). {words}")
    failed = SmiFailure(
        node="b", at=None, kind="version_mismatch", line="Failed to initialize NVML"
    )
    both = only("CFG-VERSIONS", sign("driver_mismatch"), failed)
    assert (both.strength, both.node, both.shared) == (Strength.DECISIVE, "b", False)
    assert only("CFG-VERSIONS", sign("driver_mismatch")).spots == ()
    assert only("CFG-VERSIONS", failed).strength is Strength.WEAK
    assert run("CFG-VERSIONS", failed, step(1, 9), step(2, 8)) == []
    assert [f for f in run("APP-EXCEPTION", says, SPAN) if f.role is Role.ROOT] == []


def test_two_drivers_are_weak() -> None:
    found = only("CFG-VERSIONS", Gpu(node="a", driver="580.1"), Gpu(node="b", driver="570.2"))
    assert (found.strength, found.says) == (
        Strength.WEAK, "different driver versions in one job: 570.2 on b; 580.1 on a",
    )  # fmt: skip


def test_a_known_bug_needs_its_platform_and_stays_weak() -> None:
    arm = NodeIdentity(node="a", arch="aarch64")
    found = only("CFG-NCCLBUG", version("2.28.9"), arm)
    assert (found.role, found.strength) == (Role.ROOT, Strength.WEAK)
    assert run("CFG-NCCLBUG", version("2.28.9"), NodeIdentity(node="a", arch="x86_64")) == []
    assert run("CFG-NCCLBUG", version("2.28.9")) == []
    assert run("CFG-NCCLBUG", version("2.29.3"), arm) == []


# PROG-*


def paced(last_ago: float, every: float = 20, count: int = 10) -> list[Progress]:
    return [step(i, last_ago + (count - i) * every) for i in range(1, count + 1)]


def test_quick_steps_that_stopped_some_seconds_ago_are_no_proof_that_it_moves():
    """Ten steps a second and none for 9 s: a hang that was looked at at once."""
    quick = [step(100 + n, 9.0 + (20 - n) / 10) for n in range(20)]
    assert only("PROG-STEPS", look(), *quick).role is Role.CONTEXT
    going = [step(100 + n, 1.0 + (20 - n) / 10) for n in range(20)]
    assert only("PROG-STEPS", look(), *going).role is Role.ROOT


def test_steps_at_their_usual_pace_are_strong_and_stale_ones_context() -> None:
    fresh = only("PROG-STEPS", look(), *paced(15))
    assert (fresh.role, fresh.strength) == (Role.ROOT, Strength.STRONG)
    assert fresh.says == "step 10 printed 15 s before the look, usually one every 20 s"
    assert only("PROG-STEPS", look(), *paced(500)).role is Role.CONTEXT


def test_steps_are_never_progress_on_mailed_files_or_after_an_onset() -> None:
    onset = Onset(earliest=ago(60), latest=ago(50), source="x")
    assert only("PROG-STEPS", look(loose=True, live=False), *paced(15)).role is Role.CONTEXT
    assert only("PROG-STEPS", look(), onset, *paced(15)).role is Role.CONTEXT


def test_the_same_step_again_and_again_is_no_progress() -> None:
    same = [step(7, 15 + 20 * i) for i in range(8)]
    assert only("PROG-STEPS", look(), *same).role is Role.CONTEXT


def written(bytes_a: int, bytes_b: int) -> tuple[RankProcess, RankProcess]:
    first = RankProcess(node="a", pid=1, sample="a", at=ago(12), written_bytes=bytes_a)
    return first, RankProcess(node="a", pid=1, sample="b", at=ago(2), written_bytes=bytes_b)


def test_a_checkpoint_that_is_written_within_its_usual_time_is_progress() -> None:
    marks = [mark("checkpoint_start", 4000), mark("checkpoint_end", 3900), *paced(90),
             mark("checkpoint_start", 60)]  # fmt: skip
    found = only("PROG-CKPT", look(), *marks, *written(0, 10**9))
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    assert found.says == (
        "in a checkpoint for 60 s, the longest before took 100 s, 100 MB/s written"
    )


def test_a_checkpoint_that_writes_nothing_or_takes_too_long_is_context() -> None:
    begun = mark("checkpoint_start", 60)
    assert only("PROG-CKPT", look(), begun, *written(5, 5)).role is Role.CONTEXT
    assert only("PROG-CKPT", look(), mark("checkpoint_start", 3600)).role is Role.CONTEXT
    assert only("PROG-CKPT", look(), begun).strength is Strength.WEAK  # writing was not seen


def test_a_checkpoint_after_which_steps_went_on_has_ended() -> None:
    assert run("PROG-CKPT", look(), mark("checkpoint_start", 900), *paced(15)) == []


def test_an_evaluation_whose_bar_moves_is_progress() -> None:
    bars = [mark("evaluation", 120 - 20 * i, step=i) for i in range(5)]
    found = only("PROG-EVAL", look(), mark("evaluation_start", 150), *bars)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    stale = [mark("evaluation", 1120 - 20 * i, step=i) for i in range(5)]
    assert only("PROG-EVAL", look(), mark("evaluation_start", 1150), *stale).role is Role.CONTEXT


def test_a_young_job_whose_log_grows_is_starting() -> None:
    young = look(job_started_at=ago(240))
    start = PhaseFact(phase=Phase.START_UP)
    span = LogSpan(node=None, path="x", bytes_total=1, bytes_read=1, last_at=ago(20))
    found = only("PROG-INIT", young, start, span)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    quiet = LogSpan(node=None, path="x", bytes_total=1, bytes_read=1, last_at=ago(200))
    assert only("PROG-INIT", young, start, quiet).role is Role.CONTEXT
    assert only("PROG-INIT", look(), start, span).role is Role.CONTEXT  # two hours old
    assert only("PROG-INIT", young, start, span, end(exit_code=1)).role is Role.CONTEXT
    ended = Job(id="7", state="FAILED", ended_at=ago(200))
    assert run("PROG-INIT", young, start, span, ended) == []
    until = Job(id="7", state="RUNNING", ended_at=ago(-3600))  # its limit
    assert only("PROG-INIT", young, start, span, until).role is Role.ROOT


def test_ranks_that_outlive_the_end_of_training_hang_in_the_shutdown() -> None:
    alive = RankProcess(node="a", pid=1, rank=0)
    found = only("SHUTDOWN-HANG", look(), mark("training_done", 900), alive)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    assert run("SHUTDOWN-HANG", look(), mark("training_done", 60), alive) == []
    assert run("SHUTDOWN-HANG", look(), mark("training_done", 900)) == []
    assert run("SHUTDOWN-HANG", look(), mark("training_done", 900), alive, *paced(15)) == []


def waiting(rank: int, joined: int) -> LogSign:
    return sign("rendezvous_wait", f"{joined}/16", rank=rank)


def test_the_one_rank_that_never_came_to_the_rendezvous_is_named() -> None:
    signs = [waiting(r, min(r + 1, 15)) for r in range(16) if r != 11]
    found = only("START-RENDEZVOUS", look(), *signs, Place(rank=11, node="b"))
    assert (found.subject, found.node, found.spots[0].rank) == ("rank 11", "b", 11)
    assert found.says == "15 of 16 ranks are at the rendezvous; rank 11 never arrived"


def test_nobody_is_named_where_the_count_and_the_names_do_not_agree() -> None:
    found = only("START-RENDEZVOUS", look(), waiting(0, 15), waiting(1, 15))
    assert found.spots == ()
    assert found.says.endswith("who is missing is not told")


def test_a_whole_node_that_never_came_is_not_one_ranks_fault() -> None:
    signs = [waiting(r, 8) for r in range(8)]
    found = only("START-RENDEZVOUS", look(), *signs)
    assert found.shared
    assert found.spots == ()
    assert found.subject == "ranks 8-15"


def test_a_rendezvous_that_everybody_reached_or_before_training_is_silent() -> None:
    assert run("START-RENDEZVOUS", look(), waiting(0, 16)) == []
    assert run("START-RENDEZVOUS", look(), waiting(0, 15), step(1, 90)) == []


def test_a_rank_that_ended_its_epoch_early_is_named() -> None:
    others = [step(1199, 100 - r, rank=r, epoch=35) for r in range(8) if r != 3]
    early = mark("epoch_end", 700, rank=3, step=1193, epoch=35)
    found = only("DATA-STEPS", look(), *others, early, Place(rank=3, node="a", pid=7))
    assert (found.subject, found.node, found.spots[0].pid) == ("rank 3", "a", 7)
    assert found.says == "left its loop at step 1193 of epoch 35; the others go to step 1199"


def test_ranks_that_all_end_at_the_same_step_accuse_nobody() -> None:
    ends = [mark("epoch_end", 700, rank=r, step=1200, epoch=35) for r in range(8)]
    assert run("DATA-STEPS", look(), *ends) == []


def test_a_rank_that_began_its_next_epoch_had_not_run_out() -> None:
    early = mark("epoch_end", 700, rank=3, step=1193, epoch=35)
    others = [step(1199, 100, rank=0, epoch=35)]
    assert run("DATA-STEPS", look(), *others, early, step(3, 50, rank=3, epoch=36)) == []


def test_an_end_of_an_unnamed_rank_accuses_nobody() -> None:
    early = mark("epoch_end", 700, rank=None, step=1193, epoch=35)
    assert run("DATA-STEPS", look(), early, step(1199, 100, rank=0, epoch=35)) == []


def test_every_rule_is_silent_about_nothing() -> None:
    for name in RULES:
        assert [f for f in run(name) if f.role is Role.ROOT] == []
