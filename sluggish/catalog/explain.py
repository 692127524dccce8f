"""What `sluggish explain` says of a code: `79`, `149:0x021425c6`, `S12028`, or a pasted line."""

import re

from sluggish.catalog.xid import (
    Nvlink5Rule,
    XidEntry,
    decode_nvlink5,
    decode_xid74,
    nvlink5_rows,
    recovery_action,
    subcode,
    sxid,
    xid,
    xid_unused,
)
from sluggish.catalog.xidline import XidText, split_sxid, split_xid

_CODE = re.compile(r"(?:xid[ :]?)?(?P<code>[0-9]{1,4})(?::(?P<word>0x[0-9a-f]{1,8}))?\Z", re.I)
_SCODE = re.compile(r"(?:sxid[ :]?|s)?(?P<code>[0-9]{5})\Z", re.I)

HANG_WORDS = {
    "cause": "explains a hung job by itself, on a GPU of the job and in its window",
    "cause_app": "explains a hung job; the program on that rank is to blame, not the GPU",
    "possible": "explains a hung job only if nothing stronger is seen",
    "follow_on": "a symptom of something else or of tear-down: never the root",
    "marker": "carries the driver's recovery action, no fault of its own",
    "no": "does not stop a training job",
}
ACTION_WORDS = {
    "none": "nothing",
    "restart_app": "restart the job; no drain",
    "reset_gpu": "reset the GPU when no process uses it",
    "reboot_node": "reboot the node: a reset is not enough",
    "drain_and_field_diag": "drain after the job and run the field diagnosis",
    "rma": "field diagnosis, then exchange the board",
    "check_fabric": "look at the NVLink fabric first (Fabric Manager, switches, peers)",
}


def explain_xid(text: str) -> list[str] | None:
    """Lines to print for a code or a pasted kernel line; None if it is neither."""
    text = text.strip()[:4096]
    if found := _CODE.match(text):
        word = int(found["word"], 16) if found["word"] else None
        return _xid_lines(int(found["code"]), XidText(pci="", code=0, intrinfo=word))
    if found := _SCODE.match(text):
        return _sxid_lines(int(found["code"]), None)
    if parts := split_xid(text):
        return _xid_lines(parts.code, parts)
    if switch := split_sxid(text):
        return _sxid_lines(switch.code, switch.fatal)
    return None


def _xid_lines(code: int, parts: XidText) -> list[str]:
    entry = xid(code)
    if entry is None:
        why = "not used on Ampere and newer" if xid_unused(code) else "not in the catalogue"
        raw = [f"words     {parts.words}"] if parts.words else []
        told = "Report the raw line; draw no conclusion, never drain on it."
        return [f"Xid {code}: {why}", *raw, told]
    lines = [f"Xid {code} {entry.name}: {entry.meaning}"]
    lines.append(f"fault     {entry.fault}, severity {entry.severity}")
    lines.append(f"hang      {HANG_WORDS[entry.hang]}")
    if entry.hang != "marker":
        lines.append(f"do first  {ACTION_WORDS[entry.action]}")
    if entry.vendor:
        lines.append(f"vendor    {entry.vendor}")
    if entry.note:
        lines.append(f"note      {entry.note}")
    return lines + _line_details(entry, parts)


def _line_details(entry: XidEntry, parts: XidText) -> list[str]:
    lines: list[str] = []
    if parts.caused_by is not None:
        lines.append(f"cause     the driver names Xid {parts.caused_by}: look there")
    if parts.recovery is not None:
        action = recovery_action(parts.recovery)
        words = f"{action.words[0]}: {ACTION_WORDS[action.action]}" if action else "unknown number"
        lines.append(f"recovery  {parts.recovery} = {words}")
    if entry.code == 74:
        lines += [
            f"word {b.word} bit {b.bit}  {b.kind}: {b.meaning}"
            for b in decode_xid74(parts.link_words)
        ]
    if parts.intrinfo is not None and 144 <= entry.code <= 150:
        lines += _nvlink5_lines(parts, entry.code)
    return lines


def _nvlink5_lines(parts: XidText, code: int) -> list[str]:
    word = parts.intrinfo or 0
    lines = [f"sub-code  0x{subcode(word):02x} (bits 20-25 of 0x{word:08x})"]
    if code == 149 and subcode(word) in PEER_SUBCODES:
        lines.append("peer      the other end of the link failed: look there")
    if parts.unit is None or parts.status is None:
        lines += [f"may be    {_row(rule)}" for rule in nvlink5_rows(code, word)[:MOST_ROWS]]
        return [*lines, "decode    needs the unit and the second word: paste the whole line"]
    rule = decode_nvlink5(code, parts.unit, word, parts.status)
    if rule is None:
        word_printed = "Fatal" if parts.fatal else "Nonfatal"
        lines.append(
            f"decode    no rule for this unit and status: the printed {word_printed} counts"
        )
        return lines
    return [*lines, f"decode    {_row(rule)}"]


def _row(rule: Nvlink5Rule) -> str:
    kind = "fatal" if rule.fatal else "not fatal"
    return f"{rule.unit}: {kind}, {rule.action}, then {rule.investigate}"


MOST_ROWS = 4
"""Rows of the decode table that are shown where the first word alone is known."""
PEER_SUBCODES = frozenset({0x15, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25})
"""149: the other end failed (vendor sheet "Xid 144-150 Decode")."""


def _sxid_lines(code: int, fatal: bool | None) -> list[str]:
    entry = sxid(code)
    printed = {True: "fatal", False: "not fatal", None: None}[fatal]
    if entry is None:
        said = f"; the driver printed {printed}" if printed else ""
        return [f"SXid {code}: not in the catalogue{said}", "Report the raw line."]
    lines = [f"SXid {code} {entry.name} (NVSwitch)"]
    lines.append(f"driver    {printed or entry.prints or 'prints no word'}")
    lines.append(f"guide     {entry.guide or 'no class'}")
    lines.append(f"do first  {ACTION_WORDS[entry.action]}")
    if entry.note:
        lines.append(f"note      {entry.note}")
    return lines
