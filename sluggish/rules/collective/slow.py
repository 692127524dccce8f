"""SLOW-RANK: who comes last while nothing hangs."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.late import late_ranks
from sluggish.correlate.waitgraph import job_heads
from sluggish.facts.collective import GroupHead, RankRecord, RasReport, Wait, WaitRoot
from sluggish.facts.derived import Onset, Place
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.rules.collective.common import places_of, spot_of


@rule(
    "SLOW-RANK",
    family=Family.COLLECTIVE,
    needs=(GroupHead,),
    wants=(Wait, Place, RankRecord, RasReport, Onset),
)
def slow_rank(view: View) -> Iterator[Finding]:
    """Nothing hangs, and one rank comes last to its collectives again and again."""
    wait = view.one(Wait)
    # mailed dumps tell no time: everybody in one operation may be a moment of a running job
    moment = wait is not None and wait.state == "all_joined" and view.one(Onset) is None
    if wait is not None and wait.state != "none" and not moment:
        return
    places = places_of(view)
    told: set[int] = set()
    for rank, group, own, usual in late_ranks(job_heads(view.all(RankRecord), view.all(GroupHead))):
        if rank in told:
            continue
        told.add(rank)
        doing = f"comes last: waits {own:.0f} ms where the others wait {usual:.0f} ms"
        root = WaitRoot(rank=rank, group=group, doing=doing)
        place = places.get(rank)
        yield Finding(
            node=place.node if place else None,
            subject=f"rank {rank}",
            role=Role.ROOT,
            strength=Strength.STRONG,
            says=doing,
            source="flight recorder",
            spots=(spot_of(root, places),),
            subtype="late_rank",
        )
