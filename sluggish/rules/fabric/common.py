"""What the fabric rules share: the job's ports, names of places, blast radius, time."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

from sluggish.catalog import nccl
from sluggish.correlate.hcas import Key, Used, keys, of_job, ports_of_job, used
from sluggish.correlate.window import When, when
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import FabricEvent, NcclHcas, Port
from sluggish.facts.host import RankProcess
from sluggish.facts.log import Version
from sluggish.findings import Finding, Role, Spot, Strength, View

SHARED_NODES = 2
"""The same kind of fault on this many nodes is of something shared: no single node to drain."""

SHOWN = 4
"""Nodes named in a sentence before `and N more`."""


def ports_and_used(view: View) -> tuple[tuple[Port, ...], Used]:
    """The job's ports, merged over their sources, and which of them the job uses."""
    return _merged(view.all(Port), view.all(NcclHcas), view.one(Look))


@lru_cache(maxsize=1)
def _merged(
    seen: tuple[Port, ...], lists: tuple[NcclHcas, ...], look: Look | None
) -> tuple[tuple[Port, ...], Used]:
    """Six rules ask the same; a job of a thousand nodes has 32,000 readings."""
    ports = ports_of_job(seen, look)
    return ports, used(ports, lists)


def in_use(ports: Iterable[Port], mine: Used) -> tuple[Port, ...]:
    return tuple(p for p in ports if (p.hca, p.port) in mine.keys)


class Owners:
    """Which HCA a kernel line speaks of, and whether the job uses it."""

    def __init__(self, view: View) -> None:
        ports, mine = ports_and_used(view)
        self.used = {p.hca for p in in_use(ports, mine)}
        self.nodes = {p.node for p in ports}
        self._places: dict[tuple[str | None, str], str] = {}
        for port in ports:
            for place in (port.hca, port.pci, port.netdev):
                if place:
                    self._places[port.node, place] = port.hca

    def of(self, event: FabricEvent, node: str | None) -> tuple[str | None, bool]:
        """The HCA, None where no port is known at this place; True where the job uses it."""
        if event.hca:
            return event.hca, event.hca in self.used
        for place in (event.pci, event.netdev):
            if place and (hca := self._places.get((node, place))):
                return hca, hca in self.used
        return None, False


def job_node(node: str | None, view: View) -> str | None:
    """The job's own spelling of a node; None where it is not one of the job's."""
    return of_job(node, view.one(Look))


def listed_on(view: View) -> dict[str | None, set[Key]]:
    """What NCCL lists on each node: it drops ports that are not Active when it starts."""
    out: dict[str | None, set[Key]] = defaultdict(set)
    for line in view.all(NcclHcas):
        if node := job_node(line.node, view):
            out[node] |= {key for name in line.hcas for key in keys(name)}
    return out


def phase_of(at: datetime | None, view: View) -> When:
    """Where an event lies relative to the stall."""
    return when(at, view.one(Look), view.one(Onset))


def blind(view: View, seen: Iterable[str | None]) -> tuple[str, ...]:
    """Nodes of the job that are not among the seen."""
    look = view.one(Look)
    there = set(seen)
    return tuple(n for n in look.nodes if n not in there) if look else ()


def several(names: Sequence[str | None]) -> str:
    """`gpu-03, gpu-07 and 18 more`."""
    known = [name or "unknown node" for name in names]
    head = ", ".join(known[:SHOWN])
    return head if len(known) <= SHOWN else f"{head} and {len(known) - SHOWN} more"


def named(hca: str, port: int) -> str:
    """`mlx5_5`, and `mlx5_5:2` where it is not the first port."""
    return hca if port == 1 else f"{hca}:{port}"


def subject(hca: str | None, port: int | None = 1) -> str:
    return f"{hca}/{port or 1}" if hca else "fabric"


def spot(port: Port) -> Spot:
    return Spot(node=port.node, hca=named(port.hca, port.port))


def note(
    role: Role,
    says: str,
    *,
    node: str | None = None,
    subject: str = "fabric",
    strength: Strength = Strength.WEAK,
    source: str = "",
    quote: str = "",
    spots: tuple[Spot, ...] = (),
    at: datetime | None = None,
) -> Finding:
    """A finding that accuses nobody by itself: context, consequence, all-clear, housekeeping."""
    return Finding(
        node=node,
        subject=subject,
        role=role,
        strength=strength,
        at=at,
        says=says,
        quote=quote,
        source=source,
        spots=spots,
    )


def give_up(view: View) -> float:
    """Seconds after which a queue pair of this job gives up: NCCL's version, its own settings."""
    version = next((v.version for v in view.all(Version) if v.component == "nccl"), None)
    env = [dict(p.env) for p in view.all(RankProcess)]
    return nccl.give_up_s(
        version, _highest(env, "NCCL_IB_TIMEOUT"), _highest(env, "NCCL_IB_RETRY_CNT")
    )


def _highest(env: list[dict[str, str]], name: str) -> int | None:
    values = [int(e[name]) for e in env if e.get(name, "").isdecimal() and len(e[name]) <= 2]
    return max(values, default=None)
