"""What must have been seen of each kind of network before it may be called clean.

The tree's question asks for port states and the kernel log. That is enough where a broken link
shows in its state; the other kinds of network need more, and some cannot be cleared from a node.
"""

from sluggish.correlate.hcas import short_of
from sluggish.facts.fabric import FabricFlavour, NcclNetwork, Port, PortCounters
from sluggish.facts.log import LogSpan
from sluggish.verdict.case import Case

EFA_COUNTERS = ("retrans_timeout_events", "unresponsive_remote_events", "rx_drops")
"""Written by the efa driver alone (linux drivers/infiniband/hw/efa/efa_verbs.c)."""
CXI_COUNTERS = ("pct_spt_timeouts", "pct_sct_timeouts")
"""Slingshot's own: packets whose answer did not come in time (Open MPI, HPE CXI counters)."""
NEEDS: dict[str, tuple[str, ...]] = {
    "infiniband": (),
    "roce": ("counters",),
    "efa": ("efa counters", "provider"),
    "slingshot": ("cxi ports", "cxi counters", "cxi provider"),
    "vf": ("warnings",),
    "sockets": ("sockets",),
    "none": ("no device",),
    "unknown": ("link layer",),
}
"""Kind of network -> what must have been seen beside port states and the kernel log."""
_MISSING = {
    "counters": ("ib_counters", "RoCE: a port stays Active while it loses; not read twice"),
    "efa counters": ("ib_counters", "EFA: the state always says ACTIVE; its own not read twice"),
    "provider": ("job_log", "EFA: no NET/OFI line of NCCL says that it is used"),
    "cxi ports": ("slingshot", "Slingshot: cxi_stat did not tell the state of its links"),
    "cxi counters": ("ib_counters", "Slingshot: a link that is up may lose; not read twice"),
    "cxi provider": ("job_log", "Slingshot: no NET/OFI line of NCCL says that it is used"),
    "warnings": ("job_log", "virtual functions: the host's port is hidden, NCCL printed nothing"),
    "sockets": ("network", "NCCL uses sockets: no probe of this version looks at Ethernet"),
    "no device": ("network", "no RDMA device on any node, and NCCL does not say what it uses"),
    "link layer": ("network", "no tool told the link layer of the ports"),
}


def not_seen(case: Case) -> dict[str, list[tuple[str, str]]]:
    """Node -> (probe, why) that its kind of network still needs. One node needs no network."""
    if len(case.look.nodes) < 2:
        return {}
    seen = _seen(case)
    out: dict[str, list[tuple[str, str]]] = {}
    for flavour in case.facts.all(FabricFlavour):
        missing = [
            _MISSING[need]
            for need in NEEDS[flavour.kind]
            if short_of(flavour.node) not in seen.get(need, ())
        ]
        if missing:
            out[flavour.node] = missing
    return out


def _seen(case: Case) -> dict[str, set[str]]:
    """Need -> nodes where it is met."""
    samples: dict[str, dict[str, set[str]]] = {
        "counters": {}, "efa counters": {}, "cxi counters": {},
    }  # fmt: skip
    for one in case.facts.all(PortCounters):
        if one.node is None:
            continue
        node = short_of(one.node)
        samples["counters"].setdefault(node, set()).add(one.sample)
        if any(name in one.counters for name in EFA_COUNTERS):
            samples["efa counters"].setdefault(node, set()).add(one.sample)
        if any(name in one.counters for name in CXI_COUNTERS):
            samples["cxi counters"].setdefault(node, set()).add(one.sample)
    seen = {
        need: {node for node, taken in nodes.items() if taken >= {"a", "b"}}
        for need, nodes in samples.items()
    }
    everywhere = {short_of(node) for node in case.look.nodes}
    providers = {line.provider for line in case.facts.all(NcclNetwork)} - {None}
    seen["provider"] = everywhere if providers else set()
    seen["cxi provider"] = everywhere if "cxi" in providers else set()
    seen["cxi ports"] = {
        short_of(port.node)
        for port in case.facts.all(Port)
        if port.node and port.driver == "cxi" and port.state != "unknown"
    }
    speaks = any(span.nccl_debug for span in case.facts.all(LogSpan))
    seen["warnings"] = everywhere if speaks else set()
    return seen
