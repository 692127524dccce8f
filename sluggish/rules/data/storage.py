"""DATA-STORAGE: a file system that the job waits for does not answer."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.correlate.jobsense import folded, in_job, on_nodes, ranks_words, split_seen
from sluggish.correlate.logorder import before_timeouts
from sluggish.correlate.procs import NETWORK_WAITS, deltas, what_it_waits_on
from sluggish.correlate.window import When, when
from sluggish.facts.collective import Wait, WatchdogTimeout
from sluggish.facts.derived import Look, Onset
from sluggish.facts.host import HungTask, Mount, ProcessDelta, RankProcess, Stack, StorageEvent
from sluggish.facts.log import LogSign, LogSpan
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

MOVES_BYTES = 1 << 20
"""io in the window that shows a process in D to be working, not stuck."""
CROWD = 2
"""Processes of one node in D on a network file system: with one look a single one may be luck."""
PROGRAMS = re.compile(r"python|pt_data_worker|pt_main|torchrun|deepspeed")
"""Names under which training runs."""
NOISY = {"lustre", "other", "fuse", "overlay"}
"""Kernel lines of these stand beside other faults too often to prove a stall alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Node:
    """The signs of one node."""

    node: str | None
    dead: tuple[Mount, ...]
    blocked: tuple[ProcessDelta, ...]
    disk: tuple[ProcessDelta, ...]
    lines: tuple[StorageEvent | HungTask, ...]
    processes_seen: bool


@rule(
    "DATA-STORAGE",
    family=Family.DATA,
    needs=(Mount, RankProcess, StorageEvent, HungTask, Stack, LogSign),
    wants=(Wait, Look, Onset, WatchdogTimeout, LogSpan),
)
def data_storage(view: View) -> Iterator[Finding]:
    """A mount does not answer, or processes of the job hang in D on a file system."""
    look = view.one(Look)
    moved = deltas(view.all(RankProcess))
    lines = (*_open_events(view), *_hung(view))
    facts = (*view.all(Mount), *moved, *lines)
    nodes = [n for n in dict.fromkeys(fact.node for fact in facts) if in_job(n, look)]
    graded: dict[Strength, list[_Node]] = {}
    for node in nodes:
        signs = _signs(node, view.all(Mount), moved, lines)
        grade = _grade(signs)
        if grade:
            graded.setdefault(grade, []).append(signs)
    roots = {root.rank for wait in view.all(Wait) for root in wait.roots}
    many = sum(len(found) for found in graded.values()) > 1
    for grade in (Strength.DECISIVE, Strength.STRONG, Strength.WEAK):
        if found := graded.get(grade):
            yield _finding(found, grade, many, roots)
    failed = [s for s in view.all(LogSign) if s.kind == "storage_error"]
    yield from (_by_error(view, sign, graded) for sign in failed[:1])
    if not graded and not failed:
        stacks = [s for s in view.all(Stack) if s.source == "kernel" and _in_storage(s)]
        yield from (_by_stack(stack) for stack in stacks[:1])
        if not stacks:
            yield from _all_clear(view, look, moved)


def _by_error(view: View, sign: LogSign, graded: Mapping[Strength, object]) -> Finding:
    """An exception that only a file server or a dying disk causes: stale handle, I/O error."""
    late = before_timeouts(sign, view.all(WatchdogTimeout), view.all(LogSpan)) is False
    return Finding(
        node=sign.node,
        subject="storage",
        role=Role.CONSEQUENCE if late else Role.ROOT,
        strength=Strength.WEAK if late else Strength.STRONG,
        at=sign.at,
        says=f"the program's file access failed: {sign.detail}" + ("; late" if late else ""),
        quote=sign.line,
        source="job log",
        spots=(Spot(rank=sign.rank, node=sign.node, doing="file access failed"),)
        if not late and sign.rank is not None and not graded
        else (),
        subtype="storage",
    )


def _in_storage(stack: Stack) -> bool:
    return any(NETWORK_WAITS.search(f"{f.function} {f.file}") for f in stack.frames)


def _by_stack(stack: Stack) -> Finding:
    """`/proc/PID/stack` alone: where a process slept at one moment, not that it stays there."""
    return Finding(
        node=stack.node,
        subject="storage",
        role=Role.ROOT,
        strength=Strength.WEAK,
        says=f"a process sleeps in a network file system ({stack.frames[0].function}), one look",
        quote=" < ".join(frame.function for frame in stack.frames[:5]),
        source="kernel stack",
        spots=(Spot(node=stack.node, rank=stack.rank, pid=stack.pid, doing="waits for storage"),),
        subtype="storage",
    )


def _signs(
    node: str | None,
    mounts: tuple[Mount, ...],
    moved: tuple[ProcessDelta, ...],
    lines: tuple[StorageEvent | HungTask, ...],
) -> _Node:
    here = [d for d in moved if d.node == node]
    mine = [d for d in here if d.role != "other" or d.job_id]
    if not mine:  # a plain `ps`, without environments: by the program's name
        mine = [d for d in here if PROGRAMS.search(f"{d.name} {d.cmdline}")]
    still = [d for d in mine if (d.read_bytes or 0) + (d.written_bytes or 0) < MOVES_BYTES]
    waits = [(d, what_it_waits_on(d)) for d in still if d.stuck or d.seconds is None]
    return _Node(
        node=node,
        dead=tuple(m for m in mounts if m.node == node and m.answered is False),
        blocked=tuple(d for d, on in waits if on == "network"),
        disk=tuple(d for d, on in waits if on == "disk"),
        lines=tuple(line for line in lines if line.node == node),
        processes_seen=bool(mine),
    )


def _grade(signs: _Node) -> Strength | None:
    blocked = signs.blocked or (signs.disk if signs.dead else ())
    if signs.dead and blocked:
        return Strength.DECISIVE
    if signs.dead:  # a dead mount that nobody of the job waits for is no cause
        alone = signs.processes_seen and not signs.lines
        return Strength.WEAK if alone else Strength.STRONG
    if signs.blocked:
        sure = any(d.stuck for d in signs.blocked) or len(signs.blocked) >= CROWD or signs.lines
        return Strength.STRONG if sure else Strength.WEAK
    if any(_evicted(s) for s in signs.lines):
        return Strength.STRONG
    # who waits for a file server stands in D: where the job's processes do not, a line is a hint
    calm = signs.processes_seen and not signs.disk
    if not calm and any(
        isinstance(s, HungTask) or s.kind not in NOISY | {"nvme", "block"} for s in signs.lines
    ):
        return Strength.STRONG
    return Strength.WEAK if signs.lines or any(d.stuck for d in signs.disk) else None


def _evicted(line: StorageEvent | HungTask) -> bool:
    """A server threw the client out: what was under way there has failed, one target or all."""
    return isinstance(line, StorageEvent) and "evicted by" in line.line


def _open_events(view: View) -> Iterator[StorageEvent]:
    """The last line of each server and node, where it does not say that it answers again."""
    last: dict[tuple[str | None, str, str | None], StorageEvent] = {}
    for event in sorted(view.all(StorageEvent), key=lambda e: e.at.timestamp() if e.at else 0.0):
        last[event.node, event.kind, event.server] = event
    for event in last.values():
        place = when(event.at, view.one(Look), view.one(Onset))
        if not event.recovered and place not in (When.HISTORY, When.TEARDOWN):
            yield event


def _hung(view: View) -> Iterator[HungTask]:
    """Hung tasks whose kernel stack stands in a network file system."""
    for task in view.all(HungTask):
        place = when(task.at, view.one(Look), view.one(Onset))
        if place in (When.HISTORY, When.EARLIER, When.TEARDOWN):
            continue
        if any(NETWORK_WAITS.search(function) for function in task.stack):
            yield task


def _finding(found: list[_Node], grade: Strength, many: bool, roots: set[int]) -> Finding:
    spots = tuple(spot for signs in found for spot in _spots(signs))
    # of all that are blocked the others wait for these
    spots = tuple(spot for spot in spots if spot.rank in roots) or spots
    lines = [line for signs in found for line in signs.lines]
    node = found[0].node if len(found) == 1 else None
    return Finding(
        node=node,
        subject="storage",
        role=Role.ROOT,
        strength=grade,
        at=min((line.at for line in lines if line.at), default=None),
        says=("" if node else f"{folded(s.node for s in found)}: ") + _says(found),
        quote=lines[0].line if lines else "",
        source="mounts, processes" if any(s.dead for s in found) else "processes",
        spots=spots,
        subtype="storage",
        shared=many,
    )


def _spots(signs: _Node) -> Iterator[Spot]:
    blocked = {d.rank: d for d in reversed((*signs.blocked, *signs.disk)) if d.rank is not None}
    for rank, delta in sorted(blocked.items()):
        yield Spot(rank=rank, node=signs.node, pid=delta.pid, doing=f"in D on {delta.wchan}")
    if not blocked:
        yield Spot(node=signs.node, doing="waits for storage")


def _says(found: list[_Node]) -> str:
    parts: list[str] = []
    dead = dict.fromkeys(f"{m.path} ({m.source or m.fstype})" for s in found for m in s.dead)
    if dead:
        shown = ", ".join(list(dead)[:2]) + (f" and {len(dead) - 2} more" if len(dead) > 2 else "")
        parts.append(f"{shown} does not answer")
    blocked = [d for s in found for d in (*s.blocked, *s.disk)]
    if blocked:
        who = ranks_words(d.rank for d in blocked)
        places = dict.fromkeys(d.wchan for d in blocked if d.wchan)
        count = f"{len(blocked)} process{'es' if len(blocked) > 1 else ''}"
        where = f" on {', '.join(list(places)[:2])}" if places else ""
        parts.append(f"{count} in D{where}{f', {who}' if who else ''}")
    if not parts:
        kinds = dict.fromkeys(
            "a task hung in a network file system" if isinstance(line, HungTask) else line.kind
            for s in found
            for line in s.lines
        )
        parts.append(f"storage trouble without recovery: {', '.join(kinds)}")
    return "; ".join(parts)


def _all_clear(view: View, look: Look | None, moved: tuple[ProcessDelta, ...]) -> Iterator[Finding]:
    asked = [m for m in view.all(Mount) if m.answered]
    seen, blind = split_seen(look, lambda node: any(m.node == node for m in asked))
    if not seen:
        return
    says = f"{len(asked)} network mounts answer {on_nodes(seen, blind)}"
    if any(d.role != "other" for d in moved):
        says += ", no process of the job stuck on storage"
    yield Finding(
        node=None,
        subject="storage",
        role=Role.ALL_CLEAR,
        strength=Strength.STRONG,
        says=says,
        source="mounts",
    )
