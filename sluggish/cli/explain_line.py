"""What `sluggish explain` says of a pasted line: the kernel's, Fabric Manager's or NCCL's."""

from typing import Any

from sluggish.catalog import data
from sluggish.catalog.explain import explain_xid
from sluggish.facts.fabric import NcclCompletion
from sluggish.facts.gpu import SXid, Xid
from sluggish.facts.host import OomKill, StorageEvent
from sluggish.facts.origin import Origin

LONGEST = 64_000
"""Characters of what was pasted that are looked at: a line, or one with its call trace."""


def explain_line(text: str) -> list[str] | None:
    """Lines to print for the first event of the text; None where no reader knows it."""
    text = text[:LONGEST]
    fact = _kernel(text)
    if isinstance(fact, (Xid, SXid)):
        return explain_xid(fact.line)
    if fact is not None:
        return _of_kernel(fact)
    code = _switch(text)
    if code is not None:
        return explain_xid(f"S{code}")
    completion = _completion(text)
    return _of_completion(completion) if completion else None


def _kernel(text: str) -> Any | None:
    from sluggish.probes import kernel_log

    told = {"Xid", "SXid", *_TITLES}
    try:
        found = [f for f in kernel_log.parse(text, Origin()) if type(f).__name__ in told]
    except ValueError:
        return None
    return found[0] if found else None


def _switch(text: str) -> int | None:
    """The number in a line of Fabric Manager's log."""
    from sluggish.probes import fabric_manager

    try:
        return next((fact.code for fact in fabric_manager.parse(text, Origin())), None)
    except ValueError:
        return None


def _of_kernel(fact: Any) -> list[str]:
    kinds: dict[str, dict[str, str]] = data.read("kernel_lines.yaml")[type(fact).__name__]
    kind: str = getattr(fact, "kind", None) or getattr(fact, "severity", None) or "any"
    if isinstance(fact, StorageEvent) and fact.recovered:
        kind = "recovered"
    told = kinds.get(kind) or kinds["any"]
    name = "" if kind == "any" else f" ({kind.replace('_', ' ')})"
    return [
        f"{_TITLES[type(fact).__name__]}{name}: {told['means']}",
        *(f"{key:<9} {value}" for key, value in _details(fact)),
        f"do first  {told['do']}",
        f"heard by  {told['rule']}",
    ]


_TITLES = {
    "GpuTrouble": "GPU trouble without the word Xid",
    "OomKill": "OOM kill",
    "HungTask": "hung task",
    "Segfault": "crash of a program",
    "StorageEvent": "file system or block device",
    "PcieError": "PCIe error",
    "KernelTrouble": "kernel or host hardware",
    "FabricEvent": "network adapter",
}


def _details(fact: Any) -> list[tuple[str, str]]:
    """What the line itself tells, in the order in which somebody asks for it."""
    names = (
        ("device", "pci"), ("adapter", "hca"), ("netdev", "netdev"), ("server", "server"),
        ("process", "process"), ("pid", "pid"), ("job", "job_id"), ("library", "library"),
        ("seconds", "seconds"),
    )  # fmt: skip
    told = [(word, str(value)) for word, name in names
            if (value := getattr(fact, name, None)) is not None]  # fmt: skip
    if isinstance(fact, OomKill) and fact.cgroup is not None:
        told.append(("full was", "a memory cgroup" if fact.cgroup else "the host"))
    if stack := getattr(fact, "stack", ()):
        told.append(("stands in", " < ".join(stack[:4])))
    return told


def _completion(text: str) -> NcclCompletion | None:
    from sluggish.probes import job_log

    try:
        found = [f for f in job_log.parse(text, Origin()) if isinstance(f, NcclCompletion)]
    except ValueError:
        return None
    return found[0] if found else None


def _of_completion(fact: NcclCompletion) -> list[str]:
    table: dict[str, dict[int, dict[str, str]]] = data.read("mlx5.yaml")
    status = table["completion_status"].get(fact.status)
    if status is None:
        return [f"NCCL completion error: status {fact.status} is not in the catalogue"]
    lines = [f"NCCL completion error: status {fact.status} {status['name']}"]
    if "means" in status:
        lines[0] += f": {status['means']}"
    vendor = table["vendor_error"].get(fact.vendor_error or -1)
    if vendor:
        lines.append(f"vendor    {fact.vendor_error} = {vendor['hex']}: {vendor['means']}")
    names = (("from", fact.hca), ("peer", fact.peer), ("rank", fact.rank))
    lines += [f"{word:<9} {value}" for word, value in names if value is not None]
    lines.append(f"points at {_BLAME[status['blame']]}")
    return [*lines, "heard by  IB-NCCL"]


_BLAME = {
    "peer": "the other end, or the way to it; ask both ends before one is blamed",
    "path": "the way between the two",
    "local": "the host that printed it",
    "software": "the program or its library",
    "none": "nobody: it follows from an error before it",
}
