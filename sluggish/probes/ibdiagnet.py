"""What `ibdiagnet` or UFM say of the fabric, as whoever runs it mailed it: never run from here.

ibdiagnet sends management packets to the whole fabric and needs root, so it is the fabric team's to
run. Its log (`ibdiagnet2.log`) names ends as SYSTEM/NODE/PORT: a switch by GUIDs, a host by its
name. Traps: the log does not tell when the counters moved relative to a job; warnings come by the
ten thousand on healthy fabrics and are not kept, errors are.
"""

import re
from collections.abc import Iterator

from sluggish.facts.fabric_side import FabricReport, FabricSummary
from sluggish.facts.origin import Origin
from sluggish.text import safe

ID = "ibdiagnet"
COMMAND = "cat /var/tmp/ibdiagnet2/ibdiagnet2.log"
FACTS: tuple[type, ...] = (FabricReport, FabricSummary)
BINARY = False
MOST = 2_000
"""Errors kept of one report."""

_END = r"[A-Za-z0-9][\w.:/-]{0,120}"
# -E- r9i1n24/U1/P1 - "port_rcv_errors" increased during the run (difference value=117,difference
#     allowed threshold=1)
_COUNTER = re.compile(
    rf'-E- (?P<end>{_END}) - "(?P<what>\w{{1,60}})" increased during the run '
    r"\(difference value=(?P<value>\d{1,20}),"
)
# -E- Link: S7cfe900300a51030/N7cfe900300a51030/P28<-->ime2/U1/P1 - Unexpected actual link speed 14
_LINK = re.compile(rf"-E- Link: (?P<one>{_END})<-->(?P<other>{_END}) - (?P<what>.{{1,160}})")
# Sfc6a1c03006ff580/Nfc6a1c03006ff580/P1/13/1 - Cable High Temperature Alarm reported, current ...
_CABLE = re.compile(rf"-E- (?P<end>{_END}) - (?P<what>(?:Cable|High|.{{0,40}}BER).{{1,160}})")
# Peer Port T2-E63-L-U37:1/19/2 is considered by SM as unhealthy due to FLAPPING.       (UFM)
_UNHEALTHY = re.compile(
    rf"Port (?P<end>{_END}) is considered by SM as (?P<what>unhealthy due to \w{{1,40}})"
)
# Link went down: (Switch:T3-E21:1/17/1)9c05...:33 - (Switch:T4-E45:1/4/2)fc6a...:8, cable ... (UFM)
_WENT_DOWN = re.compile(
    r"Link went down: \((?:Switch|Computer):(?P<one>[^()]{1,120})\)[^()]{0,80}"
    r"\((?:Switch|Computer):(?P<other>[^()]{1,120})\)"
)
# -I- Stage                     Warnings   Errors     Comment
# -I- Port Counters             0          2
_STAGE = re.compile(
    r"-I- (?P<name>[A-Z][\w /()-]{1,38}?)\s{2,40}(?P<w>\d{1,9})\s{1,20}(?P<e>\d{1,9})"
)
_HEAD = re.compile(r"-I- Stage\s{1,40}Warnings\s{1,20}Errors")
_SNIFF = re.compile(
    rb"^-I- Stage\s{1,40}Warnings\s{1,20}Errors"
    rb'|^-E- \S{1,120} - "\w{1,60}" increased during the run \(difference value='
    rb"|\bPort \S{1,120} is considered by SM as unhealthy due to "
    rb"|\bLink went down: \((?:Switch|Computer):",
    re.MULTILINE,
)


def sniff(head: bytes) -> bool:
    """Whether a line stands here that only ibdiagnet or UFM prints."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[FabricReport | FabricSummary]:
    """Its errors, and the numbers of its summary. Raises ValueError where there is neither."""
    found = 0
    stages: list[tuple[str, int, int]] = []
    in_summary = False
    for line in text.splitlines():
        if len(line) > 1_000:
            continue
        in_summary = in_summary or bool(_HEAD.match(line))
        if in_summary and (stage := _STAGE.match(line)):
            stages.append((stage["name"], int(stage["w"]), int(stage["e"])))
        elif found < MOST and (report := _report(line)):
            found += 1
            yield report
    if stages:
        yield FabricSummary(stages=tuple(stages[:60]))
    elif not found:
        raise ValueError("expected ibdiagnet's errors or its summary, or UFM's link events")


def _report(line: str) -> FabricReport | None:
    if match := _COUNTER.match(line):
        return _made("counter", line, (match["end"],), f"{match['what']} rose by {match['value']}")
    if match := _LINK.match(line):
        return _made("link", line, (match["one"], match["other"]), match["what"])
    if match := _CABLE.match(line):
        return _made("cable", line, (match["end"],), match["what"])
    if match := _UNHEALTHY.search(line):
        return _made("unhealthy", line, (match["end"],), match["what"])
    if match := _WENT_DOWN.search(line):
        return _made("link_down", line, (match["one"], match["other"]), "link went down")
    return None


def _made(kind: str, line: str, ends: tuple[str, ...], says: str) -> FabricReport:
    clean = tuple(safe(end, 120) for end in ends)
    return FabricReport(kind=kind, ends=clean, says=safe(says, 160), line=line)
