"""Requests that failed in NCCL's OFI plugin: EFA names both ends, Slingshot a number.

Formats: aws/aws-ofi-nccl (`NET/OFI Request ... completed with error`), the words of EFA's errors
ofiwg/libfabric prov/efa/src/efa_errno.h. The words are read and not the numbers: a table of
numbers would be of one version.
"""

import re
from collections.abc import Iterator

from sluggish.facts.fabric import NcclAddress, NcclCompletion, NcclTrouble
from sluggish.loglines.line import Line

NEEDLE = "NET/OFI Request"
NO_ANSWER, NOT_READY = 12, 13
"""The status of InfiniBand that means the same, see correlate/ib_vote."""

# NET/OFI Request 0x7f456c222f60 completed with error. RC: 103. Error: 4124 (Unresponsive receiver
#   (connection previously established) My EFA addr: fi_addr_efa://[fe80::c5:fe:4d]:0:142160333 My
#   host id: i-07792e0f955a9673b Peer EFA addr: fi_addr_efa://[fe80::45:fe:d5]:0:825957744 Peer host
#   id: i-0ce6d3d57139f053c). Completed length: 0
# NET/OFI Request 0x400aa7dd3b98 completed with error. RC: 5. Flags: 260. Error: 16 (NO_SPACE).
# NET/OFI Request completed with error. RC: 21. Error: unknown error. Completed length: 0, ...
_FAILED = re.compile(
    r"NET/OFI Request(?: 0x[0-9a-f]{1,16})? completed with error\. ?RC: (?P<rc>\d{1,6})\."
    r"(?: Flags: \d{1,12}\.)? ?Error: (?P<words>.{1,1000})"
)
_MINE = re.compile(r"My host id: (i-[0-9a-f]{8,20})")
_PEER = re.compile(r"Peer host id: (i-[0-9a-f]{8,20})")
_MEANS = (
    ("previously responsive", NO_ANSWER),
    ("connection previously established", NO_ANSWER),
    ("Destination resource not ready", NOT_READY),
)
_GONE = ("handshake failed", "reset by remote peer", "QP does not exist")
"""The device answers for a process that is gone: an echo of its end."""
_NEVER = "never received a response"
"""Nothing was ever exchanged: security group, subnet."""


def read(
    line: Line, node: str | None, pid: int | None, dev: int | None, msg: str
) -> Iterator[NcclCompletion | NcclAddress | NcclTrouble]:
    """What one failed request tells, and the printer's own id, by which its peers call it."""
    found = _FAILED.search(msg)
    if not found:
        return
    words = found["words"]
    if mine := _MINE.search(words):
        yield NcclAddress(
            node=node, pid=pid, rank=line.rank, interface="efa", address=mine[1], line=line.raw
        )
    status = next((status for said, status in _MEANS if said in words), None)
    if status is not None:
        peer = _PEER.search(words)
        yield NcclCompletion(
            node=node, at=line.at, pid=pid, rank=line.rank, device=dev, status=status,
            peer=peer[1] if peer else None, network="EFA", line=line.raw,
        )  # fmt: skip
        return
    kind = "peer_closed" if any(said in words for said in _GONE) else "ofi"
    kind = "no_route" if _NEVER in words else kind
    said = words.partition(" My EFA addr")[0].partition(". Completed length")[0]
    detail = f"RC {found['rc']}: {said[:120]}"
    yield NcclTrouble(
        node=node, at=line.at, pid=pid, rank=line.rank, kind=kind, detail=detail, line=line.raw
    )
