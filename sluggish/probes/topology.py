"""`scontrol show topology`: which nodes hang on which switch, as Slurm was told.

Any user; slurmctld answers from memory. Traps: the tree is what somebody wrote into topology.conf,
not what is plugged in, and on a rail-optimised fabric a node hangs on several leaves while Slurm
knows one; a flat cluster prints `No topology information available`; the block plugin prints
`BlockName=`, which are NVLink domains and no switches (slurm.schedmd.com topology.html).
"""

import re
from collections.abc import Iterator

from sluggish.facts.fabric import Switch
from sluggish.facts.origin import Origin
from sluggish.hostlist import expand

ID = "topology"
COMMAND = "scontrol show topology"
FACTS: tuple[type, ...] = (Switch,)
BINARY = False

# SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu-[01-16]
# SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu-[01-32] Switches=leaf[1-2]
# BlockName=rack07 BlockIndex=0 Nodes=gb-[01-18] BlockSize=18
_LINE = re.compile(
    r"(?P<kind>Switch|Block)Name=(?P<name>\S{1,200})(?P<rest>(?: [A-Z]\w{1,20}=\S{0,100000}){1,8})"
    r"\s*\Z"
)
_FIELD = re.compile(r" ([A-Z]\w{1,20})=(\S{0,100000})")
_SNIFF = re.compile(rb"^(?:SwitchName=\S{1,200} Level=\d|BlockName=\S{1,200} BlockIndex=\d)", re.M)
_FLAT = re.compile(r"No topology information available|\(null\)")
MOST = 20_000
"""Switches kept."""


def sniff(head: bytes) -> bool:
    """Whether a line of scontrol's answer stands here; topology.conf has no Level."""
    return bool(_SNIFF.search(head))


def parse(text: str, origin: Origin) -> Iterator[Switch]:
    """One fact a switch or block. None is normal on a flat cluster."""
    found = 0
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        switch = _switch(match) if match else None
        if switch is not None and found < MOST:
            found += 1
            yield switch
    flat = origin.exit_code == 0 and not text.strip()
    if not found and not flat and not _FLAT.search(text[:400]):
        raise ValueError("expected 'SwitchName=NAME Level=N ... Nodes=LIST' lines")


def _switch(match: re.Match[str]) -> Switch | None:
    fields = dict(_FIELD.findall(match["rest"]))
    block = match["kind"] == "Block"
    level = fields.get("Level", "0" if block else "")
    try:
        nodes = tuple(expand(fields.get("Nodes", "")))
    except ValueError:
        return None  # a list that was cut: half of it would put nodes on no switch
    if not nodes or not (level.isdecimal() and len(level) < 3):
        return None
    return Switch(name=match["name"], level=int(level), nodes=nodes, block=block)
