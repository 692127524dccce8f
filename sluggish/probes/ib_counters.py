"""Counters of every RDMA port from sysfs, read twice: only the difference tells anything.

No root. Traps (prometheus/procfs class_infiniband.go, kernel core/sysfs.c, ibsim sim.h):
- reading counters of the HCAs that manage NVSwitch makes mlx5_core print errors, so slots of four
  or more physical functions, and virtual functions, are left out, and the kernel log is read first;
- single files hold `N/A (no PMA)` or answer EINVAL: the file is passed over, not the device;
- pauses and discards of RoCE stand in the driver's own statistics (kernel
  Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst): `ethtool -S` asks
  the firmware and holds the lock of network devices, so only Active Ethernet ports are asked;
- error counters saturate (link_downed at 255), they never wrap; data are in words of 4 bytes;
- Slingshot has no /sys/class/infiniband: its counters are files of cxi's telemetry, each with the
  second of its reading behind an @ (HewlettPackard/shs-docs, PCIe and HNI errors).

Also read: `rdma statistic show`, plain, -p and -j, the same hw_counters as netlink tells them; and
what a bare `ethtool -S` printed, where its command or the file's name tells the network device,
which stands for its HCA (correlate/fabric_ends).
"""

import json
import re
from collections.abc import Iterator

from sluggish.facts import ib_words
from sluggish.facts.fabric import PortCounters
from sluggish.facts.ib_sysfs import MAX_LINE, entries
from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections

ID = "ib_counters"
COMMAND = r"""
for hca in /sys/class/infiniband/*; do
  [ -e "$hca" ] || continue
  [ -e "$hca/device/physfn" ] && continue
  pci=$(readlink "$hca/device"); pci=${pci##*/}; functions=0
  for function in /sys/bus/pci/devices/"${pci%.*}".*; do
    [ -e "$function" ] && [ ! -e "$function/physfn" ] && functions=$((functions + 1))
  done
  [ "$functions" -ge 4 ] && continue
  grep -s . "$hca/hw_counters/no_completion_cmds" /dev/null
  for port in "$hca"/ports/*; do
    grep -s . "$port"/counters/* "$port"/hw_counters/* /dev/null
  done
  grep -s . "$hca"/device/net/*/carrier_changes /dev/null
done
for hca in /sys/class/infiniband/*; do
  [ -e "$hca/device/physfn" ] && continue
  case $(cat "$hca/ports/1/link_layer" "$hca/ports/1/state" 2>/dev/null) in
    Ethernet*'4: ACTIVE') ;; *) continue ;;
  esac
  for net in "$hca"/device/net/*; do
    [ -e "$net" ] || continue
    printf '==> ethtool -S %s %s <==\n' "${net##*/}" "${hca##*/}"; ethtool -S "${net##*/}"
    break
  done
done
for cxi in /sys/class/cxi/*/device/telemetry; do
  [ -e "$cxi" ] || continue
  grep -s . "$cxi"/pct_spt_timeouts "$cxi"/pct_sct_timeouts "$cxi"/pct_retry_srb_requests \
    "$cxi"/pct_no_tct_nacks "$cxi"/pct_no_trs_nacks "$cxi"/pct_no_mst_nacks \
    "$cxi"/hni_pcs_uncorrected_cw "$cxi"/hni_llr_tx_replay_event "$cxi"/hni_llr_rx_replay_event \
    "$cxi"/hni_sts_tx_ok_octets "$cxi"/hni_sts_rx_ok_octets /dev/null
done
:
"""
FACTS: tuple[type, ...] = (PortCounters,)
BINARY = False

# mlx5_0/ports/1/counters/link_downed:3       mlx5_0/ports/1/hw_counters/out_of_sequence:0
_KEY = re.compile(r"ports/(\d{1,3})/(?:hw_)?counters/(\w{1,80})\Z")
# efa_0/hw_counters/no_completion_cmds:0       (of the device; up to Linux 5.14 of its port)
_DEVICE_KEY = re.compile(r"hw_counters/(no_completion_cmds)\Z")
# NIC statistics:
_BARE = re.compile(r"NIC statistics:\s*\Z")
# root@gpu-01:~# ethtool -S ens1np0
_ASKED = re.compile(r"\bethtool -S ([a-z][\w.-]{1,14})\s*\Z")
# counters/ethtool_ens1np0.b.txt       gpu-01-ethtool-S-enp12s0f0np0.txt       (persistent names)
_IN_NAME = re.compile(
    r"(?<![A-Za-z0-9])((?:en[ops]|ib[ps]?|eth|rdma|roce)\d\w{0,12}?)(?![A-Za-z0-9])"
)
# cxi0/device/telemetry/pct_spt_timeouts:12@1677004105.281053194
_TELEMETRY = re.compile(r"device/telemetry/((?:pct|hni)_\w{1,60})\Z")
# link rdmap0s6/1 tx_bytes 812345 tx_pkts 3 rx_drops 0       (rdma statistic show)
# link mlx5_0/1                                              (-p: then one counter a line)
#     rx_write_requests 0
_LINK = re.compile(r"link (?P<hca>[A-Za-z][\w.-]{0,63})/(?P<port>\d{1,3})(?P<rest>(?: .*)?)\Z")
_PAIR = re.compile(r"(?<!\S)([a-z][a-z0-9_]{2,59}) (\d{1,20})(?!\S)")
# [{"ifname":"mlx5_0","port":1,"rx_write_requests":0,        (-j)
_JSON = re.compile(rb'^\[ ?\{\s{0,20}"ifname": ?"[^"]{1,64}",\s{0,20}"port": ?\d{1,3},\s{0,20}"')
# ==> ethtool -S ens1np0 mlx5_0 <==       (the second name is the HCA's)
_ETHTOOL = re.compile(r"ethtool -S [\w.@:-]{1,40} ([A-Za-z][\w.-]{0,63})\Z")
#      rx_prio3_pause: 12        rx_discards_phy: 0        link_down_events_phy: 3
_STATISTIC = re.compile(
    r"^ {1,8}((?:rx|tx)_(?:prio[0-7]_(?:pause|discards)|global_pause|(?:discards|steer_missed)_phy"
    r"|pcs_symbol_err_phy|out_of_buffer)|link_down_events_phy|rx_out_of_buffer): (\d{1,20})\s*$",
    re.MULTILINE,
)
_CARRIER = re.compile(r"device/net/[^/]{1,15}/carrier_changes\Z")
_SNIFF = re.compile(
    rb"^(?:\S{0,200}[/:])?[A-Za-z][\w.-]{0,63}/ports/\d{1,3}/(?:hw_)?counters/\w+:",
    re.MULTILINE,
)
_SNIFF_MORE = re.compile(
    rb"^(?:\S{0,200}[/:])?cxi\d{1,3}/device/telemetry/(?:pct|hni)_\w+:\d"
    rb"|^NIC statistics:[ \t]*$"
    rb"|^link [A-Za-z][\w.-]{0,63}/\d{1,3} ?(?:\n {1,8})?"
    rb"(?:rx_write_requests|tx_bytes|lifespan|duplicate_request) \d",
    re.MULTILINE,
)
_PORT_FILE = re.compile(rb"/ports/\d{1,3}/(?:state|phys_state|rate):")


def sniff(head: bytes) -> bool:
    """Whether this holds counters and nothing of the ports' state."""
    begin = head[:16384]
    found = _SNIFF.search(begin) or _SNIFF_MORE.search(begin) or _JSON.match(begin.lstrip())
    return bool(found) and not _PORT_FILE.search(head)


def parse(text: str, origin: Origin) -> Iterator[PortCounters]:
    """One fact a port, in natural order; a port all of whose files are N/A has no counters."""
    ports: dict[tuple[str, int], dict[str, int]] = {}
    driver = dict(_driver(text))
    whole: dict[str, dict[str, int]] = {}
    for entry in entries(text):
        value = ib_words.number(entry.value)
        if key := _KEY.match(entry.key):
            counters = ports.setdefault((entry.hca, int(key[1])), {})
            if value is not None:
                counters[key[2]] = value
        elif value is not None and _CARRIER.match(entry.key):
            whole.setdefault(entry.hca, {}).setdefault("carrier_changes", value)
        elif value is not None and (key := _DEVICE_KEY.match(entry.key)):
            whole.setdefault(entry.hca, {}).setdefault(key[1], value)
        elif key := _TELEMETRY.match(entry.key):
            told = ib_words.number(entry.value.partition("@")[0])
            if told is not None:
                ports.setdefault((entry.hca, 1), {})[key[1]] = told
    for key_of, counters in (*_of_rdma(text), *_of_bare(text, origin)):
        ports.setdefault(key_of, {}).update(counters)
    if not ports:
        raise ValueError("expected 'NAME/ports/N/counters/link_downed:0' lines")
    for (hca, number), counters in sorted(
        ports.items(), key=lambda item: (ib_words.natural(item[0][0]), item[0][1])
    ):
        if number == 1:
            counters |= driver.get(hca, {}) | whole.get(hca, {})
        yield PortCounters(
            node=origin.node,
            hca=hca,
            port=number,
            sample=origin.sample,
            at=origin.taken_at,
            counters=counters,
        )


def _driver(text: str) -> Iterator[tuple[str, dict[str, int]]]:
    """HCA -> pauses, discards and lost links, as the driver of its network device counts them."""
    for name, body in sections(text) if "==> ethtool" in text else ():
        if found := _ETHTOOL.match(name):
            yield found[1], {key: int(value) for key, value in _STATISTIC.findall(body)}


def _of_rdma(text: str) -> Iterator[tuple[tuple[str, int], dict[str, int]]]:
    """What `rdma statistic show` tells of each port, in any of its three forms."""
    if text.lstrip().startswith("["):
        yield from _of_json(text)
        return
    found: dict[tuple[str, int], dict[str, int]] = {}
    here: dict[str, int] | None = None
    for line in text.splitlines() if "link " in text else ():
        if len(line) > MAX_LINE:
            here = None
        elif link := _LINK.match(line.rstrip()):
            here = found.setdefault((link["hca"], int(link["port"])), {})
            here |= {name: int(value) for name, value in _PAIR.findall(link["rest"])}
        elif here is not None and line.startswith(" "):
            here |= {name: int(value) for name, value in _PAIR.findall(line)}
        else:
            here = None
    yield from found.items()


def _of_bare(text: str, origin: Origin) -> Iterator[tuple[tuple[str, int], dict[str, int]]]:
    """Blocks of a bare `ethtool -S`, under the name of their network device."""
    blocks: list[tuple[str, list[str]]] = []
    name = ""
    for line in text.splitlines() if "NIC statistics:" in text else ():
        if asked := _ASKED.search(line[-200:]):
            name = asked[1]
        elif _BARE.match(line):
            blocks.append((name, []))
            name = ""
        elif blocks and line.startswith(" "):
            blocks[-1][1].append(line)
    if len(blocks) == 1 and not blocks[0][0] and "==> ethtool" not in text:
        told = _IN_NAME.search(origin.path.rsplit("/", 1)[-1])
        if not told:
            raise ValueError("expected the network device in the file's name or its command")
        blocks = [(told[1], blocks[0][1])]
    for device, lines in blocks:
        if device:
            found = _STATISTIC.findall("\n".join(lines))
            yield (device, 1), {key: int(value) for key, value in found}


def _of_json(text: str) -> Iterator[tuple[tuple[str, int], dict[str, int]]]:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return
    for one in told if isinstance(told, list) else ():
        name, port = (one.get("ifname"), one.get("port")) if isinstance(one, dict) else ("", 0)
        if isinstance(name, str) and ib_words.is_hca(name) and isinstance(port, int):
            whole = {k: v for k, v in one.items() if isinstance(k, str) and isinstance(v, int)}
            yield (name, port), {k: v for k, v in whole.items() if k != "port"}
