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

from sluggish.correlate._answer import answer
from sluggish.correlate._combine import combine, dead_ranks, with_stacks
from sluggish.correlate._earlier import drop_stale, set_moving_aside
from sluggish.correlate._from_frameworks import from_frameworks
from sluggish.correlate._from_logs import from_logs
from sluggish.correlate._from_ras import from_ras
from sluggish.correlate._gloo import from_gloo
from sluggish.correlate._mismatch import settle_mismatches
from sluggish.correlate._one_job import job_heads
from sluggish.correlate._p2p import mirror, wait_on_peers
from sluggish.correlate._standing import (
    UNKNOWN,
    Node,
    Scene,
    build,
    posted,
    signature,
)
from sluggish.correlate._words import label, show
from sluggish.facts.collective import Collective, GroupHead, RankRecord, Wait
from sluggish.facts.derived import Look
from sluggish.facts.host import Stack
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts

__all__ = ["job_heads", "label", "mirror", "show", "wait_for", "who_waits"]

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
    set_moving_aside(scene)
    nodes = _nodes(scene)
    _find_waits(scene, nodes)
    settle_mismatches(scene, nodes)
    return answer(scene, nodes, dict(dead or {}))


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
    drop_stale(scene, nodes)


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
        if head is None or not posted(head, seq):
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
