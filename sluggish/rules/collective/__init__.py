"""What the wait-for graph, RAS and the watchdog say of the job's collectives.

A rank that waits is a victim; nothing here ever asks for a drain.
"""

from sluggish.findings import Rule
from sluggish.rules.collective.graph import (
    sync_cycle,
    sync_device,
    sync_missing,
    sync_op,
    sync_size,
    sync_stall,
    sync_tie,
    sync_unseen,
)
from sluggish.rules.collective.reports import sync_ras, sync_watchdog
from sluggish.rules.collective.slow import slow_rank

RULES: tuple[Rule, ...] = (
    sync_op, sync_size, sync_missing, sync_device, sync_cycle, sync_stall, sync_tie, sync_unseen,
    sync_watchdog, sync_ras, slow_rank,
)  # fmt: skip
