"""Counters of two samples: what moves now. A total since boot tells nothing."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import NcclHcas, Port, PortCounters
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.fabric.common import (
    SHARED_NODES,
    blind,
    job_node,
    named,
    note,
    ports_and_used,
    several,
    subject,
)

LONGEST_LOOK_S = 60.0
WINDOW_S = 10.0
"""Between the two samples, where they carry no time (docs/bundle-format.md)."""
SATURATED = {
    "link_downed": 255,
    "link_error_recovery": 255,
    "local_link_integrity_errors": 15,
    "excessive_buffer_overrun_errors": 15,
    "symbol_error": 65535,
    "port_rcv_errors": 65535,
    "port_xmit_discards": 65535,
}
"""They stop there and never wrap (ibsim sim.h; a public H100 tree holds link_downed 255)."""
LINK = {
    "link_downed": 0.0,
    "carrier_changes": 0.0,
    "link_down_events_phy": 0.0,
    "local_link_integrity_errors": 0.0,
    "excessive_buffer_overrun_errors": 0.0,
}
"""The link of this very port moved: any step counts (NVIDIA NVSentinel nic-health-monitor)."""
RATES = {
    "symbol_error": 10.0,
    "port_rcv_errors": 10.0,
    "link_error_recovery": 5 / 60,
    "no_completion_cmds": 0.0,
}
"""Errors a second above which a link is bad (NVIDIA NVSentinel nic-health-monitor).

The last is EFA's: the device no longer answers its own driver (linux efa_verbs.c).
"""
LOSS = (
    "req_transport_retries_exceeded", "local_ack_timeout_err", "packet_seq_err", "out_of_sequence",
    "rnr_nak_retry_err", "retrans_timeout_events", "unresponsive_remote_events",
    "impaired_remote_conn_events", "rx_drops", "rdma_read_wr_err", "rdma_write_wr_err",
    "rx_icrc_encapsulated", "pct_spt_timeouts", "pct_sct_timeouts",
)  # fmt: skip
"""Packets are lost on the way: seen at both ends of a bad path, so it accuses nobody.

Six are EFA's (linux drivers/infiniband/hw/efa/efa_verbs.c); `rx_icrc_encapsulated` counts RoCE
packets that came damaged (kernel Documentation/ABI/stable/sysfs-class-infiniband); the last two are
Slingshot's timeouts, after which a packet is sent again (Open MPI, HPE CXI performance counters).
"""
DAMAGE = ("hni_pcs_uncorrected_cw", "hni_llr_tx_replay_event", "hni_llr_rx_replay_event")
"""Slingshot: frames that came damaged and were sent again over this very link. Poor links do it all
day without loss (HewlettPackard/shs-docs), so it is said and accuses nobody."""
CONGESTION = (
    "rp_cnp_handled", "np_cnp_sent", "np_ecn_marked_roce_packets", "roce_slow_restart",
    "roce_adp_retrans", "roce_adp_retrans_to", "rx_discards_phy", "tx_discards_phy",
    "rx_out_of_buffer", "port_xmit_discards", "pct_retry_srb_requests", "pct_no_tct_nacks",
    "pct_no_trs_nacks", "pct_no_mst_nacks",
)  # fmt: skip
"""RoCE slows its senders down, or drops (kernel Documentation/ABI/stable/sysfs-class-infiniband;
mlx5/counters.rst); a Slingshot target that is short of state asks for the packet again."""
PAUSES = re.compile(r"[rt]x_(?:global|prio[0-7])_(?:pause|discards)\Z")
"""PFC: `rx_prio3_pause` counts what the switch asked for, `tx_` what this port asked for."""
BUSY_SHARE = 10
"""One node with so many times the median of the others stands out."""
DATA = {
    "port_xmit_data": 4, "port_rcv_data": 4, "tx_bytes": 1, "rx_bytes": 1,
    "hni_sts_tx_ok_octets": 1, "hni_sts_rx_ok_octets": 1,
}  # fmt: skip
"""Counters of traffic and the bytes of one unit."""
IDLE_BYTES = 1_000_000
"""In the window: heartbeats, no gradients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """How far the counters of one port moved between the samples."""

    node: str | None
    hca: str
    port: int
    seconds: float
    steps: dict[str, int]
    last: dict[str, int]


@rule(
    "IB-COUNTERS",
    family=Family.FABRIC,
    needs=(PortCounters,),
    wants=(Port, NcclHcas, Look, Onset),
)
def ib_counters(view: View) -> Iterator[Finding]:
    """Between two samples an error counter of a port in use moved, or no traffic flowed."""
    deltas = _deltas(view)
    moved = [(d, name) for d in deltas for name in d.steps if _is_fault(d, name)]
    nodes = {d.node for d, _ in moved}
    if len(nodes) >= SHARED_NODES:
        yield _shared(moved)
    else:
        yield from (_fault(d, name) for d, name in moved)
    lost = [d for d in deltas if any(d.steps.get(name, 0) > 0 for name in LOSS)]
    if lost:
        yield _loss(lost)
    hurt = [d for d in deltas if any(d.steps.get(name, 0) > 0 for name in DAMAGE)]
    if hurt:
        yield _damage(hurt)
    yield from _congestion(deltas)
    yield from _saturated(deltas)
    yield from _full_once(view, deltas)
    yield from _traffic(deltas)
    deltas = [d for d in deltas if any(n in d.steps for n in (*LINK, *RATES, *LOSS))]
    if deltas and not moved and not lost and not hurt:
        unseen = blind(view, {d.node for d in deltas})
        yield note(
            Role.ALL_CLEAR,
            f"no error counter moved on {len(deltas)} ports in {deltas[0].seconds:.0f} s "
            "(switches: not checked)" + (f", but blind on {several(unseen)}" if unseen else ""),
            source="ib_counters",
        )


def _deltas(view: View) -> list[Delta]:
    """Ports in use that were read twice."""
    _, mine = ports_and_used(view)
    samples: dict[tuple[str | None, str, int], dict[str, PortCounters]] = defaultdict(dict)
    for one in view.all(PortCounters):
        node = job_node(one.node, view)
        if (node or one.node is None) and (not mine.keys or (one.hca, one.port) in mine.keys):
            samples[node, one.hca, one.port][one.sample] = one
    out: list[Delta] = []
    for (node, hca, port), both in samples.items():
        if "a" not in both or "b" not in both:
            continue
        a, b = both["a"], both["b"]
        seconds = (b.at - a.at).total_seconds() if a.at and b.at else WINDOW_S
        if seconds < 1.0:  # mailed files of one time: a rate is then at least that of a minute
            seconds = LONGEST_LOOK_S
        steps = {k: v - a.counters[k] for k, v in b.counters.items() if k in a.counters}
        out.append(
            Delta(
                node=node, hca=hca, port=port, seconds=max(seconds, 1.0), steps=steps,
                last=b.counters,
            )
        )  # fmt: skip
    return out


def _is_fault(delta: Delta, name: str) -> bool:
    """A counter that went backwards was cleared by somebody: no step."""
    step = delta.steps[name]
    if name in LINK:
        return step > LINK[name]
    return name in RATES and step / delta.seconds > RATES[name]


def _fault(delta: Delta, name: str) -> Finding:
    return Finding(
        node=delta.node,
        subject=subject(delta.hca, delta.port),
        role=Role.ROOT,
        strength=Strength.STRONG if name in LINK else Strength.WEAK,
        says=(
            f"{named(delta.hca, delta.port)}: {name} rose by {delta.steps[name]} "
            f"in {delta.seconds:.0f} s"
        ),
        source="ib_counters",
        spots=(Spot(node=delta.node, hca=named(delta.hca, delta.port)),),
        subtype="port_error",
        action="check_fabric",
    )


def _shared(moved: list[tuple[Delta, str]]) -> Finding:
    nodes = list(dict.fromkeys(d.node for d, _ in moved))
    names = list(dict.fromkeys(name for _, name in moved))
    return Finding(
        node=None,
        subject="ports",
        role=Role.ROOT,
        strength=Strength.STRONG if any(name in LINK for name in names) else Strength.WEAK,
        says=f"{', '.join(names[:3])} rising on {len(nodes)} nodes ({several(nodes)})",
        source="ib_counters",
        spots=tuple(Spot(node=d.node, hca=named(d.hca, d.port)) for d, _ in moved),
        subtype="shared_fabric",
        shared=True,
        action="check_fabric",
    )


def _loss(lost: list[Delta]) -> Finding:
    names = sorted({n for d in lost for n in LOSS if d.steps.get(n, 0) > 0})
    nodes = sorted({d.node or "?" for d in lost})
    return note(
        Role.CONTEXT,
        f"packets are being lost now, seen on {several(nodes)} ({', '.join(names[:3])}): "
        "both ends of a bad path see it",
        source="ib_counters",
        spots=tuple(Spot(node=d.node, hca=named(d.hca, d.port)) for d in lost),
    )


def _damage(hurt: list[Delta]) -> Finding:
    links = [f"{named(d.hca, d.port)} of {d.node or 'node'}" for d in hurt]
    steps = {n: sum(max(d.steps.get(n, 0), 0) for d in hurt) for n in DAMAGE}
    told = ", ".join(f"{name} {step}" for name, step in steps.items() if step)
    return note(
        Role.CONTEXT,
        f"frames come damaged over {several(links)} and are sent again ({told} in "
        f"{hurt[0].seconds:.0f} s): a poor link, slow rather than broken",
        source="ib_counters",
        spots=tuple(Spot(node=d.node, hca=named(d.hca, d.port)) for d in hurt),
    )


def _congestion(deltas: list[Delta]) -> Iterator[Finding]:
    """Marked packets, slowed senders, pauses: a slow network, rarely one that stands still."""
    moved = [(d, n) for d in deltas for n, step in d.steps.items()
             if step > 0 and (n in CONGESTION or PAUSES.match(n))]  # fmt: skip
    if not moved:
        return
    by_node: dict[str, int] = {d.node or "?": 0 for d in deltas}
    for delta, name in moved:
        by_node[delta.node or "?"] += delta.steps[name]
    most = max(by_node, key=lambda node: by_node[node])
    others = sorted(count for node, count in by_node.items() if node != most)
    usual = others[len(others) // 2] if others else 0
    odd = len(others) > 1 and by_node[most] > BUSY_SHARE * max(usual, 1)
    where = f"most on {most}" if odd else f"on {several(sorted({d.node or '?' for d, _ in moved}))}"
    names = ", ".join(list(dict.fromkeys(n for _, n in moved))[:3])
    says = f"the network is congested now, {where} ({names}): slow, rarely a hang"
    yield note(Role.CONTEXT, says, subject="congestion", source="ib_counters")


def _saturated(deltas: list[Delta]) -> Iterator[Finding]:
    for delta in deltas:
        full = sorted(n for n, top in SATURATED.items() if delta.last.get(n, 0) >= top
                      and delta.steps.get(n) == 0 and _is_narrow(n, delta.last[n]))  # fmt: skip
        if full:
            yield _full(delta.node, delta.hca, delta.port, full)


def _full_once(view: View, deltas: list[Delta]) -> Iterator[Finding]:
    """Ports that were read once: whether a counter moves is not known, whether it is full is."""
    twice = {(d.node, d.hca, d.port) for d in deltas}
    _, mine = ports_and_used(view)
    for one in view.all(PortCounters):
        node = job_node(one.node, view)
        if not node or (node, one.hca, one.port) in twice:
            continue
        if mine.keys and (one.hca, one.port) not in mine.keys:
            continue
        full = sorted(n for n in SATURATED if n in one.counters and _is_narrow(n, one.counters[n]))
        if full:
            yield _full(node, one.hca, one.port, full)


def _full(node: str | None, hca: str, port: int, names: list[str]) -> Finding:
    return note(
        Role.HOUSEKEEPING,
        f"{named(hca, port)}: {', '.join(names)} saturated, a new event cannot "
        "show; clear it (perfquery -R) once the node is drained",
        node=node,
        subject=subject(hca, port),
        source="ib_counters",
    )


def _is_narrow(name: str, value: int) -> bool:
    """Newer firmware counts further: only a value exactly at its limit is a full counter."""
    return value == SATURATED[name]


def _traffic(deltas: list[Delta]) -> Iterator[Finding]:
    """No traffic on healthy ports: whatever is stuck is stuck above the network."""
    flows = {
        (d.node, d.hca, d.port): sum(d.steps.get(name, 0) * unit for name, unit in DATA.items())
        for d in deltas
        if any(name in d.steps for name in DATA)
    }
    if not flows:
        return
    idle = [place for place, moved in flows.items() if 0 <= moved < IDLE_BYTES]
    if len(idle) == len(flows):
        says = f"no traffic on any of {len(flows)} ports: stuck above the network, or all wait"
        yield note(Role.CONTEXT, says, subject="traffic", source="ib_counters")
        return
    by_hca: dict[str, list[bool]] = defaultdict(list)
    for place in flows:
        by_hca[place[1]].append(place in idle)
    dead = [hca for hca, quiet in by_hca.items() if all(quiet) and len(quiet) >= SHARED_NODES]
    rest = [hca for hca, quiet in by_hca.items() if not any(quiet)]
    for hca in dead if rest else []:
        says = f"no traffic on {hca} of all nodes while other rails are busy: that rail"
        yield note(Role.CONTEXT, says, subject=subject(hca), source="ib_counters")
    if not dead:
        says = f"traffic flows on {len(flows) - len(idle)} of {len(flows)} ports"
        yield note(Role.CONTEXT, says, subject="traffic", source="ib_counters")
