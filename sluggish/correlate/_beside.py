"""Ranks in no collective that may wait for one another where the recorder does not look.

A barrier on a Gloo group or a store and the start of a communicator leave no entry. One rank that
is stuck then looks like all the others that wait for it there.
"""

from collections import Counter

from sluggish.correlate._standing import Scene

IDLE = "no collective"
"""What the side of such ranks is called."""


def beside(scene: Scene, waited: list[int]) -> set[int]:
    """Those of the ranks that are waited for which may only wait for another one of them.

    Either the whole of a group is in no collective, or a communicator that most ranks use has not
    begun on several of them. On one node that is known they share its trouble and are told apart
    from nobody.
    """
    idle = {rank for rank in waited if rank in scene.standings}
    nodes = {scene.standings[rank].records[0].node for rank in idle}
    if len(waited) < 2 or (len(nodes) == 1 and None not in nodes):
        return set()
    return (_whole_groups(scene, set(waited)) | _not_begun(scene, idle)) & idle


def _whole_groups(scene: Scene, waited: set[int]) -> set[int]:
    """Members of groups of which nobody who was seen is in a collective."""
    out = waited | {rank for rank, s in scene.standings.items() if s.at is None}
    found: set[int] = set()
    for group in scene.groups:
        seen = {rank for rank in group.ranks if rank in scene.standings or rank in waited}
        if len(seen & waited) > 1 and seen <= out:
            found |= seen
    return found


def _not_begun(scene: Scene, idle: set[int]) -> set[int]:
    """Several ranks that lack a kind of group which most of those that wait have used."""
    kinds = {
        rank: {scene.groups[number].desc for number in s.heads}
        for rank, s in scene.standings.items()
    }
    waiting = [rank for rank, s in scene.standings.items() if s.at is not None]
    used = Counter(kind for rank in waiting for kind in kinds[rank])
    usual = {kind for kind, count in used.items() if kind and 2 * count > len(waiting)}
    lacking = {rank for rank in idle if usual - kinds[rank]}
    return lacking if len(lacking) > 1 else set()
