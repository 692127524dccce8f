"""Mismatch before lag: who posted another signature at one place of a group."""

from collections import defaultdict

from sluggish.correlate._standing import Node, Scene, Signature, signature
from sluggish.facts.collective import Collective, GroupHead


def settle_mismatches(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
    """Most ranks are right: the minority does not wait for the majority. A tie has no majority."""
    places: dict[tuple[int, int], list[Node]] = defaultdict(list)
    for node in nodes.values():
        if node.op.peer is None:
            places[node.group, node.op.seq].append(node)
    for (number, seq), here in sorted(places.items(), key=lambda item: item[0]):
        votes = _votes(scene, number, seq)
        if len(votes) < 2:
            continue
        ranked = sorted(votes.items(), key=lambda vote: -len(vote[1]))
        unseen = len(set(scene.groups[number].ranks) & scene.unobserved)
        clear = len(ranked[0][1]) > len(ranked[1][1]) + unseen  # who was not seen may vote too
        for minority, ranks in ranked[1:] if clear else ():
            if all(node.signature != minority for node in here):
                here += _gone_by(scene, nodes, (number, seq, minority), ranks)
        for node in here:
            if not clear:
                node.tied = True
                node.waits -= node.mirror
            elif node.signature != ranked[0][0]:
                node.odd = True
                node.waits -= node.mirror


def _votes(scene: Scene, number: int, seq: int) -> dict[Signature, list[int]]:
    """Signature -> ranks that posted it at this place of the group, in run-ahead too."""
    votes: dict[Signature, list[int]] = defaultdict(list)
    for rank in scene.groups[number].ranks:
        standing = scene.standings.get(rank)
        head = standing.heads.get(number) if standing and not standing.stale else None
        for op in _posted(head) if head else ():
            if op.seq == seq and op.peer is None:
                votes[signature(op)].append(rank)
                break
    return votes


def _gone_by(
    scene: Scene,
    nodes: dict[tuple[object, ...], Node],
    where: tuple[int, int, Signature],
    ranks: list[int],
) -> list[Node]:
    """The place of ranks that posted another operation here and are at one elsewhere.

    They ended it and went on, failed in it (Gloo), or queued it behind what they wait in.
    """
    number, seq, wrong = where
    ops = {
        rank: op
        for rank in ranks
        for op in _posted(scene.standings[rank].heads[number])
        if op.seq == seq and signature(op) == wrong
    }
    for key, node in list(nodes.items()):
        node.joined -= set(ops)
        if not node.joined:
            del nodes[key]
        elif (node.group, node.op.seq) == (number, seq):
            node.waits |= set(ops)
    for rank, op in ops.items():
        scene.standings[rank].at = (number, op)
    here = Node(group=number, op=next(iter(ops.values())), signature=wrong, joined=set(ops))
    nodes["all", number, seq, wrong] = here
    return [here]


def _posted(head: GroupHead) -> tuple[Collective, ...]:
    return (*head.pending, *head.recent)
