"""What is said of places and ranks: operations, groups, in what the sides differ."""

from sluggish.correlate._standing import Node, Scene, Signature, signature
from sluggish.facts.collective import Collective, Group


def show(op: Collective) -> str:
    """`_reduce_scatter_base` of 16000 elements -> `reduce_scatter [16000]`; peers are global."""
    name = op.op.removesuffix("_base").lstrip("_")
    if op.peer is not None:
        name = f"{'send to' if name.startswith('send') else 'recv from'} rank {op.peer}"
    sizes = op.in_sizes or op.out_sizes
    if not sizes:
        return name
    dims = "x".join(str(n) for n in sizes[0]) or "1"
    more = f" and {len(sizes) - 1} more" if len(sizes) > 1 else ""
    return f"{name} [{dims}{more}]"


def label(group: Group) -> str:
    """How a group is called on the screen."""
    return group.desc or group.name or "group"


def own_op(scene: Scene, rank: int, node: Node) -> Collective:
    """What this rank itself posted there: its frame and its time."""
    at = scene.standings[rank].at
    return at[1] if at else node.op


def doing(scene: Scene, node: Node, why: str) -> str:
    """What the ranks of a place that is itself the root do; `why`: mismatch, device or cycle."""
    if why == "device":
        return f"posted; {len(node.finished)} peers have finished it"
    if why == "cycle":
        return "waits in a cycle over groups"
    if not node.odd:
        joined, size = len(node.joined), len(scene.groups[node.group].ranks)
        return f"another collective: {joined} of {size} ranks joined it"
    return {
        "operation": "another collective",
        "sizes": "other sizes",
        "dtypes": "other dtypes",
    }[difference(scene, node)]


def difference(scene: Scene, node: Node) -> str:
    """In what the sides at this place differ."""
    ops = [op for _, op, _ in sides(scene, node)]
    if len({o.op for o in ops}) > 1 and not node.crossed:
        return "operation"
    return "dtypes" if len({o.dtypes for o in ops}) > 1 and _same_sizes(ops) else "sizes"


def _same_sizes(ops: list[Collective]) -> bool:
    return len({(o.in_sizes, o.out_sizes) for o in ops}) == 1


def sides(scene: Scene, node: Node) -> list[tuple[str, Collective, tuple[int, ...]]]:
    """Each operation posted at this place of the group with its ranks, most ranks first."""
    if node.crossed:
        return [(show(op), op, (rank,)) for rank, op in sorted(node.crossed, key=lambda c: c[0])]
    found: dict[Signature, tuple[Collective, list[int]]] = {}
    for rank in scene.groups[node.group].ranks:
        standing = scene.standings.get(rank)
        head = standing.heads.get(node.group) if standing and not standing.stale else None
        for op in (*head.pending, *head.recent) if head else ():
            if op.seq == node.op.seq and op.peer is None:
                found.setdefault(signature(op), (op, []))[1].append(rank)
                break
    ordered = sorted(found.values(), key=lambda side: (-len(side[1]), side[1]))
    return [(show(op), op, tuple(ranks)) for op, ranks in ordered]


def idle_doing(scene: Scene, rank: int, dead: dict[int, str]) -> str:
    """What a rank that is in no collective did last, or how it ended."""
    standing = scene.standings.get(rank)
    if standing is None:
        how = dead.get(rank, "")
        return how if how.startswith("stopped") else f"dead: {how}" if how else "dead"
    recent = [(op.order, h, op) for h in standing.heads.values() for op in h.recent[-1:]]
    if not recent:
        return "no collective" if any(r.entries for r in standing.records) else "no collective yet"
    _, head, op = max(recent, key=lambda row: row[0])
    return f"no collective; last finished {show(op)} #{op.seq} on {label(head.group)}"
