"""State, rate and place of every RDMA port from sysfs: the one probe that needs no tool.

`path:value` lines of /sys/class/infiniband: no root, one round trip. Traps (kernel
Documentation/ABI/stable/sysfs-class-infiniband; captures of an H100 node and of node exporters):
- a port that is DOWN shows some rate, which means nothing;
- `device/physfn` exists on virtual functions; four physical functions in one PCI slot are the HCAs
  that manage NVSwitch, not the job's network;
- pkeys/0 without its top bit (0x7fff) is a limited member;
- empty files and files that answer EINVAL print nothing and are not seen.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.facts import ib_words
from sluggish.facts.fabric import Port, RdmaDevices
from sluggish.facts.ib_sysfs import entries, pci_of
from sluggish.facts.origin import Origin

ID = "ib_ports"
# /dev/null beside one file makes grep print the file's name
COMMAND = r"""
for hca in /sys/class/infiniband/*; do
  [ -e "$hca" ] || continue
  printf '%s/device:%s\n' "$hca" "$(readlink "$hca/device")"
  printf '%s/device/driver:%s\n' "$hca" "$(readlink "$hca/device/driver")"
  physfn=$hca/device/physfn
  [ -e "$physfn" ] && printf '%s:%s\n' "$physfn" "$(readlink "$physfn")"
  for net in "$hca"/device/net/*; do
    [ -e "$net" ] && printf '%s/device/net:%s\n' "$hca" "${net##*/}"
  done
  grep -s . "$hca/fw_ver" "$hca/hca_type" "$hca/board_id" "$hca/node_desc" \
    "$hca/device/numa_node" "$hca/device/current_link_speed" "$hca/device/current_link_width" \
    "$hca/device/max_link_speed" "$hca/device/max_link_width" /dev/null
  for port in "$hca"/ports/*; do
    grep -s . "$port/state" "$port/phys_state" "$port/rate" "$port/link_layer" "$port/lid" \
      "$port/sm_lid" "$port/pkeys/0" "$port"/gids/[0-7] "$port"/gid_attrs/types/[0-7] /dev/null
  done
done
[ -d /sys/class/infiniband ] || echo 'no /sys/class/infiniband' >&2
:
"""
FACTS: tuple[type, ...] = (Port, RdmaDevices)
BINARY = False

_SNIFF = re.compile(
    rb"^(?:\S{0,200}[/:])?[A-Za-z][\w.-]{0,63}/ports/\d{1,3}/"
    rb"(?:state|phys_state|rate|link_layer):",
    re.MULTILINE,
)
_PORT_KEY = re.compile(r"ports/(\d{1,3})/(.+)\Z")
# gpu-07 mlx5_0     gpu-07 HCA-1     (rdma-ndd writes the host name into node_desc)
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,62}) (?:HCA-\d{1,3}|[a-z0-9]{2,12}_\d{1,3})\Z")
SNIFF_BYTES = 16384
_TYPES = "gid_attrs/types/"


@dataclass(slots=True)
class _Hca:
    values: dict[str, str] = field(default_factory=dict[str, str])
    ports: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    pci: str | None = None
    netdev: str | None = None
    virtual: bool = False


def sniff(head: bytes) -> bool:
    """Whether this holds port files of /sys/class/infiniband, counters beside them or not."""
    return bool(_SNIFF.search(head[:SNIFF_BYTES]))


def parse(text: str, origin: Origin) -> Iterator[Port | RdmaDevices]:
    """Ports in natural order. Empty output of a run that ended well: no device is visible."""
    hcas = _read(text)
    if not hcas and (text.strip() or origin.exit_code != 0):
        raise ValueError("expected 'NAME/ports/N/state:4: ACTIVE' lines of /sys/class/infiniband")
    slots = Counter(h.pci[:-2] for h in hcas.values() if h.pci and not h.virtual)
    node = origin.node or _host(hcas)
    names = tuple(sorted(hcas, key=ib_words.natural))
    yield RdmaDevices(node=node, source=ID, names=names)
    for name in names:
        hca = hcas[name]
        functions = slots.get(hca.pci[:-2]) if hca.pci else None
        for number in sorted(hca.ports):
            yield _port(node, name, number, hca, functions)


def _read(text: str) -> dict[str, _Hca]:
    hcas: dict[str, _Hca] = {}
    for entry in entries(text):
        hca = hcas.setdefault(entry.hca, _Hca())
        if port := _PORT_KEY.match(entry.key):
            values = hca.ports.setdefault(int(port[1]), {})
            values.setdefault(port[2], entry.value)
        elif entry.key.startswith("device/physfn"):
            hca.virtual = True
        elif entry.key.startswith("device/net"):
            hca.netdev = hca.netdev or _netdev(entry.key, entry.value)
        else:
            hca.values.setdefault(entry.key, entry.value)
        if hca.pci is None:
            hca.pci = pci_of(entry.value if entry.key == "device" else entry.path) or pci_of(
                hca.values.get("device/uevent", "")
            )
    return hcas


def _netdev(key: str, value: str) -> str | None:
    """`device/net:ib0` and `device/net/ib0/operstate:up`."""
    name = key.split("/")[2] if key.count("/") > 1 else value
    return name if re.fullmatch(r"[A-Za-z0-9_.@-]{1,15}", name) else None


def _host(hcas: dict[str, _Hca]) -> str | None:
    names = {m[1] for h in hcas.values() if (m := _HOST.match(h.values.get("node_desc", "")))}
    return names.pop() if len(names) == 1 else None


def _port(node: str | None, name: str, number: int, hca: _Hca, functions: int | None) -> Port:
    values, device = hca.ports[number], hca.values
    rate, width = ib_words.rate(values.get("rate", ""))
    return Port(
        node=node,
        hca=name,
        port=number,
        state=ib_words.state(values.get("state", "")),
        phys_state=ib_words.physical(values.get("phys_state", "")),
        rate_gbps=rate,
        width=width,
        link_layer=ib_words.layer(values.get("link_layer", "")),
        lid=ib_words.number(values.get("lid", "")),
        sm_lid=ib_words.number(values.get("sm_lid", "")),
        hca_type=device.get("hca_type") or None,
        firmware=device.get("fw_ver") or None,
        board=device.get("board_id") or None,
        pci=hca.pci,
        netdev=hca.netdev,
        virtual=hca.virtual if "device" in device or hca.virtual else None,
        functions_in_slot=functions,
        pkey=ib_words.number(values.get("pkeys/0", "")),
        gids=_gids(values),
        gid_types=_gid_types(values),
        driver=device.get("device/driver", "").rpartition("/")[2] or None,
        pcie_speed=device.get("device/current_link_speed"),
        pcie_max_speed=device.get("device/max_link_speed"),
        pcie_width=ib_words.number(device.get("device/current_link_width", "")),
        pcie_max_width=ib_words.number(device.get("device/max_link_width", "")),
        source=ID,
    )


def _gids(values: dict[str, str]) -> tuple[str, ...]:
    """Filled entries of the GID table, in order of their index."""
    found = [(ib_words.number(k[5:]), v) for k, v in values.items() if k.startswith("gids/")]
    used = [(i, v) for i, v in found if i is not None and ":" in v and set(v) - set("0:")]
    return tuple(v for _, v in sorted(used))


def _gid_types(values: dict[str, str]) -> tuple[tuple[int, str], ...]:
    """Types of the filled entries: `RoCE v2`. An empty entry answers EINVAL and has none."""
    named = [(ib_words.number(k[16:]), v) for k, v in values.items() if k[:16] == _TYPES]
    return tuple(sorted((i, v[:20]) for i, v in named if i is not None))
