"""Which HCAs the job uses, and which node is the odd one: judged among the nodes, never absolutely.

Down is normal for storage and management HCAs, and a faulted RoCE port looks just like an unused
one; so NCCL's own lists decide, and without them the majority of the job's nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TypeVar

from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclHcas, Port
from sluggish.facts.ib_words import natural

MANAGING_FUNCTIONS = 4
"""HCAs of one slot with this many functions manage NVSwitch (leptonai/gpud PR 1167)."""
TRUST = ("ib_ports", "ibstat", "ibstatus", "ibv_devinfo")
"""Which source's field is taken where several fill it."""
_WORST = ("down", "initializing", "armed", "active_defer", "unknown", "active")

MANY_NODES = 2
"""On so many nodes the same low rate is by design: links do not degrade together."""

EVERYWHERE = "Active on no node"
V = TypeVar("V", bound=Hashable)
N = TypeVar("N", bound=Hashable)
Key = tuple[str, int]
"""HCA and port: `("mlx5_0", 1)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """An HCA that is left out of judgement, and why."""

    hca: str
    why: str
    not_active_on: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The ports of the job."""

    keys: frozenset[Key]
    listed: bool
    """True: NCCL said so. False: the majority of the nodes says so."""
    aside: tuple[Aside, ...] = ()


def short(node: str | None) -> str | None:
    """Host names without their domain: tools differ in whether they print it."""
    return short_of(node) if node else node


def short_of(node: str) -> str:
    return node.partition(".")[0]


def of_job(node: str | None, look: Look | None) -> str | None:
    """The job's own spelling of a node; None where the node is not one of the job's."""
    if node is None or look is None or not look.nodes:
        return node
    return _spelling(look.nodes).get(short_of(node))


@lru_cache(maxsize=2)
def _spelling(nodes: tuple[str, ...]) -> dict[str, str]:
    return {short_of(name): name for name in reversed(nodes)}


def ports_of_job(ports: Iterable[Port], look: Look | None) -> tuple[Port, ...]:
    """One Port a node, HCA and port: several sources merged, nodes spelled as the job spells them.

    Where two sources differ in the state, the worse one counts: both were read in one look.
    """
    groups: dict[tuple[str | None, str, int], list[Port]] = defaultdict(list)
    names = _spelling(look.nodes) if look and look.nodes else None
    for port in ports:
        node = port.node if names is None or port.node is None else names.get(short_of(port.node))
        if node is not None or port.node is None:
            mine = port if node == port.node else replace(port, node=node)
            groups[node, port.hca, port.port].append(mine)
    order = sorted(groups, key=lambda key: (key[0] or "", natural(key[1]), key[2]))
    return tuple(_merge(groups[key]) for key in order)


def _merge(ports: list[Port]) -> Port:
    if len(ports) == 1:
        return ports[0]
    ports = sorted(ports, key=lambda p: TRUST.index(p.source) if p.source in TRUST else len(TRUST))
    state = min((p.state for p in ports), key=_WORST.index)
    ports = [p for p in ports if p.state == state] + [p for p in ports if p.state != state]
    filled: dict[str, object] = {}
    for field in fields(Port):
        values = [getattr(p, field.name) for p in ports]
        filled[field.name] = next((v for v in values if v not in (None, ())), values[0])
    filled["source"] = " ".join(dict.fromkeys(p.source for p in ports if p.state == state))
    return replace(ports[0], **filled)


def used(ports: Iterable[Port], lists: Iterable[NcclHcas]) -> Used:
    """The ports that the job uses, and the HCAs set aside with their reason."""
    ports = tuple(ports)
    listed = frozenset(key for line in lists for name in line.hcas for key in keys(name))
    if listed:
        left = {p.hca for p in ports if (p.hca, p.port) not in listed}
        aside = (
            Aside(hca=h, why="not in NCCL's list", not_active_on=_not_active_on(ports, h))
            for h in left
        )
        return Used(keys=listed, listed=True, aside=_in_order(aside))
    aside = [
        Aside(hca=h, why=why, not_active_on=_not_active_on(ports, h))
        for h, why in _unfit(ports).items()
    ]
    fit = [p for p in ports if p.hca not in {a.hca for a in aside}]
    aside += _minority(fit)
    names = {p.hca for p in fit} - {a.hca for a in aside}
    mine = frozenset((p.hca, p.port) for p in fit if p.hca in names)
    unused = _unused_ports(fit, mine)
    aside += _asides_of_ports(fit, unused)
    mine -= unused
    return Used(keys=mine, listed=False, aside=_in_order(aside))


def keys(name: str) -> tuple[Key, ...]:
    """`mlx5_0:1`, and `mlx5_0+mlx5_1:1` of merged devices, as HCA and port."""
    hcas, _, port = name.rpartition(":")
    number = int(port) if port.isdecimal() else 1
    return tuple((hca, number) for hca in (hcas or name).split("+"))


def odd_nodes(values: Mapping[N, V]) -> tuple[V | None, tuple[N, ...]]:
    """The value that most nodes share, and the nodes that differ from it.

    A node is odd if more than half of the *other* nodes share another value. With two nodes that
    differ there is no majority: (None, ()).
    """
    if not values:
        return None, ()
    mode, count = Counter(values.values()).most_common(1)[0]
    odd = tuple(n for n, v in values.items() if v != mode and count > (len(values) - 1) / 2)
    if len(values) == 2 and odd:
        return None, ()
    return (mode, odd) if count > len(values) / 2 or odd else (None, ())


def _asides(ports: Iterable[Port], why: Mapping[str, str]) -> list[Aside]:
    ports = tuple(ports)
    return [Aside(hca=h, why=w, not_active_on=_not_active_on(ports, h)) for h, w in why.items()]


def _unused_ports(ports: list[Port], mine: frozenset[Key]) -> frozenset[Key]:
    """Ports without a cable on HCAs whose other port works, as on every HCA of that type."""
    works = {p.hca for p in ports if p.state == "active"}
    in_use = {(p.hca_type, p.port) for p in ports if p.state != "down"}
    return frozenset(
        (p.hca, p.port)
        for p in ports
        if (p.hca, p.port) in mine and p.hca in works and (p.hca_type, p.port) not in in_use
    )


def _asides_of_ports(ports: list[Port], unused: frozenset[Key]) -> list[Aside]:
    """Named as NCCL names a port, `mlx5_0:2`."""
    return [
        Aside(
            hca=f"{hca}:{number}",
            why=f"{EVERYWHERE}: unused, or its whole rail is out",
            not_active_on=tuple(
                p.node for p in ports if (p.hca, p.port) == (hca, number) and p.state == "down"
            ),
        )
        for hca, number in sorted(unused)
    ]


def _in_order(aside: Iterable[Aside]) -> tuple[Aside, ...]:
    return tuple(sorted(aside, key=lambda a: natural(a.hca)))


def _not_active_on(ports: tuple[Port, ...], hca: str) -> tuple[str | None, ...]:
    off = (p.node for p in ports if p.hca == hca and p.state not in ("active", "unknown"))
    return tuple(dict.fromkeys(off))


def _unfit(ports: tuple[Port, ...]) -> dict[str, str]:
    """HCAs that carry no job's traffic by their nature."""
    out: dict[str, str] = {}
    for port in ports:
        if (port.functions_in_slot or 0) >= MANAGING_FUNCTIONS and not port.virtual:
            out[port.hca] = "manages NVSwitch"
        elif "_an" in port.hca:
            out[port.hca] = "accelerated networking, not InfiniBand"
    virtual = {p.hca for p in ports if p.virtual}
    real = {p.hca for p in ports if p.virtual is False and p.state == "active"}
    out |= dict.fromkeys(virtual - real, "virtual function") if real else {}
    return out


def _minority(ports: list[Port]) -> list[Aside]:
    """HCAs of another link layer or a lower rate than most, and those active on too few nodes."""
    active = [p for p in ports if p.state == "active"]
    if not active:
        return []
    layer, _ = Counter(p.link_layer for p in active).most_common(1)[0]
    rates = Counter(p.rate_gbps for p in active if p.link_layer == layer)
    rate = max(rates, key=lambda r: (rates[r], r or 0))
    kinds = {p.hca_type for p in active if (p.link_layer, p.rate_gbps) == (layer, rate)}
    nodes = {p.node for p in ports}
    by_hca: dict[str, list[Port]] = defaultdict(list)
    for port in ports:
        by_hca[port.hca].append(port)
    out: dict[str, str] = {}
    slower = _slower_everywhere(by_hca, layer, rate)
    for hca, mine in by_hca.items():
        why = _why_aside(mine, layer, rate, kinds) or slower.get(hca)
        if why and not (len(nodes) == 1 and _lonely_fault(mine, layer, kinds)):
            out[hca] = why
    return _asides(ports, out)


def _slower_everywhere(
    by_hca: Mapping[str, list[Port]], layer: str | None, rate: float | None
) -> dict[str, str]:
    """HCAs below the usual rate on every one of several nodes: a storage network on equal cards.

    Only where they are few: of two halves nobody can tell which one is the job's.
    """
    best: dict[str, float] = {}
    for hca, ports in by_hca.items():
        up = [p for p in ports if p.state == "active" and p.link_layer == layer and p.rate_gbps]
        if up:
            best[hca] = max(p.rate_gbps or 0 for p in up)
            if len({p.node for p in up}) < MANY_NODES:
                best[hca] = rate or 0
    low = [hca for hca, top in best.items() if rate and top < rate]
    if 2 * len(low) >= len(best) - len(low):
        return {}
    told = f"most ports run {rate:g}: storage or management"
    return {hca: f"{best[hca]:g} Gb/s on every node, {told}" for hca in low}


def _lonely_fault(mine: list[Port], layer: str | None, kinds: set[str | None]) -> bool:
    """One node seen: its own HCAs are the only peers of a port that gets no signal."""
    one = mine[0]
    alike = one.hca_type in kinds - {None} and one.link_layer == layer
    return alike and one.phys_state in ("polling", "linkup")


def _why_aside(
    mine: list[Port], layer: str | None, rate: float | None, kinds: set[str | None]
) -> str | None:
    up = [p for p in mine if p.state == "active"]
    if not up:
        return f"{EVERYWHERE}: unused, or its whole rail is out"
    if Counter(p.link_layer for p in up).most_common(1)[0][0] != layer:
        return "another link layer than the job's ports"
    best = max((p.rate_gbps or 0 for p in up), default=0)
    if rate and best < rate and not ({p.hca_type for p in mine} & (kinds - {None})):
        return f"{best:g} Gb/s, most ports run {rate:g}: storage or management"
    down = [p for p in mine if p.state == "down"]
    if len(down) > len(up) and all(p.phys_state in ("disabled", None) for p in down):
        return "disabled on most nodes"
    return None
