"""Pure: what was not seen of a node: a probe that could not run, or answered in part. Never ok."""

from collections import defaultdict
from collections.abc import Iterator

from sluggish.facts.gpu import GpuCount
from sluggish.facts.host import Filesystem, HostMemory, Mount
from sluggish.facts.store import Facts
from sluggish.preflight.remark import UNCHECKED, Remark
from sluggish.probes.mounts import NETWORK

AREAS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("GPUs", ("nvidia_smi",)),
    ("PCI bus", ("gpu_bus",)),
    ("ports", ("ib_ports",)),
    ("kernel log", ("kernel_log",)),
    ("memory", ("memory",)),
    ("mounts and /dev/shm", ("mounts",)),
    ("set-up and leftover processes", ("node_setup",)),
    ("clock", ("identity",)),
)
"""What every node is asked, by the words of the screen."""


def unasked(facts: Facts) -> Iterator[Remark]:
    """A probe that answered in part: a full /tmp ends that of the mounts behind its first list."""
    mounts: dict[str, list[Mount]] = defaultdict(list)
    for mount in facts.all(Mount):
        if mount.node:
            mounts[mount.node].append(mount)
    shm = {f.node for f in facts.all(Filesystem) if f.path == "/dev/shm" and f.size_bytes}
    for node, mine in mounts.items():
        silent = [m.path for m in mine if m.answered is None and _is_far(m.fstype)]
        if silent:
            more = f" and {len(silent) - 3} more" if len(silent) > 3 else ""
            says = f"mounts: not asked whether they answer: {', '.join(silent[:3])}{more}"
            yield Remark(node=node, area="mounts", state=UNCHECKED, says=says)
        if node not in shm:
            says = "/dev/shm: how full it is was not seen"
            yield Remark(node=node, area="/dev/shm", state=UNCHECKED, says=says)
    for memory in facts.all(HostMemory):
        if memory.node and (not memory.total_bytes or memory.available_bytes is None):
            says = "memory: how much is free was not seen"
            yield Remark(node=memory.node, area="memory", state=UNCHECKED, says=says)


def _is_far(fstype: str) -> bool:
    return fstype in NETWORK or fstype == "fuse" or fstype.startswith("fuse.")


def holes(facts: Facts, node: str) -> Iterator[Remark]:
    """Areas of which a node that answers said nothing."""
    for area, ways in AREAS:
        if any(node in facts.answered.get(probe, ()) for probe in ways):
            continue
        if area == "GPUs" and _without_gpus(facts, node):
            continue
        why = facts.why_silent(ways[0], node)
        yield Remark(node=node, area=area, state=UNCHECKED, says=f"{area}: {why}")


def _without_gpus(facts: Facts, node: str) -> bool:
    """The bus was read and shows none: nvidia-smi need not be there."""
    found = on_bus(facts, node)
    return bool(found) and not any(c.count or c.dead for c in found)


def on_bus(facts: Facts, node: str) -> list[GpuCount]:
    """What its PCI bus shows; empty where it was not read."""
    return [c for c in facts.all(GpuCount) if c.node == node and c.source == "pci"]


def silence(facts: Facts, node: str) -> Remark:
    """A node without any answer."""
    why = facts.why_silent("identity", node)
    return Remark(node=node, area="node", state=UNCHECKED, says=f"gave no answer: {why}")
