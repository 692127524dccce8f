"""Dumps that do not show the hang: of a job that moves, or written before the others got there."""

from sluggish.correlate._standing import Node, Scene, one_sided, posted
from sluggish.text import counted

MOVING_S = 1.0
"""Younger when the dump was written: the job may simply be running. A file's time lags behind the
clock by a tick (4 to 10 ms), so the newest operation may seem to be of the future."""


def set_moving_aside(scene: Scene) -> None:
    """Operations that were a second old when the dump was written do not hang."""
    ages = [
        (s.records[0].taken_at - moment).total_seconds()
        for s in scene.standings.values()
        if s.at and s.records[0].taken_at
        # pg_status may be one ahead of the entries: then the newest entry tells how young it is
        if (moment := s.at[1].enqueued_at or s.records[0].last_created_at)
    ]
    waiting = [s for s in scene.standings.values() if s.at]
    if waiting and len(ages) == len(waiting) and all(abs(age) < MOVING_S for age in ages):
        for standing in waiting:
            standing.at, standing.batch = None, ()
        scene.notes.append("operations were pending for less than a second: the job moves")


def drop_stale(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
    """Nobody finishes an all-reduce before all have posted it: then some dump is an older one."""
    stale: set[int] = set()
    for node in nodes.values():
        if node.op.peer is None and not one_sided(node.op) and node.group not in scene.gloo:
            if not node.finished:
                continue
            group_waits = {
                r
                for r in node.waits
                if (head := scene.standings[r].heads.get(node.group)) is None
                or not posted(head, node.op.seq)
            }
            stale |= group_waits
    stale |= _left_behind(scene, nodes)
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


def _left_behind(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> set[int]:
    """Ranks that others wait for, whose peers have finished later collectives of the group.

    On Gloo a finished one may have failed, but a program does not post another after that.
    """
    behind: set[int] = set()
    for number in {node.group for node in nodes.values() if node.op.peer is None}:
        ends = {
            op.seq
            for rank in scene.groups[number].ranks
            if (standing := scene.standings.get(rank)) and number in standing.heads
            for op in standing.heads[number].recent
            if not one_sided(op)
        }
        proof = sorted(ends)[-2:] if number in scene.gloo else sorted(ends)[-1:]
        waited = {r for n in nodes.values() if n.group == number for r in n.waits}
        for rank in waited if len(proof) == 1 + (number in scene.gloo) else ():
            head = scene.standings[rank].heads.get(number)
            if head and head.last_enqueued is not None and head.last_enqueued < proof[0]:
                behind.add(rank)
    return behind
