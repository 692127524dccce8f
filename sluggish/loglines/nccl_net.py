"""NCCL's lines about the network: HCAs in use, completion errors, asynchronous events, troubles.

Formats: NVIDIA/nccl src/transport/net_ib*, src/misc/{ibvwrap,socket}.cc, src/init.cc at the tags
v2.4 to v2.30.7. Every line is found by search, since launchers put their own text in front. A field
that a version does not print is None, never 0; opcode and length are garbage on errors.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sluggish.facts.fabric import (
    NcclAddress,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    NcclNetwork,
    NcclPath,
    NcclTrouble,
)
from sluggish.loglines import nccl_ofi, nccl_troubles
from sluggish.loglines.line import Line
from sluggish.loglines.nccl_prefix import MAX_PREFIX, nccl_prefix

NetFact = (
    NcclHcas | NcclAddress | NcclNetwork | NcclPath | NcclCompletion | NcclAsyncEvent | NcclTrouble
)

MAX_TEXT = 4000
"""Characters read behind the prefix: NCCL's own lines stay far below."""

# NET/IB : Got completion from peer 10.0.0.9<4242> with error 12, opcode 0, len 0, vendor err 129
# NET/IBP:Got completion ...            NET/IB/GIN: Got completion ...           (variants)
# NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129         (2.9 and older)
# ... with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_3
_COMPLETION = re.compile(
    r"NET/IB\S{0,8} ?:? ?Got completion(?: from peer (?P<peer>[^\s<]{1,255})(?:<\d{1,5}>)?)? with "
    r"(?:error |status=)(?:(?P<name>[A-Z_]{2,40})\()?(?P<status>\d{1,4})"
)
_OPCODE = re.compile(r"opcode[ =](?:[A-Z_]{2,60}\()?(-?\d{1,10})")
_VENDOR = re.compile(r"vendor[ _]err[ =](\d{1,10})")
_REQUEST = re.compile(
    r"\((Send|Recv|Flush|Unused|IPut|Put)\)|req_type=(Send|Recv|Flush|Unused|IPut|Put)"
)
_LOCAL_GID = re.compile(r"localGid ([0-9a-fA-F:.]{2,45})")
_REMOTE_GID = re.compile(r"remoteGids? ?([0-9a-fA-F:.]{2,45})")
_HCA = re.compile(r"\bhca ([A-Za-z][\w.-]{0,63})")

# NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE/SHARP [RO]; OOB eth0:10.0.0.1<0>
# 2.30 may put :rail:plane behind the port
_USING = re.compile(r"NET/IB\S{0,8} ?: ?Using (?P<list>.{1,3000})")
_ITEM = re.compile(
    r"\[(\d{1,4})\](?:\{[^}]{0,80}\})? ?([A-Za-z][\w.+-]{0,120}:\d{1,3})"
    r"(?::[\w-]{1,20}){0,2}/(\w{2,10})"
)
_OOB = re.compile(r"OOB ([\w.@-]{1,32}):(?P<address>\[?[0-9A-Fa-f:.%\w]{2,64}?\]?)<\d{1,5}>")
# Bootstrap : Using eth0:10.0.0.1<0>        NET/Socket : Using [0]eno1:10.0.0.1<0> [1]...
_ADDRESS = re.compile(
    r"(?:Bootstrap|NET/Socket) ?: ?Using (?:\[\d{1,4}\])?(?P<interface>[\w.@-]{1,32}):"
    r"(?P<address>\[?[0-9A-Fa-f:.%\w]{2,64}?\]?)<\d{1,5}>"
)
# NCCL INFO Using network IB     Using network AWS Libfabric     Assigned NET plugin IB to comm
_NETWORK = re.compile(
    r"(?:Using network|Assigned NET plugin) (?P<name>[\w./ -]{1,40}?)(?: to comm)?\s*\Z"
)
# NCCL INFO NET/OFI Selected Provider is efa (found 16 nics)                (NVIDIA/nccl issue 1597)
# NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)
_PROVIDER = re.compile(
    r"NET/OFI Selected [Pp]rovider is (?P<name>[\w;-]{1,40})"
    r"(?:, fabric is [\w-]{1,40})?(?: \(found (?P<nics>\d{1,4}) nics?\))?"
)
_NO_DEVICE = re.compile(r"NET/IB\S{0,8} ?: ?No device found")

# NET/IB : Got async event : port error                             (2.19 and older, no HCA)
# NET/IB : mlx5_3:1 Got async event : port error                    (2.20 to 2.22)
# NET/IB : mlx5_3:1 Got async error event: port error               (2.23 to 2.27)
# NET/IB : mlx5_3:1 Got non-fatal async event: port error(10)       (2.28 on)
_EVENT = re.compile(
    r"NET/IB\S{0,8} ?: ?(?:(?P<hca>[A-Za-z][\w.-]{0,63}):(?P<port>\d{1,3}) )?"
    r"Got (?:non-fatal )?async (?:error )?event ?: ?(?P<event>[^(]{1,120})"
)
# NET/IB : mlx5_2:1 async fatal event on QP (0x7f): local access violation work queue error
_FATAL = re.compile(
    r"NET/IB\S{0,8} ?: ?(?:(?P<hca>[A-Za-z][\w.-]{0,63}):(?P<port>\d{1,3}) )?"
    r"async fatal event(?: on (?:QP|CQ|SRQ) \([^)]{0,40}\))?: (?P<event>[^(]{1,120})"
)
# NET/IB : mlx5_3:1 GID table changed
_GID_CHANGE = re.compile(
    r"NET/IB\S{0,8} ?: ?(?P<hca>[A-Za-z][\w.-]{0,63}):(?P<port>\d{1,3}) "
    r"(?P<event>GID table changed)"
)
# NET/IB : mlx5_3:1 speed change detected: 400000 -> 200000 Mbps
_SPEED = re.compile(
    r"(?:(?P<hca>[A-Za-z][\w.-]{0,63}):(?P<port>\d{1,3}) )?"
    r"(?P<event>speed change detected: \d{1,9} -> \d{1,9} Mbps)"
)
_ASYNC = (
    ("event", _EVENT), ("fatal", _FATAL), ("gid_change", _GID_CHANGE), ("speed_change", _SPEED),
)  # fmt: skip

# Channel 00/0 : 7[7] -> 8[0] [receive] via NET/IB/1/GDRDMA      [send] via NET/IB/1(3)/GDRDMA
# Channel 00/0 : 7[7] -> 8[0] [receive] via NET/AWS Libfabric/0/GDRDMA
_WAY = re.compile(
    r"\] \[(?:receive|send)\] via NET/(?!Socket)[A-Za-z][\w .-]{0,40}/\d{1,3}(?:\(\d{1,7}\))?"
    r"(?P<direct>/GDRDMA)?"
)
NEEDLES: tuple[bytes, ...] = (
    b"Got completion",
    b"NET/IB",
    b"Using network ",
    b"NET/OFI Selected ",
    nccl_ofi.NEEDLE.encode(),
    b"Assigned NET plugin ",
    b"async event",
    b"async fatal event",
    b"async error event",
    b"speed change detected",
    b"Bootstrap",
    b"NET/Socket",
    b"] via NET/",
    b"nvls.cc",
    *(needle.encode() for needle in nccl_troubles.NEEDLES),
)
"""Every line that `parse` can read contains one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """A message and who said it."""

    node: str | None
    pid: int | None
    dev: int | None
    level: str
    msg: str
    file: str = ""


def parse(lines: Iterable[Line]) -> Iterator[NetFact]:
    """The facts of NCCL's network lines, in the order of the log; a way once a process."""
    ways: set[object] = set()
    for line in lines:
        said = _said(line)
        if said and (found := _WAY.search(said.msg)):
            key = (said.node, said.pid, found["direct"])
            if key not in ways:
                ways.add(key)
                yield NcclPath(
                    node=said.node, pid=said.pid, direct=bool(found["direct"]), line=line.raw[:400]
                )  # fmt: skip
        elif said and nccl_ofi.NEEDLE in said.msg:
            yield from nccl_ofi.read(line, said.node, said.pid, said.dev, said.msg)
        elif said and (fact := _fact(line, said)):
            yield fact


def _said(line: Line) -> _Said | None:
    start = line.text.find(" NCCL ")
    if start >= 0:
        window = line.text[max(0, start - MAX_PREFIX) : start + MAX_TEXT]
        if found := nccl_prefix(window):
            return _Said(
                node=found.host or line.node,
                pid=found.pid,
                dev=found.dev,
                level=found.level,
                msg=found.msg,
                file=found.file or "",
            )
    return _bare(line)


def _bare(line: Line) -> _Said | None:
    """PyTorch prints NCCL's last warning without its prefix, below `Last error:`."""
    start = max(line.text.find("NET/IB"), line.text.find(nccl_troubles.NVLS))
    if start < 0:
        return None
    msg = line.text[start : start + MAX_TEXT]
    if "Got completion" not in msg and "async" not in msg and nccl_troubles.NVLS not in msg:
        return None
    return _Said(node=line.node, pid=line.pid, dev=None, level="", msg=msg)


def _fact(line: Line, said: _Said) -> NetFact | None:
    msg = said.msg
    if "Got completion" in msg:
        return _completion(line, said)
    if "async" in msg or "GID table changed" in msg or "speed change" in msg:
        return _event(line, said)
    if "NET/IB" in msg and "Using [" in msg:
        return _hcas(line, said)
    if found := _PROVIDER.search(msg):
        return _provider(line, said, found)
    if _NO_DEVICE.search(msg):
        return _network(line, said, None)
    if found := _NETWORK.search(msg):
        return _network(line, said, found["name"])
    if found := _ADDRESS.search(msg):
        return _address(line, said, found)
    return _trouble(line, said)


def _completion(line: Line, said: _Said) -> NcclCompletion | None:
    found = _COMPLETION.search(said.msg)
    if not found:
        return None
    rest = said.msg[found.end() :]
    request = _REQUEST.search(rest)
    return NcclCompletion(
        node=said.node,
        at=line.at,
        pid=said.pid,
        rank=line.rank,
        device=said.dev,
        peer=found["peer"],
        status=int(found["status"]),
        vendor_error=_number(_VENDOR, rest),
        opcode=_number(_OPCODE, rest),
        request=(request[1] or request[2]) if request else None,
        hca=_word(_HCA, rest),
        local_gid=_word(_LOCAL_GID, rest),
        remote_gid=_word(_REMOTE_GID, rest),
        line=line.raw,
    )


def _event(line: Line, said: _Said) -> NcclAsyncEvent | None:
    for kind, pattern in _ASYNC:
        if found := pattern.search(said.msg):
            return NcclAsyncEvent(
                node=said.node,
                at=line.at,
                pid=said.pid,
                rank=line.rank,
                kind=kind,
                event=None if kind == "gid_change" else found["event"].strip(),
                hca=found["hca"],
                port=int(found["port"]) if found["port"] else None,
                line=line.raw,
            )
    return None


def _hcas(line: Line, said: _Said) -> NcclHcas | None:
    found = _USING.search(said.msg)
    items = _ITEM.findall(found["list"]) if found else []
    if not found or not items:
        return None
    oob = _OOB.search(found["list"])
    if oob is None or [int(number) for number, _, _ in items] != list(range(len(items))):
        return None  # a torn line: what it lost would read as an HCA that this node lacks
    return NcclHcas(
        node=said.node,
        pid=said.pid,
        rank=line.rank,
        hcas=tuple(name for _, name, _ in items),
        layers=tuple(layer for _, _, layer in items),
        oob_interface=oob[1],
        oob_address=oob["address"].strip("[]"),
        line=line.raw,
    )


def _network(line: Line, said: _Said, name: str | None) -> NcclNetwork:
    return NcclNetwork(node=said.node, pid=said.pid, rank=line.rank, network=name, line=line.raw)


def _provider(line: Line, said: _Said, found: re.Match[str]) -> NcclNetwork:
    return NcclNetwork(
        node=said.node,
        pid=said.pid,
        rank=line.rank,
        network="OFI",
        provider=found["name"],
        nics=int(found["nics"]) if found["nics"] else None,
        line=line.raw,
    )


def _address(line: Line, said: _Said, found: re.Match[str]) -> NcclAddress:
    return NcclAddress(
        node=said.node,
        pid=said.pid,
        rank=line.rank,
        interface=found["interface"],
        address=found["address"].strip("[]"),
        line=line.raw,
    )


def _trouble(line: Line, said: _Said) -> NcclTrouble | None:
    kind = nccl_troubles.kind(said.msg)
    # transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'       (2.18 to 2.28)
    if kind is None and said.file.endswith("nvls.cc") and said.msg.startswith("Cuda failure"):
        kind = "nvls"
    if kind is None and said.level == "WARN" and "NET/IB" in said.msg:
        kind = "other"
    if kind is None:
        return None
    return NcclTrouble(
        node=said.node,
        at=line.at,
        pid=said.pid,
        rank=line.rank,
        kind=kind,
        detail=said.msg[:400],
        line=line.raw,
    )


def _number(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    return int(found[1]) if found else None


def _word(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1] if found else None
