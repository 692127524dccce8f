"""Links and hosts' HCAs, as iblinkinfo, ibnetdiscover and ibhosts print them."""

import re
from collections.abc import Iterator

from sluggish.facts import ib_words
from sluggish.facts.fabric_side import LANE_GBPS, FabricLink, FabricMember
from sluggish.text import safe

_NAME = r'"(?P<{}>[^"]{{0,120}})"'
# CA: gpu-02 mlx5_1:                                    (iblinkinfo, above the ports of one device)
# Switch: 0x0000000000200000 MF0;leaf1:MQM8700/U1:
_DEVICE = re.compile(
    r"(?P<kind>CA|Switch|Router): (?:0x[0-9a-f]{16} )?(?P<name>[^\n]{1,120}):\s*\Z"
)
#       0x0000000000100007      5    1[  ] ==( 1X        53.125 Gbps Active/  LinkUp)==>       2
#           4[  ] "MF0;leaf1:MQM8700/U1" (Could be 12X )
#            2    5[  ] ==(                Down/ Polling)==>             [  ] "" ( )
# 0x0000000000200000 "   leaf1"   2   1[  ] ==( 4X 2.5 Gbps Active/  LinkUp)==>  0x0000000000100001
#           1    1[  ] "gpu-01 mlx5_0" (Could be 12X Could be 10.0 Gbps)            (-l)
# 223   33[  ] ==( 4X  10.0 Gbps (FDR10) Active/  LinkUp)==>     145    1[  ] "gpfs-a4 HCA-1" ( )
_LINK = re.compile(
    r"\s{0,20}(?:Link info: {1,8})?(?:0x[0-9a-f]{16} {1,8})?(?:" + _NAME.format("one") + r" {1,8})?"
    r"(?:\d{1,6} {1,8})(?P<port>\d{1,3})\[[^\]]{0,6}\] ==\("
    r"\s{0,4}(?:(?P<lanes>\d{1,2})X\s{1,20}(?P<speed>\d{1,4}(?:\.\d{1,6})?) Gbps(?: \(FDR10\))? )?"
    r"\s{0,24}(?P<state>[A-Za-z]{2,14})/\s{0,4}(?P<phys>[A-Za-z]{2,28})\)==>"
    r"\s{0,8}(?:0x[0-9a-f]{16}\s{1,8})?(?:\d{1,6}\s{1,8}(?P<far>\d{1,3}))?\s{0,20}\[[^\]]{0,6}\] "
    + _NAME.format("other")
    + r" \((?P<could>[^()]{0,80})"
)
# Ca	: 0x000000000010000a ports 1 "gpu-03 mlx5_1"        (ibhosts)
# Ca	1 "H-000000000010000a"		# "gpu-03 mlx5_1"        (ibnetdiscover)
_HOST = re.compile(
    r'Ca\t(?:: 0x[0-9a-f]{1,16} ports \d{1,3} |\d{1,3} "H-[0-9a-f]{1,16}"\s{1,8}# )'
    + _NAME.format("name")
)
_ANY_NODE = re.compile(r'(?:Switch|Rt)\t\d{1,3} "')
# [1](100007) 	"S-0000000000200000"[4]		# lid 5 lmc 0 "MF0;leaf1:MQM8700/U1" lid 2 1xHDR
_CABLE = re.compile(
    r"\[(?P<port>\d{1,3})\]\([0-9a-f]{1,16}\)\s{1,4}\"[SHR]-[0-9a-f]{1,16}\"\[(?P<far>\d{1,3})\]"
    r"(?:\([0-9a-f]{1,16}\))?\s{1,8}# lid \d{1,6} lmc \d " + _NAME.format("other") + r" lid "
    r"\d{1,6} (?P<lanes>\d{1,2})x(?P<word>[A-Z0-9]{3,5})"
)
# CA  5  1 0x0000000000100007 4x HDR - SW  2  4 0x0000000000200000 ( 'gpu-02 mlx5_1' - 'leaf1' )
_PAIR = re.compile(
    r"CA {1,8}\d{1,6} {1,4}(?P<port>\d{1,3}) 0x[0-9a-f]{16} (?P<lanes>\d{1,2})x "
    r"(?P<word>[A-Z0-9]{3,5}) - (?:SW|CA) {1,8}\d{1,6} {1,4}(?P<far>\d{1,3}) 0x[0-9a-f]{16} "
    r"\( '(?P<one>[^']{0,120})' - '(?P<other>[^']{0,120})' \)"
)
_COULD = re.compile(r"Could be (\d{1,2}X|\d{1,4}(?:\.\d{1,6})? Gbps)")

Found = FabricLink | FabricMember


def read(lines: list[str]) -> Iterator[Found]:
    """Links between two named ends, and the HCAs of hosts; each link once, from whichever end."""
    said: set[tuple[object, ...]] = set()
    for fact in _all(lines):
        if isinstance(fact, FabricLink):
            key: tuple[object, ...] = (fact.tool, *sorted(zip(fact.ends, fact.ports, strict=True)))
        else:
            key = (fact.tool, fact.end)
        if key not in said:
            said.add(key)
            yield fact


def _all(lines: list[str]) -> Iterator[Found]:
    device = host = ""
    for line in lines:
        if head := _DEVICE.match(line):
            device, host = _clean(head["name"]), ""
            if head["kind"] == "CA":
                yield FabricMember(tool="iblinkinfo", end=device)
        elif "==(" in line:
            if link := _LINK.match(line):
                yield from _link(link, device, line)
        elif line.startswith("Ca\t"):
            if named := _HOST.match(line):
                tool = "ibhosts" if line.startswith("Ca\t:") else "ibnetdiscover"
                host = _clean(named["name"])
                yield FabricMember(tool=tool, end=host)
        elif _ANY_NODE.match(line):
            host = ""
        elif host and (cable := _CABLE.match(line)):
            yield _discovered(cable, (host, _clean(cable["other"])), line)
        elif pair := _PAIR.match(line):
            ends = _clean(pair["one"]), _clean(pair["other"])
            yield FabricMember(tool="ibnetdiscover", end=ends[0])
            yield _discovered(pair, ends, line)


def _link(found: re.Match[str], device: str, line: str) -> Iterator[FabricLink]:
    one = _clean(found["one"]) if found["one"] is not None else device
    other = _clean(found["other"])
    if not one or not other:
        return  # a port without a cable has one end, and nobody knows which the other should be
    yield FabricLink(
        tool="iblinkinfo",
        ends=(one, other),
        ports=(int(found["port"]), int(found["far"] or 0)),
        state=ib_words.state(found["state"]),
        lanes=int(found["lanes"]) if found["lanes"] else None,
        lane_gbps=_nominal(float(found["speed"])) if found["speed"] else None,
        could_be=" ".join(_COULD.findall(found["could"])),
        line=line.strip(),
    )


def _discovered(found: re.Match[str], ends: tuple[str, str], line: str) -> FabricLink:
    return FabricLink(
        tool="ibnetdiscover",
        ends=ends,
        ports=(int(found["port"]), int(found["far"])),
        state="unknown",
        lanes=int(found["lanes"]),
        lane_gbps=LANE_GBPS.get(found["word"]),
        line=line.strip(),
    )


def _nominal(gbps: float) -> float:
    """The signalling rate 53.125 of HDR as its 50 Gb/s; 25.78125 as 25, 106.25 as 100."""
    return max((rate for rate in LANE_GBPS.values() if rate <= gbps), default=gbps)


def _clean(name: str) -> str:
    name = name.strip()
    return name[:120] if name.isascii() and name.isprintable() else safe(name, 120)
