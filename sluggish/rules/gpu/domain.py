"""GPU-DOMAIN: one NVLink domain over several nodes (GB200, GB300 NVL72), and its IMEX."""

from collections import Counter, defaultdict
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.derived import Look, Place
from sluggish.facts.fabric import NcclTrouble, Switch
from sluggish.facts.gpu import Gpu, ImexDomain
from sluggish.facts.log import Progress
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.rules.gpu.common import spot, subject

Member = tuple[str, int | None]
"""Cluster UUID and clique: GPUs that have both alike reach one another over NVLink."""


@rule(
    "GPU-DOMAIN",
    family=Family.KERNEL,
    needs=(Gpu, NcclTrouble, ImexDomain),
    wants=(Switch, Place, Look, Progress),
)
def gpu_domain(view: View) -> Iterator[Finding]:
    """GPUs that should share an NVLink domain do not, or NCCL finds its memory export broken."""
    members = [g for g in view.all(Gpu) if g.cluster_uuid and g.node]
    yield from _within_a_node(view, members)
    yield from _within_a_rack(view, members)
    yield from _drivers(members)
    broken = [t for t in view.all(NcclTrouble) if t.kind == "imex"]
    yield from _imex(view, said=bool(broken))
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


def _imex(view: View, *, said: bool) -> Iterator[Finding]:
    """A node without a channel before the first step; what the daemons say, as context.

    Racks say DEGRADED for weeks for trays that no job uses (NVIDIA/aicr issue 2641).
    """
    domains = [d for d in view.all(ImexDomain) if d.node]
    moved = len({p.step for p in view.all(Progress) if p.kind == "step"}) > 1
    role = Role.CONTEXT if moved or said else Role.ROOT
    without = sorted(d.node or "" for d in domains if d.channels == 0)
    if without and (said or any(d.channels for d in domains)):
        odd = without if len(without) < len(domains) else []
        yield _domain(
            f"{fold(without)}: no IMEX channel (/dev/nvidia-caps-imex-channels), so no program "
            "there can share memory over NVLink", role, odd,
        )  # fmt: skip
    for state in sorted({d.state for d in domains if d.state and d.state != "UP"}):
        where = [d for d in domains if d.state == state]
        absent = sorted({f"{at} {word}" for d in where for at, word in d.mates if word != "READY"})
        ways = max(d.not_connected for d in where)
        says = f"the IMEX domain is {state} on {fold(sorted(d.node or '' for d in where))}"
        says += f": {', '.join(absent[:3])}" if absent else ""
        says += f"; {ways} ways between its nodes not connected" if ways else ""
        yield _domain(says, Role.CONTEXT, [])
    silent = sorted(d.node or "" for d in domains if d.state is None and d.channels)
    if silent:
        yield _domain(f"{fold(silent)}: the IMEX daemon says nothing", Role.CONTEXT, [])


def _domain(says: str, role: Role, odd: list[str]) -> Finding:
    return Finding(
        node=odd[0] if len(odd) == 1 else None,
        subject="NVLink domain",
        role=role,
        strength=Strength.WEAK,
        says=says,
        source="imex",
        spots=tuple(Spot(node=node) for node in odd),
        subtype="nvlink",
        action="recover_imex",
        shared=len(odd) != 1,
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
