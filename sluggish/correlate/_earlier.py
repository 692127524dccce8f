"""Dumps that do not show the hang: of a job that moves, or written before the others got there."""

from datetime import datetime

from sluggish.correlate._one_job import SLACK
from sluggish.correlate._p2p import mirror
from sluggish.correlate._standing import Node, Scene, Standing, one_sided, posted
from sluggish.correlate._words import own_op
from sluggish.facts.collective import GroupHead
from sluggish.text import counted

MOVING_S = 1.0
"""Younger when the dump was written: the job may simply be running. A file's time lags behind the
clock by a tick (4 to 10 ms), so the newest operation may seem to be of the future."""


def set_moving_aside(scene: Scene) -> None:
    """Operations that were a second old when the dump was written do not hang.

    A host may have queued its operations long ago: one that still queues tells the same.
    """
    ages = [old for s in scene.standings.values() if s.at and (old := age(s)) is not None]
    waiting = [s for s in scene.standings.values() if s.at]
    if waiting and len(ages) == len(waiting) and all(old < MOVING_S for old in ages):
        for standing in waiting:
            standing.at, standing.batch = None, ()
        scene.notes.append("operations were pending for less than a second: the job moves")
        return
    _set_early_aside(scene)


def age(standing: Standing) -> float | None:
    """Seconds from what it waits in, or from the newest that it posted, to its dump."""
    record = standing.records[0]
    at = standing.at[1].enqueued_at if standing.at else None
    # pg_status may be one ahead of the entries: then the newest entry tells how young it is
    moments = [moment for moment in (at, record.last_created_at) if moment]
    if record.taken_at is None or not moments:
        return None
    return min(abs((record.taken_at - moment).total_seconds()) for moment in moments)


def _set_early_aside(scene: Scene) -> None:
    """Dumps written well before another rank posted what it waits in: the job went on after them.

    Where clocks differ by more than the slack a rank is not seen, which blames nobody. Without
    it the dump that a rank wrote when it raised, just before the others came, would be lost.
    """
    began = [m for s in scene.standings.values() if s.at and (m := s.at[1].enqueued_at)]
    if not began:
        return
    last = max(began) - SLACK
    early = [s.rank for s in scene.standings.values() if (w := _written(s)) and w < last]
    for rank in early:
        del scene.standings[rank]
        scene.unobserved.add(rank)
    if early:
        scene.notes.append(
            f"{counted(len(early), 'dump was', 'dumps were')} written before the others came to "
            "where they wait: set aside"
        )


def _written(standing: Standing) -> datetime | None:
    return max((r.taken_at for r in standing.records if r.taken_at), default=None)


def drop_stale(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
    """Nobody finishes an all-reduce before all have posted it: then some dump is an older one."""
    stale: set[int] = set()
    for node in nodes.values():
        if node.finished and _needs_all(scene, node):
            group_waits = {
                r
                for r in node.waits
                if (head := scene.standings[r].heads.get(node.group)) is None
                or not posted(head, node.op.seq)
            }
            stale |= group_waits
        if node.unseen:
            stale |= _before_the_wait(scene, node)
    stale |= _left_behind(scene) | _not_yet_sent(scene)
    if not stale:
        return
    scene.notes.append(
        f"{counted(len(stale), 'dump is', 'dumps are')} older than what their peers have finished: "
        "set aside"
    )
    for node in nodes.values():
        node.waits -= stale
        node.unseen |= {r for r in stale if r in scene.groups[node.group].ranks} - node.joined
    for rank in stale:
        standing = scene.standings[rank]
        standing.stale = True
        scene.unobserved.add(rank)
    for key in [k for k, n in nodes.items() if n.joined <= stale]:
        del nodes[key]


def _needs_all(scene: Scene, node: Node) -> bool:
    return node.op.peer is None and not one_sided(node.op) and node.group not in scene.gloo


def _before_the_wait(scene: Scene, node: Node) -> set[int]:
    """Ranks whose dump is older than the wait: where another is not seen, that one may be it."""
    begun = [own_op(scene, rank, node).enqueued_at for rank in node.joined]
    last = max((moment for moment in begun if moment), default=None)
    return {
        rank
        for rank in node.waits
        if (standing := scene.standings[rank]).at is None
        and last
        and (written := _written(standing))
        and written < last
    }


def _left_behind(scene: Scene) -> set[int]:
    """Ranks that have not posted what others have finished, in any group.

    On Gloo a finished one may have failed, but a program does not post another after that.
    """
    behind: set[int] = set()
    for number, group in enumerate(scene.groups):
        heads = [
            (rank, standing, standing.heads.get(number))
            for rank in group.ranks
            if (standing := scene.standings.get(rank))
        ]
        ends = {
            op.seq
            for _, _, head in heads
            if head
            for op in head.recent
            if op.peer is None and not one_sided(op)
        }
        if number not in scene.gloo and any(_has_run(head, len(group.ranks)) for *_, head in heads):
            behind |= {rank for rank, _, head in heads if head is None}
        need = 2 if number in scene.gloo else 1
        if len(ends) < need:
            continue
        proof = sorted(ends)[-need]
        behind |= {rank for rank, standing, head in heads if _before(standing, head, proof)}
    return behind


def _has_run(head: GroupHead | None, size: int) -> bool:
    """Whether something was finished that needs the communicator of the whole group."""
    return (
        head is not None
        and (head.last_completed or 0) > 0
        and (not head.p2p or size == 2)  # sends and receives may have one of their own
    )


def _not_yet_sent(scene: Scene) -> set[int]:
    """Ranks that have not posted the send whose receive their peer has finished.

    A send may end before it is received, but not before the other end has joined the communicator.
    """
    behind: set[int] = set()
    for standing in scene.standings.values():
        for number, head in standing.heads.items():
            for op in head.recent:
                peer = scene.standings.get(op.peer) if op.peer is not None else None
                if peer is None:
                    continue
                other = peer.heads.get(number)
                whole = not any(r.wrapped or r.only_active for r in peer.records)
                counts = whole and op.op.startswith("recv")
                if other is None or (counts and _sent(other, mirror(op.op)) < (op.nth or 1)):
                    behind.add(peer.rank)
    return behind


def _sent(head: GroupHead, text: str) -> int:
    return dict(head.posted).get(text, 0)


def _before(standing: Standing, head: GroupHead | None, seq: int) -> bool:
    """Whether the dump is of a time when the rank had not posted this number of the group.

    A group without a head was never used: pg_config keeps those that have left the ring. Gloo's
    does not.
    """
    if head is None:
        return not any(r.wrapped and r.backend == "gloo" for r in standing.records)
    return head.last_enqueued is not None and head.last_enqueued < seq
