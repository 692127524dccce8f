"""PROC-STACK: where the main threads stand that somebody took stacks of."""

from collections.abc import Iterator, Sequence

from sluggish.causes import Family
from sluggish.correlate.jobsense import ranks_words
from sluggish.correlate.stacks import Meaning, meaning, user_line
from sluggish.facts.collective import Wait
from sluggish.facts.host import Stack
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

SHOWN = 4
"""Different places that are listed; the rest is counted."""
_WORKER = "_worker_loop"


@rule("PROC-STACK", family=Family.PROCESS, needs=(Stack,), wants=(Wait,))
def proc_stack(view: View) -> Iterator[Finding]:
    """The stacks show in what the main threads of some processes stand.

    Context only: a thread that waits in a collective is a victim, and one look at one process does
    not tell whether it moves. Where the graph names whom the others wait for, it shows that stack.
    """
    if any(wait.roots for wait in view.all(Wait)):
        return
    mains = [s for s in view.all(Stack) if s.main and s.frames and not _is_worker(s)]
    places: dict[tuple[str, str | None], list[Stack]] = {}
    for stack in mains:
        places.setdefault((_words(stack, meaning(stack)), user_line(stack)), []).append(stack)
    for (words, line), found in sorted(places.items(), key=lambda item: len(item[1]))[:SHOWN]:
        yield _finding(words, line, found)


def _is_worker(stack: Stack) -> bool:
    return any(frame.function == _WORKER for frame in stack.frames)


def _words(stack: Stack, found: Meaning | None) -> str:
    return found.words if found else f"stands in {stack.frames[0].function[:80]}"


def _finding(words: str, line: str | None, found: Sequence[Stack]) -> Finding:
    head = found[0]
    who = ranks_words(s.rank for s in found) or (
        f"pid {head.pid}" if len(found) == 1 and head.pid else
        "a process" if len(found) == 1 else f"{len(found)} processes"
    )  # fmt: skip
    nodes = {s.node for s in found}
    return Finding(
        node=head.node if len(nodes) == 1 else None,
        subject=who,
        role=Role.CONTEXT,
        strength=Strength.WEAK,
        says=f"{who}: {words}" + (f", called at {line}" if line else ""),
        quote=" < ".join(frame.function for frame in head.frames[:5]),
        source="stacks",
        spots=tuple(Spot(rank=s.rank, node=s.node, pid=s.pid) for s in found[:SHOWN]),
    )
