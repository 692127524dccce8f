"""GPU-XID, GPU-APP-XID, GPU-LOST, GPU-SXID, GPU-ECHO: fires, silent, boundary, blind."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Gpu, GpuProcess, GpuTrouble, SmiFailure, SXid, Xid
from sluggish.facts.host import HungTask, KernelSpan, RankProcess
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask, ask_all
from sluggish.rules.xid import RULES

ONSET = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
START = ONSET - timedelta(hours=6)
KILL = ONSET + timedelta(minutes=10)
RULE = {rule.id: rule for rule in RULES}
NODES = ("gpu-07", "gpu-08")


def _at(seconds: float) -> datetime:
    return ONSET + timedelta(seconds=seconds)


def _xid(code: int, seconds: float | None = 0, gpu: int = 1, **more: Any) -> Xid:
    at = None if seconds is None else _at(seconds)
    return Xid(**{"node": "gpu-08", "at": at, "pci": f"0000:0{gpu}:00.0", "code": code,
                  "line": f"NVRM: Xid (PCI:0000:0{gpu}:00): {code}, x", **more})  # fmt: skip


def _place(rank: int, gpu: int, **more: Any) -> Place:
    return Place(**{"rank": rank, "node": "gpu-08", "pid": 4000 + rank, "gpu_index": gpu - 1,
                    "gpu_pci": f"0000:0{gpu}:00.0", **more})  # fmt: skip


def _span(node: str, first: datetime = START - timedelta(days=1)) -> KernelSpan:
    return KernelSpan(node=node, first_at=first, last_at=ONSET, lines=900)


def _facts(
    *items: Any, onset: bool = True, spans: bool = True, nodes: tuple[str, ...] = NODES,
    started: datetime | None = START, gpus_per_node: int | None = 8,
) -> Facts:  # fmt: skip
    facts = Facts()
    facts.add(
        Look(at=_at(1800), nodes=nodes, world_size=16, job_started_at=started, loose=False,
             gpus_per_node=gpus_per_node)
    )  # fmt: skip
    if onset:
        facts.add(Onset(earliest=_at(-30), latest=ONSET, source="watchdog", teardown_at=KILL))
    if spans:
        for node in nodes:
            facts.add(_span(node))
    for item in items:
        facts.add(item)
    for kind in (Xid, SXid, GpuTrouble, KernelSpan):
        facts.seen[kind] |= {s.node for s in facts.all(KernelSpan)}
    return facts


def _ask(rule: str, *items: Any, **more: Any) -> tuple[Finding, ...]:
    return ask(RULE[rule], _facts(*items, **more))


def _roots(found: tuple[Finding, ...]) -> list[Finding]:
    return [f for f in found if f.role is Role.ROOT]


# GPU-XID: the window


def test_a_fatal_xid_in_the_window_is_decisive_and_names_its_rank() -> None:
    (found,) = _ask("GPU-XID", _xid(79), _place(13, 1, node="gpu-08"))
    assert (found.role, found.strength) == (Role.ROOT, Strength.DECISIVE)
    assert (found.subtype, found.action) == ("off_bus", "reboot_node")
    (spot,) = found.spots
    assert (spot.node, spot.rank, spot.gpu_pci) == ("gpu-08", 13, "0000:01:00.0")
    assert found.quote.startswith("NVRM: Xid")


@pytest.mark.parametrize(
    ("seconds", "role", "strength"),
    [(-7 * 86400, Role.HOUSEKEEPING, Strength.DECISIVE),
     (-30 - 15 * 60, Role.ROOT, Strength.DECISIVE),
     (15, Role.ROOT, Strength.DECISIVE), (16, Role.ROOT, Strength.STRONG),
     (599, Role.ROOT, Strength.STRONG), (600, Role.CONSEQUENCE, Strength.DECISIVE)],
)  # fmt: skip
def test_the_window_decides_what_a_fatal_xid_is(
    seconds: float, role: Role, strength: Strength
) -> None:
    (found,) = [f for f in _ask("GPU-XID", _xid(119, seconds)) if f.role is not Role.ALL_CLEAR]
    assert (found.role, found.strength) == (role, strength)


def test_an_xid_long_before_the_stall_that_the_job_survived_is_context() -> None:
    found = _ask("GPU-XID", _xid(48, -3600), _xid(94, -3600))
    assert _roots(found) == []
    assert found[0].role is Role.CONTEXT


def test_a_gpu_lost_early_in_the_job_and_still_gone_stays_a_root() -> None:
    there = Gpu(node="gpu-08", index=1, pci="0000:02:00.0")
    (found,) = _roots(_ask("GPU-XID", _xid(79, -3600), there))
    assert found.strength is Strength.STRONG
    back = Gpu(node="gpu-08", index=0, pci="0000:01:00.0", recovery_action="None")
    assert _roots(_ask("GPU-XID", _xid(79, -3600), back)) == []


def test_stale_xids_of_last_week_do_not_take_the_all_clear_away() -> None:
    found = _ask("GPU-XID", _xid(31, -7 * 86400), _xid(74, -7 * 86400 + 1, 2))
    assert _roots(found) == []
    (clear,) = [f for f in found if f.role is Role.ALL_CLEAR]
    assert clear.says == "no Xid since job start on 2 nodes"


def test_without_an_onset_a_fatal_xid_is_strong_and_decisive_only_if_it_stands() -> None:
    (found,) = _ask("GPU-XID", _xid(119), onset=False)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    wants = Gpu(node="gpu-08", index=0, pci="0000:01:00.0", recovery_action="Reset")
    (found,) = _ask("GPU-XID", _xid(119), wants, onset=False)
    assert found.strength is Strength.DECISIVE


def test_an_xid_without_a_time_is_not_decisive() -> None:
    (found,) = _ask("GPU-XID", _xid(79, None))
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)


def test_a_gpu_that_no_rank_of_the_job_uses_is_not_accused() -> None:
    places = [_place(rank, rank + 2) for rank in range(4)]
    found = _ask("GPU-XID", _xid(79, 0, 1), *places, gpus_per_node=4)
    assert _roots(found) == []
    assert "no rank of this job" in found[0].says
    found = _ask("GPU-XID", _xid(79, 0, 1), *places[:3], gpus_per_node=4)  # a place is not known
    assert len(_roots(found)) == 1


def test_a_gpu_that_left_nvidia_smis_list_is_never_taken_for_somebody_elses() -> None:
    places = [_place(rank, rank + 2) for rank in range(4)]  # indexes have moved up by one
    listed = [Gpu(node="gpu-08", index=i, pci=f"0000:0{i + 2}:00.0") for i in range(3)]
    found = _ask("GPU-XID", _xid(79, 0, 1), *places, *listed, gpus_per_node=4)
    assert [f.strength for f in _roots(found)] == [Strength.DECISIVE]


def _busy(gpu: int, pid: int) -> Gpu:
    return Gpu(node="gpu-08", index=gpu - 1, pci=f"0000:0{gpu}:00.0",
               processes=(GpuProcess(pid=pid),))  # fmt: skip


def test_the_rank_of_a_lost_gpu_is_the_one_that_no_listed_gpu_runs() -> None:
    ranks = [Place(rank=r, node="gpu-08", pid=4000 + r) for r in range(4)]
    listed = [_busy(1, 4000), _busy(2, 4001), _busy(4, 4003)]
    (found,) = _roots(_ask("GPU-XID", _xid(79, 0, 3), *ranks, *listed, gpus_per_node=4))
    (spot,) = found.spots
    assert (spot.rank, spot.pid, spot.gpu_index) == (2, 4002, 2)


def test_the_rank_of_a_dead_process_is_the_one_that_lacks_in_its_nodes_block() -> None:
    ranks = [Place(rank=r, node="gpu-08", pid=4000 + r) for r in (4, 5, 7)]
    others = [Place(rank=r, node="gpu-07", pid=r) for r in range(4)]
    listed = [_busy(1, 4004), _busy(2, 4005), Gpu(node="gpu-08", index=2, pci="0000:03:00.0"),
              _busy(4, 4007)]  # fmt: skip
    xids = [_xid(48, 0, 3), _xid(94, 0.1, 3, pid=4006)]
    (found,) = _roots(_ask("GPU-XID", *xids, *ranks, *others, *listed, gpus_per_node=4))
    assert (found.spots[0].rank, found.spots[0].gpu_index) == (6, 2)
    mixed = [Place(rank=r, node="gpu-07", pid=r) for r in (0, 1, 2, 9)]
    (found,) = _roots(_ask("GPU-XID", *xids, *ranks, *mixed, *listed, gpus_per_node=4))
    assert found.spots[0].rank is None


def test_the_rank_on_a_node_whose_nvidia_smi_hangs_is_told_by_the_layout_of_the_others() -> None:
    layout = [Gpu(node="gpu-07", index=i, pci=f"0000:0{i + 1}:00.0") for i in range(2)]
    theirs = [Place(rank=i, node="gpu-07", local_rank=i, gpu_index=i) for i in range(2)]
    ours = [Place(rank=2 + i, node="gpu-08", local_rank=i, pid=4000 + i) for i in range(2)]
    (found,) = _roots(_ask("GPU-XID", _xid(119, 0, 2), *layout, *theirs, *ours))
    assert (found.spots[0].rank, found.spots[0].gpu_index) == (3, 1)
    crossed = [Place(rank=i, node="gpu-07", local_rank=i, gpu_index=1 - i) for i in range(2)]
    (found,) = _roots(_ask("GPU-XID", _xid(119, 0, 2), *layout, *crossed, *ours))
    assert found.spots[0].rank is None


def test_two_silent_gpus_leave_the_rank_unknown() -> None:
    ranks = [Place(rank=r, node="gpu-08", pid=4000 + r) for r in range(4)]
    listed = [_busy(1, 4000), _busy(2, 4001), Gpu(node="gpu-08", index=2, pci="0000:04:00.0")]
    (found,) = _roots(_ask("GPU-XID", _xid(79, 0, 3), *ranks, *listed, gpus_per_node=4))
    assert found.spots[0].rank is None


# GPU-XID: which fault


def test_contained_ecc_restarts_the_job_and_asks_for_no_repair() -> None:
    xids = [_xid(48, 0), _xid(63, 0.02), _xid(94, 0.03, pid=4001), _xid(45, 0.04, pid=4001)]
    (found,) = _ask("GPU-XID", *xids)
    assert (found.role, found.subtype, found.action) == (Role.ROOT, "ecc", "restart_app")
    assert found.says.startswith("Xid 48, 63, 94: uncorrectable memory error, contained")


@pytest.mark.parametrize(
    ("more", "action"),
    [([_xid(154, 1, recovery=4)], "restart_app"), ([_xid(154, 1, recovery=1)], "reset_gpu"),
     ([_xid(154, 1, recovery=2)], "reboot_node"), ([_xid(64, 1)], "rma"),
     ([Gpu(node="gpu-08", pci="0000:01:00.0", remap_failed=True)], "rma"),
     ([Gpu(node="gpu-08", pci="0000:01:00.0", recovery_action="Drain and Reset")], "restart_app"),
     ([_xid(95, 1, reset_hint=True)], "reset_gpu")],
)  # fmt: skip
def test_what_the_driver_asks_for_outranks_the_table_for_contained_ecc(
    more: list[Any], action: str
) -> None:
    found = _roots(_ask("GPU-XID", _xid(48, 0), _xid(94, 0.03), *more))
    assert [f.action for f in found] == [action]
    assert found[0].subtype == ("row_remap" if action == "rma" else "ecc")


def test_after_79_only_a_reboot_helps_whatever_154_says() -> None:
    (found,) = _ask("GPU-XID", _xid(79), _xid(154, 1, recovery=1))
    assert found.action == "reboot_node"
    assert "GPU Reset Required" in found.says


def test_a_154_that_went_back_to_none_takes_the_request_back() -> None:
    (found,) = _ask("GPU-XID", _xid(109), _xid(154, 1, recovery=1), _xid(154, 2, recovery=0))
    assert found.action == "restart_app"


def test_a_154_of_another_gpu_changes_nothing() -> None:
    (found,) = _ask("GPU-XID", _xid(109), _xid(154, 1, 2, recovery=2))
    assert found.action == "reset_gpu"


def test_a_dead_gsp_is_reset_while_nvidia_smi_answers_and_else_rebooted() -> None:
    answers = Gpu(node="gpu-08", index=0, pci="0000:00:00.0")
    (found,) = _ask("GPU-XID", _xid(119, pid=77, process="nvidia-smi"), answers)
    assert (found.subtype, found.action) == ("gsp", "reset_gpu")
    silent = SmiFailure(node="gpu-08", at=None, kind="timeout")
    stuck = HungTask(node="gpu-08", at=None, process="nvidia-smi", pid=77, seconds=120)
    frames = ("os_acquire_rwlock_write+0x35/0x60 [nvidia]",)
    inside = RankProcess(node="gpu-08", pid=9, state="D", kernel_stack=frames)
    elsewhere = replace(answers, node="gpu-07")
    for why in ([answers, silent], [answers, stuck], [answers, inside], [elsewhere], []):
        assert _ask("GPU-XID", _xid(119), *why)[0].action == "reboot_node"


def test_the_pid_of_a_gsp_timeout_accuses_nobody() -> None:
    (found,) = _ask("GPU-XID", _xid(119, pid=77, process="nvidia-smi"))
    assert found.spots[0].pid is None


def test_a_lost_link_is_the_root_and_the_145_crowd_is_not_accused() -> None:
    crowd = [_xid(145, 0.1 * g, g, unit="RLW_RXPIPE", fatal=False, intrinfo=0x0409A0C2, status=8)
             for g in range(1, 8)]  # fmt: skip
    root = _xid(149, 1, 8, unit="NETIR_LINK_DOWN", fatal=True, link=14, intrinfo=0x4505C6, status=0)
    (found,) = _ask("GPU-XID", *crowd, root, _xid(45, 2, 3, pid=9, caused_by=149))
    assert found.spots[0].gpu_pci == "0000:08:00.0"
    assert (found.subtype, found.strength) == ("nvlink", Strength.DECISIVE)
    assert "Xid 145 on 7 GPUs" in found.says


def test_a_crowd_on_another_node_follows_the_link_fault_of_its_domain() -> None:
    root = _xid(149, 1, 8, unit="NETIR_LINK_DOWN", fatal=True, intrinfo=0x4505C6, status=0)
    crowd = [_xid(145, 2, g, node="gpu-07", unit="RLW_RXPIPE", fatal=False, intrinfo=0x0409A0C2,
                  status=8) for g in (1, 2)]  # fmt: skip
    found = _ask("GPU-XID", root, *crowd)
    assert [f.node for f in _roots(found)] == ["gpu-08"]
    assert not _roots(found)[0].shared
    assert any("downstream of the link fault on gpu-08" in f.says for f in found)


def test_a_link_whose_other_end_failed_is_not_this_gpus_repair() -> None:
    line = _xid(149, 0, unit="NETIR_LINK_EVT", fatal=True, intrinfo=0x021425C6, status=0)
    (found,) = _ask("GPU-XID", line)
    assert (found.strength, found.action) == (Strength.STRONG, "check_fabric")
    assert "the other end" in found.says


def test_one_74_is_strong_two_gpus_with_74_are_decisive() -> None:
    (one,) = _ask("GPU-XID", _xid(74, link=9, link_words=(0, 0, 0x80000, 0, 0, 0, 0)))
    assert one.strength is Strength.STRONG
    (two,) = _ask("GPU-XID", _xid(74, 0, 1), _xid(74, 1, 2))
    assert two.strength is Strength.DECISIVE
    (mild,) = _ask("GPU-XID", _xid(74, link_words=(2, 0, 0, 0, 0, 0, 0)))
    assert mild.strength is Strength.WEAK


def test_a_74_beside_a_fatal_switch_error_is_its_echo() -> None:
    switch = SXid(node="gpu-08", at=_at(0), pci="0000:c2:00.0", code=20034, fatal=True, link=22)
    found = _ask("GPU-XID", _xid(74, 1), switch)
    assert [f.role for f in found] == [Role.CONSEQUENCE, Role.ALL_CLEAR]


def test_the_same_fault_on_two_nodes_is_a_shared_cause() -> None:
    found = _roots(_ask("GPU-XID", _xid(79), _xid(79, 5, node="gpu-07")))
    assert [f.shared for f in found] == [True, True]
    found = _roots(_ask("GPU-XID", _xid(79), _xid(48, 5, node="gpu-07")))
    assert [f.shared for f in found] == [False, False]


def test_two_gpus_of_one_node_that_fall_off_are_both_named() -> None:
    found = _roots(_ask("GPU-XID", _xid(79, 0, 1), _xid(79, 1, 2)))
    assert [f.spots[0].gpu_pci for f in found] == ["0000:01:00.0", "0000:02:00.0"]
    assert not any(f.shared for f in found)


def test_a_page_fault_after_a_pmu_failure_is_hardware() -> None:
    (found,) = _roots(_ask("GPU-XID", _xid(122, 0), _xid(31, 0.05, pid=4001)))
    assert (found.subtype, found.strength) == ("xid", Strength.STRONG)
    assert _ask("GPU-APP-XID", _xid(122, 0), _xid(31, 0.05, pid=4001)) == ()


def test_an_unknown_code_is_told_raw_and_never_a_root() -> None:
    found = _ask("GPU-XID", _xid(999))
    assert [f.role for f in found] == [Role.CONTEXT, Role.ALL_CLEAR]
    assert found[0].quote.endswith("999, x")


def test_a_recorded_row_alone_is_housekeeping() -> None:
    found = _ask("GPU-XID", _xid(63))
    assert (found[0].role, found[0].action) == (Role.HOUSEKEEPING, "reset_gpu")
    assert found[1].role is Role.ALL_CLEAR


def test_a_code_that_only_may_stop_a_job_is_weak_or_strong_never_decisive() -> None:
    (driver,) = _ask("GPU-XID", _xid(38))
    assert driver.strength is Strength.WEAK
    (hard,) = _ask("GPU-XID", _xid(54))
    assert hard.strength is Strength.STRONG
    assert _roots(_ask("GPU-XID", _xid(38, 60))) == []


def test_a_cause_named_by_the_driver_whose_line_is_lost_is_strong() -> None:
    (found,) = _ask("GPU-XID", _xid(45, caused_by=149, pid=4001))
    assert (found.role, found.strength, found.subtype) == (Role.ROOT, Strength.STRONG, "nvlink")
    assert "Xid 149" in found.says


# coverage


def test_no_xid_on_covered_nodes_is_an_all_clear_in_words_of_what_was_covered() -> None:
    (clear,) = _ask("GPU-XID")
    assert (clear.role, clear.strength, clear.node) == (Role.ALL_CLEAR, Strength.STRONG, None)
    assert clear.says == "no Xid since job start on 2 nodes"


def test_a_log_that_begins_after_the_job_clears_nothing() -> None:
    late = _span("gpu-08", START + timedelta(hours=1))
    (clear,) = _ask("GPU-XID", _span("gpu-07"), late, spans=False)
    assert (
        clear.says == "no Xid since job start on 1 node; kernel log missing or too short on gpu-08"
    )
    assert clear.strength is Strength.WEAK
    assert _ask("GPU-XID", late, spans=False) == ()


def test_a_node_whose_log_was_not_read_is_named_as_blind() -> None:
    (clear,) = _ask("GPU-XID", _span("gpu-07"), spans=False)
    assert clear.says.endswith("on gpu-08")
    assert _ask("GPU-XID", spans=False) == ()


def test_without_a_job_start_only_a_log_from_the_boot_clears() -> None:
    boot = [
        KernelSpan(node=n, first_at=START, last_at=ONSET, lines=9, from_boot=True) for n in NODES
    ]
    (clear,) = _ask("GPU-XID", *boot, spans=False, started=None)
    assert clear.says == "no Xid since boot on 2 nodes"
    assert _ask("GPU-XID", _span("gpu-07"), spans=False, started=None) == ()


def test_short_and_long_names_are_one_node() -> None:
    (clear,) = _ask("GPU-XID", _span("gpu-07.cluster.local"), _span("gpu-08"), spans=False)
    assert clear.says == "no Xid since job start on 2 nodes"


def test_no_switch_error_is_cleared_apart() -> None:
    (clear,) = _ask("GPU-SXID")
    assert clear.says == "no SXid since job start on 2 nodes"


# GPU-APP-XID


@pytest.mark.parametrize(
    ("pid", "alive", "told"),
    [
        pytest.param(9999, 2, (Strength.WEAK, None), id="no rank's, and all ranks live"),
        pytest.param(4001, 2, (Strength.DECISIVE, 1), id="a rank's"),
        pytest.param(9999, 1, (Strength.STRONG, 1), id="a rank is gone: it may be its"),
        pytest.param(None, 2, (Strength.STRONG, 1), id="not told"),
    ],
)
def test_a_stranger_on_the_gpu_of_a_living_rank_accuses_no_rank(
    pid: int | None, alive: int, told: tuple[Strength, int | None]
) -> None:
    ranks = [RankProcess(node="gpu-08", pid=4000 + r, rank=r, state="S") for r in range(alive)]
    fault = _xid(31, pid=pid, process="jupyter")
    (found,) = _ask("GPU-APP-XID", fault, _place(1, 1), *ranks, gpus_per_node=2)
    assert (found.strength, found.spots[0].rank) == told


def test_a_program_fault_in_the_window_names_rank_and_pid_and_no_repair() -> None:
    (found,) = _ask("GPU-APP-XID", _xid(31, pid=4003, process="python3"), _place(3, 1))
    assert (found.role, found.strength) == (Role.ROOT, Strength.DECISIVE)
    assert (found.subtype, found.action) == ("app_xid", "restart_app")
    assert (found.spots[0].rank, found.spots[0].pid) == (3, 4003)
    assert [f for f in _ask("GPU-XID", _xid(31, pid=4003)) if f.role is Role.ROOT] == []


def test_a_program_fault_of_an_unknown_pid_is_strong_only() -> None:
    (found,) = _ask("GPU-APP-XID", _xid(13))
    assert found.strength is Strength.STRONG


@pytest.mark.parametrize(
    ("seconds", "role"),
    [
        (60, Role.CONSEQUENCE),
        (700, Role.CONSEQUENCE),
        (-86400, Role.CONTEXT),
        (-3600, Role.CONTEXT),
    ],
)
def test_a_program_fault_outside_the_window_is_no_cause(seconds: float, role: Role) -> None:
    (found,) = _ask("GPU-APP-XID", _xid(31, seconds, pid=4003), _place(3, 1))
    assert found.role is role


def test_a_fault_on_many_gpus_blames_program_or_library_and_no_single_gpu() -> None:
    (found,) = _ask("GPU-APP-XID", *(_xid(31, g, g, pid=4000 + g) for g in range(1, 9)))
    assert "on 8 GPUs: a program or library fault" in found.says
    assert len(found.spots) == 8


def test_a_program_fault_after_which_the_driver_wants_a_reboot_says_so() -> None:
    (found,) = _ask("GPU-APP-XID", _xid(31, pid=4003), _xid(154, 1, recovery=2))
    assert found.action == "reboot_node"


def test_a_program_fault_on_a_gpu_that_just_failed_is_not_the_programs() -> None:
    assert _ask("GPU-APP-XID", _xid(48, 0), _xid(94, 0.1), _xid(31, 0.2, pid=4003)) == ()


def test_a_program_fault_before_another_gpu_failed_stays_a_suspect() -> None:
    found = _ask("GPU-APP-XID", _xid(31, 0, 2, pid=4003), _xid(119, 30, 1))
    assert [f.role for f in found] == [Role.ROOT]


def test_a_gpu_that_had_the_same_fault_before_this_job_is_mentioned() -> None:
    (now,) = _roots(_ask("GPU-APP-XID", _xid(31, 0, pid=4003), _xid(31, -86400, pid=9)))
    assert "had it before" in now.says


# GPU-ECHO


def test_clean_up_lines_alone_are_context_and_never_a_root() -> None:
    xids = [_xid(45, 0, g, pid=4000 + g) for g in range(1, 9)] + [_xid(43, 1)]
    found = ask_all(RULES, _facts(*xids))
    assert _roots(found) == []
    (echo,) = [f for f in found if f.rule == "GPU-ECHO"]
    assert echo.role is Role.CONTEXT
    assert echo.says.startswith("Xid 43, Xid 45 x8")


def test_clean_up_after_the_kill_is_a_consequence() -> None:
    (echo,) = _ask("GPU-ECHO", _xid(45, 601, pid=4001))
    assert echo.role is Role.CONSEQUENCE


def test_echoes_of_a_known_root_are_not_told_twice() -> None:
    assert _ask("GPU-ECHO", _xid(79), _xid(45, 1)) == ()
    assert _ask("GPU-ECHO", _xid(45, -86400)) == ()


# GPU-LOST


def _lost(kind: str = "fallen_off", seconds: float = 0, **more: Any) -> GpuTrouble:
    fields = {"node": "gpu-08", "at": _at(seconds), "pci": "0000:01:00.0", "kind": kind, **more}
    return GpuTrouble(**fields)


def test_a_gpu_lost_without_the_word_xid_is_as_bad_as_a_79() -> None:
    (found,) = _ask("GPU-LOST", _lost())
    assert (found.role, found.strength) == (Role.ROOT, Strength.DECISIVE)
    assert (found.subtype, found.action) == ("off_bus", "reboot_node")


def test_a_loss_that_a_79_already_tells_is_not_told_twice() -> None:
    assert _ask("GPU-LOST", _lost(), _xid(79, 240)) == ()
    assert len(_ask("GPU-LOST", _lost(), _xid(79, 301))) == 1
    assert len(_ask("GPU-LOST", _lost(), _xid(45, 1))) == 1
    assert len(_ask("GPU-LOST", _lost(), _xid(79, 1, 2))) == 1


@pytest.mark.parametrize(
    ("seconds", "role"),
    [(-86400, Role.HOUSEKEEPING), (-3600, Role.ROOT), (60, Role.ROOT), (700, Role.CONSEQUENCE)],
)
def test_the_window_decides_what_a_loss_is(seconds: float, role: Role) -> None:
    (found,) = _ask("GPU-LOST", _lost(seconds=seconds))
    assert found.role is role


def test_a_version_mismatch_of_the_driver_is_context() -> None:
    (found,) = _ask("GPU-LOST", _lost("api_mismatch", pci=None))
    assert found.role is Role.CONTEXT


# GPU-SXID


def _sxid(code: int, fatal: bool | None, seconds: float = 0, node: str = "gpu-08") -> SXid:
    return SXid(node=node, at=_at(seconds), pci="0000:c2:00.0", code=code, fatal=fatal)


@pytest.mark.parametrize(
    ("code", "fatal", "role", "strength"),
    [(20034, True, Role.ROOT, Strength.DECISIVE), (12028, False, Role.CONTEXT, Strength.WEAK),
     (11004, False, Role.CONTEXT, Strength.WEAK), (10003, None, Role.ROOT, Strength.STRONG),
     (10004, None, Role.CONTEXT, Strength.WEAK), (99999, None, Role.CONTEXT, Strength.WEAK),
     (99999, True, Role.ROOT, Strength.WEAK)],
)  # fmt: skip
def test_the_word_that_the_driver_prints_decides(
    code: int, fatal: bool | None, role: Role, strength: Strength
) -> None:
    (found,) = _ask("GPU-SXID", _sxid(code, fatal))
    assert (found.role, found.strength) == (role, strength)


def test_access_to_a_dead_gpu_is_an_echo_of_its_xid() -> None:
    (found,) = _ask("GPU-SXID", _sxid(12028, False), _xid(79, -5))
    assert found.role is Role.CONSEQUENCE


def test_a_fatal_switch_error_names_the_node_and_no_gpu() -> None:
    (found,) = _ask("GPU-SXID", _sxid(20034, True))
    assert (found.spots[0].node, found.spots[0].gpu_pci) == ("gpu-08", None)
    assert (found.subtype, found.action) == ("nvswitch", "reboot_node")
    (quiet,) = _ask("GPU-SXID", _sxid(10003, None))
    assert quiet.action == "check_fabric"


def test_fabric_manager_s_copy_is_told_once_and_alone_is_not_decisive() -> None:
    line = "[Nov 24 2026 03:00:00] [ERROR] [tid 8] detected NVSwitch fatal error 20034 on fid 0 ..."
    kernel = _sxid(20034, True)
    copy = replace(kernel, at=_at(2), line=line)
    (found,) = _ask("GPU-SXID", copy, kernel)
    assert (found.strength, found.source) == (Strength.DECISIVE, "kernel")
    (alone,) = _ask("GPU-SXID", copy)
    assert (alone.strength, alone.source) == (Strength.STRONG, "fabric manager")
    assert alone.action == "check_fabric"
    other = replace(copy, link=7)
    assert len(_ask("GPU-SXID", kernel, other)) == 2


def test_old_and_late_switch_errors_accuse_nobody() -> None:
    for seconds in (-86400, -3600, 700):
        assert _roots(_ask("GPU-SXID", _sxid(20034, True, seconds))) == []


def test_renaming_the_node_renames_the_culprit() -> None:
    found = _ask("GPU-XID", _xid(79, node="r01n3"), nodes=("r01n3", "r01n4"))
    assert [(f.node, f.spots[0].node) for f in _roots(found)] == [("r01n3", "r01n3")]
