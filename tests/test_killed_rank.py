"""A rank that got SIGKILL: who it was, and what may be said while the kernel log is not seen."""

from datetime import UTC, datetime
from typing import Any

from sluggish.causes import Cause, Family, Level, Phase
from sluggish.facts.derived import Look, PhaseFact, Place
from sluggish.facts.host import CgroupMemory, KernelSpan, OomKill, RankProcess
from sluggish.facts.log import LogSpan, ProcessExit
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Spot, Strength, ask
from sluggish.job import Job
from sluggish.rules.app.ends import app_signal
from sluggish.rules.memory.oom import mem_oom
from sluggish.verdict.case import Case
from sluggish.verdict.decide import decide

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
NODES = ("a", "b")
JOB = Job(id="7", num_tasks=4, nodes=NODES)
LOOK = Look(at=NOW, nodes=NODES, world_size=4, job_started_at=None, loose=False, gpus_per_node=2)
SPAN = LogSpan(node=None, path="job.out", bytes_total=900, bytes_read=900)
# srun: error: b: task 3: Killed
KILLED = ProcessExit(
    node="b",
    rank=None,
    at=None,
    signal=9,
    task=3,
    order=40,
    source="srun",
    line="srun: error: b: task 3: Kil",
)


def live(*ranks: int, **more: Any) -> list[RankProcess]:
    return [
        RankProcess(node=NODES[n // 2], pid=70 + n, rank=n, local_rank=n % 2, **more) for n in ranks
    ]


def store(*facts: object) -> Facts:
    made = Facts()
    for fact in (LOOK, JOB, SPAN, *facts):
        made.add(fact)
        made.seen[type(fact)].add(getattr(fact, "node", None))
    return made


def signal(*facts: object) -> Finding:
    (found,) = ask(app_signal, store(KILLED, *facts))
    return found


def test_the_one_rank_that_is_not_there_was_not_torn_down_with_others() -> None:
    found = signal(*live(0, 1, 2))
    assert (found.role, found.strength) == (Role.ROOT, Strength.STRONG)
    assert (found.spots[0].rank, found.spots[0].node) == (3, "b")
    zombie = live(3, state="Z")
    assert signal(*live(0, 1, 2), *zombie).strength is Strength.STRONG


def test_a_kill_stays_weak_where_more_are_gone_it_lives_or_nobody_looked() -> None:
    for there in (live(0, 1), live(0, 1, 2, 3), []):
        assert signal(*there).strength is Strength.WEAK


def test_a_kill_in_another_jobs_cgroup_explains_nothing_here() -> None:
    def kill(job: str) -> OomKill:
        return OomKill(node="b", at=None, process="python", pid=99, cgroup=True, job_id=job)

    assert signal(*live(0, 1, 2), kill("8")).role is Role.ROOT
    assert signal(*live(0, 1, 2), kill("7")).role is Role.CONSEQUENCE


def test_a_counter_of_kills_names_the_one_rank_of_its_node_that_is_gone() -> None:
    path = "/sys/fs/cgroup/memory/slurm/uid_5001/job_7/step_0"
    group = CgroupMemory(node="b", sample="b", path=path, oom_kills=1)
    (found,) = ask(mem_oom, store(group, *live(0, 1, 2)))
    assert (found.subject, found.spots[0].rank, found.spots[0].node) == ("rank 3", 3, "b")
    (unsure,) = ask(mem_oom, store(group, *live(0, 1)))
    assert (unsure.subject, unsure.spots[0].rank) == ("job", None)


def verdict_of(kernel_log: bool) -> Any:
    def root(rule: str, family: Family, strength: Strength, rank: int | None) -> Finding:
        return Finding(
            node="b", subject="it", role=Role.ROOT, strength=strength, says="killed", rule=rule,
            family=family, spots=(Spot(node="b", rank=rank),),
        )  # fmt: skip

    facts = store()
    for probe in ("slurm_node", "memory", "nvidia_smi", "ib_ports", "rank_procs", "mounts"):
        facts.answered[probe] |= set(NODES)
    for probe in ("slurm_job", "job_log"):
        facts.answered[probe].add(None)
    if kernel_log:
        facts.answered["kernel_log"] |= set(NODES)
        for node in NODES:
            facts.add(KernelSpan(node=node, first_at=NOW, last_at=NOW, lines=9, from_boot=True))
    findings = (
        root("APP-SIGNAL", Family.PROCESS, Strength.STRONG, 3),
        root("SYNC-MISSING", Family.COLLECTIVE, Strength.STRONG, 3),
        root("MEM-OOM", Family.KERNEL, Strength.WEAK, None),
    )
    places = {n: Place(rank=n, node=NODES[n // 2]) for n in range(4)}
    return decide(
        Case(
            findings=findings, facts=facts, look=LOOK, wait=None, onset=None,
            phase=PhaseFact(phase=Phase.STEADY), places=places,
        )
    )  # fmt: skip


def test_a_crash_is_not_sure_while_the_kernel_log_might_tell_of_memory() -> None:
    found = verdict_of(kernel_log=False)
    assert (found.cause, found.subtype, found.confidence.level) == (
        Cause.APP_CRASH, "signal", Level.MEDIUM
    )  # fmt: skip
    why = "not ruled out: memory (kernel log of b not seen)"
    assert (found.confidence.why_not_higher or "").startswith(why)
    assert (found.next_probe or "").startswith("dmesg -T on b")
    assert verdict_of(kernel_log=True).confidence.level is Level.HIGH
