"""ibstat: state, rate and identity of every InfiniBand and RoCE port of a node.

Reads sysfs only: no root, no MADs, milliseconds. Traps (rdma-core infiniband-diags/ibstat.c, runs
of version 44, captures of 39 and 47):
- exit status 0 with empty output where no driver is loaded, so an empty answer is no health;
- `ibpanic: ...` and status 255 after a full answer: the answer counts, the panic is a note;
- the order is alphabetical (mlx5_1, mlx5_10, mlx5_2); tabs become spaces in pasted text;
- the rate of a port that is Down means nothing; lid 0 is normal on Ethernet.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.facts import ib_words
from sluggish.facts.fabric import Port, RdmaDevices
from sluggish.facts.origin import Origin

ID = "ibstat"
COMMAND = "PATH=$PATH:/usr/sbin:/sbin ibstat"
FACTS: tuple[type, ...] = (Port, RdmaDevices)
BINARY = False

# CA 'mlx5_0'      also CA: 'mlx5_1' (form of `ibstat mlx5_1 1`), iWARP RNIC 'x', Switch 'y'
_DEVICE = re.compile(r"(CA|iWARP RNIC|\?\?\?|Switch|Router):? '([^']{1,64})'\Z")
# Port 1:
_PORT = re.compile(r"Port (\d{1,3}):\Z")
_SNIFF = re.compile(rb"^[ \t]*(?:CA|iWARP RNIC|\?\?\?):? '[^'\n]{1,64}'[ \t\r]*$", re.MULTILINE)
_SNIFF_KEY = re.compile(rb"^[ \t]*(?:CA type:|Physical state: |Number of ports: )", re.MULTILINE)
SNIFF_BYTES = 4096
"""The header stands at the top, below a shell prompt at most."""


@dataclass(slots=True)
class _Device:
    name: str
    values: dict[str, str] = field(default_factory=dict[str, str])
    ports: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])


def sniff(head: bytes) -> bool:
    """Whether this is ibstat's text."""
    return bool(_SNIFF.search(head[:SNIFF_BYTES]) and _SNIFF_KEY.search(head[:SNIFF_BYTES]))


def parse(text: str, origin: Origin) -> Iterator[Port | RdmaDevices]:
    """Ports in natural order; a port cut off before its state is `unknown`.

    Empty output of a run that ended well is the fact that no device is visible.
    """
    devices = _devices(text)
    if not devices and (text.strip() or origin.exit_code != 0):
        raise ValueError("expected \"CA 'NAME'\" and its ports; no RDMA device listed")
    if devices and not any(device.ports for device in devices):
        raise ValueError("expected ports; only the list of devices was printed")
    devices.sort(key=lambda device: ib_words.natural(device.name))
    yield RdmaDevices(node=origin.node, source=ID, names=tuple(d.name for d in devices))
    for device in devices:
        for number in sorted(device.ports):
            yield _port(device, number, origin)


def _devices(text: str) -> list[_Device]:
    devices: dict[str, _Device] = {}
    device: _Device | None = None
    values: dict[str, str] = {}
    for line in text.splitlines():
        line = line.strip()
        if header := _DEVICE.match(line):
            ours = header[1] not in ("Switch", "Router") and ib_words.is_hca(header[2])
            device = devices.setdefault(header[2], _Device(header[2])) if ours else None
            values = device.values if device else {}
        elif port := _PORT.match(line):
            values = device.ports.setdefault(int(port[1]), {}) if device else {}
        elif ":" in line and not line.startswith(("ibpanic:", "ibwarn:")):
            key, _, value = line.partition(":")
            key, value = key.strip().lower(), value.strip()
            if key == "node guid" and values.get(key, value) != value:  # files of nodes, joined
                raise ValueError("expected the text of one node, a device has two node GUIDs")
            values[key] = value
    return list(devices.values())


def _port(device: _Device, number: int, origin: Origin) -> Port:
    values = device.ports[number]
    rate, width = ib_words.rate(values.get("rate", ""))
    return Port(
        node=origin.node,
        hca=device.name,
        port=number,
        state=ib_words.state(values.get("state", "")),
        phys_state=ib_words.physical(values.get("physical state", "")),
        rate_gbps=rate,
        width=width,
        link_layer=ib_words.layer(values.get("link layer", "")),
        lid=ib_words.number(values.get("base lid", "")),
        sm_lid=ib_words.number(values.get("sm lid", "")),
        hca_type=device.values.get("ca type") or None,
        firmware=device.values.get("firmware version") or None,
        source=ID,
    )
