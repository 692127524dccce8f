"""What the rules about collectives share: places and words for ranks."""

from sluggish.correlate.waitgraph import label
from sluggish.facts.collective import WaitRoot
from sluggish.facts.derived import Place
from sluggish.findings import Spot, View


def spot_of(root: WaitRoot, places: dict[int, Place]) -> Spot:
    """A root with its node, pid and GPU."""
    place = places.get(root.rank)
    return Spot(
        rank=root.rank,
        node=place.node if place else None,
        pid=place.pid if place else None,
        gpu_index=place.gpu_index if place else None,
        gpu_uuid=place.gpu_uuid if place else None,
        gpu_pci=place.gpu_pci if place else None,
        hca=place.hca if place else None,
        group=label(root.group) if root.group else None,
        seq=root.seq,
        operation=root.operation,
        doing=root.doing,
        source_line=root.source_line,
    )


def places_of(view: View) -> dict[int, Place]:
    return {place.rank: place for place in view.all(Place)}


def some(ranks: list[int] | tuple[int, ...], limit: int = 8) -> str:
    """`0-2, 5`, cut where it is long."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and parts[-1][1] + 1 == rank:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    shown = ", ".join(f"{a}-{b}" if b > a else str(a) for a, b in parts[:limit])
    return shown + (f" and {len(parts) - limit} more" if len(parts) > limit else "")


def counted(ranks: int, verb: str = "wait") -> str:
    """`1 rank waits`, `15 ranks wait`."""
    return f"1 rank {verb}s" if ranks == 1 else f"{ranks} ranks {verb}"


def ranks_words(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {some(ranks)}" if ranks else "a rank not told"
