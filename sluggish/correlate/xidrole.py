"""What one Xid line can be in a story: cause, program's fault, possible, follow-on, nothing.

The catalogue judges the code; for 144-150 the decode row and the printed word refine it.
"""

from dataclasses import dataclass

from sluggish.catalog.xid import Nvlink5Rule, decode_nvlink5, subcode, xid
from sluggish.facts.gpu import Xid

NVLINK5 = frozenset(range(144, 151))
NVLINK = NVLINK5 | {74, 155}
CONTAINED_ECC = frozenset({48, 63, 94, 171, 172})
"""Codes that stand together when an uncorrectable error was contained."""
SPREADING_ECC = frozenset({64, 95, 140})
"""With one of these the error was not contained, or could not be repaired."""
OFF_BUS = 79
RECOVERY = 154
ECHOES = frozenset({43, 45, 137, RECOVERY, 174})
"""Never the root of anything (gpu catalogue: follow_on and marker)."""
PEER_SUBCODES = frozenset({0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25})
"""Sub-codes of 149 that say: the other end of the link failed (vendor's decode sheet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidRole:
    """The judgement of one line."""

    hang: str
    """cause, cause_app, possible, follow_on, marker, no, or `unknown` for a code not listed."""
    kind: str
    """bus, ecc, nvlink, gsp, other."""
    action: str
    meaning: str
    downstream: bool = False
    """A link error that is the usual victim of a fault elsewhere in the NVLink domain."""
    peer: bool = False
    """The other end of the link failed, this GPU only reports it."""


def role(fact: Xid) -> XidRole:
    """Judge one Xid by itself, without its burst."""
    entry = xid(fact.code)
    if entry is None:
        return XidRole(hang="unknown", kind="other", action="none", meaning="code not known here")
    if fact.code in NVLINK5:
        return _nvlink5(fact, entry.hang, entry.action, entry.meaning)
    return XidRole(hang=entry.hang, kind=entry.kind, action=entry.action, meaning=entry.meaning)


def _nvlink5(fact: Xid, hang: str, action: str, meaning: str) -> XidRole:
    """The printed word decides; a row that says `ignore` on a non-fatal line makes it harmless."""
    row = _row(fact)
    if fact.unit and fact.unit.startswith(("NETIR_LINK", "NETIR_BER")):
        down = fact.unit.startswith("NETIR_LINK")
        meaning = "an NVLink went down" if down else "an NVLink has many bit errors"
    peer = row.peer_is_source if row else _peer_by_subcode(fact)
    fatal = fact.fatal if fact.fatal is not None else (row.fatal if row else None)
    if fatal:
        return XidRole(hang="cause", kind="nvlink", action="reset_gpu", meaning=meaning, peer=peer)
    if fatal is None:
        return XidRole(hang="possible" if hang == "cause" else hang, kind="nvlink", action=action,
                       meaning=meaning, peer=peer)  # fmt: skip
    harmless = row is not None and row.action == "IGNORE" and "xid48" not in row.local_effect
    return XidRole(
        hang="no" if harmless and fact.code != 145 else "possible",
        kind="nvlink",
        action="none" if harmless else action,
        meaning=meaning,
        downstream=fact.code in (144, 145, 146),
        peer=peer,
    )


def _row(fact: Xid) -> Nvlink5Rule | None:
    if fact.unit is None or fact.intrinfo is None or fact.status is None:
        return None
    return decode_nvlink5(fact.code, fact.unit, fact.intrinfo, fact.status)


def _peer_by_subcode(fact: Xid) -> bool:
    """Lines that are cut off after the first word still tell the sub-code."""
    link = fact.code == 149 and (fact.unit or "").startswith("NETIR_LINK")
    return link and fact.intrinfo is not None and subcode(fact.intrinfo) in PEER_SUBCODES
