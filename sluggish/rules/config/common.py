"""What the rules about settings share."""

from sluggish.facts.log import LogSign, LogSpan, Progress
from sluggish.findings import Finding, Role, Spot, Strength, View

SOURCE = "job log"


def stepped(view: View) -> bool:
    """Whether the job has trained at all: what worked for hours is no wrong setting."""
    steps = {p.step for p in view.all(Progress) if p.kind == "step" and p.step is not None}
    return len(steps) > 1


def log_seen(view: View) -> bool:
    """Whether the job's log was there: without it "no step yet" means nothing."""
    return bool(view.all(LogSpan))


def spot(sign: LogSign) -> tuple[Spot, ...]:
    if sign.rank is None and sign.node is None:
        return ()
    return (Spot(rank=sign.rank, node=sign.node),)


def root(
    says: str,
    strength: Strength,
    *,
    node: str | None = None,
    subject: str = "job",
    role: Role = Role.ROOT,
    sign: LogSign | None = None,
    quote: str = "",
    source: str = SOURCE,
    shared: bool = True,
    spots: tuple[Spot, ...] = (),
) -> Finding:
    """A finding about a setting: by default of the whole job, so shared and without a place."""
    return Finding(
        node=node,
        subject=subject,
        role=role,
        strength=strength,
        at=sign.at if sign else None,
        says=says,
        quote=quote or (sign.line if sign else ""),
        source=source,
        shared=shared,
        spots=spots,
    )
