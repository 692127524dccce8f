"""Words, times and places as every report writes them."""

from collections.abc import Iterable
from datetime import datetime

from sluggish.causes import Cause, Family
from sluggish.hostlist import fold
from sluggish.text import is_node_name, safe
from sluggish.verdict.model import Culprit

HEADLINE = {
    Cause.NOT_RUNNING: "NOT RUNNING",
    Cause.NODE_DOWN: "NODE DOWN",
    Cause.GPU_FAULT: "GPU FAULT",
    Cause.IB_FAULT: "IB FAULT",
    Cause.RANK_DESYNC: "RANK DESYNC: code or data, not hardware",
    Cause.DATA_STALL: "DATA STALL",
    Cause.MEMORY: "OUT OF MEMORY",
    Cause.APP_CRASH: "APP CRASH: the program, not the hardware",
    Cause.CONFIG: "CONFIG: a setting, not the hardware",
    Cause.STRAGGLER: "STRAGGLER: moves, held back",
    Cause.PROGRESSING: "PROGRESSING",
    Cause.UNKNOWN: "UNKNOWN: cause not proved",
}
AREA = {
    Cause.NOT_RUNNING: "Slurm",
    Cause.NODE_DOWN: "nodes",
    Cause.GPU_FAULT: "GPU",
    Cause.IB_FAULT: "IB ports",
    Cause.RANK_DESYNC: "desync",
    Cause.DATA_STALL: "storage",
    Cause.MEMORY: "memory",
    Cause.APP_CRASH: "crash",
    Cause.CONFIG: "config",
    Cause.STRAGGLER: "straggler",
}
FAMILY = {
    Family.KERNEL: "kernel",
    Family.FABRIC: "fabric",
    Family.COLLECTIVE: "collective",
    Family.PROCESS: "process",
    Family.SLURM: "slurm",
    Family.DATA: "data",
}
LINK_SUBTYPES = ("port_down", "port_error", "link_degraded")


def clock(at: datetime | None, day_of: datetime | None = None) -> str:
    """`03:04:17Z`, with the date where it is another day than `day_of`."""
    if at is None:
        return ""
    if day_of is not None and at.date() == day_of.date():
        return f"{at:%H:%M:%S}Z"
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def lasting(seconds: float) -> str:
    """`45 s`, `7 min`, `14h02m`, `9 days`."""
    whole = max(int(seconds), 0)
    if whole < 120:
        return f"{whole} s"
    if whole < 7_200:
        return f"{whole // 60} min"
    if whole < 259_200:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 86_400} days"


def age(at: datetime, now: datetime | None) -> str:
    """`7 min ago`; empty where now is not known."""
    if now is None:
        return ""
    seconds = (now - at).total_seconds()
    return f"{lasting(seconds)} ago" if seconds >= 0 else f"{lasting(-seconds)} ahead"


def folded(nodes: Iterable[str]) -> str:
    """Equal nodes as one word: `gpu[03-16]`; a name that is none is shown as it is, made safe."""
    names = list(dict.fromkeys(nodes))
    good = [name for name in names if is_node_name(name)]
    odd = [safe(name, 60) for name in names if not is_node_name(name)]
    return ",".join([fold(good), *odd]) if good else ",".join(odd)


def ranks(numbers: Iterable[int]) -> str:
    """`0-2,4-15`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def model(name: str) -> str:
    """`NVIDIA H100 80GB HBM3` -> `H100`."""
    words = [word for word in safe(name, 60).split() if word.upper() != "NVIDIA"]
    return words[0] if words else ""


def place(culprit: Culprit, subtype: str | None) -> str:
    """Where: a port is one end of a link, so it reads as the link and not as the node."""
    node = safe(culprit.node, 60) if culprit.node else ""
    if culprit.hca and subtype in LINK_SUBTYPES:
        return f"link {node} {safe(culprit.hca, 40)} ↔ switch (far end not seen from here)"
    parts = [node]
    if culprit.gpu_index is not None:
        parts.append(f"GPU {culprit.gpu_index}")
    if culprit.gpu_pci:
        parts.append(safe(culprit.gpu_pci, 40))
    if culprit.hca:
        parts.append(safe(culprit.hca, 40))
    return "  ".join(part for part in parts if part)


def doing(culprit: Culprit) -> str:
    """Which rank and process, and what it does: `rank 3 pid 912233: all_reduce #101 ...`."""
    who = [f"rank {culprit.rank}"] if culprit.rank is not None else []
    if culprit.pid is not None:
        who.append(f"pid {culprit.pid}")
    what = [safe(culprit.operation, 80)] if culprit.operation else []
    if culprit.seq is not None:
        what.append(f"#{culprit.seq}")
    if culprit.group:
        what.append(f"in {safe(culprit.group, 60)}")
    tail = [" ".join(what)] if what else []
    tail += [safe(text, 120) for text in (culprit.doing, culprit.source_line) if text]
    return ": ".join(part for part in (" ".join(who), ", ".join(tail)) if part)
