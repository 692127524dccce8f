"""Made-up /sys/class/infiniband and /sys/bus/pci of a node; real tools read it, tests change it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the lab's own files are made with `write`
    from .cluster import Lab

GPU_BUS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
_GUID = 0xB83FD20300A00000
_STATES = {"Down": "1: DOWN", "Initializing": "2: INIT", "Armed": "3: ARMED", "Active": "4: ACTIVE"}
_PHYSICAL = {
    "Polling": "2: Polling",
    "Disabled": "3: Disabled",
    "Training": "4: PortConfigurationTraining",
    "LinkUp": "5: LinkUp",
    "LinkErrorRecovery": "6: LinkErrorRecovery",
}
_COUNTERS = (
    "VL15_dropped", "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "multicast_rcv_packets", "multicast_xmit_packets",
    "port_rcv_constraint_errors", "port_rcv_data", "port_rcv_errors", "port_rcv_packets",
    "port_rcv_remote_physical_errors", "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors", "port_xmit_data", "port_xmit_discards", "port_xmit_packets",
    "port_xmit_wait", "symbol_error", "unicast_rcv_packets", "unicast_xmit_packets",
)  # fmt: skip
_HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "lifespan", "local_ack_timeout_err",
    "out_of_buffer", "out_of_sequence", "packet_seq_err", "req_cqe_error",
    "req_cqe_flush_error", "req_remote_access_errors", "req_remote_invalid_request",
    "resp_cqe_error", "resp_cqe_flush_error", "resp_local_length_error",
    "resp_remote_access_errors", "rnr_nak_retry_err", "roce_adp_retrans", "roce_adp_retrans_to",
    "rx_atomic_requests", "rx_icrc_encapsulated", "rx_read_requests", "rx_write_requests",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One adapter with one port, as the kernel would show it."""

    name: str
    state: str = "Active"
    """Down, Initializing, Armed or Active."""
    physical: str = "LinkUp"
    rate: str = "800 Gb/sec (4X XDR)"
    link_layer: str = "InfiniBand"
    lid: int = 1
    guid: int = _GUID
    pci: str = "0000:0c:00.0"
    netdev: str = ""


def hcas(node: int, count: int = 8) -> tuple[Hca, ...]:
    """The healthy adapters of the n-th node: one beside each GPU."""
    return tuple(
        Hca(
            name=f"mlx5_{i}", lid=node * 16 + i + 1, guid=_GUID + (node << 16) + (i << 8),
            pci=f"0000:{int(GPU_BUS[i % 8], 16) - 1:02x}:00.{i // 8}", netdev=f"ib{i}",
        )
        for i in range(count)
    )  # fmt: skip


def port(lab: "Lab", node: str, hca: str, **files: str | int) -> None:
    """Writes files of a port: `state="1: DOWN"`, `link_downed=3` (counters are found by name)."""
    home = lab.path(node, "/run/node") / f"sys/class/infiniband/{hca}/ports/1"
    for name, value in files.items():
        places = [home / name, home / "counters" / name, home / "hw_counters" / name]
        (place,) = (place for place in places if place.exists())
        place.write_text(f"{value}\n")


def port_down(lab: "Lab", node: str, hca: str, downed: int = 1) -> None:
    """As after a pulled cable."""
    port(lab, node, hca, state=_STATES["Down"], phys_state=_PHYSICAL["Polling"], link_downed=downed)
    port(lab, node, hca, rate="10 Gb/sec (4X SDR)", lid="0x0", sm_lid="0x0")


def port_up(lab: "Lab", node: str, hca: str) -> None:
    """As it was when the lab came up; its counters stay."""
    number = lab.nodes.index(node) + 1
    found = next(x for x in hcas(number, 64) if x.name == hca)
    port(lab, node, hca, state=_STATES[found.state], phys_state=_PHYSICAL[found.physical])
    port(lab, node, hca, rate=found.rate, lid=hex(found.lid), sm_lid="0x1")


def write(home: Path, adapters: tuple[Hca, ...], gpus: int = 8) -> None:
    """Makes `sys/class` and `sys/bus` below a node's directory."""
    bus, classes = home / "sys/bus/pci/devices", home / "sys/class"
    (classes / "infiniband").mkdir(parents=True)
    (classes / "net").mkdir()
    for netdev in ("eth0", "lo"):
        (classes / "net" / netdev).symlink_to(f"../../devices/virtual/net/{netdev}")
    for number in GPU_BUS[:gpus]:
        _device(
            bus / f"0000:{number}:00.0", vendor="0x10de", device="0x3182", **{"class": "0x030200"}
        )
    if adapters:
        _file(classes / "infiniband_mad/abi_version", 5)
    for number, hca in enumerate(adapters):
        _device(bus / hca.pci, vendor="0x15b3", device="0x1023", **{"class": "0x020700"})
        if hca.netdev:
            _file(bus / hca.pci / f"net/{hca.netdev}/carrier_changes", 1)
        _hca(classes / "infiniband" / hca.name, hca)
        _file(classes / f"infiniband_mad/umad{number}/ibdev", hca.name)
        _file(classes / f"infiniband_mad/umad{number}/port", 1)


def _hca(home: Path, hca: Hca) -> None:
    guid = _colons(hca.guid)
    ethernet = hca.link_layer == "Ethernet"
    lid = 0 if ethernet or hca.state not in ("Active", "Armed") else hca.lid
    about = {
        "node_type": "1: CA", "hca_type": "MT4131", "fw_ver": "40.44.1036", "hw_rev": "0",
        "board_id": "MT_0000001069", "node_guid": guid, "sys_image_guid": guid,
        "node_desc": f"{home.parents[3].name} {hca.name}",
    }  # fmt: skip
    of_port = {
        "state": _STATES[hca.state], "phys_state": _PHYSICAL[hca.physical], "rate": hca.rate,
        "lid": hex(lid), "lid_mask_count": 0, "sm_lid": hex(1 if lid else 0), "sm_sl": 0,
        "cap_mask": "0x00010000" if ethernet else "0xa751e848", "link_layer": hca.link_layer,
        "gids/0": f"fe80:0000:0000:0000:{guid}", "pkeys/0": "0xffff",
    }  # fmt: skip
    if ethernet:
        of_port["gid_attrs/types/0"] = "RoCE v2"
    of_port |= {f"counters/{name}": 0 for name in _COUNTERS}
    of_port |= {f"hw_counters/{name}": 0 for name in _HW_COUNTERS}
    for name, value in about.items():
        _file(home / name, value)
    for name, value in of_port.items():
        _file(home / "ports/1" / name, value)
    os.symlink(f"../../../bus/pci/devices/{hca.pci}", home / "device")


def _device(home: Path, **files: str) -> None:
    link = {
        "current_link_speed": "64.0 GT/s PCIe", "max_link_speed": "64.0 GT/s PCIe",
        "current_link_width": "16", "max_link_width": "16", "numa_node": "0",
    }  # fmt: skip
    for name, value in (files | link).items():
        _file(home / name, value)


def _file(path: Path, value: str | int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def _colons(number: int) -> str:
    return ":".join(f"{number >> shift & 0xFFFF:04x}" for shift in (48, 32, 16, 0))
