"""START-LOCK: ranks wait for a lock file that nobody holds any more.

PyTorch's builder of extensions (torch.utils.cpp_extension) makes a lock file and takes it away when
it is done: a builder that was killed leaves it, and every later start waits for ever (pytorch
issue 189245; newer versions use a lock that the kernel releases).
"""

import re
from collections.abc import Iterator

from sluggish.causes import Family
from sluggish.correlate.jobsense import rank_of_pid, ranks_words
from sluggish.facts.derived import Look
from sluggish.facts.host import RankProcess, Stack
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

_BATON = re.compile(r"(?:^|/)file_baton\.py$")
_FILELOCK = re.compile(r"(?:^|/)filelock/|torch/utils/_filelock\.py$")
_BUILDER = re.compile(
    r"^(?:ninja|nvcc|cicc|ptxas|cudafe\+\+|fatbinary|cc1plus|cc1|gcc|g\+\+|clang|clang\+\+|c\+\+|"
    r"hipcc|ld|ld\.gold|as)(?:-\d+)?$"
)
"""Names of the programs that a build runs."""


@rule("START-LOCK", family=Family.DATA, needs=(Stack,), wants=(RankProcess, Look))
def start_lock(view: View) -> Iterator[Finding]:
    """Ranks wait for the lock of a build or a cache, and nobody builds."""
    mains = [s for s in view.all(Stack) if s.main]
    baton = [s for s in mains if _waits(s, _BATON)]
    waiting = baton or [s for s in mains if _waits(s, _FILELOCK)]
    if not waiting:
        return
    builds = [p for p in view.all(RankProcess) if _BUILDER.match(p.name)]
    ranks = rank_of_pid(view.all(RankProcess))
    who = ranks_words(_rank(s, ranks) for s in waiting) or f"{len(waiting)} processes"
    what = "the lock of PyTorch's build of an extension" if baton else "a file lock"
    says = f"{who} wait{'s' if len(waiting) == 1 else ''} for {what}"
    if builds:
        says += f"; {builds[0].name} builds on {builds[0].node or 'a node'}"
    elif baton and _whole(view):
        says += "; no process builds: who made the lock is gone"
    stale = bool(baton) and not builds and _whole(view)
    yield Finding(
        node=None,
        subject="lock",
        role=Role.CONTEXT if builds else Role.ROOT,
        strength=Strength.STRONG if stale else Strength.WEAK,
        says=says,
        quote=" < ".join(frame.function for frame in waiting[0].frames[:4]),
        source="stacks",
        spots=tuple(
            Spot(rank=_rank(s, ranks), node=s.node, pid=s.pid, doing="waits for a lock file")
            for s in waiting
        ),
        subtype="stale_lock",
        shared=True,
    )


def _waits(stack: Stack, file: re.Pattern[str]) -> bool:
    return any(file.search(frame.file) for frame in stack.frames[:4])


def _rank(stack: Stack, ranks: dict[tuple[str | None, int], int]) -> int | None:
    if stack.rank is not None:
        return stack.rank
    return ranks.get((stack.node, stack.pid)) if stack.pid is not None else None


def _whole(view: View) -> bool:
    """The processes of every node were seen: then a build that is not there is not there."""
    look = view.one(Look)
    if look is None or not look.nodes:
        return False
    cut = {gap.node for gap in view.gaps(RankProcess)}
    return all(view.saw(RankProcess, node) and node not in cut for node in look.nodes)
