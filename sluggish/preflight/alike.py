"""Pure: what all nodes of a job should have alike, and which node is the odd one."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sluggish.correlate.hcas import odd_nodes
from sluggish.facts.fabric import RdmaDevices
from sluggish.facts.gpu import Gpu, GpuCount
from sluggish.facts.host import Filesystem, HostMemory, NodeIdentity
from sluggish.facts.store import Facts
from sluggish.hostlist import fold
from sluggish.preflight.node_setup import NodeSetting
from sluggish.preflight.remark import FAIL, WARN, Remark
from sluggish.text import safe

ENOUGH_PEERS = 3
"""Nodes that must be known before one that differs is the odd one; two only differ."""
NEAR = 0.01
"""Memory of equal machines differs by less than this: firmware takes a little."""
BOOT_WORDS = ("iommu", "amd_iommu", "intel_iommu", "pci", "numa_balancing", "mitigations",
              "transparent_hugepage", "default_hugepagesz", "hugepages", "isolcpus", "nohz_full",
              "processor.max_cstate", "intel_idle.max_cstate", "idle")  # fmt: skip
"""Words of the kernel's command line that change how a job runs; the rest names disks and hosts."""


def alike(facts: Facts) -> Iterator[Remark]:
    """Every remark on a node that differs from its peers."""
    for name, values in _values(facts).items():
        yield from _compare(name, values)
    yield from _hcas(facts)
    yield from _gpus(facts)


def _values(facts: Facts) -> Mapping[str, dict[str, str]]:
    """Name of a setting -> node -> its value there."""
    out: dict[str, dict[str, str]] = defaultdict(dict)
    for setting in facts.all(NodeSetting):
        if setting.node:
            out[setting.name][setting.node] = setting.value
    asked = {setting.node for setting in facts.all(NodeSetting) if setting.node}
    for name in [name for name in out if name.startswith("$")]:
        out[name] |= dict.fromkeys(asked - out[name].keys(), "not set")
    for who in facts.all(NodeIdentity):
        if who.node:
            out["kernel"][who.node] = who.kernel or "unknown"
            words = (who.kernel_cmdline or "").split()
            kept = [word for word in words if word.partition("=")[0] in BOOT_WORDS]
            out["kernel command line"][who.node] = " ".join(sorted(kept)) or "none"
    gpus: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in facts.all(Gpu):
        if gpu.node:
            gpus[gpu.node].append(gpu)
    for node, mine in gpus.items():
        for name, field in _OF_GPUS.items():
            told = sorted(
                {str(value) for gpu in mine if (value := getattr(gpu, field)) is not None}
            )
            if told:
                out[name][node] = ", ".join(told)
    for name, sizes in _sizes(facts).items():
        out[name] |= sizes
    return out


_OF_GPUS = {
    "GPU model": "name",
    "driver": "driver",
    "MIG mode": "mig",
    "ECC mode": "ecc_mode",
    "power limit (W)": "power_limit_w",
    "highest SM clock (MHz)": "max_sm_clock_mhz",
}
"""By the words of the screen, the field of a GPU."""


def _sizes(facts: Facts) -> dict[str, dict[str, str]]:
    """Sizes, equal where they are near enough."""
    memory = {m.node: m.total_bytes for m in facts.all(HostMemory) if m.node and m.total_bytes}
    shm = {f.node: f.size_bytes for f in facts.all(Filesystem) if f.node and f.path == "/dev/shm"}
    return {"memory": _rounded(memory), "size of /dev/shm": _rounded(shm)}


def _rounded(sizes: dict[str, int]) -> dict[str, str]:
    out: dict[str, str] = {}
    for node, size in sizes.items():
        near = [s for s in sorted(sizes.values(), reverse=True) if abs(s - size) <= NEAR * s]
        out[node] = f"{(near[0] if near else size) / (1 << 30):,.0f} GiB"
    return out


def _compare(name: str, values: dict[str, str]) -> Iterator[Remark]:
    if len(set(values.values())) < 2:
        return
    usual, odd = odd_nodes(values)
    if usual is not None and len(values) >= ENOUGH_PEERS:
        for node in odd:
            says = f"{name}: {safe(values[node], 120)}, on the other nodes {safe(usual, 120)}"
            yield Remark(node=node, area=name, state=WARN, says=says)
        return
    groups: dict[str, list[str]] = defaultdict(list)
    for node, value in values.items():
        groups[value].append(node)
    told = "; ".join(f"{safe(value, 80)} on {fold(where)}" for value, where in groups.items())
    for node in values:
        yield Remark(node=node, area=name, state=WARN, says=f"{name} differs: {told}"[:600])


def _hcas(facts: Facts) -> Iterator[Remark]:
    """Unequal sets of HCAs hang NCCL: cards vanish, they do not appear, so fewer is the fault."""
    sets = {d.node: d.names for d in facts.all(RdmaDevices) if d.node and d.source == "ib_ports"}
    if len(set(sets.values())) < 2:
        return
    usual, odd = odd_nodes(sets)
    sure = usual is not None and len(sets) >= ENOUGH_PEERS
    most = usual if sure and usual is not None else max(sets.values(), key=len)
    for node in odd if sure else [n for n, names in sets.items() if names != most]:
        lost = [name for name in most if name not in sets[node]]
        if lost:
            there = f"{len(sets[node])} of {len(most)} are there"
            yield Remark(
                node=node, area="HCAs", state=FAIL, rule="IB-PORT", hardware=sure,
                says=f"HCAs: {', '.join(lost[:8])} missing, {there}",
            )  # fmt: skip
        else:
            more = ", ".join([name for name in sets[node] if name not in most][:8])
            yield Remark(node=node, area="HCAs", state=WARN, rule="IB-PORT",
                         says=f"HCAs: {more} more than on the other nodes")  # fmt: skip


def _gpus(facts: Facts) -> Iterator[Remark]:
    """A node whose bus shows no GPU at all beside peers that have some; fewer is GPU-MISSING's."""
    counts = {c.node: c.count + len(c.dead) for c in facts.all(GpuCount)
              if c.node and c.source == "pci"}  # fmt: skip
    have = [node for node, count in counts.items() if count]
    for node, count in counts.items():
        if not count and have:
            yield Remark(
                node=node, area="GPUs", state=FAIL, rule="GPU-MISSING",
                hardware=len(have) >= ENOUGH_PEERS - 1 and 2 * len(have) > len(counts),
                says=f"GPUs: none on the PCI bus, there are some on {fold(have)}",
            )  # fmt: skip
