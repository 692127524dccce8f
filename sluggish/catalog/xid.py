"""The Xid and SXid catalogue: what a code means to a hung job, typed, read when first asked for.

The data lies beside this file (xid.yaml, sxid.yaml, nvlink5.csv; sources and dates in their heads).
"""

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any

from sluggish.catalog import data


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEntry:
    """One Xid code. The words of the fields are closed lists, see the head of xid.yaml."""

    code: int
    name: str
    kind: str
    fault: str
    severity: str
    action: str
    hang: str
    meaning: str
    note: str = ""
    vendor: str = ""
    """The vendor's immediate / investigatory bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SXidEntry:
    """One NVSwitch error."""

    code: int
    name: str
    action: str
    prints: str | None = None
    """Word the driver prints: fatal, non-fatal, correctable; None: it prints none."""
    guide: str | None = None
    """Class of the Fabric Manager guide: always-fatal, potential-fatal, non-fatal."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """A number of Xid 154 and of nvidia-smi's GPU Recovery Action."""

    number: int
    action: str
    words: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5Rule:
    """One row of the decode table of Xid 144-150."""

    xid: int
    unit: str
    subcode: int
    status: int
    action: str
    """IGNORE, RESET_GPU, XID_154_EVAL."""
    investigate: str
    fatal: bool
    local_effect: str
    remote_effect: str
    peer_is_source: bool
    """True: the other end of the link failed."""


@lru_cache(maxsize=1)
def _xid_file() -> dict[str, Any]:
    return data.read("xid.yaml")


@lru_cache(maxsize=1)
def _xids() -> dict[int, XidEntry]:
    rows = (
        {key: value for key, value in row.items() if key != "retired"} for row in _xid_file()["xid"]
    )
    return {row["code"]: XidEntry(**row) for row in rows}


@lru_cache(maxsize=1)
def _sxids() -> dict[int, SXidEntry]:
    return {row["code"]: SXidEntry(**row) for row in data.read("sxid.yaml")["sxid"]}


def xid(code: int) -> XidEntry | None:
    """The entry of a code; None for a code that no driver of Ampere and newer prints or we know."""
    return _xids().get(code)


def xid_unused(code: int) -> bool:
    """Whether the vendor lists the code as unused on Ampere and newer."""
    return code in _xid_file()["unused"]


def sxid(code: int) -> SXidEntry | None:
    """The entry of an NVSwitch error, or None."""
    return _sxids().get(code)


@lru_cache(maxsize=1)
def _actions() -> dict[int, RecoveryAction]:
    rows: list[dict[str, Any]] = _xid_file()["recovery_action"]
    return {
        row["number"]: RecoveryAction(
            number=row["number"],
            action=row["action"],
            words=tuple(row["words"]),
            note=row.get("note", ""),
        )
        for row in rows
    }


def recovery_action(number: int) -> RecoveryAction | None:
    """What a recovery-action number asks for, or None for a number of a newer driver."""
    return _actions().get(number)


@lru_cache(maxsize=1)
def _nvlink5() -> tuple[tuple[str, str, Nvlink5Rule], ...]:
    text = files("sluggish.catalog").joinpath("nvlink5.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple((r["intr_v1_lt_r575"], r["intr_v2_ge_r575"], _rule(r)) for r in rows)


def _rule(row: dict[str, str]) -> Nvlink5Rule:
    return Nvlink5Rule(
        xid=int(row["xid"]),
        unit=row["unit"],
        subcode=int(row["subcode"], 16),
        status=int(row["status"], 16),
        action=row["action"],
        investigate=row["investigate"],
        fatal="fatal" in row["severity"].lower() and not row["severity"].startswith("Non"),
        local_effect=row["local_effect"],
        remote_effect=row["remote_effect"],
        peer_is_source=row["peer_is_source"] == "1",
    )


def decode_nvlink5(code: int, unit: str, intrinfo: int, status: int) -> Nvlink5Rule | None:
    """The row for an Xid 144-150 line, or None: then only the printed word tells.

    `unit` may be either spelling of `A/B`; without the unit a pattern may fit several rows.
    """
    names = set(unit.split("/"))
    best, most = None, 0
    for old, new, rule in _nvlink5():
        shared = len(names & set(rule.unit.split("/")))  # TLW_RX is a spelling of two pipes
        if rule.xid != code or rule.status != status or shared <= most:
            continue
        if _fits(old, intrinfo) or _fits(new, intrinfo):
            best, most = rule, shared
    return best


def nvlink5_rows(code: int, intrinfo: int) -> tuple[Nvlink5Rule, ...]:
    """Every row that the first word alone fits, for where unit and status are lost."""
    return tuple(
        rule
        for old, new, rule in _nvlink5()
        if rule.xid == code and (_fits(old, intrinfo) or _fits(new, intrinfo))
    )


def _fits(pattern: str, word: int) -> bool:
    bits = f"{word & 0xFFFFFFFF:032b}"
    return all(want in ("-", bit) for want, bit in zip(pattern, bits, strict=True))


def subcode(intrinfo: int) -> int:
    """Sub-code of an Xid 144-150: bits 20-25 of the first word."""
    return (intrinfo >> 20) & 0x3F


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBit:
    """One bit of an Xid 74 and what it says."""

    word: int
    bit: int
    kind: str
    """Key of xid74.classes, or `unknown`."""
    meaning: str


def decode_xid74(words: tuple[int, ...]) -> tuple[LinkBit, ...]:
    """The bits that are set in the seven words of an NVLink 1-4 error."""
    table = _xid_file()["xid74"]
    found: list[LinkBit] = []
    for index, kinds in table["bits"].items():
        value = words[index] & 0xFFFFFFFF if index < len(words) else 0
        for bit in (n for n in range(32) if value >> n & 1):
            kind = next((name for name, bits in kinds.items() if bit in bits), "unknown")
            meaning = table["classes"].get(kind, "unknown bit: draw no conclusion")
            found.append(LinkBit(word=index, bit=bit, kind=kind, meaning=meaning))
    return tuple(found)
