"""Who is to blame: the places of the findings that carry the verdict, each told once."""

from dataclasses import fields, replace

from sluggish.findings import Finding, Strength
from sluggish.verdict.case import Case, culprit_of
from sluggish.verdict.model import Culprit

RANK = {Strength.DECISIVE: 2, Strength.STRONG: 1, Strength.WEAK: 0}
PLACE = ("rank", "node", "gpu_pci", "hca")
"""What tells one culprit from another."""
NOWHERE = ("", None)


def culprits(chosen: tuple[Finding, ...], case: Case) -> tuple[Culprit, ...]:
    """The accused places, each once: a second sign of one place only fills up what is missing.

    Of a shared fault nobody is the culprit: what the nodes share is not visible from them.
    """
    nodes = {spot.node for finding in chosen for spot in finding.spots}
    if any(finding.shared for finding in chosen) and (len(nodes) != 1 or None in nodes):
        return ()
    places = _Places()
    also: list[Culprit] = []
    strongest = max((RANK[f.strength] for f in chosen), default=0)
    for finding in chosen:
        for spot in finding.spots:
            new = culprit_of(spot, case)
            if RANK[finding.strength] < strongest and places.kept:
                also.append(new)
            elif _is_place(new):
                places.add(new)
    return _paired(list(places.kept.values()), also)


class _Places:
    """Culprits of which none tells no place that another does not tell.

    A thousand nodes may stand here: each new one is compared with those of its own place only.
    """

    def __init__(self) -> None:
        self.kept: dict[int, Culprit] = {}
        self._at: dict[tuple[str, object], list[int]] = {}
        self._count = 0

    def add(self, new: Culprit) -> None:
        told = [(name, v) for name in PLACE if (v := getattr(new, name)) is not None]
        near = {n for at in (*told, NOWHERE) for n in self._at.get(at, ())} & self.kept.keys()
        if not told:
            near = set(self.kept)
        if any(_covers(self.kept[n], new) for n in near):
            return
        for n in near:
            if _covers(new, self.kept[n]):
                del self.kept[n]
        for at in told or (NOWHERE,):
            self._at.setdefault(at, []).append(self._count)
        self.kept[self._count] = new
        self._count += 1


def _paired(found: list[Culprit], also: list[Culprit]) -> tuple[Culprit, ...]:
    """One sign names the rank, another the part, and each is the only one on its node: one place.

    Where nothing ties ranks to GPUs, a rank that hangs in the driver or died of an ECC error and
    the one GPU of its node that is gone or broken belong together.
    """
    out = list(found)
    for part in [c for c in found if c.rank is None and (c.gpu_pci or c.gpu_index is not None)]:
        parts = [c for c in found if c.rank is None and c.node == part.node]
        ranks = {c.rank: c for c in (*found, *also)
                 if c.node == part.node and c.rank is not None and c.gpu_pci is None}  # fmt: skip
        if part.node is None or len(parts) != 1 or len(ranks) != 1:
            continue
        (who,) = ranks.values()
        told = {f.name: getattr(part, f.name) for f in fields(part)}
        both = replace(who, **{name: value for name, value in told.items() if value is not None})
        out = [both if c is part else c for c in out if c is not who]
    return tuple(out)


def _is_place(culprit: Culprit) -> bool:
    """Whether somebody could go there: what it does, without where, is no culprit."""
    told = (culprit.rank, culprit.node, culprit.pid, culprit.gpu_index, culprit.gpu_uuid,
            culprit.gpu_pci, culprit.hca, culprit.source_line)  # fmt: skip
    return any(one is not None for one in told)


def _covers(old: Culprit, new: Culprit) -> bool:
    """True where `new` tells no place that `old` does not tell."""
    theirs = ((name, getattr(new, name)) for name in PLACE)
    return all(v is None or getattr(old, name) == v for name, v in theirs)
