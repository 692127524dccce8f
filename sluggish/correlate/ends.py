"""Which ranks' processes have ended, by a record of their own: not by silence."""

from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Place
from sluggish.facts.host import OomKill, Segfault
from sluggish.facts.log import ProcessExit
from sluggish.facts.store import Facts

SIGABRT, SIGTERM = 6, 15


def dead_ranks(facts: Facts) -> dict[int, str]:
    """Rank -> how it ended. Ranks that a launcher or their own watchdog took down are not here."""
    by_pid = {(p.node, p.pid): p.rank for p in facts.all(Place) if p.pid is not None}
    dead: dict[int, str] = {}
    for kill in facts.all(OomKill):
        rank = by_pid.get((kill.node, kill.pid))
        if rank is not None:
            dead.setdefault(rank, "killed: out of memory")
    for fault in facts.all(Segfault):
        rank = by_pid.get((fault.node, fault.pid))
        if rank is not None:
            dead.setdefault(rank, "segmentation fault")
    aborted = {w.rank for w in facts.all(WatchdogTimeout)}
    for end in facts.all(ProcessExit):
        if end.rank is None or end.signal == SIGTERM or end.exit_code == 0:
            continue
        if end.signal == SIGABRT and end.rank in aborted:
            continue
        how = f"signal {end.signal}" if end.signal else f"exit code {end.exit_code}"
        dead.setdefault(end.rank, f"ended: {how}")
    return dead

