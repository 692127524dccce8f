"""What a Lustre client says of each of its targets: the files `import` of osc, mdc and mgc.

Sources: Lustre, lustre/obdclass/lprocfs_status.c (the form, 2.5 to 2.16) and
lustre/include/lustre_import.h (the states); read at 2.12 and later in debugfs, which is root's.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from sluggish.facts.host import LustreTarget
from sluggish.facts.origin import Origin
from sluggish.text import safe

MOST = 10_000
"""Targets of one node; the largest file systems have some thousands."""

# import:
#     name: lustre-OST0000-osc-ffff880414c43400
#     target: lustre-OST0000_UUID
#     state: FULL
#     connect_flags: [ write_grant, server_lock, ... ]
#     import_flags: [ replayable, pingable, connect_tried ]
#     connection:
#        failover_nids: [ 192.168.1.13@tcp ]
#        current_connection: 192.168.1.13@tcp        (2.15: the address in quotes)
#     rpcs:
#        inflight: 0
_BLOCK = re.compile(r"^[ \t]{0,8}import:[ \t]*\r?$", re.MULTILINE)
_FIELD = re.compile(
    r"^[ \t]{0,16}(name|target|state|import_flags|current_connection|inflight|idle):[ \t]{0,8}"
    r"([^\r\n]{0,400})",
    re.MULTILINE,
)
_STATES = {
    "CLOSED", "NEW", "DISCONN", "CONNECTING", "REPLAY", "REPLAY_LOCKS", "REPLAY_WAIT", "RECOVER",
    "FULL", "EVICTED", "IDLE",
}  # fmt: skip


def targets(text: str, origin: Origin) -> Iterator[LustreTarget]:
    """One fact a block that has a target and a state that Lustre knows."""
    starts = [found.end() for found in _BLOCK.finditer(text)][:MOST]
    for begin, end in pairwise((*starts, len(text))):
        told: dict[str, str] = {}
        for key, value in _FIELD.findall(text[begin : min(end, begin + 8000)]):
            told.setdefault(key, value.strip())
        target = told.get("target", "").removesuffix("_UUID")
        if not target or told.get("state") not in _STATES:
            continue
        flags = re.findall(r"\w+", told.get("import_flags", ""))
        inflight = told.get("inflight", "")
        yield LustreTarget(
            node=origin.node,
            target=safe(target, 100),
            state=told["state"],
            server=safe(told.get("current_connection", "").strip('"'), 100),
            inflight=int(inflight) if inflight.isdecimal() and len(inflight) < 9 else None,
            inactive="deactive" in flags,
        )
