"""How the command line reads evidence: over both cores, and with a bar where it takes long."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sluggish.evidence.model import Evidence
from sluggish.evidence.workers import Lost, spread
from sluggish.facts.collective import Group
from sluggish.facts.store import Mapper, Parsed

if TYPE_CHECKING:
    from rich.progress import Progress

QUICK_S = 1.0  # what is done in this time shows no bar
EVERY_S = 0.1


def mapper() -> Mapper:
    """For `gather` and `diagnose`: many files in parallel, progress on a terminal's stderr."""
    started = time.monotonic()

    def read(
        parse: Callable[[Evidence], Parsed], items: Sequence[Evidence]
    ) -> Iterable[Parsed | Lost]:
        results = spread(parse, items, shared=(Group,))
        return _with_bar(results, len(items), started) if _on_terminal() else results

    return read


def _on_terminal() -> bool:
    return sys.__stderr__ is not None and sys.stderr.isatty()


def _with_bar(
    results: Iterable[Parsed | Lost], total: int, started: float
) -> Iterator[Parsed | Lost]:
    """The same results; a bar that goes away at the end, also where the reading is stopped."""
    bar: Progress | None = None
    drawn = 0.0
    try:
        for number, result in enumerate(results):
            now = time.monotonic()
            if bar is None and now - started > QUICK_S and number < total - 1:
                bar = _bar(total)
            if bar is not None and now - drawn > EVERY_S:
                bar.update(bar.task_ids[0], completed=number)
                bar.refresh()
                drawn = now
            yield result
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int) -> Progress:
    """Drawn by us, not by a thread of its own: a process with threads must not fork."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("reading"), BarColumn(), MofNCompleteColumn(), TextColumn("files"))
    bar = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    bar.add_task("reading", total=total)
    bar.start()
    return bar
