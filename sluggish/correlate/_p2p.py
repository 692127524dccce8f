"""Sends and receives: each half waits for the other, pair by pair."""

import math

from sluggish.correlate._standing import Node, Scene, Standing
from sluggish.facts.collective import Collective


def wait_on_peers(scene: Scene, node: Node) -> None:
    """Each send waits for its recv and the other way round; halves that meet must agree."""
    (rank,) = node.joined
    for op in scene.standings[rank].batch:
        peer = op.peer
        if peer is None or peer == rank:
            continue
        standing = scene.standings.get(peer)
        if standing is None:
            node.unseen.add(peer)
            continue
        came, half = _other_half(standing, node.group, op)
        if not came:
            node.waits.add(peer)
        elif half is not None and _amount(half) != _amount(op):
            node.tied = True
            node.crossed = node.crossed or ((rank, op), (peer, half))


def _amount(op: Collective) -> tuple[int | None, tuple[str, ...]]:
    """Elements and dtypes: what both halves must agree on. The recorder writes them on both."""
    sizes = op.in_sizes or op.out_sizes
    return sum(math.prod(dims) for dims in sizes) if sizes else None, op.dtypes


def _other_half(peer: Standing, number: int, op: Collective) -> tuple[bool, Collective | None]:
    """Whether the peer posted the other half and is not held up before it; the half if it waits."""
    head = peer.heads.get(number)
    if head is None:
        return False, None
    text = mirror(op.op)
    pending = [p for p in head.pending if p.op == text]
    counted = dict(head.posted).get(text)
    if op.nth is not None and (counted is not None or head.posted):
        if (counted or 0) < op.nth:
            return False, None
        mine = next((p for p in pending if p.nth == op.nth), None)
    else:  # the ring has wrapped: halves meet in order, so the oldest pending one is the other half
        mine = pending[0] if pending else None
        if mine is None:
            return False, None
    if mine is None or peer.at is None:
        return True, None
    return mine in peer.batch, mine


def mirror(text: str) -> str:
    """`send 1->2` <-> `recv 2<-1` (group ranks)."""
    if text.startswith("send "):
        a, _, b = text[5:].partition("->")
        return f"recv {b}<-{a}"
    a, _, b = text[5:].partition("<-")
    return f"send {b}->{a}"
