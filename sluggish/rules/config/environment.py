"""CFG-ENV: settings of NCCL that are not the same on all ranks of one job."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluggish.causes import Family
from sluggish.facts.fabric import NcclTrouble
from sluggish.facts.host import RankProcess
from sluggish.facts.log import LogSpan, NcclSetting, Progress
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold, fold_numbers
from sluggish.rules.config.common import log_seen, root, stepped

CHOICE = re.compile(
    r"NCCL_(?:ALGO|PROTO|NET|NET_PLUGIN|TUNER_\w+|COMM_ID|GRAPH_FILE|NTHREADS|LL\w*|CHUNK_SIZE|"
    r"BUFFSIZE|(?:MIN|MAX|NCHANNELS)_?\w*|COLLNET_\w+|NVLS_\w+|MNNVL_\w+|CUMEM_\w+|P2P_\w+|"
    r"SHM_\w+|CROSS_NIC|PXN_\w+|NET_\w+|IB_(?:DISABLE|PCI_RELAXED_ORDERING|SPLIT_DATA_ON_QPS|"
    r"QPS_PER_CONNECTION|ADAPTIVE_ROUTING|MERGE_NICS)|RINGS|WIN_ENABLE|GIN_\w+)\Z"
)
"""What every rank derives the common plan from: channels, algorithm, protocol, transport, sizes.

NCCL's maintainers ask for one environment on all ranks (NVIDIA/nccl issues 260, 626, 1328); ranks
that choose different algorithms hang (issue 1136).
"""
PLACE = re.compile(
    r"NCCL_(?:SOCKET_IFNAME|SOCKET_FAMILY|OOB_NET_\w+|IB_(?:HCA|GID_INDEX|ADDR_\w+|"
    r"ROCE_VERSION_NUM|SL|TC|PKEY))\Z"
)
"""Names of a node's own devices: may differ where the machines do, e.g. one HCA a rank."""
FREE = re.compile(
    r"NCCL_(?:HOSTID|DEBUG\w*|SET_\w+|RAS_\w+|PROFILER\w*|INSPECTOR\w*|LOG\w*|CONF_FILE|"
    r"\w*_DUMP_(?:FILE|PATH|INTERVAL)|TOPO_\w+|IGNORE_\w+|WARN_\w+|CHECK\w*)\Z"
)
"""What a node or a rank may set for itself: identity, where it writes, how much it tells."""
UNSET = "not set"
SHOWN = 40
MOST_SPOTS = 4

Where = tuple[str | None, int | None, int | None]
"""Node, pid and rank of one process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One variable that is not the same everywhere."""

    name: str
    usual: str | None
    """What more than half have; None without such a majority."""
    odd: Mapping[Where, str]
    """Those that have something else; everybody where there is no majority."""
    total: int


@rule(
    "CFG-ENV",
    family=Family.PROCESS,
    needs=(RankProcess, NcclSetting, NcclTrouble),
    wants=(Progress, LogSpan),
)
def cfg_env(view: View) -> Iterator[Finding]:
    """A setting of NCCL is not the same on all ranks of the job."""
    processes, values = _of_processes(view), _of_log(view)
    moved = stepped(view)
    yield from _sizes(view, moved)
    for name in sorted({*processes, *values}):
        found = _compare(name, processes.get(name) or values.get(name) or {})
        if found is None:
            continue
        sure = log_seen(view) and not moved and CHOICE.match(name)
        yield _says(
            found,
            Strength.STRONG if sure else Strength.WEAK,
            # with what has stepped, and where the log is missing nobody knows, it can work
            Role.CONTEXT if moved or not (CHOICE.match(name) or PLACE.match(name)) else Role.ROOT,
            "environment" if name in processes else "job log",
        )


def _sizes(view: View, moved: bool) -> Iterator[Finding]:
    """NCCL got more than it expected from a peer: settings, versions or sizes differ."""
    cut = [t for t in view.all(NcclTrouble) if t.kind == "size_mismatch"]
    for trouble in cut[:1]:
        yield root(
            f"a peer sent other sizes than NCCL expected ({len(cut)} times): settings, versions or "
            "the collectives differ between ranks", Strength.WEAK, quote=trouble.line,
            role=Role.CONTEXT if moved else Role.ROOT, subject="sizes",
        )  # fmt: skip


def _of_processes(view: View) -> dict[str, dict[Where, str]]:
    """Each setting of the ranks whose environment was readable, where it is not set too."""
    last: dict[tuple[str | None, int], RankProcess] = {}
    for process in view.all(RankProcess):
        own = process.rank is not None and not process.inherited_rank
        if own and process.env:
            last[process.node, process.pid] = process
    worlds = Counter(p.world_size for p in last.values())
    world = worlds.most_common(1)[0][0] if worlds else None
    ranks = [p for p in last.values() if p.world_size == world]
    told = [((p.node, p.pid, p.rank), dict(p.env)) for p in ranks]
    out: dict[str, dict[Where, str]] = {}
    for name in {key for p in ranks for key, _ in p.env if _compared(key)}:
        out[name] = {where: env.get(name, UNSET) for where, env in told}
    return out


def _of_log(view: View) -> dict[str, dict[Where, str]]:
    """What NCCL printed: a process that did not print a setting may still have it."""
    out: dict[str, dict[Where, str]] = defaultdict(dict)
    for said in view.all(NcclSetting):
        if _compared(said.name):
            out[said.name][said.node, said.pid, said.rank] = said.value
    return out


def _compared(name: str) -> bool:
    return name.startswith("NCCL_") and not FREE.match(name)


def _compare(name: str, values: Mapping[Where, str]) -> Difference | None:
    if len(set(values.values())) < 2:
        return None
    counted = Counter(values.values())
    usual, count = counted.most_common(1)[0]
    if not CHOICE.match(name) and _alike_by_node(values):
        return None
    if count * 2 <= len(values):
        return Difference(name=name, usual=None, odd=values, total=len(values))
    odd = {where: value for where, value in values.items() if value != usual}
    return Difference(name=name, usual=usual, odd=odd, total=len(values))


def _alike_by_node(values: Mapping[Where, str]) -> bool:
    """Whether every node has the same values, one for each of its ranks: chosen by local rank."""
    nodes: dict[str | None, list[str]] = defaultdict(list)
    for (node, _, _), value in values.items():
        nodes[node].append(value)
    return len(nodes) > 1 and len({tuple(sorted(found)) for found in nodes.values()}) == 1


def _says(found: Difference, strength: Strength, role: Role, source: str) -> Finding:
    nodes = sorted({node for node, _, _ in found.odd if node})
    alone = [node for node in nodes if _whole(node, found)]
    if found.usual is None:
        by_value: dict[str, list[Where]] = defaultdict(list)
        for where, value in found.odd.items():
            by_value[value].append(where)
        shown = sorted(by_value.items(), key=lambda item: (-len(item[1]), item[0]))[:3]
        says = "; ".join(f"{value[:SHOWN]} on {_places(places)}" for value, places in shown)
        spots: tuple[Spot, ...] = ()
    else:
        value = Counter(found.odd.values()).most_common(1)[0][0]
        rest = found.total - len(found.odd)
        says = f"{value[:SHOWN]} on {_places(list(found.odd))}, {found.usual[:SHOWN]} on the "
        says += f"other {rest} ranks"
        spots = _spots(found, nodes if len(alone) == len(nodes) else [])
    one = nodes[0] if found.usual is not None and len(nodes) == 1 else None
    return root(
        f"{found.name} differs: {says}", strength, node=one, role=role, source=source,
        subject=found.name, shared=one is None, spots=spots,
    )  # fmt: skip


def _whole(node: str, found: Difference) -> bool:
    """Whether the odd value is the node's: more than one of its ranks has it."""
    return sum(where[0] == node for where in found.odd) > 1


def _spots(found: Difference, nodes: list[str]) -> tuple[Spot, ...]:
    if nodes:
        return tuple(Spot(node=n) for n in nodes) if len(nodes) <= MOST_SPOTS else ()
    if len(found.odd) > MOST_SPOTS:
        return ()
    return tuple(Spot(node=node, rank=rank, pid=pid) for node, pid, rank in found.odd)


def _places(places: list[Where]) -> str:
    nodes = sorted({node for node, _, _ in places if node})
    ranks = sorted({rank for _, _, rank in places if rank is not None})
    named = (
        f"ranks {fold_numbers(ranks)}" if len(ranks) > 1 else f"rank {ranks[0]}" if ranks else ""
    )
    where = fold(nodes) if nodes else ""
    return f"{where} ({named})" if where and named else where or named or f"{len(places)} processes"
