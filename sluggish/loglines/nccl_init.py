"""NCCL's start: rank -> host, pid, device, PCI id; its version; its settings. START alone: hung.

Formats: NVIDIA/nccl src/init.cc, tags v2.4 to v2.30.
"""

import re
from collections.abc import Iterable, Iterator

from sluggish.facts.log import NcclInit, NcclSetting, Version
from sluggish.loglines.line import Line
from sluggish.loglines.nccl_prefix import nccl_prefix

NEEDLES: tuple[bytes, ...] = (b" nranks ", b"NCCL version ", b" set by environment to ")

# comm 0x55d rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 5d000 commId 0x9a - Init COMPLETE   (2.19)
# ncclCommInitRank comm 0x55d rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 5d000 commId ... (2.21)
# ncclCommSplit comm 0x7f rank 1 nranks 4 cudaDev 1 nvmlDev 1 busId 2a000 parent 0x.. - Init START
# comm 0x7f rank 0 nranks 8 cudaDev 0 busId 1b000 - Init COMPLETE                        (2.8)
_INIT = re.compile(
    r"comm 0x[0-9a-f]{1,16} (?:\[?Rank \d{1,7}\]? )?rank (?P<rank>\d{1,7}) nranks (?P<n>\d{1,7})"
    r"(?: cudaDev (?P<cuda>\d{1,4}))?(?: nvmlDev (?P<nvml>\d{1,4}))?"
    r"(?: busId (?P<bus>[0-9a-fA-F]{1,16}))?"
)
_COMM = re.compile(r"commId (0x[0-9a-f]{1,32})")
# NCCL version 2.27.7+cuda12.9      gpu-01:1:1 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
_VERSION = re.compile(r"NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})")

# gpu-01:1801:1801 [6] NCCL INFO NCCL_ALGO set by environment to ring,tree       (public logs, 2.21)
# gpu-01:1801:1801 [6] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22. (src/misc/param.cc, 2.19)
_SETTING = re.compile(r"(?P<name>NCCL_[A-Z0-9_]{1,60}) set by environment to (?P<value>\S{1,200})")


def parse(lines: Iterable[Line]) -> Iterator[NcclInit | NcclSetting | Version]:
    """One fact a communicator and rank, START and COMPLETE apart.

    Each version comes once a node, each setting once a process.
    """
    versions: set[object] = set()
    settings: set[object] = set()
    for line in lines:
        if " set by environment to " in line.text and (setting := _setting(line)):
            key = (setting.node, setting.pid, setting.name, setting.value)
            if key not in settings:
                settings.add(key)
                yield setting
        version = _VERSION.search(line.text[:2000]) if "NCCL version" in line.text else None
        if version:
            told = nccl_prefix(line.text)
            node = (told.host if told else None) or line.node
            if (node, version[1]) not in versions:
                versions.add((node, version[1]))
                yield Version(
                    node=node,
                    rank=line.rank,
                    component="nccl",
                    version=version[1],
                    line=line.raw[:400],
                )
        if " nranks " in line.text:
            yield from _init(line)


def _init(line: Line) -> Iterator[NcclInit]:
    told = nccl_prefix(line.text)
    found = _INIT.search(told.msg[:2000] if told else line.text[:2000])
    if found is None:
        return
    text = line.text[:3000]
    comm = _COMM.search(text)
    host = told.host if told else None
    yield NcclInit(
        node=(host.lstrip("-") or None if host else None) or line.node,
        rank=int(found["rank"]),
        world_size=int(found["n"]),
        pid=told.pid if told else line.pid,
        at=line.at,
        cuda_device=int(found["cuda"]) if found["cuda"] else None,
        nvml_device=int(found["nvml"]) if found["nvml"] else None,
        pci=bus_id(found["bus"]) if found["bus"] else None,
        comm=comm[1] if comm else None,
        complete="Init COMPLETE" in text,
        line=line.raw[:400],
    )


def _setting(line: Line) -> NcclSetting | None:
    told = nccl_prefix(line.text)
    found = _SETTING.match(told.msg[:400].strip()) if told else None
    if told is None or found is None:
        return None
    value = found["value"]
    number = value.removesuffix(".")  # NCCL ends the sentence behind a number only
    return NcclSetting(
        node=told.host or line.node,
        pid=told.pid,
        rank=line.rank,
        name=found["name"],
        value=number if number.lstrip("-").isdecimal() else value,
        line=line.raw[:400],
    )


def bus_id(text: str) -> str | None:
    """NCCL's `1b000` -> `0000:1b:00.0`, the form of sysfs and nvidia-smi."""
    value = int(text, 16)
    domain, bus = value >> 20 & 0xFFFFFFFF, value >> 12 & 0xFF
    device, function = value >> 4 & 0xFF, value & 0xF
    if domain > 0xFFFF or device > 0x1F or function > 7:
        return None
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
