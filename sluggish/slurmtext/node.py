"""`scontrol show node` (multi-line or `-o`) -> NodeState."""

import re
from datetime import datetime

from sluggish.job import NodeState
from sluggish.slurmtext.fields import fields, gpus, number, records, when, word

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "~": "POWERED_DOWN",
    "$": "MAINTENANCE",
    "-": "PLANNED",
}
"""What a mark behind a state means (source: sinfo(1) 22.05)."""

# `Reason=sluggish: XID79 gpu3 job=7 [root@2026-11-29T23:45:15]`; a newline in it splits the record
_REASON = re.compile(
    r"(?:^|\s)Reason=(.{0,2000}?)\s{0,4}\[([^\s@\[\]]{1,64})@([^\[\]]{1,40})\]", re.DOTALL
)


def node_states(text: str, utc_offset_s: int) -> tuple[NodeState, ...]:
    """Every node record. Raises ValueError where there is none, or one without a state."""
    found = tuple(_node(record, utc_offset_s) for record in records(text, "NodeName="))
    if not found:
        raise ValueError("expected records that begin with NodeName=")
    return found


def state_and_flags(text: str) -> tuple[str, tuple[str, ...]]:
    """`DOWN*+DRAIN` -> `DOWN`, (`DRAIN`, `NOT_RESPONDING`)."""
    flags: list[str] = []
    words: list[str] = []
    for piece in text.strip().split("+"):
        bare = piece.rstrip("".join(SUFFIXES))
        flags.extend(SUFFIXES[mark] for mark in piece[len(bare) :])
        words.append(bare.upper())
    return words[0], tuple(dict.fromkeys([*(w for w in words[1:] if w), *flags]))


def _node(record: str, utc_offset_s: int) -> NodeState:
    reason, by, at = _reason(record, utc_offset_s)
    values = fields(record)
    name = word(values.get("NodeName"))
    state, flags = state_and_flags(values.get("State", "").split(" ")[0])
    if not name or not state:
        raise ValueError("expected NodeName= and State= in every record")
    return NodeState(
        node=name.split(" ")[0],
        state=state,
        flags=flags,
        reason=reason or word(values.get("Reason")),
        reason_by=by,
        reason_at=at,
        boot_at=when(values.get("BootTime"), utc_offset_s),
        slurmd_start_at=when(values.get("SlurmdStartTime"), utc_offset_s),
        gpus=gpus(values.get("Gres")),
        real_memory_mib=number(values.get("RealMemory")),
        free_memory_mib=number(values.get("FreeMem")),
    )


def _reason(record: str, utc_offset_s: int) -> tuple[str | None, str | None, datetime | None]:
    """Reason text, who wrote it, when."""
    match = _REASON.search(record)
    if not match:
        return None, None, None
    return word(" ".join(match[1].split())), match[2], when(match[3], utc_offset_s)
