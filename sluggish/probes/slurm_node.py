"""`scontrol show node`: Slurm's state of each node, its flags, reason, boot time.

Any user. Traps: `*` or NOT_RESPONDING stands for about a second after every boot or resume, it
needs a second look; a drain reason with a newline splits the `-o` line; BootTime is None while a
node is not registered; times are local, without a zone.
"""

import re
from collections.abc import Iterator

from sluggish.facts.origin import Origin
from sluggish.job import NodeState
from sluggish.slurmtext.node import node_states

ID = "slurm_node"
COMMAND = 'scontrol -o show node "$SLUGGISH_NODES"'
FACTS: tuple[type, ...] = (NodeState,)
BINARY = False

# NodeName=gpu-07 Arch=x86_64 CoresPerSocket=56
_SNIFF = re.compile(rb"^[ \t]*NodeName=\S+ ", re.MULTILINE)
_SNIFF_STATE = re.compile(rb"\sState=[A-Z]")


def sniff(head: bytes) -> bool:
    """Whether node records stand here; slurm.conf has NodeName= too, but no BootTime or Arch."""
    record = b"Arch=" in head or b"BootTime=" in head or b"CoresPerSocket=" in head
    return bool(record and _SNIFF.search(head) and _SNIFF_STATE.search(head))


def parse(text: str, origin: Origin) -> Iterator[NodeState]:
    """One NodeState a record."""
    yield from node_states(text, origin.utc_offset_s)
