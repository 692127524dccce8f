"""The tree over findings made by hand: who is named, how sure, and when a drain is allowed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sluggish.causes import Cause, Family, Level, Phase
from sluggish.facts.collective import Group, Wait, WaitRoot
from sluggish.facts.derived import Look, Onset, PhaseFact, Place
from sluggish.facts.host import KernelSpan, RankProcess
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts, Gap
from sluggish.findings import Finding, Role, Spot, Strength
from sluggish.verdict.case import Case
from sluggish.verdict.decide import decide
from sluggish.verdict.tree import TREE

T0 = datetime(2026, 11, 24, 3, 4, 17, tzinfo=UTC)
START = T0 - timedelta(hours=6)
NODES = ("gpu-07", "gpu-08")
WORLD = Group(name="0", desc="default_pg", ranks=tuple(range(16)))
PROBES_OF_A_FULL_LOOK = (
    "kernel_log",
    "nvidia_smi",
    "gpu_samples",
    "gpu_bus",
    "ibstat",
    "ib_ports",
    "ib_counters",
    "memory",
    "rank_procs",
    "mounts",
    "identity",
)


def place(rank: int) -> Place:
    return Place(
        rank=rank,
        node=NODES[rank // 8],
        local_rank=rank % 8,
        pid=4000 + rank,
        gpu_index=rank % 8,
        gpu_pci=f"0000:{rank % 8 + 16:02x}:00.0",
    )


def waits_for(*ranks: int, state: str = "host_stuck", **fields: object) -> Wait:
    wait = Wait(
        state=state,
        group=WORLD,
        seq=101,
        operation="reduce_scatter",
        roots=tuple(WaitRoot(rank=r, group=WORLD, seq=101, waiters=15) for r in ranks),
        waiters=tuple(r for r in range(16) if r not in ranks),
        observed=16,
        world_size=16,
        sources=("flight recorder",),
        since=T0,
    )
    return replace(wait, **fields)


def case(
    *findings: Finding,
    wait: Wait | None = None,
    full: bool = True,
    onset: bool = True,
    **look: object,
) -> Case:
    facts = Facts()
    if full:
        for probe in PROBES_OF_A_FULL_LOOK:
            facts.answered[probe] |= set(NODES)
        for probe in ("job_log", "slurm_job"):
            facts.answered[probe] |= {None}
        facts.answered["slurm_node"] |= set(NODES)
        for node in NODES:
            facts.add(KernelSpan(node=node, first_at=START, last_at=T0, lines=9, from_boot=True))
    seen = Look(
        at=T0 + timedelta(minutes=12), nodes=NODES, world_size=16, job_started_at=START, loose=False
    )
    return Case(
        findings=findings,
        facts=facts,
        look=replace(seen, **look),
        wait=wait,
        onset=Onset(earliest=T0, latest=T0, source="watchdog") if onset else None,
        phase=PhaseFact(phase=Phase.STEADY),
        places={rank: place(rank) for rank in range(16)},
    )


def root(
    rule: str, family: Family, strength: Strength = Strength.DECISIVE, **fields: object
) -> Finding:
    spot = fields.pop("spot", None)
    made = Finding(
        node=spot.node if isinstance(spot, Spot) else None,
        subject="it",
        role=Role.ROOT,
        strength=strength,
        at=T0,
        says="it failed",
        spots=(spot,) if isinstance(spot, Spot) else fields.pop("spots", ()),
        rule=rule,
        family=family,
    )
    return replace(made, **fields)


def xid79(rank: int, **fields: object) -> Finding:
    spot = Spot(node=place(rank).node, gpu_pci=place(rank).gpu_pci)
    fields.setdefault("action", "reboot_node")
    return root("GPU-XID", Family.KERNEL, subtype="off_bus", spot=spot, **fields)


def test_a_fatal_xid_where_the_others_wait_is_a_gpu_fault_and_drains_its_node():
    verdict = decide(case(xid79(13), wait=waits_for(13)))
    assert (verdict.cause, verdict.subtype) == (Cause.GPU_FAULT, "off_bus")
    assert [(c.rank, c.node, c.gpu_index) for c in verdict.culprits] == [(13, "gpu-08", 5)]
    assert verdict.confidence.level is Level.HIGH
    assert verdict.drain_nodes == ("gpu-08",)


def test_a_fatal_xid_elsewhere_does_not_convict_and_is_said_to_contradict():
    mismatch = root(
        "SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3, operation="all_reduce [1]"), node=None
    )
    verdict = decide(case(xid79(13), mismatch, wait=waits_for(3, state="mismatch")))
    assert verdict.cause is Cause.RANK_DESYNC
    assert [c.rank for c in verdict.culprits] == [3]
    assert verdict.drain_nodes == ()
    assert verdict.confidence.level is Level.MEDIUM
    assert any("GPU-XID" in line for line in verdict.contradicts)


def test_an_out_of_memory_kill_before_a_gpu_fault_is_the_cause():
    oom = root("MEM-OOM", Family.KERNEL, spot=Spot(node="gpu-08", pid=4013), subtype="cgroup_oom")
    late = replace(xid79(13), at=T0 + timedelta(minutes=2))
    verdict = decide(case(late, oom, wait=waits_for(13)))
    assert (verdict.cause, verdict.subtype) == (Cause.MEMORY, "cgroup_oom")
    assert verdict.drain_nodes == ()


def test_a_gpu_fault_well_before_an_out_of_memory_kill_is_the_cause():
    oom = replace(
        root("MEM-OOM", Family.KERNEL, spot=Spot(node="gpu-08", pid=4013)),
        at=T0 + timedelta(minutes=2),
    )
    assert decide(case(oom, xid79(13), wait=waits_for(13))).cause is Cause.GPU_FAULT


def test_a_software_cause_never_drains():
    for rule, family in (
        ("SYNC-OP", Family.COLLECTIVE),
        ("DATA-STORAGE", Family.PROCESS),
        ("APP-EXCEPTION", Family.DATA),
        ("MEM-OOM", Family.KERNEL),
        ("CFG-LIMITS", Family.PROCESS),
    ):
        spot = Spot(rank=3, node="gpu-07")
        verdict = decide(case(root(rule, family, spot=spot), wait=waits_for(3)))
        assert verdict.drain_nodes == (), rule


def test_contained_ecc_restarts_the_job_and_drains_nothing():
    verdict = decide(case(xid79(13, action="restart_app"), wait=waits_for(13)))
    assert verdict.cause is Cause.GPU_FAULT
    assert verdict.drain_nodes == ()


def test_a_shared_fault_prints_no_drain():
    ports = tuple(Spot(node=node, hca="mlx5_5") for node in NODES)
    shared = root("IB-PORT", Family.FABRIC, spots=ports, shared=True, subtype="shared_fabric")
    verdict = decide(case(shared, wait=waits_for(state="all_joined")))
    assert (verdict.cause, verdict.subtype) == (Cause.IB_FAULT, "shared_fabric")
    assert verdict.shared
    assert verdict.culprits == ()
    assert verdict.drain_nodes == ()


def test_one_error_on_many_ranks_of_one_node_names_that_node():
    spots = tuple(Spot(rank=rank, node="gpu-08") for rank in (8, 9))
    many = root("APP-EXCEPTION", Family.DATA, spots=spots, shared=True)
    assert [c.rank for c in decide(case(many)).culprits] == [8, 9]


def test_a_vote_of_peers_names_a_node_but_drains_nothing():
    vote = root("IB-NCCL", Family.FABRIC, Strength.STRONG, spot=Spot(node="gpu-08"))
    verdict = decide(case(vote, wait=waits_for(state="all_joined")))
    assert (verdict.cause, verdict.subtype) == (Cause.IB_FAULT, "unreachable_peer")
    assert verdict.drain_nodes == ()


def test_one_decisive_finding_is_not_high_while_a_node_is_blind():
    look = case(xid79(13))
    look.facts.answered["kernel_log"].discard("gpu-07")
    look.facts.gaps.append(Gap(node="gpu-07", fact=None, probe="kernel_log", why="denied"))
    verdict = decide(look)
    assert verdict.cause is Cause.GPU_FAULT
    assert verdict.confidence.level is Level.MEDIUM
    assert "kernel log of gpu-07" in (verdict.confidence.why_not_higher or "")
    assert verdict.drain_nodes == ()


@pytest.mark.parametrize(
    ("probe", "cause"),
    [
        ("kernel_log", Cause.GPU_FAULT),
        ("nvidia_smi", Cause.GPU_FAULT),
        ("gpu_samples", Cause.GPU_FAULT),
        ("ibstat", Cause.IB_FAULT),
        ("ib_counters", Cause.IB_FAULT),
        ("memory", Cause.MEMORY),
        ("mounts", Cause.DATA_STALL),
        ("rank_procs", Cause.DATA_STALL),
        ("slurm_node", Cause.NODE_DOWN),
    ],
)
def test_a_cause_leaves_ruled_out_with_one_probe_of_one_node(probe: str, cause: Cause):
    desync = root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3))
    full = case(desync, wait=waits_for(3, state="mismatch"))
    assert cause in {entry.cause for entry in decide(full).ruled_out}
    full.facts.answered[probe].discard("gpu-08")
    verdict = decide(full)
    assert cause not in {entry.cause for entry in verdict.ruled_out}
    assert any(hole.where == "gpu-08" for hole in verdict.not_checked)


def test_traffic_that_no_recorder_sees_is_named():
    waiting = case(
        root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3)), wait=waits_for(3, state="mismatch")
    )
    sign = LogSign(node=None, rank=None, at=None, kind="unseen_traffic", detail="DeepEP", line="x")
    waiting.facts.add(sign)
    told = [hole.why for hole in decide(waiting).not_checked if hole.what == "collectives"]
    assert any("the log speaks of DeepEP" in why for why in told)


def test_the_fabric_is_never_ruled_out_while_all_joined_and_none_finished():
    verdict = decide(
        case(
            root("SYNC-STALL", Family.COLLECTIVE, Strength.STRONG),
            wait=waits_for(state="all_joined"),
        )
    )
    assert (verdict.cause, verdict.subtype) == (Cause.UNKNOWN, "all_joined")
    causes = {entry.cause for entry in verdict.ruled_out}
    assert Cause.IB_FAULT not in causes
    assert Cause.RANK_DESYNC in causes
    assert verdict.culprits == ()
    assert verdict.next_probe


def test_a_kernel_log_that_begins_after_the_window_rules_nothing_out():
    look = case(root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3)))
    look.facts.facts[KernelSpan] = [
        KernelSpan(node=node, first_at=T0 + timedelta(minutes=1), last_at=T0, lines=4)
        for node in NODES
    ]
    verdict = decide(look)
    assert Cause.GPU_FAULT not in {entry.cause for entry in verdict.ruled_out}
    assert any("begins" in hole.why for hole in verdict.not_checked)


def test_a_kernel_log_that_was_filtered_rules_nothing_out():
    look = case(root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3)))
    look.facts.facts[KernelSpan] = [
        KernelSpan(node=node, first_at=None, last_at=T0, lines=4, filtered=True) for node in NODES
    ]
    verdict = decide(look)
    assert Cause.GPU_FAULT not in {entry.cause for entry in verdict.ruled_out}
    assert any("filtered" in hole.why for hole in verdict.not_checked)


def steps_go_on() -> Finding:
    return root("PROG-STEPS", Family.DATA, Strength.STRONG)


def test_moving_steps_with_every_node_seen_are_progressing():
    verdict = decide(case(steps_go_on(), onset=False))
    assert (verdict.cause, verdict.subtype) == (Cause.PROGRESSING, "steady")
    assert verdict.culprits == ()
    assert verdict.cost_gpu_hours is None


@pytest.mark.parametrize("probe", ["kernel_log", "nvidia_smi", "ibstat", "memory"])
def test_moving_steps_with_a_blind_node_are_not_called_fine(probe: str):
    look = case(steps_go_on(), onset=False)
    look.facts.answered[probe].discard("gpu-08")
    verdict = decide(look)
    assert (verdict.cause, verdict.subtype) == (Cause.UNKNOWN, "unobserved")


def test_nothing_at_all_is_unknown_with_the_next_probe():
    verdict = decide(case(full=False, onset=False, nodes=(), world_size=None))
    assert (verdict.cause, verdict.subtype) == (Cause.UNKNOWN, "no_evidence")
    assert verdict.confidence.level is None
    assert verdict.next_probe


def test_a_power_shape_alone_says_that_it_hangs_and_never_why():
    shape = replace(root("HANG-SPIN", Family.KERNEL, Strength.WEAK), role=Role.CONTEXT)
    verdict = decide(case(shape, onset=False))
    assert (verdict.cause, verdict.subtype) == (Cause.UNKNOWN, "hang")


@pytest.mark.parametrize("env", [(), (("RANK", "3"),)])
def test_dumps_that_another_user_may_not_look_for_are_denied_and_not_absent(
    env: tuple[tuple[str, str], ...],
):
    look = case(onset=False)
    look.facts.add(RankProcess(node="gpu-07", pid=4003, found_by="listpids", env=env))
    told = [hole.why for hole in decide(look).not_checked if hole.what == "flight recorder"]
    assert len(told) == 1
    assert told[0].startswith("no dump" if env else "denied: ")


def test_the_next_look_of_a_hang_is_the_stacks_and_ras_comes_last():
    shape = replace(root("HANG-SPIN", Family.KERNEL, Strength.WEAK), role=Role.CONTEXT)
    told = decide(case(shape, onset=False)).next_probe or ""
    assert told.startswith("the stacks of every rank")
    assert "has ended jobs" in told  # on some versions of NCCL: no line to copy that asks it


def test_the_next_look_of_a_desync_is_what_was_not_seen_and_where():
    desync = root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3))
    look = case(desync, wait=waits_for(3, state="mismatch"))
    look.facts.answered["kernel_log"].discard("gpu-08")
    why = "denied: dmesg: read kernel buffer failed"
    look.facts.gaps.append(Gap(node="gpu-08", fact=None, probe="kernel_log", why=why))
    wanted = "the kernel log of gpu-08, as root or with --sudo: is it only the code?"
    assert decide(look).next_probe == wanted


def test_a_weak_sign_is_used_only_when_nothing_stronger_is_found():
    weak = root("IB-COUNTERS", Family.FABRIC, Strength.WEAK, spot=Spot(node="gpu-08", hca="mlx5_1"))
    alone = decide(case(weak))
    assert (alone.cause, alone.confidence.level) == (Cause.IB_FAULT, Level.LOW)
    assert alone.drain_nodes == ()
    desync = root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3))
    both = decide(case(weak, desync, wait=waits_for(3, state="mismatch")))
    assert both.cause is Cause.RANK_DESYNC


def test_the_cost_counts_all_gpus_since_the_onset():
    verdict = decide(case(root("SYNC-OP", Family.COLLECTIVE, spot=Spot(rank=3))))
    assert verdict.cost_gpu_hours == pytest.approx(16 * 12 / 60, abs=0.01)


def test_the_order_of_findings_does_not_change_the_verdict():
    findings = (xid79(13), root("PROC-GONE", Family.PROCESS, Strength.STRONG, spot=Spot(rank=13)))
    one = decide(case(*findings, wait=waits_for(13)))
    other = decide(case(*reversed(findings), wait=waits_for(13)))
    assert (one.cause, one.subtype, one.culprits) == (other.cause, other.subtype, other.culprits)


def test_the_path_has_an_answer_for_every_question_up_to_the_verdict():
    verdict = decide(case(xid79(13), wait=waits_for(13)))
    assert [a.question for a in verdict.path] == ["slurm", "node", "memory", "gpu"]
    assert [a.answer for a in verdict.path] == ["no", "no", "no", "yes"]


def test_every_subtype_of_the_tree_stands_in_the_closed_list():
    from sluggish.causes import SUBTYPES

    for question in TREE:
        for subtype in question.listens.values():
            assert subtype is None or subtype in SUBTYPES[question.cause], question.id


def test_a_rank_and_a_gpu_that_are_each_alone_on_their_node_are_one_place():
    card = root("GPU-REMAP", Family.KERNEL, Strength.STRONG,
                spot=Spot(node="gpu-08", gpu_pci="0000:89:00.0", gpu_index=4))  # fmt: skip
    error = root("GPU-CUDA", Family.KERNEL, Strength.STRONG, spot=Spot(rank=12, node="gpu-08"))
    (one,) = decide(replace(case(card, error), places={})).culprits
    assert (one.rank, one.node, one.gpu_index) == (12, "gpu-08", 4)
    second = root("GPU-CUDA", Family.KERNEL, Strength.STRONG, spot=Spot(rank=13, node="gpu-08"))
    several = decide(replace(case(card, error, second), places={})).culprits
    assert {(c.rank, c.gpu_index) for c in several} == {(12, None), (13, None), (None, 4)}
    away = root("GPU-CUDA", Family.KERNEL, Strength.STRONG, spot=Spot(rank=1, node="gpu-07"))
    assert len(decide(replace(case(card, away), places={})).culprits) == 2
