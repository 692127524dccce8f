"""Places that wait for places, and what waits for nobody: sinks and circles, by kind."""

from collections import defaultdict
from dataclasses import dataclass, field

from sluggish.correlate._components import components
from sluggish.correlate._standing import Node, Scene, one_sided, signature

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
    held: set[int] = field(default_factory=set)
    """Of the ranks in these those that the circle waits for: others there are victims."""
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


def graph_of(scene: Scene, nodes: list[Node], dead: dict[int, str]) -> Graph:
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


def sinks_of(scene: Scene, graph: Graph) -> Sinks:
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
    elif (
        node.unseen
        or node.group in scene.guessed
        or any(scene.standings[rank].lost for rank in node.joined)
    ):
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
    if any(scene.standings[rank].lost for n in nodes for rank in n.joined):
        sinks.unseen += nodes
        return
    if all(n.tied for n in nodes):
        sinks.tied += nodes
        return
    few = [n for n in nodes if n.op.peer is None and _hardly_posted(scene, n)]
    if any(n.odd for n in nodes):
        return
    if len(few) == 1:
        sinks.lonely += few
        sinks.held |= _holding(few[0], nodes)
        return
    inverted, opposed = _inverted(scene, nodes)
    if inverted is None:
        sinks.unseen += nodes
    else:
        sinks.cycle += nodes
        sinks.inverted |= inverted
        sinks.opposed += opposed


def _hardly_posted(scene: Scene, node: Node) -> bool:
    """Under half of the group has posted it, queued behind something else or not."""
    members = scene.groups[node.group].ranks
    seen = {rank: scene.standings[rank].heads for rank in members if rank in scene.standings}
    queued = {
        rank
        for rank, heads in seen.items()
        if node.group in heads
        and any(
            op.seq == node.op.seq and op.peer is None and signature(op) == node.signature
            for op in heads[node.group].pending
        )
    }
    return 2 * (len(node.joined | queued) + len(node.unseen)) < len(members)


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
        # over three places and more any of them may have been first elsewhere
        return set(), [(node, held) for node in nodes if (held := _holding(node, nodes))]
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


def _holding(node: Node, nodes: list[Node]) -> set[int]:
    """Ranks of a place of the circle that another place of it waits for."""
    return {rank for rank in node.joined if any(rank in other.waits for other in nodes)}


def reached(graph: Graph, start: list[Vertex]) -> set[int]:
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


def weight(graph: Graph, node: Node) -> tuple[int, int]:
    number = graph.place[next(iter(node.joined))]
    return len(reached(graph, [number]) | node.joined), -node.group
