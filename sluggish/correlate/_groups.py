"""Which heads are of one process group, and who its members are where no dump tells."""

import math
from collections import defaultdict

from sluggish.facts.collective import Collective, Group, GroupHead


def number_groups(
    heads: list[GroupHead], on_gloo: set[int], world_size: int | None
) -> tuple[list[Group], dict[int, int], set[int]]:
    """Identity is backend, name and members. Members that no dump tells are worked out."""
    by_object: dict[tuple[int, bool], int] = {}
    by_identity: dict[tuple[bool, str, tuple[int, ...]], int] = {}
    groups: list[Group] = []
    unknown: dict[tuple[bool, str, str], list[GroupHead]] = defaultdict(list)
    number_of: dict[int, int] = {}
    for head in heads:
        group, gloo = head.group, id(head) in on_gloo
        if not group.ranks:
            unknown[gloo, group.name, group.desc].append(head)
            continue
        number = by_object.get((id(group), gloo))
        if number is None:
            number = by_identity.setdefault((gloo, group.name, group.ranks), len(groups))
            if number == len(groups):
                groups.append(group)
            by_object[id(group), gloo] = number
        number_of[id(head)] = number
    guessed: set[int] = set()
    for (gloo, name, desc), rows in sorted(unknown.items()):
        users = {h.rank for h in rows}
        fitting = [n for (g, m, _), n in by_identity.items() if (g, m) == (gloo, name)]
        fitting = [n for n in fitting if users <= set(groups[n].ranks)]
        number = fitting[0] if len(fitting) == 1 else len(groups)
        if number == len(groups):
            groups.append(Group(name=name, desc=desc, ranks=_guess(name, desc, rows, world_size)))
            if name != "0" and desc != "default_pg":
                guessed.add(number)
        number_of.update({id(head): number for head in rows})
    return groups, number_of, guessed


def _guess(name: str, desc: str, rows: list[GroupHead], world_size: int | None) -> tuple[int, ...]:
    """Who uses the group is a member; an all_gather tells the size of the default group."""
    users = {h.rank for h in rows}
    if name == "0" or desc == "default_pg":
        told = max((_fan(op) for h in rows for op in (*h.pending, *h.recent)), default=0)
        size = max(world_size or 0, told, max(users) + 1)
        if size <= 1 << 20:
            users |= set(range(size))
    return tuple(sorted(users))


def _fan(op: Collective) -> int:
    """Ranks of an all_gather: its output over its input."""
    if op.op not in ("all_gather", "_all_gather_base", "all_gather_into_tensor"):
        return 0
    ins = sum(math.prod(d) for d in op.in_sizes)
    outs = sum(math.prod(d) for d in op.out_sizes)
    return outs // ins if ins and outs % ins == 0 else 0
