"""GPU-DOMAIN: one NVLink domain over several nodes (GB200, GB300 NVL72), and its IMEX."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.fabric import NcclTrouble, Switch
from sluggish.facts.gpu import Gpu
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.rules.gpu.common import spot, subject

Member = tuple[str, int | None]
"""Cluster UUID and clique: GPUs that have both alike reach one another over NVLink."""


@rule(
    "GPU-DOMAIN",
    family=Family.KERNEL,
    needs=(Gpu, NcclTrouble),
    wants=(Switch, Place, Look),
)
def gpu_domain(view: View) -> Iterator[Finding]:
    """GPUs that should share an NVLink domain do not, or NCCL finds its memory export broken."""
    members = [g for g in view.all(Gpu) if g.cluster_uuid and g.node]
    yield from _within_a_node(view, members)
    yield from _within_a_rack(view, members)
    yield from _drivers(members)
    broken = [t for t in view.all(NcclTrouble) if t.kind == "imex"]
    if broken:
        nodes = sorted({t.node for t in broken if t.node})
        where = f" on {fold(nodes)}" if nodes else ""
        yield Finding(
            node=None,
            subject="NVLink domain",
            role=Role.ROOT,
            strength=Strength.STRONG,
            at=min((t.at for t in broken if t.at), default=None),
            says=f"NCCL finds NVLink over several nodes there but not working{where}: IMEX or its "
            "channels",
            quote=broken[0].line,
            source="job log",
            subtype="nvlink",
            action="recover_imex",
            shared=True,
        )


def _member(gpu: Gpu) -> Member:
    return gpu.cluster_uuid or "", gpu.clique


def _trays(members: list[Gpu]) -> dict[str, list[Gpu]]:
    out: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in members:
        out[gpu.node or ""].append(gpu)
    return out


def _within_a_node(view: View, members: list[Gpu]) -> Iterator[Finding]:
    """The GPUs of one tray are cabled to one domain: one that differs has lost its place in it."""
    for gpus in _trays(members).values():
        usual, count = Counter(map(_member, gpus)).most_common(1)[0]
        if count * 2 <= len(gpus):
            continue
        for gpu in gpus:
            if _member(gpu) != usual:
                yield Finding(
                    node=gpu.node,
                    subject=subject(gpu.index, gpu.pci),
                    role=Role.ROOT,
                    strength=Strength.STRONG,
                    says="another NVLink domain or clique than the GPUs beside it",
                    source="nvidia-smi",
                    spots=(spot(gpu, view.all(Place)),),
                    subtype="nvlink",
                    action="reset_nvlink_domain",
                )


def _within_a_rack(view: View, members: list[Gpu]) -> Iterator[Finding]:
    """Nodes of one block of Slurm's topology: a rack may be split in partitions on purpose."""
    trays = _trays(members)
    of_node = {node: Counter(map(_member, g)).most_common(1)[0][0] for node, g in trays.items()}
    for block in (s for s in view.all(Switch) if s.block):
        here = {node: of_node[node] for node in block.nodes if node in of_node}
        usual = Counter(here.values()).most_common(1)
        odd = sorted(node for node, member in here.items() if member != usual[0][0])
        if odd and usual[0][1] > len(here) / 2:
            yield Finding(
                node=odd[0] if len(odd) == 1 else None,
                subject="NVLink domain",
                role=Role.ROOT,
                strength=Strength.WEAK,
                says=f"{fold(odd)}: another NVLink domain or clique than the {usual[0][1]} other "
                f"nodes of block {block.name}",
                source="nvidia-smi",
                spots=tuple(Spot(node=node) for node in odd),
                subtype="nvlink",
                action="reset_nvlink_domain",
                shared=len(odd) > 1,
            )


def _drivers(members: list[Gpu]) -> Iterator[Finding]:
    domains: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for gpu in members:
        if gpu.driver and gpu.node:
            domains[gpu.cluster_uuid or ""][gpu.driver].add(gpu.node)
    for drivers in domains.values():
        if len(drivers) > 1:
            told = ", ".join(f"{d} on {fold(sorted(n))}" for d, n in sorted(drivers.items())[:3])
            yield Finding(
                node=None,
                subject="NVLink domain",
                role=Role.CONTEXT,
                strength=Strength.WEAK,
                says=f"drivers differ inside one NVLink domain: {told}",
                source="nvidia-smi",
            )
