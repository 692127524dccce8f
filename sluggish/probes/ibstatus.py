"""ibstatus: state, rate, width and generation of every port; the plain tool that shows width.

A shell script over sysfs: no root, milliseconds. Traps (infiniband-diags 44, a capture of 39):
missing files print `unknown`; without devices it prints `Fatal error:  No devices` on stdout and
ends with status 255; the rate of a port that is DOWN means nothing.

Also read: iproute2's `rdma link`, which people mail for RoCE; several readings of a port in one
text are several facts, for a port that flaps differs between them.
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
# link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0     (RoCE, iproute2 5 and 6)
# link mlx5_2/1 subnet_prefix fe80:0000:0000:0000 lid 13 sm_lid 4 lmc 0 state ACTIVE ...      (IB)
# 8/1: mlx5_bond_0/1: state ACTIVE physical_state LINK_UP netdev reth0      (older)
_RDMA = re.compile(
    r"(?:link |\d{1,4}/\d{1,3}: )(?P<hca>[A-Za-z][\w.-]{0,63})/(?P<port>\d{1,3}):?"
    r"(?P<rest>(?: [a-z_]{2,20} [\w:.@-]{1,64}){0,4} state [A-Z_]{2,20} physical_state [A-Z_]{2,30}"
    r"(?: .{0,200})?)\s*\Z"
)
_PAIR = re.compile(r"\b(state|physical_state|netdev|lid|sm_lid|subnet_prefix) (\S{1,64})")
RDMA_LINK = "rdma link"
_NONE = "Fatal error:  No devices"
SNIFF_BYTES = 4096


def sniff(head: bytes) -> bool:
    """Whether this is ibstatus's text, or nothing but lines of `rdma link`."""
    if _SNIFF.search(head[:SNIFF_BYTES]):
        return True
    text = head[:SNIFF_BYTES].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and sum(bool(_RDMA.match(line.strip())) for line in lines) * 2 > len(lines)


def parse(text: str, origin: Origin) -> Iterator[Port | RdmaDevices]:
    """Ports in natural order; `No devices` is a fact too."""
    links = tuple(_links(text, origin))
    if links:
        names = tuple(dict.fromkeys(port.hca for port in links))
        yield RdmaDevices(node=origin.node, source=RDMA_LINK, names=names)
        yield from links
        return
    ports: dict[tuple[str, int], dict[str, str]] = {}
    here: dict[str, str] = {}
    values: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if header := _HEADER.match(line):
            here = values = {}
            if ib_words.is_hca(header[1]):
                here = ports.setdefault((header[1], int(header[2])), values)
        elif ":" in line:
            key, _, value = line.partition(":")
            key, value = key.strip().lower(), value.strip()
            values[key] = value
            if key == "default gid" and here is not values and _other(here.get(key), value):
                raise ValueError("expected the text of one node, a port has two GIDs")
    if not ports and not text.strip().startswith(_NONE):
        raise ValueError("expected \"Infiniband device 'NAME' port N status:\"")
    order = sorted(ports, key=lambda key: (ib_words.natural(key[0]), key[1]))
    names = tuple(dict.fromkeys(hca for hca, _ in order))
    yield RdmaDevices(node=origin.node, source=ID, names=names)
    for hca, number in order:
        yield _port(hca, number, ports[hca, number], origin)


def _other(gid: str | None, value: str) -> bool:
    """Two addresses: a port that has none yet shows zeros."""
    return bool(gid and set(gid) - set("0:") and set(value) - set("0:") and gid != value)


def _links(text: str, origin: Origin) -> Iterator[Port]:
    seen: set[tuple[str, int, str, str]] = set()
    for line in text.splitlines():
        found = _RDMA.match(line.strip()) if len(line) < 600 else None
        if found is None or not ib_words.is_hca(found["hca"]):
            continue
        told = dict(_PAIR.findall(found["rest"]))
        key = (found["hca"], int(found["port"]), told["state"], told["physical_state"])
        if key in seen:
            continue
        seen.add(key)
        yield Port(
            node=origin.node,
            hca=found["hca"],
            port=int(found["port"]),
            state=ib_words.state(told["state"]),
            phys_state=ib_words.physical(told["physical_state"]),
            link_layer="infiniband" if "subnet_prefix" in told else "ethernet",
            lid=ib_words.number(told.get("lid", "")),
            sm_lid=ib_words.number(told.get("sm_lid", "")),
            netdev=told.get("netdev"),
            source=RDMA_LINK,
        )


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
