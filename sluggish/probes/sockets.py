"""Connections of the node's processes: who waits for an answer from outside the job.

`ss` (iproute2) reads the kernel's socket table over netlink; milliseconds, no packet is sent.
As root it names every owner; the job's own user sees its own processes, anybody else no owner, and
then nothing could be seen. Traps (measured, iproute2 6.1): the columns are padded to the longest
line; a connection takes a second, indented line; `retrans:` and `lastrcv:` are left out where they
are 0; `lastrcv` counts milliseconds, from the connection's start where nothing was received yet;
a container's network namespace is not seen from the host's.
"""

import re
from collections.abc import Iterator

from sluggish.facts.net import Socket
from sluggish.facts.origin import Origin

ID = "sockets"
COMMAND = "ss -tuinop | sed 's/ *$//' | head -n 40000"
FACTS: tuple[type, ...] = (Socket,)
BINARY = False

LIMIT = 20_000
"""Connections of a node that are read."""
LINE = 4096

# Netid State Recv-Q Send-Q Local Address:Port  Peer Address:Port Process
# State Recv-Q Send-Q Local Address:Port Peer Address:Port                (ss -tinop)
_HEADER = re.compile(r"(?:Netid +)?State +Recv-Q +Send-Q +Local Address:Port +Peer Address:Port")
# tcp   ESTAB 0  0  10.2.0.7:37334  10.255.1.1:443   users:(("python3",pid=25680,fd=7))
# ESTAB 0 0 [fd00::7]:37334 [fd00::9]:443 users:(("python",pid=7,fd=3)) timer:(keepalive,12sec,0)
_ROW = re.compile(
    r"(?:(?P<protocol>tcp|udp) +)?(?P<state>[A-Z][A-Z0-9-]{2,11}) +(?P<unread>\d{1,12}) +"
    r"(?P<unsent>\d{1,12}) +(?P<local>\S{1,80}):(?P<lport>\d{1,5}|\*) +"
    r"(?P<peer>\S{1,80}):(?P<pport>\d{1,5}|\*)(?P<rest>\s.*)?\Z",
    re.ASCII,
)
_OWNER = re.compile(r'\("(?P<name>[^"]{0,40})",pid=(?P<pid>\d{1,10}),fd=\d{1,8}\)', re.ASCII)
_TIMER = re.compile(r"timer:\((?P<name>on|keepalive|persist|timewait|unknown),")
_SENT = re.compile(r"\blastsnd:(\d{1,12})\b", re.ASCII)
_RECEIVED = re.compile(r"\blastrcv:(\d{1,12})\b", re.ASCII)
_BYTES = re.compile(r"\bbytes_received:(\d{1,18})\b", re.ASCII)
_RETRANS = re.compile(r"\bretrans:(\d{1,6})/\d{1,9}\b", re.ASCII)
_BACKOFF = re.compile(r"\bbackoff:(\d{1,3})\b", re.ASCII)
_INFO = re.compile(r"\b(?:rto:\d|cwnd:\d|mss:\d)", re.ASCII)


def sniff(head: bytes) -> bool:
    """The header of `ss`, or rows with owners."""
    lines = head[:8192].decode("utf-8", "replace").splitlines()[:12]
    if any(_HEADER.match(line) for line in lines):
        return True
    rows = [line for line in lines if line[:1] not in (" ", "\t", "")]
    return bool(rows) and all(_ROW.match(r.rstrip()) and "users:((" in r for r in rows)


def parse(text: str, origin: Origin) -> Iterator[Socket]:
    """Connections with an owner. ValueError: no table, or a table that shows nobody's owner."""
    lines = [line[:LINE].rstrip() for line in text.splitlines()]
    rows = 0
    owned = 0
    for number, line in enumerate(lines):
        found = _ROW.match(line)
        if found is None:
            continue
        rows += 1
        owners = list(_OWNER.finditer(found["rest"] or ""))
        if not owners or owned >= LIMIT:
            continue
        owned += 1
        after = lines[number + 1] if number + 1 < len(lines) else ""
        info = after if after[:1] in (" ", "\t") else line
        yield _socket(found, owners, info, origin)
    if rows and not owned:
        raise ValueError("expected owners of connections: ask as root or as the job's user")
    if not rows and not any(_HEADER.match(line) for line in lines):
        raise ValueError("expected the table of ss -tuinop")


def _socket(row: re.Match[str], owners: list[re.Match[str]], info: str, origin: Origin) -> Socket:
    timer = _TIMER.search(row["rest"] or "")
    udp = row["protocol"] == "udp" or (row["protocol"] is None and not _INFO.search(info))
    return Socket(
        node=origin.node,
        at=origin.taken_at,
        protocol="udp" if udp else "tcp",
        state=row["state"],
        local=_address(row["local"]),
        local_port=_port(row["lport"]),
        peer=_address(row["peer"]),
        peer_port=_port(row["pport"]),
        pids=tuple(dict.fromkeys(int(owner["pid"]) for owner in owners)),
        process=owners[0]["name"],
        unread_bytes=int(row["unread"]),
        unsent_bytes=int(row["unsent"]),
        last_sent_s=_seconds(_SENT, info),
        last_received_s=_seconds(_RECEIVED, info),
        received_bytes=_number(_BYTES, info),
        retrans=_number(_RETRANS, info) or 0,
        backoff=_number(_BACKOFF, info) or 0,
        timer=timer["name"] if timer else "",
    )


def _address(text: str) -> str:
    """`[fd00::7%ibp1]` -> `fd00::7`; an IPv4 address in IPv6 form as IPv4."""
    bare = text.strip("[]").partition("%")[0]
    return bare.removeprefix("::ffff:") if "." in bare else bare


def _port(text: str) -> int | None:
    return int(text) if text != "*" else None


def _number(pattern: re.Pattern[str], info: str) -> int | None:
    found = pattern.search(info)
    return int(found[1]) if found else None


def _seconds(pattern: re.Pattern[str], info: str) -> float | None:
    number = _number(pattern, info)
    return None if number is None else number / 1000
