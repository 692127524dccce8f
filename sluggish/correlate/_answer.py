"""From the graph's places and waits to the answer: sinks, cycles, states, roots."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from sluggish.correlate._beside import IDLE, beside
from sluggish.correlate._components import components
from sluggish.correlate._standing import Node, Scene, one_sided
from sluggish.correlate._words import difference, doing, idle_doing, label, own_op, show, sides
from sluggish.facts.collective import Wait, WaitRoot
from sluggish.text import counted

ROOTS_KEPT = 64

Vertex = int
"""Number of a node, or -1 - rank for a rank that is in no collective."""


@dataclass(slots=True)
class Graph:
    """Nodes in a fixed order and their edges."""

    nodes: list[Node]
    edges: list[set[Vertex]]
    back: dict[Vertex, set[int]]
    place: dict[int, Vertex]
    """Rank -> its node, or -1 - rank."""


@dataclass(slots=True)
class Sinks:
    """What waits for nobody, by kind."""

    odd: list[Node] = field(default_factory=list)
    lonely: list[Node] = field(default_factory=list)
    """Minority of a cycle: in an operation that almost nobody joined."""
    idle: list[int] = field(default_factory=list)
    device: list[Node] = field(default_factory=list)
    cycle: list[Node] = field(default_factory=list)
    inverted: set[int] = field(default_factory=set)
    """Of the ranks in a cycle those that posted in another order than the others."""
    opposed: list[tuple[Node, set[int]]] = field(default_factory=list)
    """Both sides of a cycle in which no order is rarer."""
    tied: list[Node] = field(default_factory=list)
    joined: list[Node] = field(default_factory=list)
    unseen: list[Node] = field(default_factory=list)


def answer(scene: Scene, nodes: dict[tuple[object, ...], Node], dead: dict[int, str]) -> Wait:
    """The Wait of a scene whose waits have been found."""
    graph = _graph(scene, list(nodes.values()), dead)
    sinks = _sinks(scene, graph)
    return _state(scene, graph, sinks, dead)


def _graph(scene: Scene, nodes: list[Node], dead: dict[int, str]) -> Graph:
    place: dict[int, Vertex] = {}
    for number, node in enumerate(nodes):
        for rank in node.joined:
            place[rank] = number
    gone = {r for r in dead if r not in scene.standings}
    edges: list[set[Vertex]] = []
    back: dict[Vertex, set[int]] = defaultdict(set)
    for number, node in enumerate(nodes):
        fallen = node.unseen & gone
        node.unseen -= fallen
        node.waits |= fallen
        to = {place.get(rank, -1 - rank) for rank in node.waits} - {number}
        edges.append(to)
        for vertex in to:
            back[vertex].add(number)
    return Graph(nodes=nodes, edges=edges, back=back, place=place)


def _sinks(scene: Scene, graph: Graph) -> Sinks:
    sinks = Sinks(idle=sorted(-1 - v for v in graph.back if v < 0))
    for component in components(graph.edges):
        own = set(component)
        nodes = [graph.nodes[n] for n in component]
        sinks.odd += [n for n in nodes if n.odd]
        if any(to not in own for n in component for to in graph.edges[n]):
            continue
        if len(component) > 1:
            _break_cycle(scene, nodes, sinks)
        else:
            _sort_sink(scene, nodes[0], sinks)
    return sinks


def _sort_sink(scene: Scene, node: Node, sinks: Sinks) -> None:
    if node.odd:
        return
    if node.tied:
        sinks.tied.append(node)
    elif _proves_end(scene, node):
        few = 2 * len(node.joined) < len(scene.groups[node.group].ranks)
        alone = len(node.joined) == 1  # of a pair: the other one has finished and gone on
        (sinks.device if few or alone else sinks.joined).append(node)
    elif node.unseen or node.group in scene.guessed:
        sinks.unseen.append(node)
    else:
        sinks.joined.append(node)


def _proves_end(scene: Scene, node: Node) -> bool:
    """Peers have finished what nobody can finish before all have posted it."""
    return (
        bool(node.finished)
        and node.op.peer is None
        and not one_sided(node.op)
        and node.group not in scene.gloo
    )


def _break_cycle(scene: Scene, nodes: list[Node], sinks: Sinks) -> None:
    """An operation that under half of its group joined, while others wait for those in it."""
    if all(n.tied for n in nodes):
        sinks.tied += nodes
        return
    few = [
        n
        for n in nodes
        if n.op.peer is None
        and 2 * (len(n.joined) + len(n.unseen)) < len(scene.groups[n.group].ranks)
    ]
    if any(n.odd for n in nodes):
        return
    if len(few) == 1:
        sinks.lonely += few
        return
    inverted, opposed = _inverted(scene, nodes)
    if inverted is None:
        sinks.unseen += nodes
    else:
        sinks.cycle += nodes
        sinks.inverted |= inverted
        sinks.opposed += opposed


def _inverted(
    scene: Scene, nodes: list[Node]
) -> tuple[set[int] | None, list[tuple[Node, set[int]]]]:
    """Ranks of a cycle in the rarer order (None: not seen), and the sides where none is rarer.

    Only a member of both groups can invert them: who merely waits beside is a victim.
    """
    held = [(a, b) for i, a in enumerate(nodes) for b in nodes[i + 1 :]]
    sides = [(a.joined & b.waits, b.joined & a.waits, a, b) for a, b in held]
    mutual = [side for side in sides if side[0] and side[1]]
    if not mutual:
        if any(node.op.peer is not None for node in nodes):  # a pipeline carries the wait on
            return set(), [(node, node.joined) for node in nodes]
        return {rank for node in nodes for rank in node.joined if _holds_up(rank, nodes)}, []
    found: set[int] = set()
    opposed: list[tuple[Node, set[int]]] = []
    for one, other, a, b in mutual:
        few, many = sorted((one, other), key=len)
        both = set(scene.groups[a.group].ranks) & set(scene.groups[b.group].ranks)
        unseen = len(both & scene.unobserved)
        if len(many) > len(few) + unseen:
            found |= few
        elif unseen:
            return None, []
        else:
            opposed += [(a, one), (b, other)]
    return found, opposed


def _holds_up(rank: int, nodes: list[Node]) -> bool:
    return any(rank in node.waits for node in nodes)


def _state(scene: Scene, graph: Graph, sinks: Sinks, dead: dict[int, str]) -> Wait:
    """The first kind in this order that exists: mismatch before lag, certain before uncertain."""
    seen = [s for s in scene.standings.values() if not s.stale]
    missed = [r for r in sinks.idle if r not in scene.standings or _missed(graph, r, sinks.idle)]
    hidden = beside(scene, missed)
    missed = [r for r in missed if r not in hidden]
    if sinks.odd or sinks.lonely:
        roots = [_node_root(scene, graph, n, "mismatch") for n in sinks.odd + sinks.lonely]
        gloo = any(n.group in scene.gloo for n in sinks.odd)  # it ends a rank for its peer's size
        late = [rank for rank in missed if rank in scene.standings or not gloo]
        roots.append(_idle_roots(scene, graph, late, dead))
        return _wait("mismatch", scene, graph, _flat(roots), (sinks.odd + sinks.lonely)[0])
    if sinks.tied:
        scene.notes.append("as many ranks on one side as on the other: neither is blamed")
        return _wait("tie", scene, graph, (), sinks.tied[0])
    if hidden and not missed and not sinks.device:
        scene.notes.append(
            f"{counted(len(hidden), 'rank is', 'ranks are')} in no collective and may wait for one "
            "another where no recorder looks: their stacks tell"
        )
        wait = _wait("host_stuck", scene, graph, (), None)
        return replace(wait, sides=((IDLE, tuple(sorted(hidden))),))
    if sinks.idle or sinks.device:
        if 2 * len(set(sinks.idle) - hidden) > len(seen) or not (missed or sinks.device):
            scene.notes.append("most are in no collective: the few that wait may be the odd ones")
            return _wait("host_stuck", scene, graph, (), None)
        roots = [_idle_roots(scene, graph, missed, dead)]
        roots += [_node_root(scene, graph, n, "device") for n in sinks.device]
        state = "host_stuck" if missed else "device_stuck"
        if sinks.joined:
            scene.notes.append("another group is complete and does not finish either")
        return _wait(state, scene, graph, _flat(roots), None if missed else sinks.device[0])
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
    joined = max(sinks.joined, key=lambda n: _weight(graph, n), default=None)
    unseen = max(sinks.unseen, key=lambda n: _weight(graph, n), default=None)
    if joined and (unseen is None or _weight(graph, joined) >= _weight(graph, unseen)):
        return _wait("all_joined", scene, graph, (), joined)
    if unseen or not scene.standings:
        if unseen and unseen.group in scene.guessed:
            scene.notes.append("the members of the waiting group are not told (Gloo)")
        return _wait("unobserved", scene, graph, (), unseen)
    return _wait("none", scene, graph, (), None)


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
    weight = len(_reached(graph, [number]) - node.joined)
    group = scene.groups[node.group]
    return tuple(
        WaitRoot(
            rank=rank,
            group=group,
            seq=node.op.seq,
            operation=show(node.op),
            doing=doing(scene, node, why),
            source_line=own_op(scene, rank, node).frame,
            waiters=weight,
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
                waiters=len(_reached(graph, [-1 - rank])),
            )
        )
    return tuple(roots)


def _reached(graph: Graph, start: list[Vertex]) -> set[int]:
    """Ranks that wait for these places, directly or through others."""
    seen: set[Vertex] = set(start)
    queue = list(start)
    ranks: set[int] = set()
    while queue:
        for number in graph.back.get(queue.pop(), ()):
            if number not in seen:
                seen.add(number)
                queue.append(number)
                ranks |= graph.nodes[number].joined
    return ranks


def _weight(graph: Graph, node: Node) -> tuple[int, int]:
    number = graph.place[next(iter(node.joined))]
    return len(_reached(graph, [number]) | node.joined), -node.group


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
    if scene.unobserved:
        yield f"{counted(len(scene.unobserved), 'rank has', 'ranks have')} no dump"
    if scene.gloo:
        yield "gloo: a finished operation may have failed, send and recv are not recorded"
