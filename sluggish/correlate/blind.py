"""What the sources of the collectives cannot see, whatever they say."""

from sluggish.facts.collective import RankRecord, RasReport, Wait
from sluggish.facts.log import LogSign
from sluggish.facts.store import Facts


def not_visible(facts: Facts, wait: Wait) -> tuple[str, ...]:
    """What each source is blind for, and what the log shows of such traffic."""
    blind: list[str] = []
    if facts.all(RankRecord):
        blind.append(
            "dumps hold no operation inside a CUDA graph, of NVSHMEM or DeepEP, "
            "or of a custom all-reduce"
        )
    if any(r.backend == "gloo" for r in facts.all(RankRecord)):
        blind.append("Gloo records no send and no recv")
    if facts.all(RasReport):
        blind.append("RAS counts no send, no recv and no all-to-all")
    if "watchdog" in wait.sources:
        blind.append("log lines show only the ranks that printed")
    shown = sorted({s.detail for s in facts.all(LogSign) if s.kind == "unseen_traffic"})
    blind += [f"the log speaks of {what}: a wait there is not seen here" for what in shown]
    return tuple(blind)
