"""Whose an end of the fabric's tools is: by the host in its name, or by its LID. Never guessed."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sluggish.correlate.hcas import ports_of_job, short, short_of
from sluggish.facts import ib_words
from sluggish.facts.derived import Look
from sluggish.facts.fabric import Port, PortCounters
from sluggish.facts.fabric_side import PortQuery
from sluggish.facts.store import Facts

Place = tuple[str | None, str, int]
"""Node, HCA, port."""


class Ends:
    """Whose the ends of a fabric of 30,000 links are, asked often."""

    def __init__(self, look: Look | None) -> None:
        self._nodes = {short_of(name): name for name in reversed(look.nodes)} if look else {}

    def of(self, end: str) -> tuple[str | None, str]:
        """The node of the job that a description names, and what stands behind the name.

        `gpu-07 mlx5_3`, `gpu-03/U1/P1`, `gpu-03:1/2`; (None, "") for a switch, for a host of
        another job and for a card that still bears its maker's words (`MT4129 ConnectX7`).
        """
        host, _, rest = end.partition("/")[0].partition(" ")
        node = self._nodes.get(short_of(host.partition(":")[0]))
        return (node, rest.partition(":")[0].strip()) if node else (None, "")


def hca_of(rest: str) -> str | None:
    """`mlx5_3`; None for `HCA-4`, which counts the cards of a host in an order of its own."""
    ours = ib_words.is_hca(rest) and not rest.startswith("HCA-")
    return rest if ours else None


def under_hcas(facts: Facts) -> None:
    """Counters that a network device's name stands above are its HCA's, where a port tells it."""
    names: dict[tuple[str | None, str], str] = {
        (short(p.node), p.netdev): p.hca for p in facts.all(Port) if p.netdev and p.port == 1
    }
    hcas = {(short(p.node), p.hca) for p in facts.all(Port)}
    told = facts.all(PortCounters)
    if not any((short(c.node), c.hca) in names for c in told):
        return
    merged: dict[tuple[str | None, str, int, str], PortCounters] = {}
    for one in told:
        known = (short(one.node), one.hca) in hcas
        hca = one.hca if known else names.get((short(one.node), one.hca), one.hca)
        key = (short(one.node), hca, one.port, one.sample)
        before = merged[key].counters if key in merged else {}
        merged[key] = replace(merged.get(key, one), hca=hca, counters={**one.counters, **before})
    facts.facts[PortCounters] = list(merged.values())


def queried(facts: Facts, look: Look) -> Iterator[PortCounters]:
    """perfquery's counters as those of a port of the job, where the node's own were not read."""
    read = {(short(c.node), c.hca, c.port) for c in facts.all(PortCounters)}
    by_place: dict[Place, list[PortQuery]] = defaultdict(list)
    for query, place in owners(facts.all(PortQuery), facts.all(Port), look):
        if place and (short(place[0]), *place[1:]) not in read:
            by_place[place].append(query)
    for (node, hca, port), queries in by_place.items():
        for sample, told in _samples(queries).items():
            counters = {name: value for one in told for name, value in one.counters.items()}
            yield PortCounters(
                node=node, hca=hca, port=port, sample=sample, at=told[-1].at, counters=counters
            )


def owners(
    queries: Sequence[PortQuery], ports: Sequence[Port], look: Look | None
) -> Iterator[tuple[PortQuery, Place | None]]:
    """Each query with the one port of the job that has its LID; None where none or several have."""
    by_lid: dict[int, list[Port]] = defaultdict(list)
    for port in ports_of_job(ports, look) if queries else ():
        if port.lid and port.link_layer != "ethernet":
            by_lid[port.lid].append(port)
    for query in queries:
        fit = [p for p in by_lid[query.lid] if query.port in (p.port, None)]
        if len(fit) > 1 and query.node:  # a subnet a rail: LIDs repeat over the rails
            fit = [p for p in fit if short(p.node) == short(query.node)]
        one = fit[0] if len(fit) == 1 else None
        yield query, (one.node, one.hca, one.port) if one else None


def _samples(queries: Sequence[PortQuery]) -> dict[str, list[PortQuery]]:
    """First and last reading, `a` and `b`; narrow and wide counters are never compared."""
    out: dict[str, list[PortQuery]] = {"a": [], "b": [], "": []}
    for wide in (False, True):
        alike = [q for q in queries if q.wide is wide]
        named = {q.sample: q for q in alike if q.sample}
        if "a" in named and "b" in named:
            first, last = named["a"], named["b"]
        else:
            timed = sorted(
                (q for q in alike if q.at), key=lambda q: q.at.timestamp() if q.at else 0
            )
            first, last = (timed[0], timed[-1]) if timed else (None, None)
            if first is None or last is None or first.at == last.at:
                out[""] += alike[-1:]
                continue
        out["a"].append(first)
        out["b"].append(last)
    return {sample: told for sample, told in out.items() if told}
