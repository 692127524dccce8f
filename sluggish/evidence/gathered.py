"""One file of many nodes, as pdsh, clush, dshbak, ansible or a loop over ssh writes it, by node.

Read as one text such a file would be the last node's: the others' ports and GPUs were overwritten.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sluggish import hostlist
from sluggish.evidence.naming import could_be_host
from sluggish.evidence.source import Item
from sluggish.text import is_node_name

HEAD = 64 << 10
MOST_BYTES = 256 << 20
MOST_NODES = 20_000
LABELLED_SHARE = 0.95
"""So many of the first lines carry a node's name where a parallel shell wrote the file."""
ABOVE = 10
"""Lines that may stand over the first heading: a prompt, the command, a banner."""

_NAME = rb"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
# ----------------                (dshbak: 16, clush -b: 15 with the count behind folded names)
# gpu-[07-09,12] (4)
# ----------------
_BLOCK = re.compile(
    rb"^-{5,80}[ \t]*\r?\n(?P<names>[A-Za-z0-9][\w.,\[\]-]{0,4000})(?: \(\d{1,6}\))?[ \t]*\r?\n"
    rb"-{5,80}[ \t]*\r?\n",
    re.MULTILINE,
)
# gpu-07 | CHANGED | rc=0 >>      gpu-08 | UNREACHABLE! => {           (ansible -m shell)
_ANSIBLE = re.compile(
    rb"^(?P<names>" + _NAME + rb") \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE!)(?: \|| =>)[^\n]*\n",
    re.MULTILINE,
)
# ==> gpu-07 <==    === gpu-07 ===    ##### gpu-07    gpu-07           (tail -v, a loop by hand)
_LINE = re.compile(
    rb"^(?:={2,40}>?|#{1,40}|\*{2,40}|-{2,40}|>{2,40}|\[)? ?(?P<names>"
    + _NAME
    + rb") ?(?:<?={2,40}|#{1,40}|\*{2,40}|-{2,40}|<{2,40}|\]|:)?[ \t]*\r?\n",
    re.MULTILINE,
)
# gpu-07: text                                                          (pdsh, clush, xargs of ssh)
_LABEL = re.compile(rb"(?P<name>" + _NAME + rb"):(?: |\r?$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one node printed."""

    node: str
    item: Item


def apart(item: Item) -> list[Part]:
    """The parts in order; empty where the file is not of that form. OSError if it is unreadable.

    Only a look at the form: whether the parts are anything is for their probes to say.
    """
    head = item.read(0, HEAD)
    if _is_labelled(head):  # before the headings: an empty line of a node is its name alone
        return list(_by_label(item))
    for pattern in (_BLOCK, _ANSIBLE, _LINE):
        first = pattern.search(head)
        if first and len(head[: first.start()].splitlines()) <= ABOVE:
            text = item.read(0, min(item.size, MOST_BYTES))
            stem = _stem(text) if pattern is _LINE else None
            if stem != "" and (parts := list(_sections(item, text, pattern, stem))):
                return parts
    return []


def _sections(
    item: Item, text: bytes, pattern: re.Pattern[bytes], stem: str | None
) -> Iterator[Part]:
    headings = [(found, _expand(found["names"])) for found in pattern.finditer(text)]
    headings = [
        (found, names)
        for found, names in headings
        if names and (stem is None or _numberless(names[0]) == stem)
    ]
    total = 0
    for at, (found, names) in enumerate(headings):
        end = headings[at + 1][0].start() if at + 1 < len(headings) else len(text)
        total += len(names)
        for node in names if total <= MOST_NODES else ():
            yield _part(item, node, text[found.end() : end])


def _expand(names: bytes) -> list[str]:
    try:
        found = hostlist.expand(names.decode("ascii", "replace"))
    except ValueError:
        return []
    return found if found and all(map(is_node_name, found)) else []


def _stem(text: bytes) -> str:
    """What the names of a loop over nodes have in common; empty where the first has no like."""
    names = (found["names"].decode("ascii") for found in _LINE.finditer(text))
    hosts = (name for name in names if could_be_host(name))
    first = next(hosts, "")
    stem = _numberless(first)
    return stem if any(n != first and _numberless(n) == stem for n in hosts) else ""


def _numberless(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _is_labelled(head: bytes) -> bool:
    whole = head.splitlines() if len(head) < HEAD else head.splitlines()[:-1]
    lines = [line for line in whole if line.strip()]
    names = [found["name"] for line in lines if (found := _LABEL.match(line))]
    enough = bool(lines) and len(names) >= LABELLED_SHARE * len(lines)
    return enough and all(could_be_host(name.decode("ascii")) for name in set(names))


def _by_label(item: Item) -> Iterator[Part]:
    texts: dict[bytes, list[bytes]] = {}
    for line in item.read(0, min(item.size, MOST_BYTES)).splitlines(keepends=True):
        if found := _LABEL.match(line):
            rest = line[found.end() :]
            texts.setdefault(found["name"], []).append(
                rest if rest.endswith(b"\n") else rest + b"\n"
            )
    for name, lines in texts.items():
        node = name.decode("ascii")
        if is_node_name(node) and len(texts) <= MOST_NODES:
            yield _part(item, node, b"".join(lines))


def _part(item: Item, node: str, text: bytes) -> Part:
    def read(at: int, count: int) -> bytes:
        return text[at : at + count]

    whole = replace(item, name=f"{item.name}/{node}", size=len(text), read=read, file=None)
    return Part(node=node, item=whole)
