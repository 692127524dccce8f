"""Sources beside the recorder: who has died, what a root's stack says, which answer stands."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sluggish.correlate._beside import IDLE
from sluggish.correlate._gloo import SOURCE as GLOO
from sluggish.correlate._gloo import refused, settled
from sluggish.correlate.procs import deltas
from sluggish.correlate.stacks import meaning, user_line
from sluggish.facts.collective import Wait, WaitRoot
from sluggish.facts.derived import Place
from sluggish.facts.host import OomKill, RankProcess, Stack
from sluggish.facts.log import LogSign, ProcessExit
from sluggish.facts.store import Facts

SIGTERM = 15
WAITS_FOR_OTHERS = ("collective", "store")
"""Kinds of stacks that wait for another rank."""
END = "shutdown"
"""The kind of one that is done."""


def dead_ranks(facts: Facts) -> dict[int, str]:
    """Ranks whose own end is on record: an OOM kill, or an exit unlike that of the others.

    A stopped process (state T) is no better than a dead one: it posts nothing and writes nothing.
    A rank that Gloo ended for the size it was sent is a victim as often as not: it is left out.
    """
    by_pid = {(p.node, p.pid): p.rank for p in facts.all(Place) if p.pid is not None}
    dead: dict[int, str] = {}
    exits = [e for e in facts.all(ProcessExit) if e.rank is not None]
    kinds = Counter((e.exit_code, e.signal) for e in exits)
    for end in sorted(exits, key=lambda e: e.order):
        common = kinds[end.exit_code, end.signal]
        if end.signal == SIGTERM or end.rank is None or (common > 1 and 2 * common > len(exits)):
            continue
        how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
        dead.setdefault(end.rank, "out of memory" if end.oom else how)
    for kill in facts.all(OomKill):
        rank = by_pid.get((kill.node, kill.pid)) if kill.pid is not None else None
        if rank is not None:
            dead[rank] = "killed for memory"
    for rank, how in _by_processes(facts.all(RankProcess)).items():
        dead.setdefault(rank, how)
    ended = refused(facts.all(LogSign))
    return {rank: how for rank, how in dead.items() if rank not in ended}


def _by_processes(seen: Iterable[RankProcess]) -> dict[int, str]:
    """One process that left between two samples, or that is stopped: several are a teardown."""
    ranks = [d for d in deltas(seen) if d.role == "rank" and d.rank is not None]
    out = {d.rank: "its process has ended" for d in ranks if d.gone}
    stopped = {d.rank: "stopped by a signal (state T)" for d in ranks if d.state == "T"}
    return {
        rank: how
        for found in (out, stopped)
        for rank, how in found.items()
        if rank is not None and len(found) == 1 and len(ranks) > 1
    }


def combine(recorder: Wait | None, others: list[Wait]) -> Wait:
    """The recorder stands; where it saw nothing, a source that names somebody."""
    if recorder is None and not others:
        return Wait(state="unobserved", confidence_notes=("no source shows the collectives",))
    if recorder is None:
        naming = [w for w in others if w.roots or w.state in ("tie", "all_joined")]
        return (naming or others)[0]
    if recorder.state == "unobserved":
        unseen = set(recorder.unobserved)
        for other in others:
            if other.sources == GLOO:
                recorder = settled(recorder, other)
                continue
            roots = tuple(r for r in other.roots if r.rank in unseen)
            if roots and len(roots) == len(other.roots):
                return replace(
                    recorder,
                    state=other.state,
                    roots=roots,
                    sources=(*recorder.sources, *other.sources),
                    confidence_notes=(*recorder.confidence_notes, *other.confidence_notes),
                )
    return recorder


def with_stacks(wait: Wait, stacks: Iterable[Stack]) -> Wait:
    """Say what a root that is in no collective does, by its main thread."""
    main = {s.rank: s for s in stacks if s.main and s.rank is not None}
    sides = [side for side, _ in wait.sides]
    if not wait.roots and (sides == [IDLE] or (wait.state == "tie" and sides[-1:] == [IDLE])):
        return _told_apart(wait, main)
    return replace(wait, roots=tuple(_seen_doing(r, main.get(r.rank)) for r in wait.roots))


def _seen_doing(root: WaitRoot, stack: Stack | None) -> WaitRoot:
    if stack is None:
        return root
    told = meaning(stack)
    line = root.source_line or user_line(stack)
    if root.operation is not None or told is None or (root.doing or "").startswith("stopped"):
        return replace(root, source_line=line)
    return replace(root, doing=told.words, source_line=line)


def _told_apart(wait: Wait, main: dict[int, Stack]) -> Wait:
    """Of ranks that may wait for one another unseen, the few whose stacks say something else.

    Of two that differ one against one, the one in no collective where its stack says why.
    """
    idle = wait.sides[-1][1]
    told = {rank: meaning(main[rank]) for rank in idle if rank in main}
    waiting = [rank for rank, one in told.items() if one and one.kind in WAITS_FOR_OTHERS]
    other = {r: one for r, one in told.items() if one and one.kind not in (*WAITS_FOR_OTHERS, END)}
    whole = len(waiting) + len(other) == len(idle)
    if not whole or not other or (len(other) >= len(waiting) and wait.state != "tie"):
        return wait
    roots = (
        WaitRoot(
            rank=rank,
            group=wait.group,
            seq=wait.seq,
            doing=one.words,
            source_line=user_line(main[rank]),
            waiters=len(wait.waiters) + len(waiting),
        )
        for rank, one in sorted(other.items())
    )
    return replace(wait, state="host_stuck", roots=tuple(roots), sides=())
