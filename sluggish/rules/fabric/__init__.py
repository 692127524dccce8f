"""Rules of the fabric: ports, links, the subnet, NCCL's network lines, counters."""

from sluggish.findings import Rule
from sluggish.rules.fabric.counters import ib_counters
from sluggish.rules.fabric.events import ib_async, ib_fatal, ib_flap
from sluggish.rules.fabric.hcaset import cfg_hcaset
from sluggish.rules.fabric.leaf import ib_leaf
from sluggish.rules.fabric.ports import ib_port
from sluggish.rules.fabric.report import ib_report
from sluggish.rules.fabric.setup import cfg_ports
from sluggish.rules.fabric.speed import ib_rate, slow_link
from sluggish.rules.fabric.subnet import ib_sm
from sluggish.rules.fabric.vote import ib_nccl, ib_quiet

RULES: tuple[Rule, ...] = (
    ib_port,
    ib_sm,
    ib_fatal,
    ib_async,
    ib_flap,
    ib_leaf,
    ib_nccl,
    ib_rate,
    ib_counters,
    slow_link,
    cfg_hcaset,
    cfg_ports,
    ib_report,
    ib_quiet,
)
