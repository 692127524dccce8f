"""Which node and which rank a loose file is from: its content first, then its folder and name."""

import re
from collections.abc import Iterable

from sluggish import hostlist
from sluggish.text import is_node_name

# gpu-07:4242:4301 [3] NCCL INFO ...        (NCCL's own prefix, src/debug.cc)
_NCCL = re.compile(r"(?m)^(?:\[?\d{1,6}\]?:? ?)?([A-Za-z0-9][\w.-]{1,63}):\d+:\d+ \[\d+\] NCCL ")
# Nov 24 03:04:17 gpu-08 kernel: ...   2026-11-24T03:04:17+00:00 gpu-08 kernel: ...
_SYSLOG = re.compile(
    r"(?m)^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.,]{0,10}(?:Z|[+-]\d\d:?\d\d)"
    r"|\d{10}\.\d{3,6}) ([A-Za-z0-9][\w.-]{0,63}) [\w./-]{1,40}(?:\[\d+\])?:"
)
# ==> hostname <==\ngpu-07          Linux gpu-07 5.15.0-105-generic #115 SMP ...
_HOSTNAME = re.compile(r"==> hostname <==\n([A-Za-z0-9][\w.-]{0,63})\n")
_UNAME = re.compile(r"(?m)^Linux ([A-Za-z0-9][\w.-]{0,63}) \d+\.\d+")
# "_HOSTNAME":"gpu-07"    "_HOSTNAME" : "gpu-07"    _HOSTNAME=gpu-07    journalctl -o json, export
_JOURNAL = re.compile(
    r'(?m)(?:"_HOSTNAME" ?: ?"|^(?: {4})?_HOSTNAME=)([A-Za-z0-9][\w.-]{0,63})(?="|$)'
)
_NODE_NAME = re.compile(r"\bNodeName=([A-Za-z0-9][\w.-]{0,63})(?=\s)")
_NODE_LIST = re.compile(r"(?<![A-Za-z])NodeList=([\w.,\[\]-]{2,400})(?=\s|$)")
_OWN = (_HOSTNAME, _UNAME, _SYSLOG, _JOURNAL)

_HOST_WORD = re.compile(
    r"(?:[a-z]*(?:node|host|hgx|dgx|compute|worker|server|slurmd|tray)|gpu|nid|cn|ip|vm|srv"
    r"|[abgh]h?b?[1-9]00)\Z"
)
_HOST_SHAPE = re.compile(r"[a-z][a-z0-9.-]*\d\Z")
_NOT_HOSTS = re.compile(
    r"(?:localhost|(?:\d+\.)+\d+|gpu\d|(?:rank|job|gpu|mlx\d?|ib|step)_?\d{0,2})\Z"
)
_RANK_BEFORE_NUMBER = re.compile(r"(?:rank|task|proc)[-_.=]?(\d{1,6})(?!\d)", re.IGNORECASE)
_MAIL_NAME = re.compile(
    r"(?:attach(?:ment)?|files?|image|img|blob|download|part|unnamed|noname|doc(?:ument)?|untitled"
    r"|copy|tmp|upload)[-_. (]*\d*\Z|\A(?=.*[a-f])(?=.*\d)[0-9a-f]{6,}\Z",
    re.IGNORECASE,
)
"""Names that a mail program or a hash gave: their number is no rank."""
_LAST_NUMBER = re.compile(r"(?:^|[^\d])(\d{1,6})\Z")
_SAMPLE = re.compile(r"[._-](a|b|before|after|first|second|1|2)\Z", re.IGNORECASE)
_ENDINGS = re.compile(r"(?:\.(?:txt|log|out|err|json|xml|csv|pkl|pickle|bin|dump|gz))+\Z")
MOST_NODES = 20_000


def could_be_host(name: str) -> bool:
    """A host name with a number in it, and not the name of a device, a rank or an address."""
    return (
        is_node_name(name)
        and bool(re.search(r"[A-Za-z].*\d", name))
        and not _NOT_HOSTS.match(name.lower())
    )


def hosts_in(text: str) -> set[str]:
    """Host names that a file's content shows: NCCL's and syslog's prefixes, Slurm's node lists."""
    found = {m[1] for pattern in (_NCCL, *_OWN, _NODE_NAME) for m in pattern.finditer(text)}
    for match in _NODE_LIST.finditer(text):
        found |= set(_expand(match[1]))
    return {name for name in found if is_node_name(name) and not _NOT_HOSTS.match(name)}


def own_host(text: str) -> str | None:
    """The node that printed this text, where exactly one host signs its lines."""
    for pattern in _OWN:
        found = {m[1] for m in pattern.finditer(text)}
        if len(found) == 1:
            name = found.pop()
            return name if is_node_name(name) and not _NOT_HOSTS.match(name) else None
    return None


def _expand(nodes: str) -> Iterable[str]:
    try:
        names = hostlist.expand(nodes)
    except ValueError:
        return ()
    return names if len(names) <= MOST_NODES else ()


def node_of(path: str, known: frozenset[str], *, guess: bool = True) -> str | None:
    """The node that a path names: a known host in it, else a part that looks like a host name."""
    *folders, name = path.split("/")
    stem = _ENDINGS.sub("", name)
    parts = [stem, *reversed(folders)]
    for part in parts:
        host = _known_in(part, known)
        if host:
            return host
    if not guess:
        return None
    for index in range(len(folders) - 1, -1, -1):
        folder = folders[index]
        if is_node_name(folder) and index and folders[index - 1] in ("nodes", "hosts"):
            return folder
        if _looks_like_host(folder, known):
            return folder
    pieces = [piece for piece in re.split(r"[_.\s]+", stem) if piece]
    return next((piece for piece in map(_bare, pieces) if _looks_like_host(piece, known)), None)


def _known_in(part: str, known: frozenset[str]) -> str | None:
    if not known or part in known:
        return part if known else None
    words = re.split(r"[^A-Za-z0-9-]+", part)
    for start in range(len(words)):
        if words[start] in known:
            return words[start]
    if len(known) >= 5000:
        return None
    inside = [host for host in known if host in part and _has(part, host)]
    return max(inside, key=lambda host: (len(host), host), default=None)


def _has(part: str, host: str) -> bool:
    at = part.find(host)
    while at >= 0:
        before, after = part[at - 1 : at], part[at + len(host) : at + len(host) + 1]
        if not before.isalnum() and not after.isalnum():
            return True
        at = part.find(host, at + 1)
    return False


def _bare(piece: str) -> str:
    """`dmesg-gpu-07` -> `gpu-07`: words before the first one that begins a host name go."""
    words = piece.split("-")
    for start in range(len(words)):
        word = re.sub(r"\d+\Z", "", words[start].lower())
        if _HOST_WORD.match(word):
            end = len(words)
            while end > start + 1 and not words[end - 1][-1:].isdigit():
                end -= 1
            return "-".join(words[start:end])
    return piece


def _looks_like_host(name: str, known: frozenset[str]) -> bool:
    low = name.lower()
    shape = _HOST_SHAPE.match(low)
    if not shape or not is_node_name(name) or _NOT_HOSTS.match(low):
        return False
    stem = re.sub(r"\d+", "#", low)
    if any(re.sub(r"\d+", "#", host.lower()) == stem for host in known):
        return True
    return bool(_HOST_WORD.match(low.split("-")[0].rstrip("0123456789")))


def rank_of(path: str, *, dump: bool) -> int | None:
    """The rank that a file name tells: `rank_3` anywhere, or a dump's last number."""
    stem = _ENDINGS.sub("", path.split("/")[-1])
    named = _RANK_BEFORE_NUMBER.search(stem)
    if named:
        return int(named[1])
    if _MAIL_NAME.search(stem):
        return None
    last = _LAST_NUMBER.search(stem) if dump else None
    if last and _looks_like_host(_bare(re.split(r"[_.\s]+", stem)[-1]), frozenset()):
        return None  # `trace_gpu-07`: the number is the node's
    return int(last[1]) if last else None


def sample_of(path: str) -> str:
    """`a`, `b` or "": which of two samples a name says it is."""
    named = _SAMPLE.search(_ENDINGS.sub("", path.split("/")[-1]))
    if not named:
        return ""
    return "a" if named[1].lower() in ("a", "before", "first", "1") else "b"
