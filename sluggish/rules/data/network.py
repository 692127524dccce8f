"""DATA-NETWORK: a rank waits for a service outside the job: object store, model hub, metrics, DNS.

A connection that waits is no fault by itself: metrics clients poll for hours, and a cluster without
a way out lets every attempt run into the void. It counts where the rank's main thread stands in a
network call, or where the wait-for graph names the rank (trap: an idle connection that is kept for
later has *received* last, one that waits for its answer has *sent* last).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.correlate.jobsense import in_job, rank_of_pid, ranks_words
from sluggish.correlate.procs import deltas
from sluggish.facts.collective import Wait
from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclAddress
from sluggish.facts.host import RankProcess, Stack
from sluggish.facts.net import Socket
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

LONG_S = 30.0
"""A service that has not answered for so long (judgement; most clients give up after 60 s)."""
TRIES = 3
"""Retransmissions in a row: 1 + 2 + 4 s without an acknowledgement at the least."""
SERVICES = {
    53: "DNS", 80: "HTTP", 443: "HTTPS", 853: "DNS", 2379: "etcd", 3128: "proxy", 5000: "HTTP",
    5432: "PostgreSQL", 6379: "Redis", 8000: "HTTP", 8080: "HTTP", 8443: "HTTPS",
    9000: "object store", 9090: "metrics", 27017: "MongoDB",
}  # fmt: skip
"""Ports of what jobs ask; NCCL, Gloo and the store use ports that the kernel gives out."""
# Frames of CPython 3.9-3.13 and of the usual clients, as py-spy shortens their paths.
_CALL = re.compile(
    r"recv_into|^recv$|^read$|readinto|^connect$|create_connection|getaddrinfo|do_handshake|"
    r"^send(?:all)?$|^begin$|_read_status|_peek|urlopen|select$|_poll|^poll$|_worker_run|run_once"
)
_CLIENT = re.compile(
    r"(?:^|/)(?:ssl|socket|http/client|urllib/request)\.py$|urllib3|requests/|httpx|httpcore|"
    r"aiohttp|botocore|boto3|s3transfer|s3fs|gcsfs|adlfs|huggingface_hub|hf_transfer|google/cloud|"
    r"azure/|wandb/|mlflow|clearml|comet_ml|webdataset/gopen"
)
TOP = 12
"""Frames from the innermost that are looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A process of a rank that waits for a service."""

    node: str | None
    rank: int | None
    pid: int | None
    why: str
    by_socket: bool
    in_call: bool


@rule(
    "DATA-NETWORK",
    family=Family.DATA,
    needs=(Socket, Stack),
    wants=(RankProcess, NcclAddress, Wait, Look),
)
def data_network(view: View) -> Iterator[Finding]:
    """A rank waits for a service outside the job: object store, model hub, metrics or DNS."""
    waiting = list(_waiting(view))
    suspects = {root.rank for wait in view.all(Wait) for root in wait.roots}
    sure = [w for w in waiting if w.rank is not None and w.rank in suspects]
    both = [w for w in waiting if w.by_socket and w.in_call]
    calls = [w for w in waiting if w.in_call]
    if found := sure or both:
        yield _finding(found, Role.ROOT, Strength.STRONG)
    elif calls:
        yield _finding(calls, Role.ROOT, Strength.WEAK)
    elif waiting:
        yield _finding(waiting, Role.CONTEXT, Strength.WEAK)
    elif mine := _of_the_job(view):
        nodes = {socket.node for socket in mine}
        yield Finding(
            node=None,
            subject="network",
            role=Role.ALL_CLEAR,
            strength=Strength.STRONG,
            says=f"no process waits for a service on {len(nodes)} node"
            + ("s" if len(nodes) != 1 else ""),
            source="sockets",
        )


def _of_the_job(view: View) -> list[Socket]:
    look = view.one(Look)
    pids = {(d.node, d.pid) for d in deltas(view.all(RankProcess)) if d.role != "other"}
    return [
        s for s in view.all(Socket)
        if in_job(s.node, look) and any((s.node, pid) in pids for pid in s.pids)
    ]  # fmt: skip


def _waiting(view: View) -> Iterator[_Waiting]:
    moved = deltas(view.all(RankProcess))
    owner = {(d.node, d.pid): d.rank for d in moved if d.rank is not None}
    owner |= rank_of_pid(view.all(RankProcess))
    inside = {a.address for a in view.all(NcclAddress)}
    calls = {(s.node, s.pid): s for s in view.all(Stack) if s.main and in_service_call(s)}
    told: set[tuple[str | None, int | None]] = set()
    for socket in _of_the_job(view):
        why = _why(socket, inside)
        pid = next((p for p in socket.pids if (socket.node, p) in owner), None)
        if why is None or pid is None or (socket.node, pid) in told:
            continue
        told.add((socket.node, pid))
        rank = owner[socket.node, pid]
        yield _Waiting(node=socket.node, rank=rank, pid=pid, why=why, by_socket=True,
                       in_call=(socket.node, pid) in calls)  # fmt: skip
    for (node, pid), stack in calls.items():
        if (node, pid) not in told:
            rank = stack.rank if stack.rank is not None else owner.get((node, pid or -1))
            why = f"stands in {stack.frames[0].function[:60]} of a network client"
            yield _Waiting(node=node, rank=rank, pid=pid, why=why, by_socket=False, in_call=True)


def in_service_call(stack: Stack) -> bool:
    """Whether the thread stands in a blocking call of a network client."""
    top = stack.frames[:TOP]
    waits = bool(top) and any(_CALL.search(frame.function) for frame in top[:3])
    return waits and any(_CLIENT.search(frame.file) for frame in top)


def _why(socket: Socket, inside: set[str]) -> str | None:
    """What a connection to a service waits for; None for one that rests or is the job's own."""
    service = SERVICES.get(socket.peer_port or 0)
    local = socket.peer.startswith("127.") or socket.peer in ("::1", "*", socket.local)
    if service is None or socket.peer in inside or (local and service != "DNS"):
        return None
    where = f"{socket.peer}:{socket.peer_port} ({service})"
    if socket.protocol == "udp":
        return f"asks {where}" if service == "DNS" else None
    if socket.state == "SYN-SENT":
        return f"{where} does not take the connection"
    if socket.state != "ESTAB":
        return None
    if socket.unsent_bytes and max(socket.retrans, socket.backoff) >= TRIES:
        return (
            f"{where} does not acknowledge what was sent, {socket.backoff or socket.retrans} tries"
        )
    sent, received = socket.last_sent_s, socket.last_received_s
    if sent is None or received is None or socket.unread_bytes:
        return None
    return f"{where} has not answered for {sent:.0f} s" if LONG_S <= sent < received else None


def _finding(found: list[_Waiting], role: Role, strength: Strength) -> Finding:
    nodes = {w.node for w in found}
    who = ranks_words(w.rank for w in found) or "a process"
    whys = list(dict.fromkeys(w.why for w in found))
    more = f" and {len(whys) - 2} more" if len(whys) > 2 else ""
    return Finding(
        node=found[0].node if len(nodes) == 1 else None,
        subject=who,
        role=role,
        strength=strength,
        says=f"{who}: {'; '.join(whys[:2])}{more}",
        source="sockets" if any(w.by_socket for w in found) else "stacks",
        spots=tuple(
            Spot(rank=w.rank, node=w.node, pid=w.pid, doing="waits for a service outside the job")
            for w in found
        ),
        subtype="network_wait",
        shared=role is Role.ROOT and len(nodes) > 1,
    )
