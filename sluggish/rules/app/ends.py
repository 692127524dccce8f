"""APP-SIGNAL and APP-EXIT: a rank's process ended, and a launcher, Slurm or the kernel says so."""

import signal
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sluggish.causes import Family
from sluggish.correlate.jobsense import job_ids
from sluggish.correlate.logorder import before_timeouts, key, rank_of
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.host import OomKill, RankProcess, Segfault
from sluggish.facts.log import LogSign, LogSpan, ProcessExit, PythonError, SlurmMessage
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.job import Job
from sluggish.rules.app.common import history

ASKED = frozenset({1, 2, 15})
"""HUP, INT, TERM: somebody ended the process; never a cause by itself."""
CRASHES = frozenset({4, 7, 8, 11})
"""ILL, BUS, FPE, SEGV: the process did it to itself."""
KILL, ABORT = 9, 6
DEAD = ("Z", "X")
OF_LAUNCHER = frozenset({"ChildFailedError", "CalledProcessError", "SystemExit"})
"""Exceptions in which a launcher reports the end itself: they do not say why."""
MANY = 3
"""So many processes killed with SIGKILL together are a step being torn down."""
OOM_NEAR = timedelta(minutes=2)


@rule(
    "APP-SIGNAL",
    family=Family.PROCESS,
    needs=(ProcessExit, Segfault),
    wants=(
        WatchdogTimeout, OomKill, LogSign, SlurmMessage, LogSpan, Place, Look, Onset, Job,
        RankProcess,
    ),
)  # fmt: skip
def app_signal(view: View) -> Iterator[Finding]:
    """A rank's process is ended by a signal that nobody has explained."""
    yield from _segfaults(view)
    ends = [e for e in view.all(ProcessExit) if e.signal and not e.oom]
    ends = sorted((e for e in ends if not history(view, e.at)), key=key)
    given: set[tuple[int, str | None, int | None]] = set()
    for end in ends:
        who = (end.signal or 0, end.node, _rank(view, end) if end.rank is None else end.rank)
        if who in given or len(given) >= 16:
            continue
        given.add(who)
        yield _signal(view, end, ends)
    yield from _workers(view)


def _segfaults(view: View) -> Iterator[Finding]:
    places = view.all(Place)
    for fault in view.all(Segfault):
        rank = rank_of(places, fault.node, fault.pid, None)
        if (rank is None and "python" not in fault.process.lower()) or history(view, fault.at):
            continue
        library = f" in {fault.library}" if fault.library else ""
        onset = view.one(Onset)
        late = bool(onset and onset.teardown_at and fault.at and fault.at >= onset.teardown_at)
        yield Finding(
            node=fault.node,
            subject=f"rank {rank}" if rank is not None else f"pid {fault.pid}",
            role=Role.CONSEQUENCE if late else Role.ROOT,
            strength=Strength.STRONG if rank is not None and not late else Strength.WEAK,
            at=fault.at,
            says=f"{fault.process} (pid {fault.pid}) segmentation fault{library}",
            quote=fault.line,
            source="kernel",
            spots=() if late else (Spot(node=fault.node, rank=rank, pid=fault.pid,
                                        doing="segmentation fault"),),
        )  # fmt: skip


def _signal(view: View, end: ProcessExit, ends: Sequence[ProcessExit]) -> Finding:
    role, strength, why = _weigh(view, end, ends)
    rank = end.rank if end.rank is not None else _rank(view, end)
    return _finding(end, rank, role, strength, f"ended by {name(end.signal or 0)}{why}")


def _weigh(view: View, end: ProcessExit, ends: Sequence[ProcessExit]) -> tuple[Role, Strength, str]:
    if end.signal in ASKED:
        return Role.CONSEQUENCE, Strength.WEAK, " (asked to end)"
    in_front = before_timeouts(end, view.all(WatchdogTimeout), view.all(LogSpan))
    if in_front is False or _after_teardown(view, end.at):
        return Role.CONSEQUENCE, Strength.WEAK, " (after the first timeout or kill)"
    if _oom_near(view, end):
        return Role.CONSEQUENCE, Strength.WEAK, " (the kernel's OOM record is the reason)"
    if end.signal == KILL:
        together = {(e.node, e.rank, e.local_rank, e.task) for e in ends if e.signal == KILL}
        if len(together) >= MANY:
            return Role.CONSEQUENCE, Strength.WEAK, f" with {len(together) - 1} others"
        strength = Strength.STRONG if _alone(view, end) else Strength.WEAK
        return Role.ROOT, strength, ", and no OOM record says why"
    if end.signal == ABORT:
        if view.all(WatchdogTimeout):
            return Role.CONSEQUENCE, Strength.WEAK, " (a watchdog aborts its own process)"
        if any(s.kind == "gloo_size_mismatch" for s in view.all(LogSign)):
            return Role.CONSEQUENCE, Strength.WEAK, " (Gloo aborts a process that is sent too much)"
        return Role.ROOT, Strength.WEAK if in_front is None else Strength.STRONG, ""
    if end.signal == 7 and any(s.kind == "shm_full" for s in view.all(LogSign)):
        return Role.CONSEQUENCE, Strength.WEAK, " (shared memory is full)"
    if end.signal in CRASHES:
        return Role.ROOT, Strength.STRONG if in_front else Strength.WEAK, ""
    return Role.CONTEXT, Strength.WEAK, ""


def _alone(view: View, end: ProcessExit) -> bool:
    """Whether it is the one rank that is not there while all others live: nobody tears down."""
    rank = end.rank if end.rank is not None else _rank(view, end)
    look = view.one(Look)
    if rank is None or look is None or not look.world_size:
        return False
    live = {p.rank for p in view.all(RankProcess) if p.rank is not None and p.state not in DEAD}
    return live == set(range(look.world_size)) - {rank}


def _after_teardown(view: View, at: datetime | None) -> bool:
    onset = view.one(Onset)
    return bool(at and onset and onset.teardown_at and at > onset.teardown_at)


def _oom_near(view: View, end: ProcessExit) -> bool:
    """A kill that the kernel or Slurm explains: same pid, or same node and minute."""
    ids = job_ids(view.all(Job))
    for kill in view.all(OomKill):
        if kill.job_id and ids and kill.job_id not in ids:
            continue  # another job of this node met its own limit
        if end.pid is not None and kill.pid == end.pid:
            return True
        same = end.node is None or kill.node is None or kill.node == end.node
        near = end.at is None or kill.at is None or abs(kill.at - end.at) <= OOM_NEAR
        if end.signal == KILL and same and near:
            return True
    said = any(m.kind == "oom" for m in view.all(SlurmMessage))
    return end.signal == KILL and said


def _workers(view: View) -> Iterator[Finding]:
    """The loader's children: a rank that lost one stops, and its own message names the child."""
    killed = [s for s in view.all(LogSign)
              if s.kind == "worker_killed" and "by signal" in s.line]  # fmt: skip
    full = any(s.kind == "shm_full" for s in view.all(LogSign))
    crashed = [s for s in view.all(LogSign) if s.kind == "worker_crashed"]
    for sign in (*crashed, *killed)[:4]:
        in_front = before_timeouts(sign, view.all(WatchdogTimeout), view.all(LogSpan))
        fallout = full or in_front is False or bool(view.all(OomKill))
        fallout = fallout or any(m.kind == "oom" for m in view.all(SlurmMessage))
        yield Finding(
            node=sign.node,
            subject=f"rank {sign.rank}" if sign.rank is not None else "job",
            role=Role.CONSEQUENCE if fallout else Role.ROOT,
            strength=Strength.WEAK,
            at=sign.at,
            says=f"a DataLoader worker ended by a {sign.detail}" if sign in crashed else
            f"a DataLoader worker (pid {sign.detail}) was killed by a signal",
            quote=sign.line,
            source="job log",
            spots=() if fallout or sign.rank is None else (
                Spot(rank=sign.rank, node=sign.node, doing="lost a DataLoader worker"),
            ),
        )  # fmt: skip


@rule(
    "APP-EXIT",
    family=Family.PROCESS,
    needs=(ProcessExit,),
    wants=(PythonError, WatchdogTimeout, LogSpan, Place, Look, Onset, Job),
)
def app_exit(view: View) -> Iterator[Finding]:
    """A rank's process ends with an error code before any collective times out."""
    ends = [e for e in view.all(ProcessExit) if e.exit_code and e.signal is None]
    ends = sorted((e for e in ends if not history(view, e.at)), key=key)
    explained = any(e.type.rsplit(".", 1)[-1] not in OF_LAUNCHER for e in view.all(PythonError))
    for number, end in enumerate(ends[:8]):
        in_front = before_timeouts(end, view.all(WatchdogTimeout), view.all(LogSpan))
        rank = end.rank if end.rank is not None else _rank(view, end)
        what = f"exited with code {end.exit_code}"
        if in_front is False or _after_teardown(view, end.at):
            yield _finding(end, rank, Role.CONSEQUENCE, Strength.WEAK, f"{what} after the timeouts")
        elif explained or any(_same_process(e, end, rank) for e in view.all(PythonError)):
            why = f"{what}: its exception says why"
            yield _finding(end, rank, Role.CONSEQUENCE, Strength.WEAK, why)
        elif number:
            yield _finding(end, rank, Role.CONSEQUENCE, Strength.WEAK, f"{what}, not the first")
        else:
            strength = Strength.STRONG if in_front and rank is not None else Strength.WEAK
            yield _finding(end, rank, Role.ROOT, strength, what)


def _same_process(error: PythonError, end: ProcessExit, rank: int | None) -> bool:
    """A process that raised, whatever it raised, ended of that."""
    if error.pid is not None and end.pid is not None:
        return error.pid == end.pid
    return rank is not None and error.rank == rank


def _rank(view: View, end: ProcessExit) -> int | None:
    """By pid or local rank; a task is the rank where the step has as many tasks as ranks."""
    found = rank_of(view.all(Place), end.node, end.pid, end.local_rank)
    if found is not None or end.task is None:
        return found
    look = view.one(Look)
    world = look.world_size if look else None
    tasks = {job.num_tasks for job in view.all(Job) if job.num_tasks}
    return end.task if world is not None and tasks == {world} else None


def _finding(
    end: ProcessExit, rank: int | None, role: Role, strength: Strength, what: str
) -> Finding:
    if rank is not None:
        subject = f"rank {rank}"
    elif end.task is not None:
        subject = f"task {end.task}"
    elif end.local_rank is not None:
        subject = f"local rank {end.local_rank}"
    else:
        subject = f"pid {end.pid}" if end.pid else "job"
    accused = role is Role.ROOT and (rank is not None or end.node is not None)
    return Finding(
        node=end.node,
        subject=subject,
        role=role,
        strength=strength,
        at=end.at,
        says=what,
        quote=end.line,
        source=end.source or "job log",
        spots=(Spot(rank=rank, node=end.node, pid=end.pid, doing=what),) if accused else (),
    )


def name(number: int) -> str:
    """`SIGSEGV`, or `signal 77`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
