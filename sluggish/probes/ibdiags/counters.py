"""Counters as perfquery and ibqueryerrors print them, under the names that sysfs gives them."""

import re
from collections.abc import Iterator

from sluggish.evidence.naming import sample_of
from sluggish.facts.fabric_side import FabricSummary, PortQuery, PortTotals
from sluggish.facts.origin import Origin
from sluggish.text import safe

# infiniband-diags/perfquery.c and libibmad/dump.c; kernel core/sysfs.c for the right column
NAMES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "PortXmitConstraintErrors": "port_xmit_constraint_errors",
    "PortRcvConstraintErrors": "port_rcv_constraint_errors",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
    "VL15Dropped": "VL15_dropped",
    "PortXmitData": "port_xmit_data",
    "PortRcvData": "port_rcv_data",
    "PortXmitPkts": "port_xmit_packets",
    "PortRcvPkts": "port_rcv_packets",
    "PortXmitWait": "port_xmit_wait",
}
FULL_32 = 0xFFFFFFFF
"""Where a counter of 32 bits stops: perfquery without -x reaches it within seconds of traffic."""
ALL_PORTS = 255

# # Port counters: Lid 4 port 1 (CapMask: 0x1200)
# # Port extended counters: Lid 4 port 1 (CapMask: 0x1200 CapMask2: 0x0000000)
# # Port counters: Lid 4 port 255 (CapMask: 0x5A00)      (-a: the sum of all ports)
_BLOCK = re.compile(r"# Port (extended )?counters: Lid (\d{1,6}) port (\d{1,3})\b")
# SymbolErrorCounter:..............65535
_ROW = re.compile(r"([A-Za-z][A-Za-z0-9]{3,40}):\.{1,40}(\d{1,20})\s*\Z")
# Errors for "gpu-02 mlx5_0"      Errors for 0x2c903006e29b0 "MF0;leaf4:SX6036/U1"
_ERRORS = re.compile(r'Errors for (?:0x[0-9a-f]{1,16} )?"([^"]{0,120})"')
#    GUID 0x100005 port 1: [SymbolErrorCounter == 65535] [PortXmitData == 4968 (19.406KB)]
_PORT = re.compile(r"\s*GUID 0x[0-9a-f]{1,16} port (\d{1,3}|ALL): ")
_TOTAL = re.compile(r"\[([A-Za-z][A-Za-z0-9]{3,40}) == (\d{1,20})(?: \([^()]{1,24}\))?\]")
# ## Summary: 6 nodes checked, 1 bad nodes found
# ##          13 ports checked, 1 ports have errors beyond threshold
_CHECKED = re.compile(r"## +(\d{1,9}) ports checked, (\d{1,9}) ports have errors beyond threshold")


def queries(lines: list[str], origin: Origin) -> Iterator[PortQuery]:
    """One a port and width that perfquery was asked for."""
    found: dict[tuple[int, int, bool], dict[str, int]] = {}
    heads: dict[tuple[int, int, bool], str] = {}
    here: dict[str, int] | None = None
    wide = False
    for line in lines:
        if line.startswith("# "):
            here = None
            if block := _BLOCK.match(line):
                wide = bool(block[1])
                key = int(block[2]), int(block[3]), wide
                heads.setdefault(key, line)
                here = found.setdefault(key, {})
        elif here is not None and (row := _ROW.match(line)):
            name, value = NAMES.get(row[1]), int(row[2])
            if name and (wide or value < FULL_32):
                here[name] = value
    for (lid, port, wide), line in heads.items():
        yield PortQuery(
            node=origin.node,
            lid=lid,
            port=None if port == ALL_PORTS else port,
            sample=origin.sample or sample_of(origin.path),
            at=origin.mtime or origin.taken_at,
            counters=found[lid, port, wide],
            wide=wide,
            line=line,
        )


def totals(lines: list[str]) -> Iterator[PortTotals | FabricSummary]:
    """The ports that ibqueryerrors names, and how many it checked."""
    end = ""
    for line in lines:
        if head := _ERRORS.match(line):
            end = safe(head[1].strip(), 120)
        elif end and (port := _PORT.match(line)):
            told = {NAMES[n]: int(v) for n, v in _TOTAL.findall(line) if n in NAMES}
            if told and port[1] != "ALL":
                yield PortTotals(end=end, port=int(port[1]), counters=told, line=line.strip())
        elif checked := _CHECKED.match(line):
            end = ""
            stage = (f"{checked[1]} ports", 0, int(checked[2]))
            yield FabricSummary(stages=(stage,), tool="ibqueryerrors")
