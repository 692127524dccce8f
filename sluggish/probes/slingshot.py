"""Ports of HPE Slingshot adapters (Cassini, `cxi0`): link state, speed, PCIe.

Shows: `cxi_stat` (HewlettPackard/shs-libcxi utils/cxi_stat.c and its manual page). Without options
it reads state alone and returns at once; `--rates`, which waits four seconds, is not asked.
Rights: any user. Traps: older releases print `CK_400G` and `BS_200G`, newer ones `ck400G`; a link
that is up may still lose, which ib_counters tells.
"""

import re
from collections.abc import Iterator

from sluggish.facts import smi_values as v
from sluggish.facts.fabric import Port
from sluggish.facts.origin import Origin

ID = "slingshot"
COMMAND = """\
if [ -e /sys/class/cxi ]; then cxi_stat; else printf 'no Slingshot on this machine\\n'; fi
"""
FACTS: tuple[type, ...] = (Port,)
BINARY = False

NONE = "no Slingshot on this machine"
# Device: cxi0
#     FW Version: 1.5.41
#     Network device: hsn0
#     PCIE speed/width: 16.0 GT/s PCIe x16
#     PCIE slot: 0000:4b:00.0
#         Link speed: BS_200G
#         Link state: up
_DEVICE = re.compile(r"^Device: (cxi\d{1,3})[ \t]*\r?$", re.MULTILINE)
_FIELD = re.compile(
    r"^[ \t]{1,12}(FW Version|Network device|PCIE speed/width|PCIE slot|Link speed|Link state):"
    r"[ \t]{0,4}([^\r\n]{0,100})",
    re.MULTILINE,
)
_GBPS = re.compile(r"(\d{2,4})G\Z")
_PCIE = re.compile(r"(\d{1,3}(?:\.\d)? GT/s)\b.{0,8}? x(\d{1,2})\Z")
_STATES = {"up": ("active", "linkup"), "down": ("down", None), "starting": ("initializing", None)}
MOST = 64


def sniff(head: bytes) -> bool:
    """What cxi_stat prints, or this probe's one line."""
    text = head[:4096].decode("utf-8", "replace")
    return text.startswith(NONE) or bool(_DEVICE.search(text))


def parse(text: str, origin: Origin) -> Iterator[Port]:
    """One port a device that tells its link's state. ValueError where there is no device."""
    if text.strip() == NONE:
        return
    found = list(_DEVICE.finditer(text))[:MOST]
    if not found:
        raise ValueError("expected the devices of cxi_stat")
    ends = [device.start() for device in found[1:]] + [len(text)]
    for device, end in zip(found, ends, strict=True):
        told = {key: value.strip() for key, value in _FIELD.findall(text[device.end() : end])}
        if "Link state" not in told:
            raise ValueError(f"expected Link state of {device[1]}: the answer is cut")
        state, physical = _STATES.get(told["Link state"], ("unknown", None))
        speed = _GBPS.search(told.get("Link speed", ""))
        lanes = _PCIE.search(told.get("PCIE speed/width", ""))
        yield Port(
            node=origin.node,
            hca=device[1],
            port=1,
            state=state,
            phys_state=physical,
            rate_gbps=float(speed[1]) if speed else None,
            firmware=told.get("FW Version") or None,
            pci=v.pci(told.get("PCIE slot", "")),
            netdev=told.get("Network device") or None,
            virtual=False,
            driver="cxi",
            pcie_speed=lanes[1] if lanes else None,
            pcie_width=int(lanes[2]) if lanes else None,
            source=ID,
        )
