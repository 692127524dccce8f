"""The wait-for answer from JAX's coordination service and XLA's rendezvous: words, no numbers.

A task of JAX is a process: it is a rank only where as many tasks as ranks were expected.
"""

from collections.abc import Iterable

from sluggish.facts.collective import LaggingRanks, Wait, WaitRoot
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts

BARRIER = "jax_barrier"
SOURCE = ("coordination service",)
XLA = ("XLA",)


def from_frameworks(facts: Facts, world_size: int | None) -> Wait | None:
    """None where no such line speaks of waiting."""
    signs = facts.all(LogSign)
    barriers = [r for r in facts.all(LaggingRanks) if r.kind == BARRIER]
    return (
        _of_barriers(barriers, world_size)
        or _of_heartbeats(signs, world_size)
        or _of_open_barriers(signs)
        or _of_rendezvous(signs)
    )


def _of_barriers(reports: list[LaggingRanks], world_size: int | None) -> Wait | None:
    if not reports:
        return None
    first = min(reports, key=lambda r: r.order)
    late = sorted(first.ranks)
    if world_size is not None and first.expected not in (None, world_size):
        note = f"JAX tasks {late} did not come: a task is not a rank in this job"
        return _wait("unobserved", first.op, (), SOURCE, note)
    doing = "did not come to the barrier of the coordination service"
    roots = tuple(
        WaitRoot(rank=r, doing=doing, waiters=(first.expected or 0) - len(late)) for r in late
    )
    note = "from the coordination service's message alone: it names at most 20 tasks"
    return _wait("host_stuck", first.op, roots, SOURCE, note, first.expected)


def _of_heartbeats(signs: Iterable[LogSign], world_size: int | None) -> Wait | None:
    """A task whose heartbeat stopped: dead, stopped, or cut off. More than one are a teardown."""
    silent = sorted({s.rank for s in signs if s.kind == "jax_heartbeat" and s.rank is not None})
    if len(silent) != 1:
        return None
    root = WaitRoot(rank=silent[0], doing="its heartbeat to the coordination service stopped")
    note = "from the coordination service alone; a task of JAX is a process, not always a rank"
    return _wait("host_stuck", None, (root,), SOURCE, note, world_size)


def _of_open_barriers(signs: Iterable[LogSign]) -> Wait | None:
    told = [s for s in signs if s.kind == BARRIER]
    if not told:
        return None
    note = "half of the tasks or more did not come to a barrier: too early or too late is not told"
    return _wait("unobserved", told[0].detail, (), SOURCE, note)


def _of_rendezvous(signs: Iterable[LogSign]) -> Wait | None:
    """XLA counts the threads of one process and does not name the one that is late."""
    rows = list(signs)
    free = max((s.order for s in rows if s.kind == "xla_unstuck"), default=-1)
    stuck = [
        s for s in rows if s.kind in ("xla_rendezvous", "xla_all_joined", "xla_gave_up")
        and s.order > free
    ]  # fmt: skip
    if not stuck:
        return None
    state = "all_joined" if all(s.kind == "xla_all_joined" for s in stuck) else "unobserved"
    note = "XLA says that threads wait and does not name the one that is missing"
    waiting = tuple(sorted({s.rank for s in stuck if s.rank is not None}))
    return Wait(
        state=state,
        operation=stuck[0].detail.split(": ", 1)[0],
        waiters=waiting,
        observed=len(waiting),
        sources=XLA,
        since=min((s.at for s in stuck if s.at), default=None),
        confidence_notes=(note,),
    )


def _wait(
    state: str,
    operation: str | None,
    roots: tuple[WaitRoot, ...],
    sources: tuple[str, ...],
    note: str,
    world_size: int | None = None,
) -> Wait:
    return Wait(
        state=state,
        operation=operation,
        roots=roots,
        world_size=world_size,
        sources=sources,
        confidence_notes=(note,),
    )
