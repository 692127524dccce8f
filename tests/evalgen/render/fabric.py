"""The InfiniBand tools and sysfs, from the state of the ports.

Sources: rdma-core infiniband-diags/ibstat.c, ibstatus, libibverbs devinfo.c; kernel sysfs names.
"""

from __future__ import annotations

from ..world import Node, Port, World

STATES = {"DOWN": (1, "Down"), "INIT": (2, "Initializing"), "ARMED": (3, "Armed"),
          "ACTIVE": (4, "Active")}  # fmt: skip
PHYS = {"Polling": 2, "Disabled": 3, "LinkUp": 5}
COUNTERS = (
    "excessive_buffer_overrun_errors", "link_downed", "link_error_recovery",
    "local_link_integrity_errors", "port_rcv_constraint_errors", "port_rcv_data",
    "port_rcv_errors", "port_rcv_packets", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_xmit_data",
    "port_xmit_discards", "port_xmit_packets", "port_xmit_wait", "symbol_error", "VL15_dropped",
)  # fmt: skip
HW_COUNTERS = (
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_buffer",
    "out_of_sequence", "packet_seq_err", "req_cqe_error", "req_cqe_flush_error",
    "resp_cqe_error", "resp_cqe_flush_error", "rnr_nak_retry_err", "roce_adp_retrans",
    "rx_read_requests", "rx_write_requests", "lifespan",
)  # fmt: skip


EFA_COUNTERS = (
    "rx_drops", "recv_wrs", "rdma_read_wr_err", "retrans_bytes", "retrans_pkts",
    "retrans_timeout_events", "unresponsive_remote_events", "impaired_remote_conn_events",
)  # fmt: skip
"""linux drivers/infiniband/hw/efa/efa_verbs.c; beside tx_bytes and rx_bytes."""


CXI_COUNTERS = (
    "pct_spt_timeouts", "pct_sct_timeouts", "pct_retry_srb_requests", "pct_no_tct_nacks",
    "pct_no_trs_nacks", "pct_no_mst_nacks", "hni_pcs_uncorrected_cw", "hni_llr_tx_replay_event",
    "hni_llr_rx_replay_event",
)  # fmt: skip
"""HPE CXI performance counters as Open MPI lists them; values in the form of HPE's shs-docs."""


def _rate(p: Port) -> tuple[int, str]:
    """A port that is not up shows the slowest rate of its layer."""
    if p.state != "DOWN":
        return p.rate_gbps, p.rate_words
    if p.layer == "InfiniBand":
        return 10, "10 Gb/sec (4X SDR)"
    return 40, "40 Gb/sec (4X QDR)"


def _guid(n: int) -> str:
    return ":".join(f"{n:016x}"[k : k + 4] for k in (0, 4, 8, 12))


def _by_name(node: Node) -> list[Port]:
    return sorted(node.ports, key=lambda p: p.hca)  # scandir's order


def _sm(p: Port) -> int:
    return p.sm_lid if p.layer == "InfiniBand" else 0


def ibstat(node: Node) -> str:
    out = ""
    for p in _by_name(node):
        ib = p.layer == "InfiniBand"
        mask = "0xa751e848" if ib else "0x00010000"
        out += (
            f"CA '{p.hca}'\n\tCA type: {p.hca_type}\n\tNumber of ports: 1\n"
            f"\tFirmware version: {p.firmware}\n\tHardware version: 0\n"
            f"\tNode GUID: 0x{p.guid:016x}\n\tSystem image GUID: 0x{p.guid:016x}\n\tPort 1:\n"
            f"\t\tState: {STATES[p.state][1]}\n\t\tPhysical state: {p.phys}\n"
            f"\t\tRate: {_rate(p)[0]}\n\t\tBase lid: {p.lid if ib else 0}\n\t\tLMC: 0\n"
            f"\t\tSM lid: {_sm(p)}\n\t\tCapability mask: {mask}\n"
            f"\t\tPort GUID: 0x{p.guid:016x}\n\t\tLink layer: {p.layer}\n"
        )
    return out


def ibstatus(node: Node) -> str:
    out = ""
    for p in _by_name(node):
        lid = p.lid if p.layer == "InfiniBand" else 0
        out += (
            f"Infiniband device '{p.hca}' port 1 status:\n"
            f"\tdefault gid:\t fe80:0000:0000:0000:{_guid(p.guid)}\n"
            f"\tbase lid:\t 0x{lid:x}\n\tsm lid:\t\t 0x{_sm(p):x}\n"
            f"\tstate:\t\t {STATES[p.state][0]}: {p.state}\n"
            f"\tphys state:\t {PHYS[p.phys]}: {p.phys}\n\trate:\t\t {_rate(p)[1]}\n"
            f"\tlink_layer:\t {p.layer}\n\n"
        )
    return out


_WIDTHS = {"1X": 1, "4X": 2, "8X": 4, "12X": 8, "2X": 16}
_LANES = {"SDR": "2.5 Gbps (1)", "QDR": "10.0 Gbps (4)", "HDR": "50.0 Gbps (64)",
          "NDR": "100.0 Gbps (128)", "XDR": "200.0 Gbps (256)"}  # fmt: skip


def ibv_devinfo(node: Node) -> str:
    """`ibv_devinfo -v`, without most of the device's limits."""
    out = ""
    for p in node.ports:
        words = _rate(p)[1]
        width, gen = words.split("(")[1].rstrip(")").split()
        phys = {"Polling": "POLLING (2)", "Disabled": "DISABLED (3)", "LinkUp": "LINK_UP (5)"}
        ib = p.layer == "InfiniBand"
        gid = f"fe80:0000:0000:0000:{_guid(p.guid)}"
        out += (
            f"hca_id:\t{p.hca}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t{p.firmware}\n"
            f"\tnode_guid:\t\t\t{_guid(p.guid)}\n\tsys_image_guid:\t\t\t{_guid(p.guid)}\n"
            "\tvendor_id:\t\t\t0x02c9\n"
            f"\tvendor_part_id:\t\t\t{p.hca_type[2:]}\n\thw_ver:\t\t\t\t0x0\n"
            "\tboard_id:\t\t\tMT_0000000838\n\tphys_port_cnt:\t\t\t1\n"
            "\tmax_mr_size:\t\t\t0xffffffffffffffff\n\tmax_qp:\t\t\t\t131072\n"
            f"\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_{p.state} ({STATES[p.state][0]})\n"
            "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n"
            f"\t\t\tsm_lid:\t\t\t{_sm(p)}\n\t\t\tport_lid:\t\t{p.lid if ib else 0}\n"
            f"\t\t\tport_lmc:\t\t0x00\n\t\t\tlink_layer:\t\t{p.layer}\n"
            "\t\t\tmax_msg_sz:\t\t0x40000000\n"
            f"\t\t\tactive_width:\t\t{width} ({_WIDTHS[width]})\n"
            f"\t\t\tactive_speed:\t\t{_LANES[gen]}\n\t\t\tphys_state:\t\t{phys[p.phys]}\n"
            f"\t\t\tGID[  0]:\t\t{gid}" + ("" if ib else ", RoCE v1") + "\n\n"
        )
    return out


def slingshot(node: Node) -> str:
    """`cxi_stat` of Slingshot 11 (HewlettPackard/shs-libcxi utils/cxi_stat.c)."""
    out = ""
    for k, p in enumerate(_by_name(node)):
        out += (
            f"Device: {p.hca}\n    Description: SS11 200Gb 2P NIC Mezz\n"
            f"    Part Number: P43012-001\n    Serial Number: HA{p.guid % 10**8:08d}\n"
            f"    FW Version: 1.5.41\n    Network device: hsn{k}\n"
            f"    MAC: 02:00:00:00:08:{p.guid % 256:02x}\n    NID: {p.lid} (0x{p.lid:05x})\n"
            "    PID granule: 256\n    PCIE speed/width: 16.0 GT/s PCIe x16\n"
            f"    PCIE slot: {p.pci}\n        Link layer retry: on\n        Link loopback: off\n"
            "        Link media: electrical\n        Link MTU: 2112\n"
            "        Link speed: BS_200G\n"
            f"        Link state: {'up' if p.state == 'ACTIVE' else 'down'}\n"
        )
    return out


def ib_ports(node: Node) -> str:
    """`path:value` lines: links as readlink tells them, the rest as grep does."""
    out = ""
    for p in _by_name(node):
        if p.driver == "cxi":
            continue  # there is no /sys/class/infiniband
        ca = f"/sys/class/infiniband/{p.hca}"
        port = f"{ca}/ports/1"
        ib = p.layer == "InfiniBand"
        files = {
            f"{ca}/device": f"../../../{p.pci}",
            f"{ca}/device/net": p.netdev,
            f"{ca}/fw_ver": p.firmware,
            f"{ca}/hca_type": p.hca_type,
            f"{ca}/board_id": "MT_0000000838",
            f"{ca}/device/numa_node": "0" if (p.rail or 0) < 4 else "1",
            f"{ca}/device/current_link_speed": "32.0 GT/s PCIe",
            f"{ca}/device/current_link_width": "16",
            f"{ca}/device/max_link_speed": "32.0 GT/s PCIe",
            f"{ca}/device/max_link_width": "16",
            f"{port}/state": f"{STATES[p.state][0]}: {p.state}",
            f"{port}/phys_state": f"{PHYS[p.phys]}: {p.phys}",
            f"{port}/rate": _rate(p)[1],
            f"{port}/link_layer": p.layer,
            f"{port}/lid": f"0x{p.lid if ib else 0:x}",
            f"{port}/sm_lid": f"0x{_sm(p):x}",
            f"{port}/pkeys/0": p.pkey,
            f"{port}/gids/0": f"fe80:0000:0000:0000:{_guid(p.guid)}",
            f"{port}/gid_attrs/types/0": "IB/RoCE v1",
        }
        files |= {f"{port}/gids/{k}": address for k, address, _ in p.gids}
        files |= {f"{port}/gid_attrs/types/{k}": kind for k, _, kind in p.gids}
        if p.driver == "efa":
            files[f"{ca}/device/driver"] = "../../../../bus/pci/drivers/efa"
            for name in ("fw_ver", "hca_type", "board_id", "device/net"):
                del files[f"{ca}/{name}"]
        out += "".join(f"{path}:{value}\n" for path, value in files.items())
    return out


def ib_counters(world: World, node: Node, sample: str) -> str:
    """Counters at the first or the second sample; traffic follows what the ranks do."""
    out = ""
    for p in _by_name(node):
        base = f"/sys/class/infiniband/{p.hca}/ports/1"
        busy = p.rail is not None and node.gpus[p.rail].activity in ("work", "slow")
        moving = busy and p.state == "ACTIVE"
        words = int(world.window_s * 9.1e9 / 4) if moving else int(world.window_s * 4100)
        if p.state != "ACTIVE":
            words = 0
        start = (p.guid * 7919) % (1 << 44)
        later = sample == "b"
        if p.driver == "efa":
            out += _efa(p, base, start, words * 4 if later else 0, later)
            continue
        if p.driver == "cxi":
            out += _cxi(p, start, words * 4 if later else 0, later)
            continue
        for name in COUNTERS:
            value = p.lifetime.get(name, 0)
            if name in ("port_rcv_data", "port_xmit_data"):
                value = start + (words if later else 0)
            elif name.endswith("packets"):
                value = start // 1000 + (words // 900 if later else 0)
            value += p.moved.get(name, 0) if later else 0
            out += f"{base}/counters/{name}:{value}\n"
        for name in HW_COUNTERS:
            value = p.lifetime.get(name, 10 if name == "lifespan" else 0)
            value += p.moved.get(name, 0) if later else 0
            out += f"{base}/hw_counters/{name}:{value}\n"
    return out


def _efa(p: Port, base: str, start: int, moved: int, later: bool) -> str:
    values = {"tx_bytes": start + moved, "rx_bytes": start + moved}
    values |= {name: p.lifetime.get(name, 0) for name in EFA_COUNTERS}
    if later:
        values = {name: value + p.moved.get(name, 0) for name, value in values.items()}
    return "".join(f"{base}/hw_counters/{name}:{value}\n" for name, value in values.items())


def _cxi(p: Port, start: int, moved: int, later: bool) -> str:
    """cxi's telemetry: each value with the time of its reading."""
    values = {"hni_sts_tx_ok_octets": start + moved, "hni_sts_rx_ok_octets": start + moved}
    values |= {name: p.lifetime.get(name, 0) for name in CXI_COUNTERS}
    if later:
        values = {name: value + p.moved.get(name, 0) for name, value in values.items()}
    at = f"@{1677004105 + 13 * later}.281053194"
    base = f"/sys/class/cxi/{p.hca}/device/telemetry"
    return "".join(f"{base}/{name}:{value}{at}\n" for name, value in values.items())


_SIGNAL = {"EDR": "25.78125", "HDR": "53.125", "NDR": "106.25", "XDR": "212.5"}
"""Gb/s of a lane on the wire, as the tools print it (libibmad dump.c)."""
_WORDS = {
    "symbol_error": "SymbolErrorCounter", "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter", "port_rcv_errors": "PortRcvErrors",
    "port_xmit_wait": "PortXmitWait",
}  # fmt: skip


def ibdiags(world: World) -> str:
    """`sminfo; ibhosts; iblinkinfo -l; ibqueryerrors`, as an engineer pastes them.

    infiniband-diags 44.0 over ibsim: every link says that it could be wider.
    """
    out = "sminfo: iberror: failed: query\n"
    if world.manager != "silent":
        out = (
            "sminfo: sm lid 1 sm guid 0x900a84030040a1c0, activity count 18264 priority 14 "
            f"state 3 SMINFO_{world.manager}\n"
        )
    up = [(n, p) for n in world.nodes for p in n.ports
          if p.layer == "InfiniBand" and p.state != "DOWN"]  # fmt: skip
    for n, p in up:
        out += f'Ca\t: 0x{p.guid:016x} ports 1 "{n.name} {p.hca}"\n'
    for k, (n, p) in enumerate(up):
        width, gen = p.rate_words.split("(")[1].rstrip(")").split()
        state = {"ACTIVE": "Active", "INIT": "Initialize", "ARMED": "Armed"}[p.state]
        link = f"( {width} {_SIGNAL[gen]:>13} Gbps {state}/  LinkUp)"
        out += (
            f'0x{p.guid:016x} "{n.name + " " + p.hca:>30}" {p.lid:6} {1:4}[  ] =={link}==>  '
            f"0x{0xFC6A1C0300000000 + k // 32:016x} {900 + k // 32:6} {k % 32 + 1:4}[  ] "
            f'"MF0;{p.leaf or "leaf1"}:MQM9700/U1" (Could be 12X )\n'
        )
    bad = 0
    for n, p in up:
        told = " ".join(f"[{w} == {p.lifetime[c]}]" for c, w in _WORDS.items() if p.lifetime.get(c))
        if told:
            bad += 1
            out += f'Errors for "{n.name} {p.hca}"\n   GUID 0x{p.guid:x} port 1: {told}\n'
    out += f"\n## Summary: {len(up) + 2} nodes checked, {bad} bad nodes found\n"
    out += f"##          {2 * len(up)} ports checked, {bad} ports have errors beyond threshold\n"
    return out + "## Thresholds: \n## Suppressed:\n"
