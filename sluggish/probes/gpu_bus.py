"""GPUs on the PCI bus, from sysfs or `lspci`: what is plugged in, driver or no driver.

Shows: PCI functions with vendor 0x10de and class 0x0302 (3D controller) or 0x0300 (VGA). Not
counted: NVSwitches (0x0680), audio and USB functions, virtual functions (function number not 0).
Rights: any user. Cost: reads two small files a PCI device, takes no lock of the driver and so
answers on a node where nvidia-smi hangs.

Traps: sysfs keeps a card that fell off the bus until the kernel removes it; `lspci` then shows
`(rev ff)`. Inside a container the bus shows all cards of the host, nvidia-smi only some.
"""

import re
from collections.abc import Iterator

from sluggish.facts import smi_values as v
from sluggish.facts.gpu import GpuCount, OtherGpus, PciAcs
from sluggish.facts.origin import Origin

ID = "gpu_bus"
COMMAND = (
    "grep -s . /sys/bus/pci/devices/*/vendor /sys/bus/pci/devices/*/class; "
    "ls -d /dev/kfd 2>/dev/null; :"
)
FACTS: tuple[type, ...] = (GpuCount, PciAcs, OtherGpus)
BINARY = False

_ADDRESS = r"(?P<pci>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
# /sys/bus/pci/devices/0000:1b:00.0/class:0x030200          (form of `grep -s .`)
_SYSFS = re.compile(
    rf"/sys/bus/pci/devices/{_ADDRESS}/(?P<file>class|vendor|revision):"
    r"(?P<value>0x(?:[0-9A-Fa-f]{6}|[0-9A-Fa-f]{4}|[0-9A-Fa-f]{2}))\s*\Z"
)
_LENGTHS = {"class": 8, "vendor": 6, "revision": 4}
# 0001:00:00.0 3D controller: NVIDIA Corporation GH100 [H100 PCIe] (rev a1)      (`lspci`)
# 1b:00.0 3D controller [0302]: NVIDIA Corporation Device [10de:2335] (rev a1)   (`lspci -nn`)
_LSPCI = re.compile(
    rf"{_ADDRESS} (?P<kind>[A-Za-z0-9][^:\[]{{1,60}}?)"
    r"(?: \[(?P<class>[0-9a-f]{4})\])?: (?P<what>.+)\Z"
)
# 1b:00.0 0302: 10de:2335 (rev a1)                                               (`lspci -n`)
_NUMERIC = re.compile(
    rf"{_ADDRESS} (?P<class>[0-9a-f]{{4}}): (?P<what>[0-9a-f]{{4}}:[0-9a-f]{{4}}.*)\Z"
)
# 	ACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
# (`lspci -vvv` as root, pciutils ls-ecaps.c; other users see `<access denied>`)
_ACS = re.compile(r"\s*ACSCtl:\s{1,8}SrcValid[+-] TransBlk[+-] ReqRedir(?P<request>[+-]) ")
# `ls -d /dev/kfd`: the compute device of the amdgpu driver
_KFD = re.compile(r"^/dev/kfd\s*$", re.MULTILINE)
# ========================= ROCm System Management Interface =========================
# | AMD-SMI 26.0.2+39589fda  amdgpu version: 6.16.6 ROCm version: 7.1.0 |
# GPU: 0
#     BDF: 0000:05:00.0        (`amd-smi list`)
_AMD_TOOL = re.compile(
    r"^=+ ?ROCm System Management Interface ?=+\s*$|^\| AMD-SMI \d|^GPU: \d{1,3}\s*\n +BDF: ",
    re.MULTILINE,
)
_AMD_GPU = re.compile(r"^(?:GPU\[(\d{1,3})\]|GPU: (\d{1,3})\s*$)", re.MULTILINE)
_AMD_CLASSES = ("0302", "0380", "1200")
"""3D controller, display controller, processing accelerator: Instinct boards are 0380 and 1200."""
_GPU_CLASSES = ("0300", "0302")
_GPU_KINDS = ("3d controller", "vga compatible controller", "display controller")
_LONGEST = 400
_MOST = 4096


def sniff(head: bytes) -> bool:
    """Every first line is a sysfs line of a PCI device, or an lspci line with an NVIDIA one.

    Or what somebody cut out of `lspci -vvv`: devices and their ACSCtl lines.
    """
    text = head.decode("utf-8", "replace")
    if _AMD_TOOL.search(text[:4000]):
        return True
    lines = [line for line in text.splitlines() if line.strip()][:4000]
    if not lines:
        return False
    if any(_SYSFS.match(line) for line in lines[:10]):
        return True
    # `lspci -v` indents what belongs to a device
    tops = [line for line in lines if not line[0].isspace()]
    known = [line for line in tops if _lspci(line) is not None]
    if any(_ACS.match(line) for line in lines) and len(known) >= 0.9 * len(tops):
        return True
    return len(known) >= max(1, 0.9 * len(tops)) and any(_is_nvidia(line) for line in known)


def parse(text: str, origin: Origin) -> Iterator[GpuCount | PciAcs | OtherGpus]:
    """One count. Raises ValueError where no line is of the bus, or lspci shows nothing of NVIDIA.

    A listing without any NVIDIA device may have been filtered: it never says "no GPU". One that
    was cut or garbled is refused: GPUs that it lost would count as lost by the node.
    """
    if _AMD_TOOL.search(text[:4000]):
        listed = {one or other for one, other in _AMD_GPU.findall(text)}
        yield OtherGpus(node=origin.node, maker="AMD", count=len(listed) or None, source="ROCm")
        return
    acs = tuple(_acs(text, origin)) if "ACSCtl:" in text else ()
    yield from acs
    gpus: dict[str, bool] = {}
    whole = _sysfs(text, gpus)
    if whole is None and not _lspci_all(text, gpus):
        if acs:  # somebody cut the bridges out of a longer listing
            return
        raise ValueError("expected /sys/bus/pci/devices/... lines or lspci with an NVIDIA device")
    others = _of_amd(text)
    if others or _KFD.search(text):
        yield OtherGpus(node=origin.node, maker="AMD", count=others or None, source="pci")
    alive = tuple(sorted(address for address, dead in gpus.items() if not dead))
    dead = tuple(sorted(address for address, dead in gpus.items() if dead))
    yield GpuCount(
        node=origin.node, source="pci", count=len(alive), pci=alive, dead=dead, whole=bool(whole)
    )


def _acs(text: str, origin: Origin) -> Iterator[PciAcs]:
    """Each ACSCtl line with the device whose indented block it stands in."""
    device: re.Match[str] | None = None
    given = 0
    for line in text.splitlines():
        if line[:1].strip():
            device = _lspci(line)
        found = _ACS.match(line) if len(line) < _LONGEST else None
        if found is None or given >= _MOST:
            continue
        given += 1
        yield PciAcs(
            node=origin.node,
            pci=v.pci(device["pci"]) if device else None,
            bridge="bridge" in device.group().lower() if device else None,
            redirects=found["request"] == "+",
            line=line.strip()[:200],
        )


def _sysfs(text: str, gpus: dict[str, bool]) -> bool | None:
    """Fill in the GPUs; None if there is no sysfs line, True if the listing proves to be whole.

    `grep` prints all vendors before all classes, so a cut listing has a device with one of them.
    """
    devices: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = _SYSFS.match(line) if len(line) < _LONGEST else None
        address = v.pci(match["pci"]) if match else None
        if match and address and len(match["value"]) == _LENGTHS[match["file"]]:
            if len(devices) >= _MOST:
                raise ValueError(f"expected at most {_MOST} PCI devices")
            devices.setdefault(address, {})[match["file"]] = match["value"].lower()
        elif "/sys/bus/pci/" in line:
            raise ValueError("expected whole lines /sys/bus/pci/devices/ADDRESS/FILE:0x...")
    if not devices:
        return None
    vendors = any("vendor" in files for files in devices.values())
    if not all("class" in files and (not vendors or "vendor" in files)
               for files in devices.values()):  # fmt: skip
        raise ValueError("expected vendor and class of every PCI device: the listing is cut")
    for address, files in devices.items():
        # without a vendor line the listing was of vendor 0x10de only
        ours = files.get("vendor", "0x10de") == "0x10de"
        number = int(files.get("class", "0x0"), 16)
        if ours and f"{number >> 8:04x}" in _GPU_CLASSES and address.endswith(".0"):
            gpus[address] = files.get("revision") == "0xff"
    return vendors


def _of_amd(text: str) -> int:
    """Compute boards of AMD on the bus; graphics of the mainboard (VGA) are none."""
    devices: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        match = _SYSFS.match(line) if len(line) < _LONGEST else None
        if match and len(devices) < _MOST:
            devices.setdefault(match["pci"], {})[match["file"]] = match["value"].lower()
    ours = (d.get("class", "")[2:6] for d in devices.values() if d.get("vendor") == "0x1002")
    return sum(kind in _AMD_CLASSES for kind in ours)


def _lspci_all(text: str, gpus: dict[str, bool]) -> bool:
    """Fill in the GPUs; True if there was any NVIDIA device."""
    seen = False
    for line in text.splitlines():
        match = _lspci(line)
        if match is None or not _is_nvidia(line):
            continue
        seen = True
        address = v.pci(match["pci"])
        groups = match.groupdict()
        kind = (groups.get("kind") or "").lower()
        is_gpu = groups.get("class") in _GPU_CLASSES if groups.get("class") else kind in _GPU_KINDS
        if is_gpu and address and address.endswith(".0") and len(gpus) < _MOST:
            gpus[address] = "(rev ff)" in match["what"]
    return seen


def _lspci(line: str) -> re.Match[str] | None:
    if len(line) > _LONGEST:
        return None
    return _NUMERIC.match(line) or _LSPCI.match(line)


def _is_nvidia(line: str) -> bool:
    return "NVIDIA Corporation" in line or "10de:" in line
