"""What somebody copied from a terminal: several commands with their answers, parted at the prompts.

Without it a table of nvidia-smi between other answers is nobody's: each probe wants its own text.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sluggish.evidence.naming import could_be_host
from sluggish.evidence.source import Item
from sluggish.text import safe

HEAD = 64 << 10
MOST_BYTES = 256 << 20
MOST_PARTS = 5_000
FEWEST = 2
"""One prompt above a text is no transcript: the probes look over it themselves."""

# [root@gpu-07 ~]# dmesg -T       root@gpu-07:~# nvidia-smi       alice@login1 ~ $ ssh gpu-07 ibstat
# gpu-07:~ # ibstat               (venv) me@gpu-07:/tmp$ ...
_HOST = rb"(?P<host>[A-Za-z0-9][\w.-]{0,63})"
_PROMPT = re.compile(
    rb"^(?:\([\w.-]{1,40}\) )?\[?"
    rb"(?:[a-z_][\w.-]{0,31}@(?=[\w.-]{1,64}[\]:$# ])|(?=[\w.-]{1,64}:[~/]))"
    + _HOST
    + rb"(?:[: ][^\n#$]{0,100}?)?\]? ?[#$] (?P<command>[a-z./][^\n]{0,2000}?)\r?\n",
    re.MULTILINE,
)
# $ nvidia-smi        # ibstat        + dmesg -T        (a bare prompt, `set -x`)
_BARE = re.compile(rb"^(?P<host>)[$#+] (?P<command>[a-z./][^\n]{1,2000})\r?\n", re.MULTILINE)
# === nvidia-smi ===     ## Output of `dmesg -T`     ---- ibstat ----      (a script, an issue)
_HEADING = re.compile(
    rb"^(?P<host>)(?:={2,40}|#{1,6}|-{2,40}|\*{2,40}) ?(?:[Oo]utput of )?[`'\"]?"
    rb"(?P<command>(?:sudo )?(?:nvidia-smi|dmesg|journalctl|ibstat(?:us)?|ibv_devinfo|lspci"
    rb"|scontrol|sacct|squeue|sinfo|rdma|ethtool|dcgmi|uname|uptime|hostname|date|free|df|mount|ps|top|ss|ip|cat|ls)\b"
    rb"[^\n]{0,400}?)[`'\":]{0,2}(?: ?(?:={2,40}|#{1,6}|-{2,40}|\*{2,40}))?[ \t]*\r?\n",
    re.MULTILINE,
)
_ELSEWHERE = ("ssh", "pdsh", "clush", "srun", "kubectl", "docker", "ansible", "psh", "rsh")
"""Commands whose answer is not of the machine with the prompt."""
_ONE = ("ssh", "srun", "rsh")
"""Of these, those that are mostly given one machine by its name."""
_SILENT = ("exit", "logout", "clear", "cd")


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one command printed."""

    node: str | None
    """The machine, where prompt or command name it."""
    command: str
    item: Item


def apart(item: Item, *, bare: bool = True) -> list[Part]:
    """The commands in order; empty where the file is no transcript. OSError if unreadable.

    `bare`: a prompt may be the sign alone; a batch script's `set -x` looks like that too.
    """
    head = item.read(0, HEAD)
    for pattern in (_PROMPT, _BARE, _HEADING) if bare else (_PROMPT,):
        if pattern.search(head):
            text = item.read(0, min(item.size, MOST_BYTES))
            parts = list(_parts(item, text, pattern))
            if len(parts) >= FEWEST:
                return parts
    return []


def _parts(item: Item, text: bytes, pattern: re.Pattern[bytes]) -> Iterator[Part]:
    prompts = list(pattern.finditer(text))[:MOST_PARTS]
    for at, found in enumerate(prompts):
        end = prompts[at + 1].start() if at + 1 < len(prompts) else len(text)
        command = found["command"].decode("utf-8", "replace")
        body = text[found.end() : end]
        if body.strip() and command.split()[0] not in _SILENT:
            node = _node(found["host"].decode("ascii"), command)
            shown = command if node else command.split()[0]  # a name would be taken for the node
            yield Part(node=node, command=command, item=_item(item, shown, body))


def _node(host: str, command: str) -> str | None:
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a quote that is not closed
        words = command.split()
    words = [word for word in words if word not in ("sudo", "-E", "time")]
    if words and words[0].rsplit("/", 1)[-1] in _ELSEWHERE:
        named = [w.rpartition("@")[2] for w in words[1:] if not w.startswith("-")]
        hosts = [name for name in named if could_be_host(name)]
        return hosts[0] if len(set(hosts)) == 1 and words[0].endswith(_ONE) else None
    return host if could_be_host(host) else None


def _item(item: Item, command: str, body: bytes) -> Item:
    def read(at: int, count: int) -> bytes:
        return body[at : at + count]

    name = safe(command.split("|")[0].strip().replace("/", "_"), 40)
    return replace(item, name=f"{item.name}/{name}", size=len(body), read=read, file=None)
