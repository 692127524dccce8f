"""Rules on memory, nodes, processes: fires, silent, boundary, blind, and the guards."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluggish.causes import Phase
from sluggish.facts.collective import RankRecord
from sluggish.facts.derived import Look, Onset, PhaseFact
from sluggish.facts.host import (
    CgroupMemory,
    HostMemory,
    KernelSpan,
    NodeIdentity,
    OomKill,
    Pressure,
    RankProcess,
)
from sluggish.facts.log import EarlierFailure, NcclInit, ProcessExit, SlurmMessage
from sluggish.facts.store import Facts, Gap
from sluggish.findings import Finding, Role, Rule, Strength, ask
from sluggish.job import Job, NodeState, Step, current
from sluggish.rules import memory, node

T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)
START = T0 - timedelta(hours=14)
NODES = ("gpu-07", "gpu-08")
RULES = {rule.id: rule for rule in (*memory.RULES, *node.RULES)}
LOOK = Look(
    at=T0 + timedelta(minutes=10), nodes=NODES, world_size=16, job_started_at=START, loose=False
)
ONSET = Onset(earliest=T0 - timedelta(seconds=5), latest=T0, source="watchdog")
TORN = Onset(earliest=T0, latest=T0, source="watchdog", teardown_at=T0 + timedelta(minutes=5))
JOB = Job(id="48213", raw_id="48213", source="scontrol", state="RUNNING", nodes=NODES)


def facts(*items: Any, saw: dict[type, tuple[str, ...]] | None = None) -> Facts:
    out = Facts()
    for item in items:
        out.add(item)
        out.seen[type(item)].add(getattr(item, "node", None))
    for kind, nodes in (saw or {}).items():
        out.seen[kind] |= set(nodes)
    return out


def run(rule_id: str, *items: Any, saw: dict[type, tuple[str, ...]] | None = None) -> list[Finding]:
    one: Rule = RULES[rule_id]
    return list(ask(one, facts(*items, saw=saw)))


def roots(found: list[Finding]) -> list[Finding]:
    return [f for f in found if f.role is Role.ROOT]


def kill(**more: Any) -> OomKill:
    plain: dict[str, Any] = {
        "node": "gpu-07", "at": T0 - timedelta(seconds=2), "pid": 4711, "process": "python",
        "cgroup": True, "job_id": "48213", "line": "Memory cgroup out of memory: Killed",
        "cgroup_path": "/system.slice/slurmstepd.scope/job_48213/step_0/user/task_3",
    }  # fmt: skip
    return OomKill(**{**plain, **more})


def process(pid: int, **more: Any) -> RankProcess:
    return RankProcess(**{"node": "gpu-07", "pid": pid, "name": "python", "state": "S", **more})


def ranks(sample: str = "", skip: tuple[int, ...] = (), **more: Any) -> list[RankProcess]:
    return [
        process(1000 + r, node=NODES[r // 8], rank=r, sample=sample, **more)
        for r in range(16)
        if r not in skip
    ]


# MEM-OOM


def test_a_kill_in_the_jobs_cgroup_just_before_the_stall_is_decisive() -> None:
    (found,) = run("MEM-OOM", kill(), process(4711, rank=3), JOB, LOOK, ONSET)
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.DECISIVE, "cgroup_oom",
    )  # fmt: skip
    assert found.node == "gpu-07"
    assert (found.spots[0].rank, found.spots[0].pid) == (3, 4711)
    assert found.says == "OOM killer took python of rank 3: a memory cgroup was full"
    assert not found.shared


def test_a_killed_rank_is_named_by_the_hole_that_it_left() -> None:
    here = ranks(skip=(9, 11))
    here = [replace(p, local_rank=(p.rank or 0) % 8) for p in here]
    path = "/system.slice/slurmstepd.scope/job_48213/step_0/user/task_3"
    lost = kill(node="gpu-08", pid=77, process="pt_main_thread", cgroup_path=path)
    assert run("MEM-OOM", lost, *here, JOB, LOOK, ONSET)[0].spots[0].rank == 11
    unknown = kill(node="gpu-08", pid=77, cgroup_path="/system.slice/x/job_48213/step_0")
    assert run("MEM-OOM", unknown, *here, JOB, LOOK, ONSET)[0].spots[0].rank is None
    worker = kill(node="gpu-08", pid=77, process="pt_data_worker", cgroup_path=path)
    assert run("MEM-OOM", worker, *here, JOB, LOOK, ONSET)[0].spots[0].rank is None


def test_a_host_wide_kill_of_a_rank_is_host_oom() -> None:
    (found,) = run("MEM-OOM", kill(cgroup=False, job_id=None, cgroup_path=None),
                   process(4711, rank=3), JOB, LOOK, ONSET)  # fmt: skip
    assert (found.strength, found.subtype) == (Strength.DECISIVE, "host_oom")


def test_a_kill_in_another_jobs_cgroup_is_context() -> None:
    found = run("MEM-OOM", kill(job_id="999"), JOB, LOOK, ONSET)
    assert roots(found) == []
    assert "job 999, not this one" in found[0].says


def test_a_kill_of_a_service_is_context_even_if_it_is_python() -> None:
    found = run("MEM-OOM", kill(job_id=None, cgroup_path="/system.slice/agent.service"),
                JOB, LOOK, ONSET)  # fmt: skip
    assert roots(found) == []


def test_a_host_wide_kill_of_an_unknown_python_is_strong_not_decisive() -> None:
    (found,) = run("MEM-OOM", kill(job_id=None, cgroup_path=None, cgroup=False), JOB, LOOK, ONSET)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)


@pytest.mark.parametrize(
    ("at", "role"),
    [
        (START - timedelta(days=7), Role.CONTEXT),
        (T0 - timedelta(hours=2), Role.CONTEXT),
        (T0 - timedelta(minutes=15), Role.ROOT),
        (T0 + timedelta(seconds=15), Role.ROOT),
        (T0 + timedelta(minutes=2), Role.CONSEQUENCE),
        (T0 + timedelta(minutes=6), Role.CONSEQUENCE),
    ],
)
def test_the_time_of_a_kill_decides_its_part(at: datetime, role: Role) -> None:
    assert run("MEM-OOM", kill(at=at), JOB, LOOK, TORN)[0].role is role


def test_a_kill_without_a_time_is_strong() -> None:
    (found,) = run("MEM-OOM", kill(at=None), JOB, LOOK, ONSET)
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)


def test_kills_on_two_nodes_are_shared() -> None:
    found = run("MEM-OOM", kill(), kill(node="gpu-08"), JOB, LOOK, ONSET)
    assert [f.shared for f in roots(found)] == [True, True]


def test_a_kill_on_a_node_that_is_not_the_jobs_is_not_told() -> None:
    assert roots(run("MEM-OOM", kill(node="gpu-99"), JOB, LOOK, ONSET)) == []


def test_the_jobs_cgroup_counter_is_strong_and_a_rise_during_the_look_decisive() -> None:
    path = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_48213"

    def group(sample: str, kills: int) -> CgroupMemory:
        return CgroupMemory(node="gpu-07", sample=sample, path=path, oom_kills=kills)

    assert run("MEM-OOM", group("a", 1), group("b", 1), JOB, LOOK)[0].strength is Strength.STRONG
    assert run("MEM-OOM", group("a", 1), group("b", 2), JOB, LOOK)[0].strength is Strength.DECISIVE
    assert roots(run("MEM-OOM", group("a", 0), group("b", 0), JOB, LOOK)) == []


def test_all_clear_says_what_was_covered() -> None:
    spans = [
        KernelSpan(node=n, first_at=START - timedelta(days=1), last_at=T0, lines=9) for n in NODES
    ]
    memory_used = HostMemory(node="gpu-07", sample="a", total_bytes=100, available_bytes=59)
    (found,) = run("MEM-OOM", *spans, memory_used, JOB, LOOK, saw={OomKill: NODES})
    assert found.role is Role.ALL_CLEAR
    assert found.says == "no oom-kill since job start on 2 nodes, host memory 41% used"


def test_all_clear_names_the_blind_node_and_a_log_that_begins_late() -> None:
    late = KernelSpan(node="gpu-07", first_at=T0, last_at=T0, lines=3)
    (found,) = run("MEM-OOM", late, JOB, LOOK, saw={OomKill: ("gpu-07",)})
    assert found.says == (
        "no oom-kill in the kernel log on gpu-07; not seen on gpu-08; "
        "the log does not cover the job on gpu-07"
    )


def test_a_kernel_log_that_was_filtered_says_nothing_of_oom_kills() -> None:
    early = START - timedelta(days=1)
    grepped = KernelSpan(node="gpu-07", first_at=early, last_at=T0, lines=3, filtered=True)
    whole = KernelSpan(node="gpu-08", first_at=early, last_at=T0, lines=900)
    assert run("MEM-OOM", grepped, JOB, LOOK, saw={OomKill: ("gpu-07",)}) == []
    (found,) = run("MEM-OOM", grepped, whole, JOB, LOOK, saw={OomKill: NODES})
    assert found.says == "no oom-kill since job start on gpu-08; not seen on gpu-07"


def test_without_any_kernel_log_nothing_is_clear() -> None:
    assert run("MEM-OOM", JOB, LOOK) == []


# MEM-STEP, MEM-GROWTH


def test_slurms_own_oom_words_are_strong_also_after_the_teardown() -> None:
    message = SlurmMessage(
        node="gpu-08", at=T0 + timedelta(hours=1), kind="oom", job_id="48213", line="oom_kill event"
    )
    (found,) = run("MEM-STEP", message, JOB, LOOK)
    assert (found.node, found.strength, found.subtype) == (
        "gpu-08", Strength.STRONG, "cgroup_oom",
    )  # fmt: skip


def test_another_jobs_oom_words_are_not_told() -> None:
    message = SlurmMessage(node="gpu-08", at=None, kind="oom", job_id="7", line="x")
    assert run("MEM-STEP", message, JOB, LOOK) == []


def test_out_of_memory_in_accounting_and_an_exit_with_rank_are_told() -> None:
    ended = Job(id="1", source="sacct", state="OUT_OF_MEMORY", nodes=("n1",))
    assert run("MEM-STEP", ended)[0].node == "n1"
    failed = Job(id="1", state="FAILED", steps=(Step(id="1.0", state="OUT_OF_MEMORY"),))
    assert len(run("MEM-STEP", failed)) == 1
    gone = ProcessExit(node="gpu-07", rank=5, at=None, oom=True, line="task 5: Out Of Memory")
    assert run("MEM-STEP", gone, LOOK)[0].spots[0].rank == 5
    assert run("MEM-STEP", JOB, LOOK) == []


def host(free: int, sample: str = "a") -> HostMemory:
    return HostMemory(node="gpu-07", sample=sample, total_bytes=1000, available_bytes=free)


def stall(full: float, sample: str = "a") -> Pressure:
    return Pressure(node="gpu-07", sample=sample, resource="memory", full_avg10=full)


def test_memory_gone_and_stalling_is_strong_either_alone_is_weak() -> None:
    both = run("MEM-GROWTH", host(29), stall(10.0), LOOK)
    assert [(f.strength, f.subtype) for f in both] == [(Strength.STRONG, "growth")]
    assert run("MEM-GROWTH", host(29), LOOK)[0].strength is Strength.WEAK
    assert run("MEM-GROWTH", host(500), stall(50.0), LOOK)[0].strength is Strength.WEAK
    assert run("MEM-GROWTH", host(30), stall(9.9), LOOK) == []


def test_one_spike_of_pressure_and_one_low_sample_are_no_stall() -> None:
    assert run("MEM-GROWTH", host(10), host(500, "b"), stall(90.0), stall(0.0, "b"), LOOK) == []


def test_a_cgroup_full_of_page_cache_is_silent_without_pressure() -> None:
    group = CgroupMemory(
        node="gpu-07", sample="a", path="/x/job_48213", current_bytes=1 << 36, limit_bytes=1 << 36
    )
    assert run("MEM-GROWTH", group, host(500), stall(0.0), LOOK) == []
    (found,) = run("MEM-GROWTH", group, host(500), stall(30.0), LOOK)
    assert "64 of 64 GiB" in found.says


# JOB-STATE


@pytest.mark.parametrize(
    ("job", "subtype", "strength"),
    [
        (Job(id="1", state="PENDING", reason="Resources"), "pending", Strength.DECISIVE),
        (Job(id="1", state="PENDING", restarts=1), "requeued", Strength.DECISIVE),
        (Job(id="1", state="COMPLETED", exit_code="0:0"), "completed", Strength.DECISIVE),
        (Job(id="1", state="CANCELLED", reason="by 5001"), "cancelled", Strength.WEAK),
        (Job(id="1", state="TIMEOUT"), "time_limit", Strength.WEAK),
        (Job(id="1", state="FAILED", exit_code="1:0"), "failed", Strength.WEAK),
    ],
)
def test_a_job_that_does_not_run_says_so(job: Job, subtype: str, strength: Strength) -> None:
    (found,) = run("JOB-STATE", job)
    assert (found.role, found.subtype, found.strength) == (Role.ROOT, subtype, strength)


def test_a_batch_script_that_did_not_start_points_at_its_output_file() -> None:
    state = {"state": "FAILED", "reason": "JobLaunchFailure"}
    (found,) = run("JOB-STATE", replace(JOB, **state, exit_code="0:53"))
    assert found.says == (
        "Slurm says FAILED, reason JobLaunchFailure, exit code 0:53 (a batch script that did not "
        "start: mostly its StdOut or WorkDir cannot be written on the first node)"
    )
    (found,) = run("JOB-STATE", replace(JOB, **state, exit_code="1:0"))
    assert found.says.endswith("exit code 1:0")


def test_running_is_an_all_clear_that_proves_no_progress() -> None:
    (found,) = run("JOB-STATE", JOB)
    assert found.role is Role.ALL_CLEAR
    assert "proves no progress" in found.says


def test_completing_without_a_process_has_ended_well_and_else_says_nothing_of_why() -> None:
    ending = Job(id="1", state="COMPLETING", exit_code="0:0", nodes=NODES)
    (found,) = run("JOB-STATE", ending, LOOK, saw={RankProcess: NODES})
    assert (found.role, found.subtype, found.strength) == (Role.ROOT, "completed", Strength.STRONG)
    assert "no process of it is left" in found.says
    blind = run("JOB-STATE", ending, LOOK, saw={RankProcess: NODES[:1]})
    lives = run("JOB-STATE", ending, LOOK, *ranks(), saw={RankProcess: NODES})
    limit = run("JOB-STATE", replace(ending, reason="TimeLimit"), LOOK, saw={RankProcess: NODES})
    killed = run("JOB-STATE", replace(ending, exit_code="0:15"), LOOK, saw={RankProcess: NODES})
    for told in (blind, lives, limit, killed):
        assert [f.role for f in told] == [Role.CONTEXT]


def test_ranks_that_are_gone_while_slurm_ends_the_job_accuse_nobody() -> None:
    ending = Job(id="48213", state="COMPLETING")
    found = run("PROC-GONE", *ranks(skip=(12,)), ending, LOOK, saw={RankProcess: NODES})
    assert [f.role for f in found] == [Role.CONSEQUENCE]


def test_states_of_other_causes_and_two_different_jobs_are_left_alone() -> None:
    assert run("JOB-STATE", Job(id="1", state="NODE_FAIL")) == []
    assert run("JOB-STATE", Job(id="1", state="OUT_OF_MEMORY")) == []
    assert run("JOB-STATE", Job(id="1", state="PENDING"), Job(id="2", state="RUNNING")) == []


def test_the_current_run_is_scontrols_or_the_last_of_sacct() -> None:
    old = Job(id="2", source="sacct", state="REQUEUED")
    new = Job(id="2", source="sacct", state="RUNNING")
    assert current((old, new)) is new
    assert current((JOB, old)) is JOB
    assert current(()) is None
    waiting = Job(id="2", source="sacct", state="PENDING")
    assert run("JOB-STATE", old, waiting)[0].subtype == "requeued"


# NODE-DOWN, NODE-REBOOT, NODE-SILENT


def test_a_down_node_that_is_mute_is_decisive() -> None:
    down = NodeState(
        node="gpu-08", state="DOWN", flags=("NOT_RESPONDING",), reason="Not responding",
        reason_at=T0 - timedelta(minutes=1),
    )  # fmt: skip
    (found,) = run("NODE-DOWN", down, NodeState(node="gpu-07", state="MIXED"), LOOK, ONSET)
    assert (found.node, found.strength, found.subtype, found.shared) == (
        "gpu-08", Strength.DECISIVE, "node_fail", False,
    )  # fmt: skip


def test_a_down_node_whose_sshd_still_answers_is_not_decisive() -> None:
    down = NodeState(node="gpu-08", state="DOWN", flags=("NOT_RESPONDING",))
    gap = Gap(node="gpu-08", fact=NodeIdentity, probe="identity", why="auth denied: no job here")
    store = facts(down, LOOK)
    store.gaps.append(gap)
    (found,) = ask(RULES["NODE-DOWN"], store)
    assert (found.strength, found.role) == (Strength.STRONG, Role.ROOT)
    assert "SSH" in found.says


def test_a_mute_node_that_answered_us_is_weak_and_one_that_did_not_strong() -> None:
    mute = NodeState(node="gpu-08", state="MIXED", flags=("NOT_RESPONDING",))
    assert run("NODE-DOWN", mute, LOOK)[0].strength is Strength.STRONG
    answered = NodeIdentity(node="gpu-08", hostname="gpu-08")
    (found,) = run("NODE-DOWN", mute, answered, LOOK)
    assert (found.strength, found.subtype) == (Strength.WEAK, "not_responding")


def test_a_drained_node_is_context_with_its_reason() -> None:
    (drain, clear) = run(
        "NODE-DOWN",
        NodeState(
            node="gpu-08", state="MIXED", flags=("DRAIN",), reason="NHC: x", reason_by="root"
        ),
        LOOK,
    )
    assert (drain.role, drain.says) == (Role.CONTEXT, "already draining by root: NHC: x")
    assert clear.role is Role.ALL_CLEAR


def test_nodes_of_other_jobs_are_not_told_and_two_down_nodes_are_shared() -> None:
    assert roots(run("NODE-DOWN", NodeState(node="gpu-99", state="DOWN"), LOOK)) == []
    both = [NodeState(node=n, state="DOWN", flags=("NOT_RESPONDING",)) for n in NODES]
    assert [f.shared for f in roots(run("NODE-DOWN", *both, LOOK))] == [True, True]


def test_a_node_set_down_after_the_kill_is_a_consequence() -> None:
    late = NodeState(node="gpu-08", state="DOWN", reason="x", reason_at=T0 + timedelta(minutes=9))
    assert run("NODE-DOWN", late, LOOK, TORN)[0].role is Role.CONSEQUENCE


def test_a_node_that_slurm_loses_soon_after_the_first_abort_is_a_root() -> None:
    at = T0 + timedelta(minutes=20)
    mute = NodeState(node="gpu-08", state="DOWN", flags=("NOT_RESPONDING",), reason_at=at)
    assert run("NODE-DOWN", mute, LOOK, TORN)[0].role is Role.ROOT
    later = replace(mute, reason_at=T0 + timedelta(minutes=21))
    assert run("NODE-DOWN", later, LOOK, TORN)[0].role is Role.CONSEQUENCE


def test_the_batch_host_of_a_node_failure_line_is_not_accused() -> None:
    line = "slurmstepd: error: *** JOB 1 ON gpu-07 CANCELLED AT x DUE TO NODE FAILURE, SEE LOG ***"
    message = SlurmMessage(node="gpu-07", at=T0, kind="node_failure", line=line)
    (found,) = run("NODE-DOWN", message, LOOK)
    assert (found.node, found.spots) == (None, ())
    srun = replace(message, line="srun: error: Node failure on gpu-08")
    (found,) = run("NODE-DOWN", message, srun, LOOK)
    assert (found.node, found.spots[0].node) == ("gpu-08", "gpu-08")
    down = NodeState(node="gpu-08", state="DOWN", flags=("NOT_RESPONDING",))
    assert [f.node for f in roots(run("NODE-DOWN", message, srun, down, LOOK))] == ["gpu-08"]


def test_node_fail_of_the_job_alone_names_no_node() -> None:
    (found,) = run("NODE-DOWN", Job(id="1", state="NODE_FAIL", nodes=NODES), LOOK)
    assert (found.node, found.strength, found.spots) == (None, Strength.STRONG, ())


LOST = Job(
    id="2", source="sacct", state="NODE_FAIL", nodes=NODES, started_at=T0 - timedelta(hours=2),
    ended_at=T0 - timedelta(hours=1),
)  # fmt: skip
WAITING = Job(id="2", source="scontrol", state="PENDING", reason="BeginTime", restarts=1)
AGAIN = Job(
    id="2", source="scontrol", state="RUNNING", nodes=("gpu-20", "gpu-21"), started_at=T0,
    restarts=1,
)  # fmt: skip


def test_the_node_that_slurm_s_record_names_is_the_failed_one() -> None:
    named = Job(id="1", state="NODE_FAIL", nodes=NODES, failed_node="gpu-08")
    (found,) = run("NODE-DOWN", named, LOOK)
    assert (found.node, found.role, found.spots[0].node) == ("gpu-08", Role.ROOT, "gpu-08")
    answered = NodeIdentity(node="gpu-08", hostname="gpu-08")
    (found,) = run("NODE-DOWN", named, answered, LOOK)
    assert "answers this look again" in found.says
    (found,) = run("NODE-DOWN", replace(named, failed_node="gpu-99"), LOOK)
    assert (found.node, found.spots) == (None, ())


def test_a_job_that_waits_after_a_node_failed_is_looked_at_for_the_lost_run() -> None:
    named = replace(WAITING, failed_node="gpu-08")
    job = current((LOST, named))
    assert job == replace(LOST, failed_node="gpu-08")
    assert run("JOB-STATE", LOST, named) == []
    root, waits = run("NODE-DOWN", LOST, named, LOOK)
    assert (root.node, root.role) == ("gpu-08", Role.ROOT)
    assert waits.role is Role.CONTEXT
    assert "waits to be started again (BeginTime)" in waits.says


def test_a_requeue_by_a_person_is_no_node_failure() -> None:
    by_hand = replace(LOST, state="REQUEUED")
    assert current((by_hand, WAITING)) is WAITING
    assert run("NODE-DOWN", by_hand, WAITING, LOOK) == []
    earlier = replace(LOST, started_at=T0 - timedelta(hours=9), ended_at=T0 - timedelta(hours=8))
    found = current((earlier, by_hand, replace(WAITING, failed_node="gpu-08")))
    assert found
    assert found.state == "PENDING"


def test_the_run_before_this_one_is_told_and_accuses_nobody_of_this_one() -> None:
    look = replace(LOOK, nodes=AGAIN.nodes, job_started_at=T0)
    row = replace(AGAIN, source="sacct")
    down = NodeState(node="gpu-08", state="DOWN", flags=("NOT_RESPONDING",))
    fine = NodeState(node="gpu-20", state="MIXED")
    assert current((LOST, row, AGAIN)) is AGAIN
    clear, told = run("NODE-DOWN", LOST, row, AGAIN, down, fine, look)
    assert clear.role is Role.ALL_CLEAR
    assert (told.role, told.node, told.spots) == (Role.CONTEXT, None, ())
    assert "ended NODE_FAIL at" in told.says
    assert told.says.endswith(": gpu-08 is DOWN+NOT_RESPONDING")
    (told,) = run("NODE-DOWN", LOST, row, replace(AGAIN, failed_node="gpu-07"), look)
    assert told.says.endswith(": gpu-07 failed")
    (told,) = run("NODE-DOWN", LOST, row, AGAIN, look)
    assert told.says.endswith("which node it was stands in slurmctld's log")


def test_what_an_earlier_run_left_in_the_log_accuses_no_node_of_a_living_job() -> None:
    line = "srun: error: Node failure on gpu-08"
    message = SlurmMessage(node="gpu-08", at=None, kind="node_failure", line=line)
    alive = replace(AGAIN, nodes=NODES)
    for job in (alive, replace(alive, restarts=None)):
        told = run("NODE-DOWN", LOST, job, message, LOOK)
        assert roots(told) == []
        assert told[0].says.endswith("and started it again")
    # a job that goes on without the node that failed (--no-kill) was not started again
    assert roots(run("NODE-DOWN", replace(alive, restarts=0), message, LOOK))
    assert roots(run("NODE-DOWN", replace(alive, state="NODE_FAIL"), message, LOOK))


def test_the_log_of_the_lost_run_names_the_node_that_failed_it() -> None:
    said = EarlierFailure(node="gpu-08", line="srun: error: Node failure on gpu-08")
    (told,) = run("NODE-DOWN", LOST, AGAIN, said, replace(LOOK, nodes=AGAIN.nodes))
    assert told.says.endswith(": gpu-08 failed")
    elsewhere = replace(said, node="gpu-99")
    (told,) = run("NODE-DOWN", LOST, AGAIN, elsewhere, replace(LOOK, nodes=AGAIN.nodes))
    assert told.says.endswith("slurmctld's log")


def test_the_boot_of_a_node_of_the_lost_run_is_none_of_this_one() -> None:
    look = replace(LOOK, nodes=AGAIN.nodes, job_started_at=T0 - timedelta(hours=1))
    other = NodeState(node="gpu-08", state="IDLE", boot_at=T0 - timedelta(minutes=5))
    assert roots(run("NODE-REBOOT", other, look)) == []


def identity(boot: datetime, node: str = "gpu-08") -> NodeIdentity:
    return NodeIdentity(node=node, boot_at=boot)


def test_a_boot_after_the_start_of_the_job_is_decisive() -> None:
    (found,) = run("NODE-REBOOT", identity(T0 + timedelta(minutes=4)), LOOK, ONSET)
    assert (found.node, found.role, found.strength, found.subtype) == (
        "gpu-08", Role.ROOT, Strength.DECISIVE, "rebooted",
    )  # fmt: skip


def test_a_boot_within_the_skew_or_before_the_job_is_none() -> None:
    for boot in (START + timedelta(seconds=60), START - timedelta(days=3)):
        (found,) = run("NODE-REBOOT", identity(boot), LOOK, ONSET)
        assert found.role is Role.ALL_CLEAR
    assert found.says == "no reboot since job start on gpu-08; not seen on gpu-07"


def test_a_node_powered_up_for_the_job_is_context() -> None:
    boot = START + timedelta(minutes=6)
    found = run("NODE-REBOOT", identity(boot), *ranks(), LOOK, ONSET)
    assert roots(found) == []


def test_a_boot_long_after_the_end_is_a_consequence() -> None:
    found = run("NODE-REBOOT", identity(T0 + timedelta(hours=2)), LOOK, TORN)
    assert found[0].role is Role.CONSEQUENCE


def test_slurms_boot_time_serves_where_the_node_does_not_answer() -> None:
    state = NodeState(node="gpu-08", state="MIXED", boot_at=T0 + timedelta(minutes=4))
    assert run("NODE-REBOOT", state, LOOK, ONSET)[0].source == "scontrol"


def test_a_silent_node_is_context_and_never_a_cause() -> None:
    store = facts(LOOK, identity(START, "gpu-07"))
    store.gaps.append(Gap(node="gpu-08", fact=NodeIdentity, probe="identity", why="unreachable"))
    (found,) = ask(RULES["NODE-SILENT"], store)
    assert found.role is Role.CONTEXT
    assert found.says == "gpu-08 did not answer this look (unreachable)"


# PROC-GONE, PROC-ODD, SLOW-HOST


def init(rank: int, pid: int, **more: Any) -> NcclInit:
    plain = {"node": NODES[rank // 8], "rank": rank, "world_size": 16, "pid": pid}
    return NcclInit(**{**plain, **more})


def test_a_rank_that_nccl_named_and_that_is_no_longer_there_is_strong() -> None:
    here = ranks(skip=(5,))
    (found,) = run("PROC-GONE", *here, *(init(r, 1000 + r) for r in range(16)), LOOK)
    assert (found.role, found.strength, found.subtype, found.node) == (
        Role.ROOT, Strength.STRONG, "exit", "gpu-07",
    )  # fmt: skip
    assert [(s.rank, s.pid) for s in found.spots] == [(5, 1005)]


def test_a_hole_in_the_ranks_is_found_without_any_log() -> None:
    (found,) = run("PROC-GONE", *ranks(skip=(12,)), LOOK, saw={RankProcess: NODES})
    assert [(s.rank, s.node) for s in found.spots] == [(12, "gpu-08")]


def test_at_start_up_a_rank_that_was_never_seen_is_context() -> None:
    phase = PhaseFact(phase=Phase.START_UP)
    (found,) = run("PROC-GONE", *ranks(skip=(12,)), LOOK, phase, saw={RankProcess: NODES})
    assert found.role is Role.CONTEXT
    named = [init(r, 1000 + r) for r in range(16)]
    (found,) = run("PROC-GONE", *ranks(skip=(12,)), *named, LOOK, phase)
    assert found.role is Role.ROOT


def test_a_hole_on_a_node_that_was_not_read_is_nothing() -> None:
    here = [p for p in ranks() if p.node == "gpu-07"]
    found = run("PROC-GONE", *here, LOOK)
    assert roots(found) == []
    assert found[0].says == "8 rank processes are there on gpu-07; not seen on gpu-08"


def test_pids_of_another_namespace_are_not_compared() -> None:
    found = run("PROC-GONE", *ranks(), *(init(r, 7 + r) for r in range(16)), LOOK)
    assert [f.role for f in found] == [Role.ALL_CLEAR]


def test_the_init_lines_of_the_run_before_are_not_compared() -> None:
    old = [init(r, 1000 + r, at=START - timedelta(hours=1)) for r in range(16)]
    unsized = replace(LOOK, world_size=None)
    assert roots(run("PROC-GONE", *ranks(skip=(5,)), *old, unsized)) == []
    fresh = [init(r, 1000 + r, at=START + timedelta(minutes=1)) for r in range(16)]
    assert len(roots(run("PROC-GONE", *ranks(skip=(5,)), *fresh, unsized))) == 1


def test_a_zombie_rank_is_gone_and_a_zombie_worker_is_not_a_rank() -> None:
    dead = process(1003, rank=3, state="Z")
    (found,) = run("PROC-GONE", *ranks(skip=(3,)), dead, LOOK)
    assert found.says == "the process of rank 3 is a zombie; 15 others are"
    worker = process(2000, ppid=1003, rank=3, inherited_rank=True, state="Z")
    assert roots(run("PROC-GONE", *ranks(), worker, LOOK)) == []


def test_a_rank_that_leaves_between_the_samples_is_gone() -> None:
    (found,) = run("PROC-GONE", *ranks("a"), *ranks("b", skip=(9,)), LOOK)
    assert found.spots[0].doing == "left during the look"


def test_a_short_command_beside_a_rank_may_end() -> None:
    """`while :; do date; sleep 1; done &` in the script that starts python: same parent, number."""
    rank = {"rank": 3, "ppid": 900}
    seen = [*ranks("a", cpu_s=9.0, ppid=900), process(2000, name="sleep", sample="a", **rank)]
    alone = [*seen, *ranks("b", cpu_s=9.0, ppid=900)]
    assert roots(run("PROC-GONE", *alone, LOOK)) == []
    again = process(2001, name="sleep", sample="b", **rank)
    assert roots(run("PROC-GONE", *alone, again, LOOK)) == []
    dead = [*seen, *ranks("b", skip=(3,), cpu_s=9.0, ppid=900)]
    assert [s.pid for f in roots(run("PROC-GONE", *dead, again, LOOK)) for s in f.spots] == [1003]


def test_a_loop_of_short_commands_is_a_rank_that_goes_on() -> None:
    loop = [process(2000 + n, name="sleep", sample=s, rank=3, ppid=900) for n, s in enumerate("ab")]
    rest = [*ranks("a", skip=(3,)), *ranks("b", skip=(3,))]
    assert roots(run("PROC-GONE", *rest, *loop, LOOK)) == []


def test_a_cut_list_of_processes_says_of_no_rank_that_it_is_gone() -> None:
    store = facts(*ranks("a"), *ranks("b", skip=(9,)), LOOK, saw={RankProcess: NODES})
    assert len(roots(list(ask(RULES["PROC-GONE"], store)))) == 1
    store.gaps.append(Gap(node="gpu-08", fact=RankProcess, probe="rank_procs", why="cut"))
    assert roots(list(ask(RULES["PROC-GONE"], store))) == []


def test_after_a_teardown_missing_ranks_are_consequences_and_most_gone_is_an_end() -> None:
    assert run("PROC-GONE", *ranks(skip=(5,)), LOOK, TORN, saw={RankProcess: NODES})[0].role is (
        Role.CONSEQUENCE
    )
    named = [init(r, 1000 + r) for r in range(8)]
    most = run("PROC-GONE", *ranks(skip=tuple(range(2, 16))), *named, LOOK)
    assert roots(most) == []


def test_ranks_that_went_with_a_reboot_are_its_consequence() -> None:
    gone = ranks(skip=tuple(range(8, 16)))
    boot = identity(T0 + timedelta(minutes=4))
    (found,) = run("PROC-GONE", *gone, boot, LOOK, ONSET, saw={RankProcess: NODES})
    assert (found.role, found.node) == (Role.CONSEQUENCE, "gpu-08")
    before = identity(START - timedelta(days=1))
    (found,) = run("PROC-GONE", *gone, before, LOOK, ONSET, saw={RankProcess: NODES})
    assert found.role is Role.ROOT


def test_a_recorders_pid_serves_as_well() -> None:
    records = [RankRecord(rank=r, node=NODES[r // 8], pid=1000 + r) for r in range(16)]
    (found,) = run("PROC-GONE", *ranks(skip=(1,)), *records, LOOK)
    assert found.spots[0].rank == 1


def two_samples(rates: dict[int, float]) -> list[RankProcess]:
    out: list[RankProcess] = []
    for rank in range(16):
        for sample, seconds in (("a", 0.0), ("b", 10.0)):
            at = T0 + timedelta(seconds=seconds)
            cpu = 100.0 + seconds * rates.get(rank, 1.0)
            out.append(
                process(
                    1000 + rank, node=NODES[rank // 8], rank=rank, sample=sample, at=at, cpu_s=cpu
                )
            )
    return out


def test_the_rank_that_burns_no_cpu_is_a_hint() -> None:
    (found,) = run("PROC-ODD", *two_samples({3: 0.0}), LOOK)
    assert (found.role, found.spots[0].rank) == (Role.CONTEXT, 3)
    assert found.says == "rank 3 uses 0.0 cores, the median of 16 ranks is 1.0"


def test_half_of_the_ranks_or_small_differences_are_no_hint() -> None:
    assert run("PROC-ODD", *two_samples(dict.fromkeys(range(8), 0.0)), LOOK) == []
    assert run("PROC-ODD", *two_samples({3: 0.7}), LOOK) == []


def pressed(node: str, share: float) -> Pressure:
    return Pressure(node=node, sample="a", resource="cpu", some_avg10=share)


def test_one_node_that_waits_for_cpu_is_a_weak_slow_host() -> None:
    (found,) = run("SLOW-HOST", pressed("gpu-07", 40.0), pressed("gpu-08", 5.0), LOOK)
    assert (found.node, found.strength, found.subtype) == (
        "gpu-07", Strength.WEAK, "slow_host",
    )  # fmt: skip


def test_a_foreign_process_that_burns_the_cpu_makes_the_slow_host_strong() -> None:
    def scanner(cores: float) -> list[RankProcess]:
        plain: dict[str, Any] = {"node": "gpu-07", "pid": 77, "name": "clamscan", "ppid": 1}
        return [
            RankProcess(**plain, sample="a", at=T0, cpu_s=10.0),
            RankProcess(**plain, sample="b", at=T0 + timedelta(seconds=10),
                        cpu_s=10.0 + 10 * cores),
        ]  # fmt: skip

    waits = (pressed("gpu-07", 64.0), pressed("gpu-08", 3.0), LOOK)
    (found,) = run("SLOW-HOST", *waits, *scanner(9.0))
    assert found.strength is Strength.STRONG
    assert "clamscan (pid 77), not of the job, burns 9.0 cores" in found.says
    (found,) = run("SLOW-HOST", *waits, *scanner(3.0))
    assert found.strength is Strength.WEAK


def test_below_the_boundary_and_when_most_nodes_shift_no_node_is_named() -> None:
    assert run("SLOW-HOST", pressed("gpu-07", 39.9), pressed("gpu-08", 5.0), LOOK) == []
    assert run("SLOW-HOST", pressed("gpu-07", 80.0), pressed("gpu-08", 60.0), LOOK) == []
    assert run("SLOW-HOST", pressed("gpu-07", 80.0), LOOK) == []


def test_slurm_s_task_is_the_rank_where_the_job_has_one_task_a_rank() -> None:
    gone = ProcessExit(node="gpu-08", rank=None, at=None, task=12, oom=True, source="srun")
    for tasks, rank in ((16, 12), (2, None)):
        (found,) = run("MEM-STEP", gone, Job(id="48213", num_tasks=tasks), LOOK)
        assert [(s.rank, s.node) for s in found.spots] == [(rank, "gpu-08")]


LAUNCH = "srun: error: Task launch for StepId=48213.0 failed on node gpu-08: "


@pytest.mark.parametrize(
    ("why", "role", "strength"),
    [
        pytest.param("Prolog failed", Role.ROOT, Strength.STRONG, id="prolog"),
        pytest.param("Communication connection failure", Role.ROOT, Strength.WEAK, id="silent"),
        pytest.param("Socket timed out on send/recv", Role.ROOT, Strength.WEAK, id="late"),
        pytest.param(
            "Unable to layout tasks on given cpus", Role.CONTEXT, Strength.WEAK, id="request"
        ),
        pytest.param("Invalid job credential", Role.CONTEXT, Strength.WEAK, id="credential"),
    ],
)
def test_a_step_that_was_not_started_on_a_node(why: str, role: Role, strength: Strength) -> None:
    message = SlurmMessage(node="gpu-08", at=None, kind="launch_failed", line=LAUNCH + why)
    (found,) = run("NODE-DOWN", message, LOOK)
    assert (found.node, found.role, found.strength) == ("gpu-08", role, strength)
    assert found.says.endswith(why)


def test_a_prolog_that_failed_on_a_node_that_answers_now_is_weak() -> None:
    line = LAUNCH + "Prolog failed"
    message = SlurmMessage(node="gpu-08", at=None, kind="launch_failed", line=line)
    identity = NodeIdentity(node="gpu-08")
    (found,) = run("NODE-DOWN", message, LOOK, identity, saw={NodeIdentity: ("gpu-08",)})
    assert found.strength is Strength.WEAK


def test_steps_that_were_not_started_on_two_nodes_are_shared() -> None:
    each = [
        SlurmMessage(node=n, at=None, kind="launch_failed", line=LAUNCH + "Prolog failed")
        for n in ("gpu-07", "gpu-08")
    ]
    assert all(f.shared for f in run("NODE-DOWN", *each, LOOK))
