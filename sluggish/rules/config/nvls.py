"""CFG-NVLS: NVLink SHARP cannot be set up, most often after a restart of Fabric Manager."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.facts.fabric import NcclTrouble
from sluggish.facts.log import LogSpan, Progress
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.rules.config.common import log_seen, root, stepped


@rule("CFG-NVLS", family=Family.KERNEL, needs=(NcclTrouble,), wants=(Progress, LogSpan))
def cfg_nvls(view: View) -> Iterator[Finding]:
    """NCCL cannot bind multicast memory of NVLink SHARP on a node."""
    refused = [t for t in view.all(NcclTrouble) if t.kind == "nvls"]
    if not refused:
        return
    nodes = sorted({t.node for t in refused if t.node})
    one = nodes[0] if len(nodes) == 1 else None
    early = log_seen(view) and not stepped(view)
    where = f" on {fold(nodes)}" if nodes else ""
    yield root(
        f"NVLink SHARP cannot bind multicast memory{where}: Fabric Manager was restarted without a "
        "reset of the GPUs, or does not serve this machine",
        Strength.STRONG if early else Strength.WEAK, role=Role.ROOT if early else Role.CONTEXT,
        quote=refused[0].line, node=one, shared=one is None,
        spots=(Spot(node=one),) if one else (),
    )  # fmt: skip
