"""Kernel lines about PCIe (AER, DPC, hot-plug) and network adapters.

Sources: Linux `drivers/pci/pcie/aer.c`, `dpc.c`, `pciehp`; mlx5 core `health.c`, `events.c`,
`cmd.c`; `drivers/infiniband/ulp/ipoib`; systemd-networkd.
"""

import re

from sluggish.facts.fabric import FabricEvent
from sluggish.facts.host import PcieError
from sluggish.facts.smi_values import pci
from sluggish.probes.kernel_log.context import Record

NEEDLES = (
    "AER: ", "PCIe Bus Error", "DPC: ", "pciehp: ", "mlx5_", "mlx4_core", "infiniband ",
    "available PCIe bandwidth", "NETDEV WATCHDOG", "multicast join failed", "NIC Link is",
    "Lost carrier", "Gained carrier", "dump_cqe", "link status definitely",
)  # fmt: skip

_BDF = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
# pcieport 0000:60:01.0: AER: Uncorrected (Fatal) error received: 0000:61:00.0
# pcieport 0000:60:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from
#   0000:61:00.0
# nvidia 0000:61:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, ...
_AER = re.compile(
    r"^(?:\S{1,40} )?(?P<port>" + _BDF + r"): (?:AER: )?"
    r"(?:PCIe Bus Error: severity=|(?:Multiple )?)"
    r"(?P<severity>Corrected|Correctable|Uncorrect(?:ed|able) \((?:Non-)?Fatal\))"
    r"(?: error (?:message )?received(?: from|:) (?P<source>" + _BDF + r"))?",
    re.ASCII,
)
# pcieport 0000:60:01.0: AER: device recovery failed
_RECOVERY = re.compile(r"(?P<port>" + _BDF + r"): (?:AER: )?(?:d|D)evice recovery failed", re.ASCII)
# pcieport 0000:60:01.0: DPC: containment event, status:0x1f01 source:0x0000
# pcieport 0000:60:01.0: pciehp: Slot(10): Link Down     ... Card not present
_GONE = re.compile(
    r"(?P<port>" + _BDF + r"): (?:DPC: (?:containment event|unmasked uncorrectable)"
    r"|pciehp: Slot\([^)]{1,20}\): (?:Link Down|Card not present))",
    re.ASCII,
)

# mlx5_core 0000:5c:00.0 enp1s0f0np0: Link down    mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
# mlx5_core 0000:5c:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count
_ADAPTER = re.compile(
    r"^(?P<driver>mlx5_core|mlx4_core|mlx5_ib|bnxt_en|ice) (?P<pci>" + _BDF + r")"
    r"(?: (?P<name>[\w.-]{1,32}))?(?: \(unregistered\))?: (?:mlx5_\w{1,60}: )?"
    r"(?P<text>.{0,600})",
    re.ASCII | re.DOTALL,
)
# infiniband mlx5_0: dump_cqe:272:(pid 812): dump error cqe
# infiniband efa_0: Failed to process ...
_INFINIBAND = re.compile(r"^infiniband (?P<hca>[\w.-]{1,32}): (?P<text>.{0,400})", re.DOTALL)
# mlx5_0:dump_cqe:262:(pid 812): dump error cqe       mlx5_0: dump_cqe:272:(pid 812): ... (Linux 4)
_OLD_CQE = re.compile(r"^(?P<hca>mlx5_\w{1,24}): ?dump_cqe:")
# ib0: multicast join failed for ff12:401b:..., status -110
_MULTICAST = re.compile(r"^(?P<netdev>[\w.-]{1,32}): multicast join failed")
# NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 0 timed out
# mlx5_core 0000:5c:00.0 eth0: NETDEV WATCHDOG: CPU: 3: transmit queue 0 timed out 5080 ms   (newer)
_STUCK_QUEUE = re.compile(r"NETDEV WATCHDOG: (?:CPU: [0-9]{1,5}: )?(?P<netdev>[\w.-]{1,32}) \(")
# ib0: Lost carrier              (systemd-networkd: the only trace of a flap of a native IB port)
_CARRIER = re.compile(r"^(?P<netdev>[\w.-]{1,32}): (?P<word>Lost|Gained) carrier")
# bond0: (slave ens1): link status definitely down, disabling slave
_BOND = re.compile(
    r"^(?:bonding: )?(?P<bond>[\w.-]{1,32}): .{0,20}?(?:\(slave (?P<slave>[\w.-]{1,32})\): )?"
    r"link status definitely (?P<word>up|down)"
)
_NOISE = re.compile(
    # command of a restricted function refused; rows before print_health_info; benign recoveries
    r"ACCESS_REG\(0x805\).{0,80}failed|recovered after timeout|assert_(?:var|exit|callra)"
    r"|firmware version:"
)
_ADAPTER_KINDS = (
    ("thermal", re.compile(r"High [Tt]emp(?:e)?rature|synd 0x10\b"
    r"|[Tt]emperature .{0,40}(?:exceed|above)")),
    ("fatal", re.compile(
        r"health compromised|Fatal error [0-9]|print_health_info:.{0,30}synd 0x[0-9a-f]"
        r"|pci_err_detected"
        r"|Health issue observed.{0,120}severity\([0-3]\)|device is in fatal|mlx5_error_sw_reset"
    )),
    ("health", re.compile(r"Health issue observed|health recovery|start_health")),
    ("firmware", re.compile(r"timeout\. Will cause a leak|\btimeout\. Will\b|FW fatal"
    r"|firmware (?:error|fatal)")),
    ("module", re.compile(r"Port module event")),
    ("pcie", re.compile(r"available PCIe bandwidth.{0,40}limited by")),
    ("link_down", re.compile(r"Link down|Link DOWN|NIC Link is Down")),
    ("link_up", re.compile(r"Link up\b|Link ACTIVE|NIC Link is Up")),
    ("other", re.compile(r"insufficient power|Link INIT|Link ARMED|^NETDEV WATCHDOG:")),
)  # fmt: skip
_SEVERITY = {"C": "corrected", "F": "fatal", "N": "nonfatal"}
_RDMA_NAME = re.compile(r"(?:mlx[45]_|bnxt_re|irdma|rocep|ibp|efa_)")


def read(record: Record) -> PcieError | FabricEvent | None:
    """The fact of one PCIe or adapter line, or None."""
    return _pcie(record) or _fabric(record)


def _pcie(record: Record) -> PcieError | None:
    text = record.text
    if found := _AER.match(text):
        word = found["severity"]
        key = "C" if word[0] == "C" else "N" if "Non-" in word else "F"
        return _pcie_fact(record, found["source"] or found["port"], _SEVERITY[key])
    if found := _RECOVERY.search(text) or _GONE.search(text):
        return _pcie_fact(record, found["port"], "fatal")
    return None


def _pcie_fact(record: Record, address: str, severity: str) -> PcieError:
    return PcieError(
        node=record.node, at=record.at, pci=pci(address), severity=severity, line=record.line
    )


def _fabric(record: Record) -> FabricEvent | None:
    text = record.text
    if record.tag != "kernel":  # of the daemons only networkd's word about a carrier counts
        found = _CARRIER.match(text) if record.tag.startswith("systemd-networkd") else None
        kind = {"Lost": "link_down", "Gained": "link_up"}[found["word"]] if found else ""
        return _event(record, kind, netdev=found["netdev"]) if found else None
    if found := _ADAPTER.match(text):
        return _adapter(record, found)
    if found := _OLD_CQE.match(text):
        return _event(record, "other", hca=found["hca"])
    if found := _INFINIBAND.match(text):
        if "dump_cqe" in found["text"] or "Failed to process" in found["text"]:
            return _event(record, "other", hca=found["hca"])
        return None
    if found := _BOND.match(text):
        kind = "link_down" if found["word"] == "down" else "link_up"
        return _event(record, kind, netdev=found["slave"] or found["bond"])
    if found := _MULTICAST.match(text) or _STUCK_QUEUE.search(text):
        return _event(record, "other", netdev=found["netdev"])
    return None


def _adapter(record: Record, found: re.Match[str]) -> FabricEvent | None:
    if _NOISE.search(found["text"]) and "Will cause a leak" not in found["text"]:
        return None
    kind = next((kind for kind, p in _ADAPTER_KINDS if p.search(found["text"])), None)
    if kind is None:
        return None
    name = found["name"]
    is_hca = bool(name and _RDMA_NAME.match(name))
    return _event(
        record,
        kind,
        hca=name if is_hca else None,
        netdev=None if is_hca else name,
        address=found["pci"],
    )


def _event(
    record: Record,
    kind: str,
    *,
    hca: str | None = None,
    netdev: str | None = None,
    address: str | None = None,
) -> FabricEvent:
    return FabricEvent(
        node=record.node, at=record.at, kind=kind, hca=hca, netdev=netdev,
        pci=pci(address) if address else None, line=record.line,
    )  # fmt: skip
