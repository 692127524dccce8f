"""MEM-CUDA: a rank runs out of GPU memory."""

from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.logorder import before_timeouts, key, went_on
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Place
from sluggish.facts.log import LogSpan, ProcessExit, Progress, PythonError
from sluggish.findings import Finding, Role, Strength, View, rule
from sluggish.loglines.python import is_cuda_oom
from sluggish.rules.app.common import history, proved, says, spot_of, who


@rule(
    "MEM-CUDA",
    family=Family.PROCESS,
    needs=(PythonError, LogSpan),
    wants=(WatchdogTimeout, Progress, ProcessExit, Look, Place),
)
def mem_cuda(view: View) -> Iterator[Finding]:
    """A rank's allocation of GPU memory fails before any collective times out."""
    told = sorted((e for e in view.all(PythonError) if _speaks(e)), key=key)
    for number, error in enumerate(e for e in told if not history(view, e.at)):
        if number >= 8:
            return
        yield _judge(view, error, first=number == 0, ranks=len({e.rank for e in told}))


def _speaks(error: PythonError) -> bool:
    return "more than 1EB" in error.message or is_cuda_oom(error.type, error.message)


def _judge(view: View, error: PythonError, *, first: bool, ranks: int) -> Finding:
    spans = view.all(LogSpan)
    timeouts = view.all(WatchdogTimeout)
    in_front = before_timeouts(error, timeouts, spans)
    if "more than 1EB" in error.message:  # a broken length after a timeout (NVIDIA/nccl #1284)
        return _finding(view, error, Role.CONSEQUENCE, Strength.WEAK, "an absurd size: fallout")
    if in_front is False:
        return _finding(view, error, Role.CONSEQUENCE, Strength.WEAK, "after the first timeout")
    if went_on(error, view.all(Progress), spans):
        return _finding(view, error, Role.CONTEXT, Strength.WEAK, "training went on after it")
    if not first:
        return _finding(view, error, Role.CONSEQUENCE, Strength.WEAK, "not the first")
    told_size = "Tried to allocate" in error.message
    sure = in_front is True and proved(view, error)
    strength = Strength.DECISIVE if sure and told_size else Strength.STRONG
    if in_front is None or not told_size:
        # at the first barrier, with nothing allocated, it is a bad GPU or somebody else's process
        strength = Strength.WEAK
    return _finding(view, error, Role.ROOT, strength, "", ranks=ranks)


def _finding(
    view: View, error: PythonError, role: Role, strength: Strength, why: str, ranks: int = 1
) -> Finding:
    text = says(error, ranks)
    return Finding(
        node=spot_of(view, error).node,
        subject=who(error),
        role=role,
        strength=strength,
        at=error.at,
        says=f"{text} ({why})" if why else text,
        quote=error.line,
        source="job log",
        spots=(spot_of(view, error),) if role is Role.ROOT and error.rank is not None else (),
        shared=ranks > 1,
    )
