"""GPU rules: fires, stays silent, boundary, blind; and the guards against naming a healthy node."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Gpu, GpuCount, GpuLinks, GpuSample, SmiFailure, Xid
from sluggish.facts.host import HungTask, KernelSpan, NodeIdentity, RankProcess
from sluggish.facts.store import Facts, Gap
from sluggish.findings import Finding, Role, Rule, Strength, ask
from sluggish.job import NodeState
from sluggish.rules.gpu import RULES
from sluggish.rules.gpu.memory import gpu_ecc, gpu_remap
from sluggish.rules.gpu.missing import gpu_missing
from sluggish.rules.gpu.recovery import gpu_fabric, gpu_recovery
from sluggish.rules.gpu.slow import slow_gpu
from sluggish.rules.gpu.stuck import gpu_stuck

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
BUS = [f"0000:{n:02x}:00.0" for n in range(8)]


def look(*nodes: str, gpus: int | None = None) -> Look:
    return Look(
        at=T0 + timedelta(hours=1), nodes=nodes, world_size=None, job_started_at=T0, loose=False,
        gpus_per_node=gpus,
    )  # fmt: skip


def gpu(node: str = "a", index: int = 0, **more: Any) -> Gpu:
    return Gpu(node=node, index=index, pci=BUS[index], **more)


def count(node: str | None, n: int, source: str = "nvidia-smi") -> GpuCount:
    return GpuCount(node=node, source=source, count=n, pci=tuple(BUS[:n]))


def observe(rule: Rule, *facts: Any, seen: tuple[type, ...] = ()) -> list[Finding]:
    store = Facts()
    for fact in facts:
        if isinstance(fact, Gap):
            store.gaps.append(fact)
            continue
        store.add(fact)
        store.seen[type(fact)].add(getattr(fact, "node", None))
    for kind in seen:
        store.seen[kind] |= {"a", "b", "c"}
    return list(ask(rule, store))


def roots(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.role is Role.ROOT]


def log(node: str = "a", *, first: timedelta = timedelta(hours=-2)) -> KernelSpan:
    return KernelSpan(node=node, first_at=T0 + first, last_at=T0 + timedelta(hours=1), lines=900)


# GPU-MISSING


def test_fewer_than_the_job_has_is_a_missing_gpu_and_names_the_card() -> None:
    (found,) = roots(observe(gpu_missing, look("a", gpus=8), count("a", 7), count("a", 8, "pci")))
    assert (found.node, found.strength, found.subtype) == ("a", Strength.DECISIVE, "missing")
    assert found.spots[0].gpu_pci == BUS[7]
    assert found.says == "nvidia-smi lists 7 GPUs, the job has 8 on this node"


def test_a_list_without_addresses_says_less_than_one_with_them() -> None:
    listed = GpuCount(node="a", source="nvidia-smi", count=7)
    (found,) = roots(observe(gpu_missing, look("a", gpus=8), listed))
    assert (found.strength, found.says) == (
        Strength.STRONG, "nvidia-smi lists 7 GPUs, the job has 8 on this node"
    )  # fmt: skip
    for order in ((listed, count("a", 8)), (count("a", 8), listed)):
        assert not roots(observe(gpu_missing, look("a", gpus=8), *order))


def test_all_the_job_has_is_clear_although_the_host_has_more() -> None:
    (found,) = observe(gpu_missing, look("a", gpus=4), count("a", 4), count("a", 8, "pci"))
    assert found.role is Role.ALL_CLEAR
    assert found.says == "4 GPUs answer, 4 needed on 1 node"


def test_a_card_gone_from_the_bus_is_off_the_bus() -> None:
    (found,) = roots(observe(gpu_missing, look("a", gpus=8), count("a", 7), count("a", 7, "pci")))
    assert found.subtype == "off_bus"


def test_a_listing_of_the_bus_that_nvidia_smi_contradicts_was_read_wrongly() -> None:
    found = observe(gpu_missing, look("a", gpus=8), count("a", 8), count("a", 7, "pci"))
    assert [f.role for f in found] == [Role.ALL_CLEAR]


@pytest.mark.parametrize(
    ("whole", "strength"), [(True, Strength.DECISIVE), (False, Strength.STRONG)]
)
def test_the_bus_alone_is_decisive_only_where_its_listing_is_whole(
    whole: bool, strength: Strength
) -> None:
    bus = GpuCount(node="a", source="pci", count=7, pci=tuple(BUS[:7]), whole=whole)
    (found,) = roots(observe(gpu_missing, look("a", gpus=8), bus))
    assert (found.subtype, found.strength) == ("off_bus", strength)


def test_a_listing_without_any_gpu_was_filtered_and_accuses_nobody() -> None:
    bus = GpuCount(node="a", source="pci", count=0, whole=True)
    assert not roots(observe(gpu_missing, look("a", gpus=8), bus))


def test_a_job_cannot_miss_more_than_its_node_has() -> None:
    facts = (count("a", 8), count("a", 8, "pci"), NodeState(node="a", state="MIXED", gpus=8))
    assert not roots(observe(gpu_missing, look("a", gpus=99), *facts))


def test_rev_ff_is_off_the_bus_without_any_expectation() -> None:
    dead = GpuCount(node="a", source="pci", count=7, pci=tuple(BUS[:7]), dead=(BUS[7],))
    (found,) = roots(observe(gpu_missing, dead))
    assert (found.subtype, found.spots[0].gpu_pci) == ("off_bus", BUS[7])


def test_a_subset_alike_on_every_node_is_a_container_and_no_fault() -> None:
    facts = [c for n in "abc" for c in (count(n, 4), count(n, 8, "pci"))]
    found = observe(gpu_missing, *facts)
    assert not roots(found)
    assert {f.role for f in found} == {Role.CONTEXT, Role.ALL_CLEAR}


def test_without_an_expectation_the_odd_node_is_named_and_a_lone_one_is_weak() -> None:
    others = [c for n in "bc" for c in (count(n, 8), count(n, 8, "pci"))]
    (found,) = roots(observe(gpu_missing, count("a", 7), count("a", 8, "pci"), *others))
    assert (found.node, found.strength) == ("a", Strength.STRONG)
    (alone,) = roots(observe(gpu_missing, count("a", 7), count("a", 8, "pci")))
    assert alone.strength is Strength.WEAK


def test_slurms_gres_counts_where_the_bus_was_not_read() -> None:
    states = [NodeState(node=n, state="ALLOCATED", gpus=8) for n in "ab"]
    (found,) = roots(observe(gpu_missing, count("a", 7), count("b", 8), *states))
    assert (found.node, found.strength) == ("a", Strength.STRONG)
    assert found.says == "nvidia-smi lists 7 GPUs, 8 stand in Slurm's gres"
    assert not roots(observe(gpu_missing, count("a", 4), count("b", 4), *states))


def test_two_nodes_that_differ_are_weak_and_three_are_strong() -> None:
    (found,) = roots(observe(gpu_missing, count("a", 7), count("b", 8)))
    assert (found.node, found.strength) == ("a", Strength.WEAK)
    (found,) = roots(observe(gpu_missing, count("a", 7), count("b", 8), count("c", 8)))
    assert found.strength is Strength.STRONG


def test_no_row_at_all_is_a_broken_query_and_not_eight_lost_gpus() -> None:
    assert not roots(observe(gpu_missing, count("a", 0), count("a", 8, "pci"), look("a", gpus=8)))


def test_mig_and_files_without_a_node_never_miss_a_gpu() -> None:
    assert not roots(observe(gpu_missing, look("a", gpus=7), count("a", 4), gpu(mig=True)))
    assert not roots(observe(gpu_missing, count(None, 7), count(None, 8, "pci"), look(gpus=8)))


def test_a_device_handle_that_fails_is_one_gpu_told_once() -> None:
    lost = SmiFailure(node="a", at=T0, kind="gpu_lost", pci=BUS[7], line="Unable ... Unknown Error")
    (found,) = roots(
        observe(gpu_missing, look("a", gpus=8), count("a", 7), count("a", 8, "pci"), lost)
    )
    assert found.spots[0].gpu_pci == BUS[7]
    (alone,) = roots(observe(gpu_missing, lost))
    assert (alone.strength, alone.quote) == (Strength.DECISIVE, lost.line)


def test_a_lost_gpu_beside_all_of_the_job_s_own_is_weak() -> None:
    lost = SmiFailure(node="a", at=T0, kind="gpu_lost", pci=BUS[7])
    (found,) = roots(observe(gpu_missing, look("a", gpus=4), count("a", 7), lost))
    assert found.strength is Strength.WEAK


def test_gpus_missing_on_two_nodes_are_a_shared_cause() -> None:
    found = roots(observe(gpu_missing, look("a", "b", gpus=8), count("a", 7), count("b", 6)))
    assert [f.shared for f in found] == [True, True]


def test_the_all_clear_names_the_node_that_was_not_seen() -> None:
    (found,) = observe(gpu_missing, look("a", "b", gpus=8), count("a", 8))
    assert found.says == "8 GPUs answer, 8 needed on 1 node; not seen on b"


# GPU-ECC, GPU-REMAP


def test_an_uncorrectable_count_is_weak_strong_or_old_by_what_the_kernel_says() -> None:
    bad = gpu(ecc_volatile_uncorrectable=2)
    (blind,) = observe(gpu_ecc, bad, look("a"))
    assert (blind.role, blind.strength) == (Role.ROOT, Strength.WEAK)
    (old,) = observe(gpu_ecc, bad, look("a"), log(), seen=(Xid,))
    assert old.role is Role.HOUSEKEEPING
    (late,) = observe(gpu_ecc, bad, look("a"), log(first=timedelta(minutes=9)), seen=(Xid,))
    assert late.role is Role.ROOT
    xid = Xid(node="a", at=T0 + timedelta(minutes=5), pci=BUS[0], code=48, line="NVRM: Xid")
    (now,) = observe(gpu_ecc, bad, look("a"), log(), xid)
    assert (now.role, now.strength, now.quote) == (Role.ROOT, Strength.STRONG, "NVRM: Xid")


def test_a_memory_xid_of_last_week_does_not_make_a_count_new() -> None:
    xid = Xid(node="a", at=T0 - timedelta(days=7), pci=BUS[0], code=48)
    (found,) = observe(gpu_ecc, gpu(ecc_volatile_uncorrectable=2), look("a"), log(), xid)
    assert found.role is Role.HOUSEKEEPING


def test_aggregate_counts_alone_say_nothing() -> None:
    (found,) = observe(
        gpu_ecc, gpu(ecc_volatile_uncorrectable=0, ecc_aggregate_uncorrectable=9), look("a", "b")
    )
    assert found.role is Role.ALL_CLEAR
    assert found.says == (
        "no uncorrectable ECC error since driver load on 1 GPUs on 1 node; not seen on b"
    )


def test_a_gpu_without_counters_is_not_clear() -> None:
    assert observe(gpu_ecc, gpu(ecc_volatile_uncorrectable=None), look("a")) == []


@pytest.mark.parametrize(("grown", "fires"), [(10_000, False), (10_001, True)])
def test_the_rate_of_correctable_errors_decides(grown: int, fires: bool) -> None:
    first = gpu(ecc_volatile_correctable=5, at=T0)
    later = gpu(ecc_volatile_correctable=5 + grown, at=T0 + timedelta(seconds=10))
    assert bool(roots(observe(gpu_ecc, first, later))) is fires


def test_many_correctable_errors_over_a_long_uptime_are_no_rate() -> None:
    one = gpu(ecc_volatile_correctable=5_000_000)
    assert not roots(observe(gpu_ecc, one, NodeIdentity(node="a", uptime_s=864_000.0)))
    assert roots(observe(gpu_ecc, one, NodeIdentity(node="a", uptime_s=3_600.0)))


def test_a_pending_remap_is_housekeeping_and_a_failed_one_with_errors_is_a_cause() -> None:
    (pending,) = observe(gpu_remap, gpu(remap_pending=True, remap_failed=False))
    assert pending.role is Role.HOUSEKEEPING
    failed = gpu(remap_failed=True, ecc_volatile_uncorrectable=1)
    (found,) = observe(gpu_remap, failed)
    assert (found.role, found.strength, found.action) == (Role.ROOT, Strength.STRONG, "rma")


def test_an_old_remap_failure_is_housekeeping_where_the_log_shows_no_error() -> None:
    (found,) = observe(gpu_remap, gpu(remap_failed=True), look("a"), log(), seen=(Xid,))
    assert found.role is Role.HOUSEKEEPING
    (blind,) = observe(gpu_remap, gpu(remap_failed=True), look("a"))
    assert (blind.role, blind.strength) == (Role.ROOT, Strength.WEAK)


def test_no_remap_anywhere_is_clear() -> None:
    (found,) = observe(gpu_remap, gpu(remap_pending=False, remap_failed=False), look("a"))
    assert found.says == "no row remap failed or pending on 1 GPUs on 1 node"


# GPU-RECOVERY, GPU-FABRIC


@pytest.mark.parametrize(
    ("words", "role", "action"),
    [
        ("Reset", Role.ROOT, "reset_gpu"),
        ("PF FLR", Role.ROOT, "reset_gpu"),
        ("OS Reboot", Role.ROOT, "reboot_node"),
        ("Reboot", Role.ROOT, "reboot_node"),
        ("Drain P2P", Role.ROOT, "check_fabric"),
        ("Drain and Reset", Role.HOUSEKEEPING, "reset_gpu"),
        ("Recover IMEX Domain", Role.ROOT, "recover_imex"),
    ],
)
def test_each_recovery_action_says_what_to_do(words: str, role: Role, action: str) -> None:
    (found,) = observe(gpu_recovery, gpu(recovery_action=words))
    assert (found.role, found.action) == (role, action)


def test_none_is_clear_and_no_field_is_not() -> None:
    (found,) = observe(gpu_recovery, gpu(recovery_action="None"), look("a"))
    assert found.role is Role.ALL_CLEAR
    assert observe(gpu_recovery, gpu(recovery_action=None), look("a")) == []


def test_after_a_79_a_reset_becomes_a_reboot() -> None:
    xid = Xid(node="a", at=T0, pci=BUS[0], code=79)
    (found,) = observe(gpu_recovery, gpu(recovery_action="Reset"), xid)
    assert found.action == "reboot_node"


def test_a_field_that_one_gpu_cannot_read_is_its_own_and_one_that_all_cannot_is_not() -> None:
    healthy = [gpu(index=i) for i in range(1, 8)]
    bad = gpu(errors=("ecc_mode/current_ecc: Unknown Error",))
    (found,) = observe(gpu_recovery, bad, *healthy)
    assert (found.strength, found.spots[0].gpu_index) == (Strength.STRONG, 0)
    fan = [gpu(index=i, errors=("fan: ERR!",)) for i in range(8)]
    assert observe(gpu_recovery, *fan) == []


def test_a_gpu_that_requires_a_reset_is_decisive() -> None:
    bad = gpu(errors=("utilization/gpu_util: GPU requires reset",))
    (found,) = observe(gpu_recovery, bad, gpu(index=1), gpu(index=2))
    assert found.strength is Strength.DECISIVE


def test_a_reset_that_every_gpu_requires_is_asked_of_each() -> None:
    word = "fb_memory_usage/used: GPU requires reset"
    found = observe(gpu_recovery, *(gpu(index=i, errors=(word,)) for i in range(4)))
    assert [(f.strength, f.says) for f in found] == [
        (Strength.DECISIVE, "the GPU requires a reset")
    ] * 4


ECC, FAN = ("ecc: ERR!",), ("fan: ERR!", "draw: ERR!")


@pytest.mark.parametrize(
    ("errors_of", "told"),
    [
        pytest.param({"a": [ECC, ()]}, [("root_candidate", "strong")], id="one of two"),
        pytest.param({"a": [ECC, ECC, (), ()]}, [("root_candidate", "strong")] * 2, id="half"),
        pytest.param({"a": [FAN, ()]}, [("root_candidate", "weak")], id="a sensor of one of two"),
        pytest.param({"a": [ECC, ECC], "b": [(), ()]}, [("root_candidate", "weak")] * 2,
                     id="a whole node"),
        pytest.param({"a": [ECC], "b": [()]}, [("root_candidate", "strong")], id="one GPU a node"),
        pytest.param({"a": [FAN, FAN], "b": [(), ()]}, [], id="sensors of a whole node"),
        pytest.param({"a": [ECC, ECC, ECC, ()]}, [("context", "weak")] * 3, id="most"),
        pytest.param({"a": [ECC, ECC]}, [("context", "weak")] * 2, id="nobody answers better"),
        pytest.param({"a": [FAN, FAN]}, [], id="no GPU has the sensor"),
        pytest.param({"a": [FAN]}, [], id="a lone GPU without the sensor"),
        pytest.param({"a": [ECC]}, [("root_candidate", "weak")], id="a lone GPU"),
    ],
)  # fmt: skip
def test_who_else_cannot_be_read_decides_how_much_it_says(
    errors_of: dict[str, list[tuple[str, ...]]], told: list[tuple[str, str]]
) -> None:
    gpus = [gpu(n, i, errors=e) for n, each in errors_of.items() for i, e in enumerate(each)]
    found = observe(gpu_recovery, *gpus)
    assert [(f.role.value, f.strength.value) for f in found] == told


def test_a_reset_field_that_cannot_be_read_asks_for_no_reset() -> None:
    word = "gpu_reset_status/drain_and_reset_recommended: Unknown Error"
    (found,) = observe(gpu_recovery, gpu(errors=(word,)))
    assert found.strength is Strength.WEAK
    assert "requires a reset" not in found.says


def test_another_job_s_gpu_on_a_shared_node_is_housekeeping() -> None:
    place = Place(rank=0, node="a", gpu_pci=BUS[1])
    (found,) = observe(gpu_recovery, gpu(recovery_action="Reset"), place, look("a", gpus=1))
    assert found.role is Role.HOUSEKEEPING


def test_the_fabric_needs_state_and_status_both_good() -> None:
    good = gpu(fabric_state="Completed", fabric_status="Success")
    (clear,) = observe(gpu_fabric, good, look("a"))
    assert clear.says == "NVLink fabric complete on 1 GPUs on 1 node; switches not checked"
    failed = gpu(index=1, fabric_state="Completed", fabric_status="Invalid State")
    (found,) = observe(gpu_fabric, good, failed)
    assert (found.role, found.strength, found.spots[0].gpu_index) == (
        Role.ROOT, Strength.STRONG, 1,
    )  # fmt: skip
    ill = gpu(fabric_state="Completed", fabric_status="Success", fabric_trouble=("bandwidth",))
    assert observe(gpu_fabric, ill, good)[0].says == "NVLink fabric: bandwidth"


def test_a_fabric_that_is_down_everywhere_is_shared_and_weak() -> None:
    facts = [gpu(n, i, fabric_state="Not Started") for n in "ab" for i in range(2)]
    found = observe(gpu_fabric, *facts)
    assert {(f.shared, f.strength) for f in found} == {(True, Strength.WEAK)}


def test_a_board_without_a_fabric_has_no_finding() -> None:
    assert observe(gpu_fabric, gpu(fabric_state=None), look("a")) == []


# GPU-STUCK


def gap(why: str, node: str = "a") -> Gap:
    return Gap(node=node, fact=Gpu, probe="nvidia_smi", why=why)


def test_a_silence_of_nvidia_smi_alone_is_weak() -> None:
    (found,) = observe(gpu_stuck, gap("stuck: D"), NodeIdentity(node="a"))
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.WEAK, "driver_stuck",
    )  # fmt: skip
    assert "did not return" in found.says


def test_a_node_that_answers_nothing_is_no_gpu_fault() -> None:
    assert observe(gpu_stuck, gap("timeout")) == []
    assert observe(gpu_stuck, gap("not understood: x"), NodeIdentity(node="a")) == []


def test_a_process_stuck_in_the_driver_makes_it_strong() -> None:
    process = RankProcess(
        node="a", pid=77, name="python3", state="D",
        kernel_stack=("os_acquire_rwlock_write+0x35/0x60 [nvidia]",),
    )  # fmt: skip
    (found,) = observe(gpu_stuck, gap("stuck"), process)
    assert (found.strength, found.subject, found.action) == (
        Strength.STRONG, "pid 77", "reboot_node",
    )  # fmt: skip


@pytest.mark.parametrize(
    "wchan", ["rpc_wait_bit_killable", "nvme_submit_sync", "nvidia_fs_read", "0"]
)
def test_a_process_that_waits_for_storage_is_not_stuck_in_the_driver(wchan: str) -> None:
    assert observe(gpu_stuck, RankProcess(node="a", pid=7, state="D", wchan=wchan)) == []


def test_a_running_process_in_the_driver_is_not_stuck() -> None:
    assert observe(gpu_stuck, RankProcess(node="a", pid=7, state="R", wchan="uvm_ioctl")) == []


def test_a_hung_nvidia_smi_in_the_kernel_log_counts_unless_it_is_history() -> None:
    task = HungTask(
        node="a", at=T0 + timedelta(minutes=1), process="nvidia-smi", pid=9, seconds=120
    )
    (found,) = observe(gpu_stuck, task, look("a"))
    assert found.strength is Strength.STRONG
    old = HungTask(node="a", at=T0 - timedelta(days=2), process="nvidia-smi", pid=9)
    assert observe(gpu_stuck, old, look("a")) == []


def test_a_task_that_hangs_only_after_the_kill_is_a_consequence() -> None:
    onset = Onset(
        earliest=T0 + timedelta(minutes=20), latest=T0 + timedelta(minutes=20), source="x",
        teardown_at=T0 + timedelta(minutes=30),
    )  # fmt: skip
    task = HungTask(
        node="a", at=T0 + timedelta(minutes=35), process="python3", pid=9,
        stack=("uvm_va_space_destroy+0x1/0x2 [nvidia_uvm]",),
    )  # fmt: skip
    (found,) = observe(gpu_stuck, task, look("a"), onset)
    assert found.role is Role.CONSEQUENCE
    (before,) = observe(gpu_stuck, task, look("a"))
    assert before.role is Role.ROOT


def test_a_version_mismatch_is_housekeeping() -> None:
    failure = SmiFailure(node="a", at=T0, kind="version_mismatch", line="Failed to initialize NVML")
    (found,) = observe(gpu_stuck, failure)
    assert found.role is Role.HOUSEKEEPING


# SLOW-GPU


def busy(index: int, node: str = "a", **more: Any) -> list[GpuSample]:
    base: dict[str, Any] = {"utilisation_pct": 99.0, "power_w": 650.0, "power_limit_w": 700.0,
                            "sm_clock_mhz": 1900, "max_sm_clock_mhz": 1980, **more}  # fmt: skip
    return [
        GpuSample(node=node, at=T0 + timedelta(seconds=s), index=index, pci=BUS[index], **base)
        for s in range(10)
    ]


def fleet(n: int, *odd: list[GpuSample], skip: int = 0) -> list[GpuSample]:
    return [s for one in odd for s in one] + [s for i in range(skip, n) for s in busy(i)]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"throttle": ("hw_thermal_slowdown",)}, "throttled: hw_thermal_slowdown"),
        ({"sm_clock_mhz": 1200}, "SM clock 1200 MHz, peers 1900 MHz"),
    ],
)
def test_the_one_gpu_that_is_held_back_is_named(more: dict[str, Any], words: str) -> None:
    (found,) = observe(slow_gpu, *fleet(8, busy(0, **more), skip=1))
    assert (found.role, found.strength, found.says) == (Role.ROOT, Strength.STRONG, words)
    assert found.spots[0].gpu_index == 0


def test_a_shift_of_the_majority_names_nobody() -> None:
    slow = [busy(i, throttle=("hw_power_brake_slowdown",)) for i in range(4)]
    (found,) = observe(slow_gpu, *fleet(8, *slow, skip=4))
    assert (found.role, found.node, found.spots, found.shared) == (Role.CONTEXT, None, (), True)


def test_the_power_cap_and_an_idle_clock_are_no_throttle() -> None:
    capped = busy(0, throttle=("sw_power_cap",))
    idle = busy(1, utilisation_pct=0.0, sm_clock_mhz=345, throttle=("gpu_idle",))
    (found,) = observe(slow_gpu, *fleet(8, capped, idle, skip=2))
    assert found.role is Role.ALL_CLEAR


def test_one_flicker_of_a_reason_is_no_state() -> None:
    flicker = busy(0)[:5] + busy(0, throttle=("hw_slowdown",))[5:]
    assert not roots(observe(slow_gpu, *fleet(8, flicker, skip=1)))


def test_a_pcie_link_counts_only_under_load() -> None:
    def described(util: float) -> list[Gpu]:
        return [
            gpu(index=i, utilisation_pct=util, pcie_generation=1 if i == 0 else 5, pcie_width=16)
            for i in range(8)
        ]

    (found,) = roots(observe(slow_gpu, *fleet(8), *described(99.0)))
    assert found.says == "PCIe generation 1, peers 5"
    assert not roots(observe(slow_gpu, *fleet(8), *described(0.0)))


def test_too_few_peers_are_no_comparison() -> None:
    assert observe(slow_gpu, *fleet(3, busy(0, sm_clock_mhz=500), skip=1)) == []


# GPU-FABRIC: links


def links(*active: int, node: str = "a", **of_the_last: Any) -> list[GpuLinks]:
    last = len(active) - 1
    return [
        GpuLinks(node=node, index=i, uuid=f"GPU-{i}", active=n, **of_the_last if i == last else {})
        for i, n in enumerate(active)
    ]


def test_a_gpu_with_fewer_links_than_those_beside_it_is_a_weak_hint() -> None:
    (found,) = observe(gpu_fabric, *links(*[18] * 7, 17, inactive=(3,)))
    assert (found.role, found.strength, found.subtype) == (Role.ROOT, Strength.WEAK, "nvlink")
    assert found.says == "17 NVLinks (link 3 inactive), the 7 GPUs beside it have 18"
    assert (found.spots[0].gpu_index, found.action) == (7, "check_fabric")


def test_a_gpu_without_any_link_among_seven_that_have_all_is_a_hint() -> None:
    (found,) = observe(gpu_fabric, *links(*[18] * 7, 0))
    assert (found.role, found.spots[0].gpu_index) == (Role.ROOT, 7)


@pytest.mark.parametrize(
    "active",
    [
        pytest.param([18] * 8, id="all alike"),
        pytest.param([0] * 8, id="boards without a bridge"),
        pytest.param([12, 12, 0, 0, 12, 12, 0, 0], id="pairs with a bridge beside boards without"),
        pytest.param([12] * 6 + [0, 0], id="one pair without a bridge"),
        pytest.param([4, 4, 4, 4, 0], id="one board that has no partner"),
        pytest.param([18, 18, 17], id="too few to compare with"),
        pytest.param([17, 17, 18, 18], id="half"),
        pytest.param([18] * 7 + [24], id="one with more"),
        pytest.param([6, 5, 4, 6, 5, 4, 6, 5], id="cabled unevenly"),
    ],
)
def test_links_that_are_built_so_are_no_hint(active: list[int]) -> None:
    assert not roots(observe(gpu_fabric, *links(*active)))


def test_links_that_all_lack_some_are_no_hint_of_one() -> None:
    every = [GpuLinks(node="a", index=i, active=17, inactive=(3,)) for i in range(7)]
    assert not roots(observe(gpu_fabric, *every, GpuLinks(node="a", index=7, active=16)))


def test_a_lost_link_takes_the_all_clear_away_and_two_kinds_of_listing_are_not_compared() -> None:
    well = [gpu(index=i, fabric_state="Completed", fabric_status="Success") for i in range(8)]
    assert [f.role for f in observe(gpu_fabric, *well, *links(*[18] * 8), look("a"))] == [
        Role.ALL_CLEAR
    ]
    bad = observe(gpu_fabric, *well, *links(*[18] * 7, 17), look("a"))
    assert [f.role for f in bad] == [Role.ROOT]
    matrix = [GpuLinks(node="a", index=i, active=126) for i in range(8)]
    assert not roots(observe(gpu_fabric, *links(*[18] * 8), *matrix))


def test_recoveries_of_a_link_are_shown_and_judged_nowhere() -> None:
    often = GpuLinks(node="a", index=2, counted=True, recovered=((14, 505),))
    failed = GpuLinks(node="a", index=3, counted=True, recovered=((1, 3),), failed=((1, 2),))
    found = observe(gpu_fabric, often, failed)
    assert [(f.role, f.says) for f in found] == [
        (Role.HOUSEKEEPING, "NVLink recoveries since the driver was loaded: link 14: 505"),
        (Role.HOUSEKEEPING,
         "NVLink recoveries that failed since the driver was loaded: link 1: 2"),
    ]  # fmt: skip


def test_every_rule_has_a_docstring_and_its_own_id() -> None:
    assert [r.id for r in RULES] == [
        "GPU-MISSING", "GPU-ECC", "GPU-REMAP", "GPU-RECOVERY", "GPU-STUCK", "GPU-FABRIC",
        "GPU-DOMAIN", "SLOW-GPU", "GPU-LEFTOVER",
    ]  # fmt: skip
    assert all(r.doc.endswith(".") for r in RULES)


def test_a_card_that_nvidia_smi_cannot_reach_is_off_the_bus_where_the_bus_was_read() -> None:
    lost = SmiFailure(node="a", at=None, kind="gpu_lost", pci=BUS[7], line="Unable to determine")
    facts = (look("a", gpus=8), count("a", 7), lost)
    (found,) = roots(observe(gpu_missing, *facts, count("a", 7, "pci")))
    assert (found.subtype, found.spots[0].gpu_pci) == ("off_bus", BUS[7])
    (found,) = roots(observe(gpu_missing, *facts, count("a", 8, "pci")))
    assert found.subtype == "missing"
