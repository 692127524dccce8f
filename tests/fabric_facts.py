"""Facts built by hand for the tests of the fabric rules."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sluggish.facts.derived import Look, Onset
from sluggish.facts.fabric import (
    FabricEvent,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    Port,
    PortCounters,
)
from sluggish.facts.log import LogSpan
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, ask
from sluggish.rules import fabric

T0 = datetime(2026, 11, 24, 3, 4, 17, tzinfo=UTC)
RULES = {rule.id: rule for rule in fabric.RULES}
EIGHT = tuple(f"mlx5_{i}" for i in range(8))


def at(minutes: float) -> datetime:
    return T0 + timedelta(minutes=minutes)


def nodes(count: int) -> tuple[str, ...]:
    return tuple(f"gpu-{i:02d}" for i in range(1, count + 1))


def look(names: tuple[str, ...]) -> Look:
    return Look(
        at=at(18), nodes=names, world_size=8 * len(names), job_started_at=at(-600), loose=False
    )


def onset(teardown: float | None = None) -> Onset:
    down = at(teardown) if teardown is not None else None
    return Onset(earliest=T0, latest=at(0.1), source="log", teardown_at=down)


def port(node: str | None, hca: str, **more: Any) -> Port:
    plain: dict[str, Any] = {
        "port": 1, "state": "active", "phys_state": "linkup", "rate_gbps": 400.0, "width": "4X",
        "link_layer": "infiniband", "lid": 5, "sm_lid": 1, "hca_type": "MT4129",
        "source": "ib_ports",
    }  # fmt: skip
    return Port(node=node, hca=hca, **(plain | more))


def down(node: str, hca: str, phys: str = "polling", **more: Any) -> Port:
    return port(node, hca, state="down", phys_state=phys, rate_gbps=10.0, lid=0, sm_lid=0, **more)


def healthy(names: tuple[str, ...], hcas: tuple[str, ...] = EIGHT) -> list[Port]:
    return [port(n, h, pci=f"0000:{i + 16:02x}:00.0") for n in names for i, h in enumerate(hcas)]


def without(ports: list[Port], *gone: tuple[str, str]) -> list[Port]:
    return [p for p in ports if (p.node, p.hca) not in gone]


def using(node: str, hcas: tuple[str, ...] = EIGHT, address: str = "") -> NcclHcas:
    return NcclHcas(
        node=node, pid=1, rank=None, hcas=tuple(f"{h}:1" for h in hcas),
        oob_address=address or f"10.7.1.{int(node[-2:])}", oob_interface="eth0",
        line=f"Using {node}",
    )  # fmt: skip


def lost(
    reporter: str, peer: str, minutes: float = 1, status: int = 12, **more: Any
) -> NcclCompletion:
    return NcclCompletion(
        node=reporter, at=at(minutes), pid=1, rank=None, device=0, peer=peer, status=status,
        vendor_error=129, line=f"{reporter} lost {peer}", **more,
    )  # fmt: skip


def facts(*given: object, names: tuple[str, ...] = nodes(4)) -> Facts:
    out = Facts()
    for fact in (look(names), *given):
        out.add(fact)
        out.seen[type(fact)].add(getattr(fact, "node", None))
    return out


def run(rule: str, *given: object, names: tuple[str, ...] = nodes(4)) -> tuple[Finding, ...]:
    return ask(RULES[rule], facts(*given, names=names))


def roots(found: tuple[Finding, ...]) -> list[Finding]:
    return [f for f in found if f.role is Role.ROOT]


def initializing(node: str, hca: str) -> Port:
    return port(node, hca, state="initializing", lid=0, sm_lid=0)


def flap(
    node: str, minutes: float, seconds: float | None, hca: str = "mlx5_2"
) -> list[FabricEvent]:
    out = [FabricEvent(node=node, at=at(minutes), kind="link_down", hca=hca, line="Link down")]
    if seconds is not None:
        up = at(minutes) + timedelta(seconds=seconds)
        out.append(FabricEvent(node=node, at=up, kind="link_up", hca=hca, line="Link up"))
    return out


def fatal(node: str, minutes: float, **more: Any) -> FabricEvent:
    plain: dict[str, Any] = {
        "kind": "health",
        "pci": "0000:12:00.0",
        "line": "device's health compromised",
    }
    return FabricEvent(node=node, at=at(minutes), **(plain | more))


def event(node: str, words: str = "port error", minutes: float = 0, **more: Any) -> NcclAsyncEvent:
    plain: dict[str, Any] = {"kind": "event", "hca": "mlx5_5", "port": 1}
    return NcclAsyncEvent(
        node=node, at=at(minutes), pid=1, rank=None, event=words, line=words, **(plain | more)
    )


def book(names: tuple[str, ...]) -> list[NcclHcas]:
    return [using(n) for n in names]


def ring(bad: int) -> list[NcclCompletion]:
    """A bad host in a ring: both neighbours lose it and it loses both."""
    edges = [(bad - 1, bad), (bad + 1, bad), (bad, bad - 1), (bad, bad + 1)]
    return [lost(f"gpu-{one:02d}", f"10.7.1.{other}") for one, other in edges]


def log(debug: str | None) -> LogSpan:
    return LogSpan(node=None, path="slurm.out", bytes_total=9, bytes_read=9, nccl_debug=debug)


def counters(node: str, hca: str = "mlx5_0", **b: int) -> list[PortCounters]:
    base = {
        "link_downed": 3, "symbol_error": 40, "port_xmit_data": 10**9, "port_rcv_data": 10**9,
        "port_xmit_wait": 10**9, "local_ack_timeout_err": 0, "req_cqe_flush_error": 0,
    }  # fmt: skip
    moved = {k: base[k] + b.get(k, 0) for k in base}
    return [
        PortCounters(node=node, hca=hca, port=1, sample="a", at=at(18), counters=base),
        PortCounters(node=node, hca=hca, port=1, sample="b", at=at(18.25), counters=moved),
    ]
