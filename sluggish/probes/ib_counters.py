"""Counters of every RDMA port from sysfs, read twice: only the difference tells anything.

No root. Traps (prometheus/procfs class_infiniband.go, kernel core/sysfs.c, ibsim sim.h):
- reading counters of the HCAs that manage NVSwitch makes mlx5_core print errors, so slots of four
  or more physical functions, and virtual functions, are left out, and the kernel log is read first;
- single files hold `N/A (no PMA)` or answer EINVAL: the file is passed over, not the device;
- pauses and discards of RoCE stand in the driver's own statistics (kernel
  Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst): `ethtool -S` asks
  the firmware and holds the lock of network devices, so only Active Ethernet ports are asked;
- error counters saturate (link_downed at 255), they never wrap; data are in words of 4 bytes.
"""

import re
from collections.abc import Iterator

from sluggish.facts import ib_words
from sluggish.facts.fabric import PortCounters
from sluggish.facts.ib_sysfs import entries
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
:
"""
FACTS: tuple[type, ...] = (PortCounters,)
BINARY = False

# mlx5_0/ports/1/counters/link_downed:3       mlx5_0/ports/1/hw_counters/out_of_sequence:0
_KEY = re.compile(r"ports/(\d{1,3})/(?:hw_)?counters/(\w{1,80})\Z")
# efa_0/hw_counters/no_completion_cmds:0       (of the device; up to Linux 5.14 of its port)
_DEVICE_KEY = re.compile(r"hw_counters/(no_completion_cmds)\Z")
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
_PORT_FILE = re.compile(rb"/ports/\d{1,3}/(?:state|phys_state|rate):")


def sniff(head: bytes) -> bool:
    """Whether this holds counters and nothing of the ports' state."""
    return bool(_SNIFF.search(head[:16384])) and not _PORT_FILE.search(head)


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
