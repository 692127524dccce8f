"""What the tools of infiniband-diags say of the fabric, as somebody mailed it: never run from here.

perfquery, ibqueryerrors, iblinkinfo, ibnetdiscover, ibhosts and sminfo send management packets and
need /dev/infiniband/umad* (root, unless the site opened it). One file may hold the words of several
of them. Traps (rdma-core infiniband-diags; runs of 44.0 on a simulated fabric):
- ibqueryerrors ends with 1 where it found errors: its status tells nothing of whether it ran;
- without the right to umad nothing is known of the fabric: that is no subnet manager that is gone;
- counters of 32 bits stop at their end within seconds of traffic: such a value tells nothing;
- iblinkinfo writes `Could be 12X` at every link of healthy fabrics too, see rules/fabric/sides.
"""

import re
from collections.abc import Iterator

from sluggish.facts.fabric_side import (
    FabricLink,
    FabricMember,
    FabricSummary,
    PortQuery,
    PortTotals,
    SubnetManager,
)
from sluggish.facts.origin import Origin
from sluggish.probes.ibdiags import counters, links

ID = "ibdiags"
COMMAND = "sminfo; iblinkinfo; ibqueryerrors"
FACTS: tuple[type, ...] = (
    PortQuery,
    PortTotals,
    FabricSummary,
    FabricLink,
    FabricMember,
    SubnetManager,
)
BINARY = False
MOST = 1_000_000
"""Facts of one file; of a list that was cut the rest would read as absent."""
LONGEST_LINE = 2_000

Fact = PortQuery | PortTotals | FabricSummary | FabricLink | FabricMember | SubnetManager

# sminfo: sm lid 1 sm guid 0x100001, activity count 239 priority 0 state 3 SMINFO_MASTER
_SM = re.compile(
    r"sminfo: sm lid (\d{1,6}) sm guid 0x[0-9a-f]{1,16}, activity count \d{1,20} "
    r"priority \d{1,3} state \d{1,2} SMINFO_([A-Z]{2,20})"
)
# sminfo: iberror: failed: query      sminfo: iberror: [812] main: failed: query
_NO_SM = re.compile(r"sminfo: iberror: .{0,40}failed: query")
# perfquery: iberror: failed: Failed to open '(null)' port '0'
# ibwarn: [812] mad_rpc_open_port: can't open UMAD port ((null):0)
# Failed to open (null) port 0      (iblinkinfo)
_NO_RIGHT = re.compile(
    r"(?:^|: )(?:[Ff]ailed to open '?[\w()]{1,64}'? port '?\d{1,3}|can't open UMAD port)"
    r"|is ib_umad module loaded\?"
)
_SNIFF = re.compile(
    rb"^(?:# Port (?:extended )?counters: Lid \d"
    rb'|Errors for (?:0x[0-9a-f]{1,16} )?"[^"\n]{0,120}"[ \t]*\n[ \t]{1,8}GUID 0x'
    rb"|## Summary: \d{1,7} nodes checked, \d{1,7} bad nodes found"
    rb"|sminfo: (?:sm lid \d|iberror: )"
    rb"|(?:perfquery|ibqueryerrors|iblinkinfo|ibnetdiscover): iberror: "
    rb"|ibwarn: \[\d{1,9}\] mad_rpc_open_port: "
    rb'|Ca\t(?:: 0x[0-9a-f]{1,16} ports \d|\d{1,3} "H-)'
    rb"|(?:CA|SW) {1,8}\d{1,6} {1,4}\d{1,3} 0x[0-9a-f]{16} )"
    rb"|\] ==\([^()\n]{3,60}(?:\(FDR10\)[^()\n]{1,40})?\)==>",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """Whether a line stands here that only these tools print."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[Fact]:
    """What each tool told. ValueError where none of them told anything, or one was cut short."""
    lines = [line for line in text.splitlines() if len(line) <= LONGEST_LINE]
    found: list[Fact] = []
    for part in (_manager(lines, origin.node), counters.queries(lines, origin),
                 counters.totals(lines), links.read(lines)):  # fmt: skip
        found += part
    if len(found) > MOST:
        raise ValueError(f"expected fewer than {MOST} links, hosts and counters")
    yield from found
    if any(_NO_RIGHT.search(line) for line in lines):
        raise ValueError("expected an answer of the fabric: a tool may not open umad (needs root)")
    if not found:
        raise ValueError("expected what a tool of infiniband-diags prints")
    if any(isinstance(fact, PortTotals) for fact in found) and not any(
        isinstance(fact, FabricSummary) for fact in found
    ):
        raise ValueError("expected the summary of ibqueryerrors: its text is cut")


def _manager(lines: list[str], node: str | None) -> Iterator[SubnetManager]:
    for line in lines:
        if told := _SM.match(line):
            yield SubnetManager(answers=True, node=node, lid=int(told[1]), state=told[2], line=line)
        elif _NO_SM.match(line):
            yield SubnetManager(answers=False, node=node, line=line)
