"""Which rank ran on a GPU that no source can tell of any more: by what all the others do.

A GPU that left the bus is not in nvidia-smi's list, and a process that died is in none. Where every
other rank of the node is seen on its own GPU, the one that is left over is the one.
"""

from collections.abc import Sequence

from sluggish.facts.derived import Place
from sluggish.facts.gpu import Gpu


def left_over(
    pci: str, gpus: Sequence[Gpu], here: Sequence[Place], everywhere: Sequence[Place], share: int
) -> Place | None:
    """The rank of a silent GPU, from the node's `gpus` and its ranks `here`; None if unsure."""
    busy = {p.pid for g in gpus for p in g.processes}
    silent = [g for g in gpus if not g.processes and g.pci != pci]
    if silent or len([g for g in gpus if g.pci != pci]) != share - 1:
        return None
    idle = [p for p in here if p.pid not in busy]
    if len(here) == share and len(idle) == 1:
        return idle[0]
    if len(here) == share - 1 and not idle:
        return _missing(here, everywhere, share)
    return None


def _missing(here: Sequence[Place], everywhere: Sequence[Place], share: int) -> Place | None:
    """The rank that lacks in the node's block, where all nodes hold whole blocks of ranks."""
    nodes: dict[str | None, set[int]] = {}
    for place in everywhere:
        nodes.setdefault(place.node, set()).add(place.rank)
    if any(len({rank // share for rank in ranks}) > 1 for ranks in nodes.values()):
        return None
    ranks = {p.rank for p in here}
    first = min(ranks) // share * share
    missing = set(range(first, first + share)) - ranks
    return Place(rank=missing.pop(), node=here[0].node) if len(missing) == 1 else None


def index_before(pci: str, gpus: Sequence[Gpu], share: int) -> int | None:
    """nvidia-smi's index of a GPU before it was lost: they are numbered by address."""
    listed = sorted(g.pci for g in gpus if g.pci)
    if pci in listed or len(listed) != share - 1:
        return None
    return sum(other < pci for other in listed)


def layout_index(pci: str, elsewhere: Sequence[Gpu]) -> int | None:
    """The index of an address on the other nodes, where all agree: nodes of one job are alike."""
    indexes = {g.index for g in elsewhere if g.pci == pci and g.index is not None}
    return indexes.pop() if len(indexes) == 1 else None


def by_layout(index: int, here: Sequence[Place], everywhere: Sequence[Place]) -> Place | None:
    """The rank of a GPU index on a node that does not answer, if elsewhere local rank is index."""
    pairs = [
        (p.local_rank, p.gpu_index)
        for p in everywhere
        if p.local_rank is not None and p.gpu_index is not None
    ]
    if not pairs or any(rank != gpu for rank, gpu in pairs):
        return None
    return next((p for p in here if p.local_rank == index), None)
