"""NCCL's completion errors, and their absence."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from sluggish.causes import Family, Phase
from sluggish.correlate.hcas import of_job, short
from sluggish.correlate.ib_vote import (
    FLUSH,
    NO_ANSWER,
    NOT_READY,
    Edge,
    Vote,
    address_book,
    edges,
    is_address,
    vote,
)
from sluggish.correlate.window import When
from sluggish.facts.derived import Look, Onset, PhaseFact, Place
from sluggish.facts.fabric import (
    FabricFlavour,
    NcclAddress,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    NcclTrouble,
    Port,
)
from sluggish.facts.gpu import Xid
from sluggish.facts.host import NodeIdentity, OomKill, RankProcess, Segfault
from sluggish.facts.log import LogSpan, ProcessExit, PythonError, Version
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import give_up, in_use, note, phase_of, ports_and_used, several

QUIET_FACTOR = 4
"""The HCA may take four times the nominal time to give up (IBTA, see catalog/nccl.yaml)."""
NO_COMPLETIONS = ("efa", "slingshot", "sockets")
"""Networks that NCCL does not drive by queue pairs of its own: no completion error, no budget."""
RAIL_HOSTS = 3
"""Hosts that lose peers on one and the same HCA name: a rail or its leaf, not a node."""
DEADLY_SIGNALS = (4, 6, 7, 8, 9, 11)
_ECHOES = ("DistBackendError", "NCCL", "ncclRemoteError", "Connection", "TCPStore", "Gloo")


@rule(
    "IB-NCCL",
    family=Family.FABRIC,
    needs=(NcclCompletion, NcclTrouble),
    wants=(
        NcclHcas, NcclAddress, Place, Look, Onset, PhaseFact, OomKill, Segfault, Xid, ProcessExit,
        PythonError, NodeIdentity, Port,
    ),
)  # fmt: skip
def ib_nccl(view: View) -> Iterator[Finding]:
    """NCCL lost a peer on the network; a vote of the hosts in both directions names the one."""
    found = [c for c in view.all(NcclCompletion) if phase_of(c.at, view) is not When.HISTORY]
    votes = edges(found, _book(view), view.all(Place), view.one(Look))
    if votes:
        yield from _judge(votes, vote(votes), view)
    yield from _not_votes(found, bool(votes), view)
    sharp = [t for t in view.all(NcclTrouble) if t.kind == "sharp"]
    if sharp:
        yield note(
            Role.CONTEXT,
            "SHARP did not start: NCCL goes on without it, slower; the aggregation manager is the "
            "fabric team's",
            subject="SHARP",
            source="job log",
            quote=sharp[0].line,
            at=sharp[0].at,
        )
    for trouble in [t for t in view.all(NcclTrouble) if t.kind == "ofi"][:1]:
        yield note(
            Role.CONTEXT,
            f"a request of NCCL's OFI plugin failed on {trouble.node or 'a node'}: "
            f"{trouble.detail}: software or settings as often as the network",
            source="job log",
            quote=trouble.line,
            at=trouble.at,
        )
    closed = [t for t in view.all(NcclTrouble) if t.kind == "peer_closed"]
    if closed and not votes:
        yield note(
            Role.CONSEQUENCE,
            f"{len(closed)} lines of connections closed by a peer: an echo of its end",
            source="job log",
            quote=closed[0].line,
            at=closed[0].at,
        )


def _book(view: View) -> dict[str, str]:
    return address_book(view.all(NcclHcas), view.all(NcclAddress), view.one(Look))


def _judge(found: tuple[Edge, ...], result: Vote, view: View) -> Iterator[Finding]:
    at = min((e.first.at for e in found if e.first.at), default=None)
    role = Role.CONSEQUENCE if phase_of(at, view) is When.TEARDOWN else Role.ROOT
    quote = found[0].first.line
    if result.winner:
        yield _winner(found, result, at, role, view)
        return
    hosts = {e.reporter for e in found} | {e.peer for e in found}
    reporters = {e.reporter for e in found}
    rail = result.hca is not None and len(reporters) >= RAIL_HOSTS
    if rail:
        says = f"{_error(found[0])} on {len(reporters)} hosts, all on {result.hca}"
        says += ": the rail or its leaf"
    elif len(hosts) == 2:
        over = f" over {result.hca}" if result.hca else ""
        says = (
            f"{_error(found[0])} on the link {' - '.join(sorted(hosts))}{over}: "
            "either side or the switch between them"
        )
    else:
        says = (
            f"{_error(found[0])} between {several(sorted(hosts))}: a tie, no single host stands out"
        )
    yield Finding(
        node=None,
        subject="network",
        role=role,
        strength=Strength.STRONG if rail and role is Role.ROOT else Strength.WEAK,
        at=at,
        says=says,
        quote=quote,
        source="job log",
        spots=_ends(hosts, result.hca),
        subtype="shared_fabric" if rail else "unreachable_peer",
        shared=rail,
        action="check_fabric",
    )


def _ends(hosts: set[str], hca: str | None) -> tuple[Spot, ...]:
    """The hosts that lost one another; of a pair both or none, the printer alone is no culprit."""
    known = [host for host in sorted(hosts) if not is_address(host)]
    if len(hosts) == 2 and len(known) < 2:
        return ()
    return tuple(Spot(node=host, hca=hca) for host in known)


def _winner(
    found: tuple[Edge, ...], result: Vote, at: datetime | None, role: Role, view: View
) -> Finding:
    winner = result.winner or ""
    died = _died_before(winner, at, view)
    status = {e.first.status for e in found if winner in (e.reporter, e.peer)}
    early = _starting(view)
    unknown = is_address(winner) or of_job(winner, view.one(Look)) is None
    unseen = not unknown and _silent(winner, view)
    weak = early or status == {NOT_READY} or unknown or unseen
    first = next(e for e in found if winner in (e.reporter, e.peer))
    lost = f"{len(result.counterparts)} hosts and {winner} lost one another"
    told = f"{_error(first, min(status))}: {lost}"
    if died:
        role, told = Role.CONSEQUENCE, f"{told}, after {died} there"
    elif early:
        told += ", at the start: GID, P_Key or rail settings are as likely as the link"
    elif status == {NOT_READY}:
        told += ": its process posts no receives"
    elif unseen:
        told += f"; {winner} itself gave no evidence, it may be down"
    return Finding(
        node=None if unknown else winner,
        subject=f"network of {winner}",
        role=role,
        strength=Strength.WEAK if weak else Strength.STRONG,
        at=at,
        says=told,
        quote=first.first.line,
        source="job log",
        spots=() if unknown else (Spot(node=winner, hca=result.hca),),
        subtype="unreachable_peer",
        action="check_fabric",
    )


def _error(edge: Edge, status: int | None = None) -> str:
    """`status 12`; of EFA in words, for its numbers are others."""
    number = edge.first.status if status is None else status
    if edge.first.network == "EFA":
        return "EFA: no answer" if number == NO_ANSWER else "EFA: receiver not ready"
    return f"status {number}"


def _silent(node: str, view: View) -> bool:
    """The other nodes were read and this one was not: dead or wedged, not surely the link."""
    read = {short(fact.node) for kind in (NodeIdentity, Port) for fact in view.all(kind)}
    return bool(read) and short(node) not in read


def _starting(view: View) -> bool:
    phase = view.one(PhaseFact)
    return phase is not None and phase.phase in (Phase.START_UP, Phase.FIRST_STEP)


def _died_before(node: str, at: datetime | None, view: View) -> str | None:
    """What ended on this node before its peers lost it: then the fabric only told of it."""
    look = view.one(Look)
    ranks = {p.rank for p in view.all(Place) if short(p.node) == short(node)}

    def here(fact: Xid | OomKill | Segfault) -> bool:
        old = phase_of(fact.at, view) in (When.HISTORY, When.EARLIER)
        return short(fact.node) == short(node) and not old and _before(fact.at, at)

    if any(here(f) for f in view.all(OomKill)):
        return "an oom-kill"
    if any(here(f) for f in view.all(Xid)):
        return "an Xid"
    if any(here(f) for f in view.all(Segfault)):
        return "a segmentation fault"
    for one in view.all(NodeIdentity):
        started = look.job_started_at if look else None
        if short(one.node) == short(node) and one.boot_at and started and one.boot_at > started:
            return "a reboot"
    for ended in view.all(ProcessExit):
        if ended.rank in ranks or short(ended.node) == short(node):
            surely = ended.at is not None and at is not None and ended.at <= at
            if ended.oom or surely or (ended.at is None and ended.signal in DEADLY_SIGNALS):
                return "the end of a rank's process"
    for error in view.all(PythonError):
        mine = error.rank in ranks or short(error.node) == short(node)
        if mine and not any(word in f"{error.type}: {error.message}" for word in _ECHOES):
            return f"a {error.type}" if _before(error.at, at) else None
    return None


def _before(event: datetime | None, at: datetime | None) -> bool:
    """Without a time it may well have come first: enough not to accuse the network."""
    return event is None or at is None or event <= at


def _not_votes(found: list[NcclCompletion], voted: bool, view: View) -> Iterator[Finding]:
    """What completion errors say that is no vote against a host."""
    flushes = [c for c in found if c.status == FLUSH]
    if flushes and not voted:
        yield note(
            Role.CONSEQUENCE,
            f"{len(flushes)} flushed requests (status 5): the queue pair had failed before",
            source="job log",
            quote=flushes[0].line,
            at=flushes[0].at,
        )
    alone = [c for c in found if c.status == NO_ANSWER]
    if alone and not voted:
        yield _no_vote(alone, view)
    other = [c for c in found if c.status not in (FLUSH, NO_ANSWER, NOT_READY)]
    for status in sorted({c.status for c in other}):
        mine = [c for c in other if c.status == status]
        yield note(
            Role.CONTEXT,
            f"status {status} on {several(sorted({c.node or '?' for c in mine}))}: "
            f"{_MEANS.get(status, 'see the code')}",
            source="job log",
            quote=mine[0].line,
            at=mine[0].at,
        )


def _no_vote(lost: list[NcclCompletion], view: View) -> Finding:
    """Somebody got no answer; who, or from whom, the lines do not tell: no host is accused."""
    at = min((c.at for c in lost if c.at), default=None)
    peers = sorted({c.peer for c in lost if c.peer})
    called = "EFA" if lost[0].network == "EFA" else "status 12"
    whom = f"no answer from {several(peers)}" if peers else (
        "no answer from a peer that this form of the line does not name")  # fmt: skip
    return Finding(
        node=None,
        subject="network",
        role=Role.CONSEQUENCE if phase_of(at, view) is When.TEARDOWN else Role.ROOT,
        strength=Strength.WEAK,
        at=at,
        says=f"{called}: {whom}; a dead peer, its link, or at the start GID and firewall",
        quote=lost[0].line,
        source="job log",
        subtype="unreachable_peer",
        action="check_fabric",
    )


_MEANS = {
    4: "local protection error, PCIe ACS that breaks GPUDirect is the usual cause",
    10: "remote access error, software or GPU memory of the peer",
    1: "length mismatch, software",
    9: "invalid request, software or mixed versions",
    11: "remote operation error, software or mixed versions",
    6: "memory window not bound, the local HCA",
    7: "unexpected response, the local HCA",
    8: "local access error, the local HCA",
    19: "fatal error of the local HCA",
    21: "general error of the local HCA",
}


@rule(
    "IB-QUIET",
    family=Family.FABRIC,
    needs=(LogSpan,),
    wants=(
        NcclCompletion, NcclAsyncEvent, NcclHcas, Port, Version, RankProcess, FabricFlavour, Look,
        Onset,
    ),
)  # fmt: skip
def ib_quiet(view: View) -> Iterator[Finding]:
    """NCCL's warnings are on and it stays silent longer than a broken link ever does."""
    look, onset = view.one(Look), view.one(Onset)
    if not look or not look.at or not onset or view.all(NcclAsyncEvent):
        return
    if any(c.status != FLUSH for c in view.all(NcclCompletion)):
        return
    if any(f.kind in NO_COMPLETIONS for f in view.all(FabricFlavour)):
        return
    if not any(span.nccl_debug for span in view.all(LogSpan)):
        yield note(
            Role.CONTEXT,
            "no NCCL line in the job's log: its silence says nothing about the network",
            source="job log",
        )
        return
    ports, mine = ports_and_used(view)
    if any(p.state != "active" for p in in_use(ports, mine)):
        return
    limit = give_up(view)
    silent = look.at - onset.latest
    if silent > timedelta(seconds=limit * QUIET_FACTOR):
        yield note(
            Role.ALL_CLEAR,
            f"no completion error for {silent.total_seconds() / 60:.0f} min with NCCL's warnings "
            f"on; a broken link with traffic is loud within {limit:.0f} s",
            source="job log",
        )
