"""ibstatus: state, rate, width and generation of every port; the plain tool that shows width.

A shell script over sysfs: no root, milliseconds. Traps (infiniband-diags 44, a capture of 39):
missing files print `unknown`; without devices it prints `Fatal error:  No devices` on stdout and
ends with status 255; the rate of a port that is DOWN means nothing.
"""

import re
from collections.abc import Iterator

from sluggish.facts import ib_words
from sluggish.facts.fabric import Port, RdmaDevices
from sluggish.facts.origin import Origin

ID = "ibstatus"
COMMAND = "PATH=$PATH:/usr/sbin:/sbin ibstatus"
FACTS: tuple[type, ...] = (Port, RdmaDevices)
BINARY = False

# Infiniband device 'mlx5_0' port 1 status:
_HEADER = re.compile(r"Infiniband device '([^']{1,64})' port (\d{1,3}) status:\Z")
_SNIFF = re.compile(
    rb"^[ \t]*Infiniband device '[^'\n]{1,64}' port \d{1,3} status:[ \t\r]*$", re.MULTILINE
)
_NONE = "Fatal error:  No devices"
SNIFF_BYTES = 4096


def sniff(head: bytes) -> bool:
    """Whether this is ibstatus's text."""
    return bool(_SNIFF.search(head[:SNIFF_BYTES]))


def parse(text: str, origin: Origin) -> Iterator[Port | RdmaDevices]:
    """Ports in natural order; `No devices` is a fact too."""
    ports: dict[tuple[str, int], dict[str, str]] = {}
    values: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if header := _HEADER.match(line):
            values = {}
            if ib_words.is_hca(header[1]):
                ports.setdefault((header[1], int(header[2])), values)
        elif ":" in line:
            key, _, value = line.partition(":")
            values[key.strip().lower()] = value.strip()
    if not ports and not text.strip().startswith(_NONE):
        raise ValueError("expected \"Infiniband device 'NAME' port N status:\"")
    order = sorted(ports, key=lambda key: (ib_words.natural(key[0]), key[1]))
    names = tuple(dict.fromkeys(hca for hca, _ in order))
    yield RdmaDevices(node=origin.node, source=ID, names=names)
    for hca, number in order:
        yield _port(hca, number, ports[hca, number], origin)


def _port(hca: str, number: int, values: dict[str, str], origin: Origin) -> Port:
    rate, width = ib_words.rate(values.get("rate", ""))
    gid = values.get("default gid", "")
    return Port(
        node=origin.node,
        hca=hca,
        port=number,
        state=ib_words.state(values.get("state", "")),
        phys_state=ib_words.physical(values.get("phys state", "")),
        rate_gbps=rate,
        width=width,
        link_layer=ib_words.layer(values.get("link_layer", "")),
        lid=ib_words.number(values.get("base lid", "")),
        sm_lid=ib_words.number(values.get("sm lid", "")),
        gids=(gid,) if ":" in gid else (),
        source=ID,
    )
