"""ibv_devinfo: what libibverbs sees of every HCA; with -v also width, speed and GIDs.

No root where /dev/infiniband/uverbs* is open to all. Traps (rdma-core libibverbs/examples/devinfo.c
version 44, run on a look-alike device): failures go to stderr with status 255 and an empty stdout;
only -v prints width, speed, physical state and GIDs; old tools print `invalid speed (128)` for NDR,
so the number in brackets is read, not the words; speed is per lane.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.facts import ib_words
from sluggish.facts.fabric import Port, RdmaDevices
from sluggish.facts.origin import Origin

ID = "ibv_devinfo"
COMMAND = "PATH=$PATH:/usr/sbin:/sbin ibv_devinfo -v"
FACTS: tuple[type, ...] = (Port, RdmaDevices)
BINARY = False

# hca_id:	mlx5_0
_DEVICE = re.compile(r"hca_id:\s*(\S{1,64})\Z")
# 		port:	1
_PORT = re.compile(r"port:\s*(\d{1,3})\Z")
# GID[  0]:		fe80::b83f:d203:a0:0, RoCE v2
_GID = re.compile(r"GID\[\s*\d{1,5}\]:\s*(\S{2,64}?)(?:,.*)?\Z")
# 4X (2)      100.0 Gbps (128)      invalid speed (128)
_CODE = re.compile(r"\((\d{1,6})\)\s*\Z")
_SNIFF = re.compile(rb"^[ \t]*hca_id:[ \t]*\S{1,64}[ \t\r]*$", re.MULTILINE)
_SNIFF_KEY = re.compile(rb"^[ \t]*(?:transport|fw_ver|node_guid):[ \t]+\S", re.MULTILINE)
_NO_DEVICES = "No IB devices found"  # stderr; the driver is there, the device is not
SNIFF_BYTES = 4096

# lanes by enum ibv_port_attr.active_width, Gb/s a lane by active_speed (IBTA, rdma-core verbs.h)
_LANES = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
_LANE_GBPS = {
    1: 2.5, 2: 5.0, 4: 10.0, 8: 10.0, 16: 14.0, 32: 25.0, 64: 50.0, 128: 100.0, 256: 200.0,
}  # fmt: skip


@dataclass(slots=True)
class _Values:
    keys: dict[str, str] = field(default_factory=dict[str, str])
    gids: list[str] = field(default_factory=list[str])


def sniff(head: bytes) -> bool:
    """Whether this is ibv_devinfo's text."""
    return bool(_SNIFF.search(head[:SNIFF_BYTES]) and _SNIFF_KEY.search(head[:SNIFF_BYTES]))


def parse(text: str, origin: Origin) -> Iterator[Port | RdmaDevices]:
    """Ports in natural order. `No IB devices found` is the fact that there is none."""
    devices, ports = _read(text)
    if not devices and not (not text.strip() and _NO_DEVICES in origin.stderr):
        raise ValueError("expected 'hca_id: NAME' and its ports")
    names = tuple(sorted(devices, key=ib_words.natural))
    yield RdmaDevices(node=origin.node, source=ID, names=names)
    for hca, number in sorted(ports, key=lambda key: (ib_words.natural(key[0]), key[1])):
        yield _port(hca, number, devices[hca].keys, ports[hca, number], origin)


def _read(text: str) -> tuple[dict[str, _Values], dict[tuple[str, int], _Values]]:
    devices: dict[str, _Values] = {}
    ports: dict[tuple[str, int], _Values] = {}
    hca = ""
    values = _Values()
    for line in text.splitlines():
        line = line.strip()
        if header := _DEVICE.match(line):
            hca = header[1] if ib_words.is_hca(header[1]) else ""
            values = devices.setdefault(hca, _Values()) if hca else _Values()
        elif hca and (port := _PORT.match(line)):
            values = ports.setdefault((hca, int(port[1])), _Values())
        elif gid := _GID.match(line[:200]):
            values.gids.append(gid[1])
        elif ":" in line:
            key, _, value = line.partition(":")
            key, value = key.strip().lower(), value.strip()
            if values.keys.setdefault(key, value) != value and key == "node_guid":
                raise ValueError("expected the text of one node, a device has two node GUIDs")
    return devices, ports


def _port(hca: str, number: int, device: dict[str, str], found: _Values, origin: Origin) -> Port:
    values = found.keys
    lanes = _LANES.get(_code(values.get("active_width", "")) or 0)
    lane_gbps = _LANE_GBPS.get(_code(values.get("active_speed", "")) or 0)
    return Port(
        node=origin.node,
        hca=hca,
        port=number,
        state=ib_words.state(values.get("state", "")),
        phys_state=ib_words.physical(values.get("phys_state", "")),
        rate_gbps=lanes * lane_gbps if lanes and lane_gbps else None,
        width=f"{lanes}X" if lanes else None,
        link_layer=ib_words.layer(values.get("link_layer", "")),
        lid=ib_words.number(values.get("port_lid", "")),
        sm_lid=ib_words.number(values.get("sm_lid", "")),
        hca_type=_type(device),
        firmware=device.get("fw_ver") or None,
        board=device.get("board_id") or None,
        gids=tuple(found.gids),
        source=ID,
    )


def _code(text: str) -> int | None:
    found = _CODE.search(text[-40:])
    return int(found[1]) if found else None


def _type(device: dict[str, str]) -> str | None:
    """ibstat's `MT4129` from the vendor_part_id 4129; only cards of Mellanox are named so."""
    part = device.get("vendor_part_id", "")
    ours = device.get("vendor_id") == "0x02c9" and part.isdecimal() and len(part) <= 6
    return f"MT{part}" if ours else None
