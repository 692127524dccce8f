"""CFG-IFACE, CFG-GID, CFG-P2P: the network and the paths between GPUs as they were set up."""

import re
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.fabric import (
    NcclAddress,
    NcclCompletion,
    NcclHcas,
    NcclNetwork,
    NcclPath,
    NcclTrouble,
)
from sluggish.facts.gpu import PciAcs
from sluggish.facts.host import NodeIdentity
from sluggish.facts.log import LogSign, LogSpan, NcclInit, Progress, Version
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.rules.config.common import log_seen, root, stepped

NOT_A_NETWORK = re.compile(r"(?:veth|docker|virbr|cni|flannel|cali|br-|podman|tun|tap|kube|lo\Z)")
"""Interfaces that lead to no other node (NCCL's own default skips only lo and docker)."""
HOST_BRIDGE = re.compile(r"\bto (?:172\.17\.0\.1|192\.168\.122\.1)<")
"""Docker's docker0 and libvirt's virbr0 by their documented defaults."""
UNREACHED = 12
"""IBV_WC_RETRY_EXC_ERR: the peer never answered."""
LOCAL_PROTECTION, ACCESS_VENDOR = 4, 81
"""IBV_WC_LOC_PROT_ERR and the vendor code that comes with it: the host's own memory access."""

_CONNECT = (
    ("Connection timed out", "no path to the peer's GID: RoCE routes, or rails without a link "
     "between them (NCCL_CROSS_NIC=0 keeps to one)"),
    ("Invalid argument", "the GID index is not one of this port's (-1 lets NCCL choose)"),
    ("Network is unreachable", "no route to the peer's GID"),
    ("No such device", "the device or its network interface is gone"),
)  # fmt: skip
"""Error of ibv_modify_qp -> what is wrong (NVIDIA/nccl ibvwrap.cc; nccl issues 426, 925, 2013)."""


@rule(
    "CFG-IFACE",
    family=Family.FABRIC,
    needs=(NcclAddress, NcclTrouble, LogSign),
    wants=(NcclHcas, Progress, LogSpan),
)
def cfg_iface(view: View) -> Iterator[Finding]:
    """NCCL's start-up goes over an interface by which the nodes cannot reach one another."""
    moved = stepped(view)
    wrong = [a for a in view.all(NcclAddress) if NOT_A_NETWORK.match(a.interface)]
    if wrong:
        names = ", ".join(sorted({a.interface for a in wrong}))
        nodes = sorted({a.node for a in wrong if a.node})
        fine = {a.node for a in view.all(NcclAddress)} - set(nodes)
        odd = len(nodes) == 1 and len(fine) > 1  # the others found their way
        says = f"NCCL bootstraps over {names}{' on ' + fold(nodes) if nodes else ''}: leads nowhere"
        role = Role.CONTEXT if moved else Role.ROOT
        yield root(
            says, Strength.STRONG, role=role, quote=wrong[0].line, shared=not odd,
            node=nodes[0] if odd else None, spots=(Spot(node=nodes[0]),) if odd else (),
        )  # fmt: skip
    for sign in [s for s in view.all(LogSign) if s.kind == "virtual_interface"][:1]:
        says = f"NCCL also uses {sign.detail}, an interface that leads to no other node"
        over_hcas = bool(view.all(NcclHcas))  # then the list serves the bootstrap, by its first
        role = Role.CONTEXT if moved or wrong or over_hcas else Role.ROOT
        yield root(says, Strength.STRONG, role=role, sign=sign)
    yield from _store(view, moved)
    yield from _bridges(view, moved)
    blocked = [t for t in view.all(NcclTrouble) if t.kind == "no_route"]
    for trouble in blocked[:1]:
        count = f" ({len(blocked)} times)" if len(blocked) > 1 else ""
        says = f"a peer is not reachable when NCCL connects{count}: {trouble.detail[:80]}"
        early = log_seen(view) and not moved
        yield root(
            says, Strength.STRONG if early else Strength.WEAK,
            role=Role.ROOT if early else Role.CONTEXT, quote=trouble.line,
        )  # fmt: skip
    for sign in [s for s in view.all(LogSign) if s.kind in ("no_interface", "ofi_address")][:1]:
        what = "no usable network interface" if sign.kind == "no_interface" else (
            "the EFA peer address is refused (security group)")  # fmt: skip
        yield root(
            what, Strength.STRONG, sign=sign, role=Role.CONTEXT if moved else Role.ROOT
        )  # fmt: skip


@rule(
    "CFG-GID",
    family=Family.FABRIC,
    needs=(NcclTrouble, NcclCompletion),
    wants=(NcclHcas, NcclAddress, NcclNetwork, NcclInit, Version, Progress, LogSpan),
)
def cfg_gid(view: View) -> Iterator[Finding]:
    """Queue pairs fail from the first connection on: GID index, VLAN, firewall or rail mapping."""
    if stepped(view) or not log_seen(view):
        return
    modify = [t for t in view.all(NcclTrouble) if t.kind == "modify_qp"]
    if modify:
        means = next((told for words, told in _CONNECT if words in modify[0].line), "")
        says = f"{len(modify)} queue pairs could not be connected: {modify[0].detail[:80]}"
        says += f": {means}" if means else ""
        yield root(says, Strength.STRONG, quote=modify[0].line)
    # EFA has no GID index to be wrong
    failed = [c for c in view.all(NcclCompletion) if c.status == UNREACHED and c.network == "IB"]
    if not failed or not _begins(view):
        return
    roce = any("RoCE" in line.layers for line in view.all(NcclHcas)) or any(
        "ffff:" in (c.local_gid or "") for c in failed
    )
    nodes = {c.node for c in failed if c.node}
    peers = {c.peer for c in failed if c.peer}
    wide = len(nodes) > 1 or len(peers) > 1
    old_form = all(c.peer is None and c.local_gid is None for c in failed)
    if roce or old_form:  # a form of RoCE hosts too: nothing in it tells the link layer
        yield root(
            "no answer from peers at the very first transfers (status 12 before any step): "
            "GID index, firewall or rail mapping, rather than a link that broke",
            Strength.STRONG if roce and wide else Strength.WEAK, quote=failed[0].line,
        )  # fmt: skip


def _store(view: View, moved: bool) -> Iterator[Finding]:
    """The rendezvous' host cannot be reached at all, or its name means nothing on a node."""
    told = {
        "store_no_route": "the rendezvous cannot be reached (no route: firewall or interface)",
        "store_unresolved": "the name of the rendezvous' host is not known on a node",
    }
    for kind, says in told.items():
        for sign in [s for s in view.all(LogSign) if s.kind == kind][:1]:
            yield root(f"{says}: {sign.detail}", Strength.STRONG, sign=sign,
                       role=Role.CONTEXT if moved else Role.ROOT)  # fmt: skip


def _bridges(view: View, moved: bool) -> Iterator[Finding]:
    """A peer announced itself by the address of a bridge that every host has for itself."""
    wrong = [t for t in view.all(NcclTrouble)
             if t.kind in ("socket", "no_route") and HOST_BRIDGE.search(t.line)]  # fmt: skip
    for trouble in wrong[:1]:
        yield root(f"NCCL connects to a bridge that is each host's own: {trouble.detail[:80]}",
                   Strength.STRONG, role=Role.CONTEXT if moved else Role.ROOT,
                   quote=trouble.line)  # fmt: skip


def _begins(view: View) -> bool:
    """Whether the log shows NCCL's start: a fragment without steps is not a job without steps."""
    if any(v.component == "nccl" for v in view.all(Version)):
        return True
    return any(view.all(kind) for kind in (NcclHcas, NcclAddress, NcclNetwork, NcclInit))


@rule(
    "CFG-P2P",
    family=Family.KERNEL,
    needs=(NcclCompletion, NcclTrouble, NcclPath, LogSign, PciAcs),
    wants=(NodeIdentity, Progress, LogSpan),
)
def cfg_p2p(view: View) -> Iterator[Finding]:
    """Direct transfers between GPUs, or from GPU to HCA, are hindered by ACS or the IOMMU."""
    moved = stepped(view)
    hints = [s for s in view.all(LogSign) if s.kind == "p2p_hint"]
    kernel = [n for n in view.all(NodeIdentity) if _translates(n.kernel_cmdline)]
    denied = [
        c for c in view.all(NcclCompletion)
        if c.status == LOCAL_PROTECTION and (c.vendor_error in (None, ACCESS_VENDOR))
    ]  # fmt: skip
    peer = [t for t in view.all(NcclTrouble) if t.kind == "p2p"]
    early = log_seen(view) and not moved
    for trouble in peer[:1]:
        role = Role.ROOT if early else Role.CONTEXT
        yield root(f"no peer access between GPUs: {trouble.detail[:80]}", Strength.STRONG,
                   role=role, quote=trouble.line)  # fmt: skip
    if denied:
        head = denied[0]
        yield root(
            "an HCA was refused access to memory of its own host (status 4): GPUDirect, IOMMU "
            "or ACS", Strength.WEAK, node=head.node, quote=head.line, shared=False,
            spots=(Spot(node=head.node, rank=head.rank, hca=head.hca),) if head.node else (),
        )  # fmt: skip
    yield from _acs(view, moved)
    yield from _staged(view)
    for sign in hints[:1]:
        both = bool(kernel) or bool(denied)
        strength = Strength.STRONG if early and both else Strength.WEAK
        yield root("the log names ACS, IOMMU or disabled P2P as set", strength, sign=sign,
                   role=Role.ROOT if early else Role.CONTEXT)  # fmt: skip
    if kernel and not hints and early:
        nodes = fold(sorted({n.node for n in kernel if n.node}))
        says = f"the kernel translates DMA (no iommu=pt) on {nodes or 'the node'}"
        yield root(says, Strength.WEAK, role=Role.CONTEXT, source="kernel command line")


def _acs(view: View, moved: bool) -> Iterator[Finding]:
    """ACS that sends what GPUs exchange up to the root complex (NCCL's troubleshooting page).

    Many hosts ship so and work: a sign where GPUs without NVLink hang, never more.
    """
    on = [a for a in view.all(PciAcs) if a.redirects and a.bridge is not False]
    if not on:
        return
    nodes = {a.node for a in on}
    where = f", e.g. {on[0].pci}" if on[0].pci else ""
    count = f"{len(on)} bridges redirect" if len(on) > 1 else "a bridge redirects"
    yield root(f"PCI ACS: {count} requests between devices to the root complex{where}",
               Strength.WEAK, role=Role.CONTEXT if moved else Role.ROOT, quote=on[0].line,
               node=nodes.pop() if len(nodes) == 1 else None, source="lspci")  # fmt: skip


def _staged(view: View) -> Iterator[Finding]:
    """Nodes whose network traffic goes through host memory while the others' does not.

    Without nvidia_peermem or dmabuf NCCL copies (src/transport/net.cc): slow, and no hang.
    """
    direct = {p.node for p in view.all(NcclPath) if p.direct}
    staged = {p.node for p in view.all(NcclPath) if not p.direct} - direct
    if not staged or not direct or len(staged) > len(direct):
        return  # a setting of the whole job: NCCL_NET_GDR_LEVEL, or a distance on all machines
    nodes = sorted(node for node in staged if node)
    line = next(p.line for p in view.all(NcclPath) if p.node in staged)
    yield root(
        f"no GPUDirect RDMA on {fold(nodes) or 'a node'}, which the other nodes have: "
        "nvidia_peermem or dmabuf is missing there, its traffic goes through host memory",
        Strength.WEAK, role=Role.HOUSEKEEPING, quote=line,
        node=nodes[0] if len(nodes) == 1 else None, shared=len(nodes) != 1,
    )  # fmt: skip


def _translates(cmdline: str | None) -> bool:
    words = (cmdline or "").split()
    on = any(w in ("intel_iommu=on", "amd_iommu=on", "iommu=force") for w in words)
    return on and "iommu=pt" not in words
