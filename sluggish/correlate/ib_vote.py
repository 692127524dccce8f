"""The vote over completion errors: whom do the hosts lose, counted in both directions.

The printer of a status 12 is usually the victim. In a ring a bad host is accused by two and accuses
two, a healthy neighbour has one edge, towards the bad one; so distinct counterparts are counted,
never lines, and a tie names nobody.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluggish.correlate.hcas import of_job, short
from sluggish.facts.derived import Look, Place
from sluggish.facts.fabric import NcclAddress, NcclCompletion, NcclHcas

FLUSH = 5
"""IBV_WC_WR_FLUSH_ERR: the queue pair was in error already. Secondary, never a vote."""
NO_ANSWER = 12
"""IBV_WC_RETRY_EXC_ERR: no answer within the retry budget."""
NOT_READY = 13
"""IBV_WC_RNR_RETRY_EXC_ERR: the peer's process posts no receives."""
MIN_COUNTERPARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """One host lost another. Names are nodes of the job where known, else addresses."""

    reporter: str
    peer: str
    hca: str | None
    """The reporter's HCA."""
    first: NcclCompletion


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """`winner` is the only host with the most counterparts, at least two; else None."""

    winner: str | None
    counterparts: tuple[str, ...] = ()
    tied: tuple[str, ...] = ()
    """Hosts with the most counterparts, where there is no winner."""
    hca: str | None = None
    """The one HCA name on all edges of the winner, or of everybody: a port, or a rail."""


def address_book(
    lists: Iterable[NcclHcas], addresses: Iterable[NcclAddress], look: Look | None
) -> dict[str, str]:
    """Address -> node. One that several nodes print (link-local IPv6) names nobody."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for line in lists:
        if line.oob_address and (node := of_job(line.node, look)):
            nodes[_bare(line.oob_address)].add(node)
    for said in addresses:
        if node := of_job(said.node, look):
            nodes[_bare(said.address)].add(node)
    return {address: found.pop() for address, found in nodes.items() if len(found) == 1}


def edges(
    completions: Iterable[NcclCompletion],
    book: Mapping[str, str],
    places: Iterable[Place],
    look: Look | None,
) -> tuple[Edge, ...]:
    """Who lost whom, each pair and HCA once. Flushes and lines without both ends give none."""
    by_rank = {place.rank: place.node for place in places}
    found: dict[tuple[str, str, str | None], NcclCompletion] = {}
    for one in completions:
        reporter = of_job(one.node or by_rank.get(-1 if one.rank is None else one.rank), look)
        peer = _peer(one.peer, book, look)
        if one.status not in (NO_ANSWER, NOT_READY) or not reporter or not peer:
            continue
        if short(reporter) != short(peer):
            found.setdefault((reporter, peer, one.hca), one)
    return tuple(
        Edge(reporter=r, peer=p, hca=h, first=one) for (r, p, h), one in sorted(
            found.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or "")
        )
    )  # fmt: skip


def vote(found: Iterable[Edge]) -> Vote:
    """Distinct counterpart hosts in either direction; the unique maximum of at least two wins."""
    found = tuple(found)
    counterparts: dict[str, set[str]] = defaultdict(set)
    for edge in found:
        counterparts[edge.reporter].add(edge.peer)
        counterparts[edge.peer].add(edge.reporter)
    if not counterparts:
        return Vote(winner=None)
    most = max(len(others) for others in counterparts.values())
    top = tuple(sorted(host for host, others in counterparts.items() if len(others) == most))
    if len(top) == 1 and most >= MIN_COUNTERPARTS:
        mine = [e for e in found if top[0] in (e.reporter, e.peer)]
        others = tuple(sorted(counterparts[top[0]]))
        return Vote(winner=top[0], counterparts=others, hca=_one_hca(mine))
    return Vote(winner=None, tied=top, hca=_one_hca(found))


def is_address(name: str) -> bool:
    """An address that no line maps to a node: it may be counted, never named."""
    return ":" in name or not name.strip("0123456789.")


def _one_hca(found: Iterable[Edge]) -> str | None:
    names = {edge.hca for edge in found}
    return names.pop() if len(names) == 1 else None


def _peer(printed: str | None, book: Mapping[str, str], look: Look | None) -> str | None:
    """A node of the job where the address or name is known, else the address as printed."""
    if printed is None:
        return None
    known = book.get(_bare(printed))
    if known:
        return known
    if look and look.nodes and (node := of_job(printed, look)):
        return node
    return None if printed.lower().startswith("fe80:") else printed


def _bare(address: str) -> str:
    """Without the zone of a link-local address."""
    return address.split("%")[0].lower()
