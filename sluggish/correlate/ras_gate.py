"""Whether NCCL RAS may be asked: a query has ended jobs, so only one that hangs is asked."""

from sluggish.catalog.nccl import RAS_ABSENT, RAS_UNKNOWN, RAS_UNSAFE, ras_safety
from sluggish.causes import Phase
from sluggish.facts.derived import Onset, PhaseFact
from sluggish.facts.gpu import JobShape
from sluggish.facts.log import NcclInit, Version
from sluggish.facts.store import Facts


def why_not_this_version(facts: Facts) -> str | None:
    """What speaks against the NCCL of the job's log alone; None: nothing."""
    versions = sorted({v.version for v in facts.all(Version) if v.component == "nccl"})
    if not versions:
        return "the NCCL version is not known"
    for version in versions:
        safety = ras_safety(version)
        if safety.state == RAS_ABSENT:
            return f"NCCL {version} has no RAS"
        if safety.state == RAS_UNSAFE:
            return f"queries have crashed jobs on NCCL {version}"
        if safety.state == RAS_UNKNOWN:
            return f"NCCL {version} is not known"
    return None


def why_not_ask_ras(facts: Facts) -> str | None:
    """Why RAS must not be asked without a person's word; None: nothing speaks against it."""
    why = why_not_this_version(facts)
    if why:
        return why
    phases = [fact.phase for fact in facts.all(PhaseFact)]
    if Phase.START_UP in phases or _initialising(facts):
        return "a communicator may be initialising"
    if not facts.all(Onset):
        return "nothing shows that the job hangs"
    if any(shape.shape == "moving" for shape in facts.all(JobShape)):
        return "the GPUs move"
    return None


def _initialising(facts: Facts) -> bool:
    """A communicator whose start was printed and whose end was not."""
    begun = {(i.node, i.pid, i.rank, i.comm) for i in facts.all(NcclInit) if not i.complete}
    done = {(i.node, i.pid, i.rank, i.comm) for i in facts.all(NcclInit) if i.complete}
    return bool(begun - done)
