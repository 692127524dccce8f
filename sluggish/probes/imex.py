"""The IMEX domain of a node whose NVLink reaches over the rack: its mates, and the job's channels.

Shows: `nvidia-imex-ctl -N` (NVIDIA IMEX guide; a public capture of a ComputeDomain of GB200), which
asks the daemon of this node what it knows of the others, and the channels that this node has.
Rights: any user. Cost: one local request; it changes nothing.

Traps: with Slurm's switch/nvidia_imex plugin or a per-job prolog the domain is the job's and is not
there between jobs; an idle rack may say DEGRADED for weeks; a node shut out of the list is simply
not in it. Other machines have neither tool nor channels: they print one line that says so.
"""

import re
from collections.abc import Iterator

from sluggish.facts.gpu import ImexDomain
from sluggish.facts.origin import Origin
from sluggish.text import safe

ID = "imex"
COMMAND = """\
channels=/dev/nvidia-caps-imex-channels
if [ ! -e "$channels" ] && ! command -v nvidia-imex-ctl > /dev/null; then
  echo 'no IMEX on this machine'
else
  echo "==> $channels <=="; ls "$channels" 2>/dev/null
  echo '==> nvidia-imex-ctl -N <=='; nvidia-imex-ctl -N
fi
"""
FACTS: tuple[type, ...] = (ImexDomain,)
BINARY = False

NONE = "no IMEX on this machine"
# Nodes:
# Node #0   - 10.136.206.48   - READY
# Node #1 * - 10.136.206.49   - READY                - Version: 580.95.05
_NODE = re.compile(
    r"^Node #(\d{1,4}) {0,8}\*? {0,8}- {1,8}([\w.:%-]{1,64}) {0,24}- {1,8}([A-Z_]{2,30})\b",
    re.MULTILINE,
)
#  Nodes From\To  0   1
#        0        C   C
_ROW = re.compile(
    r"^ {1,12}(\d{1,4}) {2,16}([INRDAC*](?: {1,8}[INRDAC*]){0,1023}) *\r?$", re.MULTILINE
)
# Domain State: UP
_STATE = re.compile(r"^Domain State: {1,8}([A-Z_]{2,30})\b", re.MULTILINE)
_CHANNEL = re.compile(r"^channel\d{1,5}\s*$", re.MULTILINE)
_CHANNELS = "==> /dev/nvidia-caps-imex-channels <=="
MOST_NODES = 1024


def sniff(head: bytes) -> bool:
    """This probe's sections or its one line, or what nvidia-imex-ctl printed."""
    text = head[:65536].decode("utf-8", "replace")
    own = text.startswith((NONE, _CHANNELS))
    return own or bool(_STATE.search(text) and _NODE.search(text))


def parse(text: str, origin: Origin) -> Iterator[ImexDomain]:
    """One domain; none where the machine has no IMEX.

    Raises ValueError where neither channels nor the end of the answer, its state, is there.
    """
    if text.strip() == NONE:
        return
    state = _STATE.search(text)
    if state is None and _CHANNELS not in text:
        raise ValueError("expected nvidia-imex-ctl -N with its Domain State, or the channels")
    nodes = [(int(n), safe(where, 64), word) for n, where, word in _NODE.findall(text)[:MOST_NODES]]
    lost = tuple(
        (int(row), column)
        for row, cells in _ROW.findall(text)[:MOST_NODES]
        for column, cell in enumerate(cells.split())
        if cell not in ("C", "*")
    )
    yield ImexDomain(
        node=origin.node,
        state=state[1] if state else None,
        mates=tuple((where, word) for _, where, word in sorted(nodes)),
        not_connected=len(lost),
        channels=len(_CHANNEL.findall(text)) if _CHANNELS in text else None,
    )
