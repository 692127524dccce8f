"""Which kind of network the job's traffic takes on each node.

NCCL's own lines come first, then what the ports of the node are. A state of `Active` means much on
InfiniBand and nothing on EFA, whose driver writes it whatever happens (linux
drivers/infiniband/hw/efa/efa_verbs.c, `efa_query_port`).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sluggish.correlate.hcas import of_job, ports_of_job, short_of, used
from sluggish.facts.derived import Look
from sluggish.facts.fabric import FabricFlavour, NcclHcas, NcclNetwork, Port, RdmaDevices
from sluggish.facts.store import Facts

PROVIDERS = {"efa": "efa", "efa-direct": "efa", "cxi": "slingshot"}
"""Libfabric's providers that are a network of their own (NCCL's OFI plugin names them)."""
LAYERS = {"IB": "infiniband", "RoCE": "roce"}
# rdmap16s27    rdmap113s0     (rdma-core's persistent names where no link layer is known)
_EFA_NAME = re.compile(r"(?:efa_\d{1,3}|rdmap\d{1,4}s\d{1,4}(?:f\d{1,2})?)\Z")
_SOCKETS = ("Socket", None)


def flavours(facts: Facts, look: Look) -> Iterator[FabricFlavour]:
    """One a node of the job on which anything tells it, `unknown` where ports tell too little."""
    said = _said(facts, look)
    common = _common(said)
    ports = ports_of_job(facts.all(Port), look)
    mine = used(ports, facts.all(NcclHcas))
    by_node: dict[str, list[Port]] = {}
    for port in ports:
        if port.node and (port.hca, port.port) in mine.keys:
            by_node.setdefault(port.node, []).append(port)
    without = _without_devices(facts, look)
    for node in look.nodes:
        there = by_node.get(node, [])
        told = said.get(node) or common or _of_ports(there)
        if told is None and node in without:
            told = "none", "no RDMA device"
        if told is None:
            continue
        kind, why = told
        if kind in LAYERS.values() and there and all(p.virtual for p in there):
            kind, why = "vf", "virtual functions"
        yield FabricFlavour(node=node, kind=kind, why=why)


def _said(facts: Facts, look: Look) -> dict[str, tuple[str, str]]:
    """What NCCL's lines say on each node, the most telling line first."""
    out: dict[str, tuple[str, str]] = {}
    sockets: dict[str, bool] = {}
    for line in facts.all(NcclNetwork):
        node = of_job(line.node, look)
        if node is None:
            continue
        if line.provider in PROVIDERS:
            out[node] = PROVIDERS[line.provider], f"NCCL's OFI plugin uses {line.provider}"
        over = line.network in _SOCKETS or (line.provider or "").startswith(("tcp", "sockets"))
        sockets[node] = sockets.get(node, True) and over
    for line in facts.all(NcclHcas):
        node = of_job(line.node, look)
        if node is None:
            continue
        sockets[node] = False
        layer = Counter(line.layers).most_common(1)
        if layer and layer[0][0] in LAYERS:
            out.setdefault(node, (LAYERS[layer[0][0]], f"NCCL lists {layer[0][0]} ports"))
    for node, only in sockets.items():
        if only:
            out.setdefault(node, ("sockets", "NCCL uses sockets"))
    return out


def _common(said: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """What all nodes that spoke agree on: logs often hold the lines of one rank alone."""
    kinds = {kind for kind, _ in said.values()}
    return next(iter(said.values())) if len(kinds) == 1 else None


def _of_ports(ports: Sequence[Port]) -> tuple[str, str] | None:
    kinds = Counter(kind for port in ports for kind in [_of_port(port)])
    if not kinds:
        return None
    kind = kinds.most_common(1)[0][0]
    return kind, f"{len(ports)} ports of this kind"


def _of_port(port: Port) -> str:
    if port.driver == "efa" or (port.link_layer is None and _EFA_NAME.match(port.hca)):
        return "efa"
    if port.hca.startswith("cxi"):
        return "slingshot"
    if port.link_layer == "ethernet":
        return "roce"
    return port.link_layer or "unknown"


def _without_devices(facts: Facts, look: Look) -> set[str]:
    """Nodes on which a tool ran to its end and listed no RDMA device."""
    names: dict[str, int] = {}
    for devices in facts.all(RdmaDevices):
        if node := of_job(devices.node, look):
            names[node] = names.get(node, 0) + len(devices.names)
    there = {short_of(p.node) for p in facts.all(Port) if p.node}
    return {node for node, count in names.items() if not count and short_of(node) not in there}
