"""DATA-LOADER: a rank waits for its data loader."""

import re
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, rank_of_pid, ranks_words
from sluggish.correlate.procs import deltas, what_it_waits_on
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import ProcessDelta, RankProcess, Stack
from sluggish.facts.log import LogSign
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

WORKER = re.compile(r"pt_data_worker|python|multiprocessing")
"""Names of loader workers: PyTorch >= 2.6 names them, before they are python like their rank."""
_LOADER_FILE = re.compile(
    r"utils/data/dataloader\.py|multiprocessing/(?:queues|connection)\.py|"
    r"webdataset|streaming/base|mosaicml|litdata|nvidia/dali|grain/"
)
_LOADER_WAIT = re.compile(
    r"_try_get_data|_get_data|_next_data|_poll|poll|recv|recv_bytes|get\Z|wait"
)
_LOADER_ENTRY = re.compile(r"__next__|_next_data|_get_data|_try_get_data")
BUSY = 0.5
"""Cores of a worker that computes: the transform is slow, not the storage."""


@rule(
    "DATA-LOADER",
    family=Family.DATA,
    needs=(Stack, RankProcess, LogSign),
    wants=(Look, Onset),
)
def data_loader(view: View) -> Iterator[Finding]:
    """A rank's main thread waits for its data loader, or its loader workers are dead."""
    moved = deltas(view.all(RankProcess))
    ranks = rank_of_pid(view.all(RankProcess))
    mains = [s for s in view.all(Stack) if s.main and not _is_worker(s, moved)]
    waiting = [s for s in mains if _in_loader(s)]
    dead = _dead_workers(moved)
    killed = _killed(view)
    late = [s for s in view.all(LogSign) if s.kind == "loader_timeout"]
    if waiting:
        yield _by_stacks(waiting, mains, ranks, moved, dead)
    if late:
        yield _by_log(late, "the data loader gave no batch within its own time limit")
    elif killed:
        # what ended it is not told: a crash, the OOM killer, an exception of its own
        yield _by_log(killed, "a data loader worker exited", Strength.WEAK)
    if dead and not waiting:
        yield _by_dead(dead)


def _in_loader(stack: Stack) -> bool:
    """The innermost frames wait, and PyTorch's (or another) loader called them."""
    inner = stack.frames[:8]
    entered = any(
        _LOADER_FILE.search(f.file) and _LOADER_ENTRY.search(f.function) for f in stack.frames
    )
    return entered and any(_LOADER_WAIT.match(frame.function) for frame in inner)


def _is_worker(stack: Stack, moved: tuple[ProcessDelta, ...]) -> bool:
    """A worker's own stack waits for indices: that is idle, not a stall."""
    if any(frame.function == "_worker_loop" for frame in stack.frames):
        return True
    return any(d.pid == stack.pid and d.node == stack.node and d.role == "worker" for d in moved)


def _dead_workers(moved: tuple[ProcessDelta, ...]) -> list[ProcessDelta]:
    plain = all(d.role == "other" for d in moved)  # a `ps` without environments
    return [
        d
        for d in moved
        if d.state == "Z" and WORKER.search(d.name) and (plain or d.role == "worker")
    ]


def _killed(view: View) -> list[LogSign]:
    """A worker that ended by itself, not in the teardown.

    What ended it is the cause where the line tells: full shared memory (Bus error), SIGKILL, a
    crash. Then others rules speak.
    """
    if any(s.kind in ("shm_full", "worker_crashed") for s in view.all(LogSign)):
        return []
    late = (When.HISTORY, When.AFTERMATH, When.TEARDOWN)
    return [
        sign
        for sign in view.all(LogSign)
        if sign.kind == "worker_killed"
        and "killed by signal" not in sign.line
        and when(sign.at, view.one(Look), view.one(Onset)) not in late
    ]


def _by_stacks(
    waiting: list[Stack],
    mains: list[Stack],
    ranks: dict[tuple[str | None, int], int],
    moved: tuple[ProcessDelta, ...],
    dead: list[ProcessDelta],
) -> Finding:
    spots = tuple(_spot(stack, ranks) for stack in waiting)
    known = {spot.rank for spot in spots}
    everybody = len(waiting) == len(mains) and len(mains) > 1
    told = _workers(known, moved, dead)
    alone = len(mains) == 1 and not told  # one look at one process: it may be a moment
    nodes = dict.fromkeys(spot.node for spot in spots)
    who = ranks_words(spot.rank for spot in spots) or (
        f"a rank on {folded(nodes)}" if any(nodes) else "a process"
    )
    says = "every rank seen waits" if everybody else f"{who} wait{'s' if len(spots) == 1 else ''}"
    others = "" if everybody or len(mains) == len(waiting) else (
        f", {len(mains) - len(waiting)} other main threads do not"
    )  # fmt: skip
    return Finding(
        node=next(iter(nodes)) if len(nodes) == 1 else None,
        subject=who if len(spots) == 1 else "loader",
        role=Role.ROOT,
        strength=Strength.WEAK if alone else Strength.STRONG,
        says=f"{says} for the data loader{others}{told}",
        quote=" < ".join(f.function for f in waiting[0].frames[:5]),
        source="stacks",
        spots=spots,
        subtype="loader_wait",
        shared=everybody,
    )


def _spot(stack: Stack, ranks: dict[tuple[str | None, int], int]) -> Spot:
    rank = stack.rank
    if rank is None and stack.pid is not None:
        rank = ranks.get((stack.node, stack.pid))
    return Spot(rank=rank, node=stack.node, pid=stack.pid, doing="waits for its data loader")


def _workers(
    known: set[int | None], moved: tuple[ProcessDelta, ...], dead: list[ProcessDelta]
) -> str:
    """What the workers of the waiting ranks do: dead, stuck, busy or idle."""
    mine = [d for d in moved if d.role == "worker" and d.rank in known]
    gone = [d for d in dead if d.rank in known]
    if gone:
        return f"; {len(gone)} of its workers are dead"
    stuck = [d for d in mine if what_it_waits_on(d) in ("network", "disk")]
    if stuck:
        return f"; {len(stuck)} of {len(mine)} workers in D on {stuck[0].wchan}"
    busy = [d for d in mine if d.cpu_rate is not None and d.cpu_rate >= BUSY]
    return f"; {len(busy)} of {len(mine)} workers compute" if busy else ""


def _by_log(signs: list[LogSign], says: str, strength: Strength = Strength.STRONG) -> Finding:
    first = signs[0]
    return Finding(
        node=first.node,
        subject=f"rank {first.rank}" if first.rank is not None else "loader",
        role=Role.ROOT,
        strength=strength,
        at=first.at,
        says=says,
        quote=first.line,
        source="job log",
        spots=tuple(Spot(rank=s.rank, node=s.node, doing=says) for s in signs),
        subtype="loader_wait",
    )


def _by_dead(dead: list[ProcessDelta]) -> Finding:
    nodes = dict.fromkeys(d.node for d in dead)
    ranks = sorted({d.rank for d in dead if d.rank is not None})
    return Finding(
        node=next(iter(nodes)) if len(nodes) == 1 else None,
        subject="loader",
        role=Role.ROOT,
        strength=Strength.WEAK,
        says=f"{len(dead)} dead loader workers (zombies) of {ranks_words(ranks)}"
        if ranks
        else f"{len(dead)} dead Python processes that nobody has waited for (zombies): loader "
        "workers, or ranks of a launcher that hangs",
        source="processes",
        spots=tuple(
            Spot(rank=rank, node=next(d.node for d in dead if d.rank == rank)) for rank in ranks
        ),
        subtype="loader_wait",
    )
