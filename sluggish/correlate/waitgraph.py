"""Who waits for whom: facts about collectives -> Wait. A pure function.

A node of the graph is one operation of one group with one signature, and holds the ranks that are
at it (their oldest unfinished operation). It waits for the members that have not posted it, posted
something else in its place, or are still at an older operation. Who is waited for and waits for
nobody is the root. Cost: the sum of the sizes of the groups in which somebody waits.

    from sluggish.correlate.waitgraph import who_waits
    wait = who_waits(records, heads)         # facts of sluggish.probes.flight_recorder
    wait.state, [root.rank for root in wait.roots]

The rules of reading are in docs/who-waits.md.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sluggish.correlate._answer import answer, label, show
from sluggish.correlate._combine import combine, dead_ranks, with_stacks
from sluggish.correlate._from_frameworks import from_frameworks
from sluggish.correlate._from_logs import from_logs
from sluggish.correlate._from_ras import from_ras
from sluggish.correlate._gloo import from_gloo
from sluggish.correlate._one_job import job_heads
from sluggish.correlate._p2p import mirror, wait_on_peers
from sluggish.correlate._standing import (
    UNKNOWN,
    Node,
    Scene,
    Signature,
    Standing,
    build,
    one_sided,
    signature,
)
from sluggish.facts.collective import Collective, GroupHead, RankRecord, Wait
from sluggish.facts.derived import Look
from sluggish.facts.host import Stack
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts
from sluggish.text import counted

__all__ = ["job_heads", "label", "mirror", "show", "wait_for", "who_waits"]

MOVING_S = 1.0
"""Younger when the dump was written: the job may simply be running. A file's time lags behind the
clock by a tick (4 to 10 ms), so the newest operation may seem to be of the future."""
NODES_KEPT = 64  # places in one group; a hung group has two or three, a running one may have many


def wait_for(facts: Facts) -> Wait:
    """The answer from every source that there is: recorder first, then RAS, then log lines."""
    look = next(iter(facts.all(Look)), None)
    world = look.world_size if look else None
    dead = dead_ranks(facts)
    heads = tuple(h for h in facts.all(GroupHead) if h.source == "flight recorder")
    records = tuple(r for r in facts.all(RankRecord) if r.source == "flight recorder")
    recorder = who_waits(records, heads, world_size=world, dead=dead) if records else None
    if recorder is not None and recorder.state not in ("none", "unobserved", "all_joined"):
        return with_stacks(recorder, facts.all(Stack))
    logs = facts.all(LogSign)
    others = [
        from_ras(facts, world),
        from_logs(facts, world, dead),
        from_gloo(logs),
        from_frameworks(facts, world),
    ]
    return combine(recorder, [w for w in others if w is not None])


def who_waits(
    records: Iterable[RankRecord],
    heads: Iterable[GroupHead],
    *,
    world_size: int | None = None,
    dead: Mapping[int, str] | None = None,
) -> Wait:
    """The state of a job's collectives and who is to blame.

    `dead` names ranks whose process has ended by other evidence (exit record, OOM kill): without
    it a rank that left no dump is `unobserved` and never a root.
    """
    scene = build(records, heads, world_size)
    _set_moving_aside(scene)
    nodes = _nodes(scene)
    _find_waits(scene, nodes)
    _settle_mismatches(scene, nodes)
    return answer(scene, nodes, dict(dead or {}))


def _set_moving_aside(scene: Scene) -> None:
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


def _nodes(scene: Scene) -> dict[tuple[object, ...], Node]:
    """Occupied places, in an order that does not depend on files."""
    nodes: dict[tuple[object, ...], Node] = {}
    at = [(s.at[1].op == UNKNOWN, s.rank, s.at) for s in scene.standings.values() if s.at]
    for lost, rank, (number, op) in sorted(at, key=lambda row: row[:2]):
        key = _key(number, op, rank)
        if lost:  # whatever it was: it stands with the others of that number
            same = [k for k in nodes if k[:3] == key[:3]]
            key = max(same, key=lambda k: len(nodes[k].joined)) if same else key
        node = nodes.get(key)
        if node is None:
            node = nodes[key] = Node(group=number, op=op, signature=signature(op))
        node.joined.add(rank)
    return nodes


def _key(number: int, op: Collective, rank: int) -> tuple[object, ...]:
    if op.peer is not None:
        return ("p2p", number, op.seq, rank)
    return ("all", number, op.seq, signature(op))


def _find_waits(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
    by_group: dict[int, list[Node]] = defaultdict(list)
    for node in nodes.values():
        if node.op.peer is not None:
            wait_on_peers(scene, node)
        else:
            by_group[node.group].append(node)
    for number, here in sorted(by_group.items()):
        here.sort(key=lambda n: n.op.seq)
        if len(here) > NODES_KEPT:
            scene.notes.append(
                f"group {scene.groups[number].name} is at {len(here)} places: moving"
            )
        for node in here[:NODES_KEPT]:
            _wait_on_members(scene, node)
    _drop_stale(scene, nodes)


def _wait_on_members(scene: Scene, node: Node) -> None:
    """Members that did not post it, posted another in its place, or are held up elsewhere."""
    seq = node.op.seq
    for rank in scene.groups[node.group].ranks:
        if rank in node.joined:
            continue
        standing = scene.standings.get(rank)
        if standing is None:
            node.unseen.add(rank)
            continue
        head = standing.heads.get(node.group)
        if head is None or not _posted(standing, head, seq):
            node.waits.add(rank)
            continue
        own = next((op for op in head.pending if op.seq == seq and op.peer is None), None)
        if own is None:
            if head.last_completed is not None and head.last_completed >= seq:
                node.finished.add(rank)
            elif standing.at is not None:
                node.waits.add(rank)  # posted far behind the operation that it is at
        elif signature(own) != node.signature:
            node.waits.add(rank)
            node.mirror.add(rank)
        else:
            node.waits.add(rank)  # posted, but at an older operation elsewhere


def _posted(standing: Standing, head: GroupHead, seq: int) -> bool:
    if head.last_enqueued is None:  # the group has left the ring long ago
        return False
    return head.last_enqueued >= seq


def _drop_stale(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
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
                or not _posted(scene.standings[r], head, node.op.seq)
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


def _settle_mismatches(scene: Scene, nodes: dict[tuple[object, ...], Node]) -> None:
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
        for op in (*head.pending, *head.recent) if head else ():
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
    """The place of ranks that ended another operation here and went on, or failed in it (Gloo)."""
    number, seq, wrong = where
    ops = {
        rank: op
        for rank in ranks
        for op in scene.standings[rank].heads[number].recent
        if op.seq == seq and signature(op) == wrong
    }
    if not ops:  # posted, but held up at an older operation elsewhere
        return []
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
