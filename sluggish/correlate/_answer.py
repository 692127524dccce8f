"""From the graph's places and waits to the answer: sinks, cycles, states, roots."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from sluggish.correlate._beside import IDLE, beside
from sluggish.correlate._earlier import MOVING_S, age
from sluggish.correlate._graph import Graph, Sinks, graph_of, reached, sinks_of, weight
from sluggish.correlate._standing import Node, Scene, posted
from sluggish.correlate._words import difference, doing, idle_doing, label, own_op, show, sides
from sluggish.facts.collective import Wait, WaitRoot
from sluggish.text import counted

ROOTS_KEPT = 64


def answer(scene: Scene, nodes: dict[tuple[object, ...], Node], dead: dict[int, str]) -> Wait:
    """The Wait of a scene whose waits have been found."""
    graph = graph_of(scene, list(nodes.values()), dead)
    sinks = sinks_of(scene, graph)
    return _state(scene, graph, sinks, dead)


def _state(scene: Scene, graph: Graph, sinks: Sinks, dead: dict[int, str]) -> Wait:
    """The first kind in this order that exists: mismatch before lag, certain before uncertain."""
    missed = [r for r in sinks.idle if r not in scene.standings or _missed(graph, r, sinks.idle)]
    hidden = beside(scene, missed)
    missed = [r for r in missed if r not in hidden]
    if sinks.odd or sinks.lonely:
        roots = [_node_root(scene, graph, n, "mismatch") for n in sinks.odd + sinks.lonely]
        victims = {r for n in sinks.lonely for r in n.joined} - sinks.held
        roots = [tuple(r for r in row if r.rank not in victims) for row in roots]
        gloo = any(n.group in scene.gloo for n in sinks.odd)  # it ends a rank for its peer's size
        late = [rank for rank in missed if rank in scene.standings or not gloo]
        roots.append(_idle_roots(scene, graph, late, dead))
        return _wait("mismatch", scene, graph, _flat(roots), (sinks.odd + sinks.lonely)[0])
    if sinks.tied:
        scene.notes.append("as many ranks on one side as on the other: neither is blamed")
        return _wait("tie", scene, graph, (), sinks.tied[0])
    if sinks.idle or sinks.device:
        return _held_up(scene, graph, sinks, missed, hidden, dead)
    if sinks.cycle and not sinks.inverted:
        scene.notes.append("no order of the groups is rarer than the other: nobody is blamed")
        wait = _wait("cycle", scene, graph, (), sinks.cycle[0])
        return replace(wait, sides=_opposed_sides(scene, sinks.opposed))
    if sinks.cycle:
        rows = [_node_root(scene, graph, n, "cycle") for n in sinks.cycle]
        roots = [tuple(r for r in row if r.rank in sinks.inverted) for row in rows]
        held = set[int]().union(*(n.joined for n in graph.nodes)) - sinks.inverted
        roots = [tuple(replace(r, waiters=len(held)) for r in row) for row in roots]
        return _wait("cycle", scene, graph, _flat(roots), sinks.cycle[0])
    joined = max(sinks.joined, key=lambda n: weight(graph, n), default=None)
    unseen = max(sinks.unseen, key=lambda n: weight(graph, n), default=None)
    if joined and (unseen is None or weight(graph, joined) >= weight(graph, unseen)):
        return _wait("all_joined", scene, graph, (), joined)
    if unseen or not scene.standings:
        if unseen and unseen.group in scene.guessed:
            scene.notes.append("the members of the waiting group are not told (Gloo)")
        return _wait("unobserved", scene, graph, (), unseen)
    return _nothing_pending(scene, graph)


def _nothing_pending(scene: Scene, graph: Graph) -> Wait:
    """A rank whose dump is older than what its peers have finished since came to that: it moved."""
    moved = {rank for rank, standing in scene.standings.items() if standing.stale}
    wait = _wait("none", scene, graph, (), None)
    unseen = tuple(rank for rank in wait.unobserved if rank not in moved)
    return replace(wait, unobserved=unseen, observed=len(scene.standings))


def _held_up(
    scene: Scene,
    graph: Graph,
    sinks: Sinks,
    missed: list[int],
    hidden: set[int],
    dead: dict[int, str],
) -> Wait:
    """Who has not arrived, or did not finish on its GPU; nobody where that is not sure."""
    if hidden and not missed and not sinks.device:
        scene.notes.append(
            f"{counted(len(hidden), 'rank is', 'ranks are')} in no collective and may wait for one "
            "another where no recorder looks: their stacks tell"
        )
        wait = _wait("host_stuck", scene, graph, (), None)
        return replace(wait, sides=((IDLE, tuple(sorted(hidden))),))
    young = [old < MOVING_S for s in scene.standings.values() if (old := age(s)) is not None]
    if sum(young) > 1 and 4 * sum(young) >= len(young):
        scene.notes.append(
            f"{sum(young)} ranks posted less than a second before their dump was written: the job "
            "may move, so nobody is named; ask again"
        )
        return _wait("host_stuck", scene, graph, (), None)
    seen = sum(not s.stale for s in scene.standings.values())
    few = 2 * len(set(sinks.idle) - hidden) > seen
    two = _one_for_one(scene, graph, sinks)
    missed = [r for r in missed if not (few or two) or r not in scene.standings]
    if not missed and (few or two or not sinks.device):
        why = "one waits for one" if two else "most are in no collective"
        scene.notes.append(f"{why}: {'it' if two else 'the few that wait'} may be the odd one")
        wait = _wait("tie" if two else "host_stuck", scene, graph, (), None)
        return replace(wait, sides=_waiting_and_idle(wait, sinks.idle))
    roots = [_idle_roots(scene, graph, missed, dead)]
    roots += [_node_root(scene, graph, n, "device") for n in sinks.device]
    state = "host_stuck" if missed else "device_stuck"
    if sinks.joined:
        scene.notes.append("another group is complete and does not finish either")
    return _wait(state, scene, graph, _flat(roots), None if missed else sinks.device[0])


def _one_for_one(scene: Scene, graph: Graph, sinks: Sinks) -> bool:
    """One waits for one and nobody else is held up by either: a collective too many looks alike.

    A group of the same kind may show that the others came as far.
    """
    waiting = [node for node in graph.nodes if node.joined]
    two = len(sinks.idle) == len(waiting) == len(waiting[0].joined) == 1
    return two and not sinks.device and not _siblings_came(scene, waiting[0])


def _siblings_came(scene: Scene, node: Node) -> bool:
    """Whether most ranks in the other groups of this kind have posted their like of it."""
    kind = scene.groups[node.group].desc
    came = [
        dict(head.posted).get(node.op.op, 0) >= (node.op.nth or 1)
        if node.op.peer is not None
        else posted(head, node.op.seq)
        for standing in scene.standings.values()
        for number, head in standing.heads.items()
        if kind and number != node.group and scene.groups[number].desc == kind
    ]
    return 2 * sum(came) > len(came)


def _waiting_and_idle(wait: Wait, idle: list[int]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    where = f" in {label(wait.group)}" if wait.group else ""
    return ((f"{wait.operation}{where}", wait.waiters), (IDLE, tuple(sorted(idle))))


def _missed(graph: Graph, rank: int, idle: list[int]) -> bool:
    """Whether somewhere as many wait for it as are in no collective there.

    Else the few that wait may have posted what nobody else wanted to.
    """
    here = set(idle)
    return any(
        len(graph.nodes[n].joined) >= len(graph.nodes[n].waits & here)
        for n in graph.back.get(-1 - rank, ())
    )


def _opposed_sides(
    scene: Scene, opposed: list[tuple[Node, set[int]]]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What each side is at, and in which group."""
    return tuple(
        (f"{show(node.op)} in {label(scene.groups[node.group])}", tuple(sorted(ranks)))
        for node, ranks in opposed
    )


def _flat(roots: Iterable[tuple[WaitRoot, ...]]) -> tuple[WaitRoot, ...]:
    """Each rank once; who holds up most comes first."""
    best: dict[int, WaitRoot] = {}
    for root in (one for some in roots for one in some):
        best.setdefault(root.rank, root)
    order = {r.rank: i for i, r in enumerate(r for some in roots for r in some)}
    return tuple(sorted(best.values(), key=lambda r: (-r.waiters, order[r.rank], r.rank)))


def _node_root(scene: Scene, graph: Graph, node: Node, why: str) -> tuple[WaitRoot, ...]:
    """Ranks of a place that is itself the root."""
    number = graph.place[next(iter(node.joined))]
    waiters = len(reached(graph, [number]) - node.joined)
    group = scene.groups[node.group]
    return tuple(
        WaitRoot(
            rank=rank,
            group=group,
            seq=node.op.seq,
            operation=show(node.op),
            doing=doing(scene, node, why),
            source_line=own_op(scene, rank, node).frame,
            waiters=waiters,
        )
        for rank in sorted(node.joined)[:ROOTS_KEPT]
    )


def _idle_roots(
    scene: Scene, graph: Graph, ranks: list[int], dead: dict[int, str]
) -> tuple[WaitRoot, ...]:
    """Ranks that are in no collective while others wait for them."""
    roots: list[WaitRoot] = []
    for rank in ranks[:ROOTS_KEPT]:
        direct = [graph.nodes[n] for n in sorted(graph.back[-1 - rank])]
        # who waits for it directly and, in program order, first: that is its next operation
        node = min(direct, key=lambda n: (n.op.peer is None, n.op.order, -len(n.joined), n.group))
        roots.append(
            WaitRoot(
                rank=rank,
                group=scene.groups[node.group],
                seq=node.op.seq,
                doing=idle_doing(scene, rank, dead),
                waiters=len(reached(graph, [-1 - rank])),
            )
        )
    return tuple(roots)


def _wait(
    state: str, scene: Scene, graph: Graph, roots: tuple[WaitRoot, ...], node: Node | None
) -> Wait:
    """Fill in what the screen says beside the roots."""
    blamed = {r.rank for r in roots}
    waiters = sorted({r for n in graph.nodes for r in n.joined} - blamed)
    first = roots[0] if roots else None
    main = node if node and not roots else _main_waiting(scene, graph, blamed, first) or node
    shown = sides(scene, node) if node and (node.odd or node.tied) else []
    created = [
        op.enqueued_at
        for n in graph.nodes
        for r in n.joined - blamed
        if (op := own_op(scene, r, n)).enqueued_at is not None
    ]
    return Wait(
        state=state,
        group=first.group if first else (scene.groups[main.group] if main else None),
        seq=first.seq if first else (main.op.seq if main else None),
        operation=show(main.op) if main else None,
        inside=len(main.joined - blamed) if main else 0,
        mismatch=_mismatch(scene, node, state),
        roots=roots,
        waiters=tuple(waiters),
        unobserved=tuple(sorted(scene.unobserved)),
        observed=sum(not s.stale for s in scene.standings.values()),
        world_size=scene.world_size,
        sources=("flight recorder",) if scene.standings else (),
        since=min((t for t in created if t), default=None),
        confidence_notes=tuple(_notes(scene)),
        sides=tuple((text, ranks) for text, _, ranks in shown),
    )


def _mismatch(scene: Scene, node: Node | None, state: str) -> str | None:
    if state not in ("mismatch", "tie") or node is None:
        return None
    return difference(scene, node) if node.odd or node.tied else "operation"


def _main_waiting(
    scene: Scene, graph: Graph, blamed: set[int], root: WaitRoot | None
) -> Node | None:
    """Where the others wait for the root; without a root the place where most ranks wait."""
    waiting = [n for n in graph.nodes if n.joined - blamed]
    if root is not None:
        direct = [
            n for n in waiting if scene.groups[n.group] is root.group and n.op.seq == root.seq
        ]
        waiting = direct or waiting
    return max(waiting, key=lambda n: (len(n.joined - blamed), -n.group, -n.op.seq), default=None)


def _notes(scene: Scene) -> Iterator[str]:
    yield from scene.notes
    if absent := scene.unobserved - set(scene.standings):
        yield f"{counted(len(absent), 'rank has', 'ranks have')} no dump"
    if scene.gloo:
        yield "gloo: a finished operation may have failed, send and recv are not recorded"
