"""NVIDIA driver lines: Xid, SXid, and GPU trouble that never says Xid.

Sources: NVIDIA/open-gpu-kernel-modules 595.45.04 `kernel_rc.c`, `osinit.c`, `nv_gpu_ops.c`,
`error_nvswitch.c`, `therm_lr10.c`; forms of older drivers from public logs.
"""

import re

from sluggish.catalog.xidline import split_sxid, split_xid
from sluggish.facts.gpu import GpuTrouble, SXid, Xid
from sluggish.facts.smi_values import pci
from sluggish.probes.kernel_log.context import Record
from sluggish.text import safe

NEEDLES = (
    "Xid", "fallen off the bus", "RmInitAdapter failed", "NV_ERR_RESET_REQUIRED",
    "NV_ERR_GPU_IS_LOST", "encountered global fatal error", "NVRM: API mismatch",
    "postRxDetLinkMask failed", "NVRM: The NVIDIA GPU", "GPU likely needs to be reset",
    ", device inaccessible",
)  # fmt: skip
_ADDRESS = re.compile(
    r"(?<![0-9a-fA-F])(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
    r"(?![0-9a-fA-F])",
    re.ASCII,
)
# NVRM: GPU 0000:27:00.0: GPU has fallen off the bus.
# NVRM: The NVIDIA GPU 0000:b3:00.0 / NVRM: (PCI ID: 10de:26b5) installed in this system has /
# NVRM: fallen off the bus and is not responding to commands.        (three lines, one sentence)
# NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0x56:1463)
# NVRM: _x: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x00000063) returned from ...
# NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 ... The GPU likely needs to
#   be reset.
# NVRM: nvAssert...: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) ...
# NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x62, requiring os reboot to
#   recover.
# NVRM: API mismatch: the client 'nvidia-smi' (pid 812)
# nvidia 0000:3b:00.0: Unable to change power state from D3cold to D0, device inaccessible
#                                                        (Linux drivers/pci/pci.c)
# NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!
_KINDS = (
    ("fallen off the bus", "fallen_off"),
    (", device inaccessible", "fallen_off"),
    ("RmInitAdapter failed", "init_failed"),
    ("NV_ERR_RESET_REQUIRED", "reset_required"),
    ("GPU likely needs to be reset", "reset_required"),
    ("NV_ERR_GPU_IS_LOST", "gpu_lost"),
    ("encountered global fatal error", "uvm_fatal"),
    ("NVRM: API mismatch", "api_mismatch"),
    ("postRxDetLinkMask failed", "nvlink"),
)


def read(record: Record) -> Xid | SXid | GpuTrouble | None:
    """The fact of one NVIDIA line, or None."""
    if "Xid" in record.text:
        return _xid(record) or _sxid(record) or _trouble(record)
    return _trouble(record)


def _xid(record: Record) -> Xid | None:
    parts = split_xid(record.text)
    if parts is None:
        return None
    address = pci(parts.pci) if parts.pci else ""  # left out by whoever posted the line
    if address is None:
        return None
    return Xid(
        node=record.node, at=record.at, order=record.order, line=record.line,
        pci=address, code=parts.code, pid=parts.pid, process=safe(parts.process or "", 64) or None,
        words=parts.words,
        caused_by=parts.caused_by, recovery=parts.recovery, reset_hint=parts.reset_hint,
        unit=parts.unit, fatal=parts.fatal, link=parts.link, intrinfo=parts.intrinfo,
        status=parts.status, link_words=parts.link_words,
    )  # fmt: skip


def _sxid(record: Record) -> SXid | None:
    parts = split_sxid(record.text)
    address = pci(parts.pci) if parts else None
    if parts is None or address is None:
        return None
    return SXid(
        node=record.node, at=record.at, line=record.line, pci=address, code=parts.code,
        fatal=parts.fatal, link=parts.link, words=parts.words,
    )  # fmt: skip


def is_follow_up(fact: SXid) -> bool:
    """Whether it is a Severity or Data line that repeats the number of the SXid before it."""
    return fact.words.startswith(("Severity ", "Data {"))


def _trouble(record: Record) -> GpuTrouble | None:
    text = record.text
    if "NVRM: The NVIDIA GPU" in text:
        sentence = " ".join([text, *record.following(3)])
        if "fallen off the bus" not in sentence[:400]:
            return None
        return _make(record, "fallen_off", text)
    for words, kind in _KINDS:
        if words not in text:
            continue
        if kind == "fallen_off" and not _ADDRESS.search(text) and "GPU has" not in text:
            return None  # the third line of the sentence above, or prose
        if "NVRM" not in text and "nvidia" not in text.lower() and kind != "uvm_fatal":
            return None
        return _make(record, kind, text)
    return None


def _make(record: Record, kind: str, text: str) -> GpuTrouble:
    found = _ADDRESS.search(text)
    return GpuTrouble(
        node=record.node, at=record.at, kind=kind, line=record.line,
        pci=pci(found["pci"]) if found else None,
    )  # fmt: skip
