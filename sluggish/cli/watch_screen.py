"""The live screen of `sluggish watch`: a row a job, the last events below it."""

import sys
import textwrap
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from sluggish.text import safe
from sluggish.watch.screen import HEADER, Row, fitting

KEPT = 10
EVERY_S = 1.0
LEAST_EVENTS = 4
"""Lines below the rows, whatever the height: what happened is worth more than a calm row."""


class Screen:
    """Redraws in place on a terminal; elsewhere every line is printed and stays."""

    def __init__(self, wanted: bool) -> None:
        self._live: Any = None
        self._rows: Sequence[Row] = ()
        self._events: deque[str] = deque(maxlen=KEPT)
        self._drawn = 0.0
        if wanted and sys.stdout.isatty():
            self._live = _begun()

    def say(self, line: str) -> None:
        """One event."""
        if self._live is None:
            print(line, flush=True)
            return
        self._events.append(line)
        self._draw()

    def rows(self, rows: Sequence[Row], now: float) -> None:
        """Where the jobs stand; drawn once a second at most."""
        self._rows = rows
        if self._live is not None and now - self._drawn >= EVERY_S:
            self._drawn = now
            self._draw()

    def pause(self) -> None:
        """Before a report is printed: what stood there stays above it."""
        if self._live is not None:
            self._live.stop()

    def resume(self) -> None:
        """After it. The old one would first wipe as many lines as it had, now the report's."""
        if self._live is not None:
            self._live = _begun()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        width, height = self._live.console.size
        shown, hidden = fitting(self._rows, height - LEAST_EVENTS - 3)
        table = Table(box=None, pad_edge=False)
        for name in HEADER:
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for row in shown:
            cells = (row.job, row.nodes, row.shape, row.since, row.life, row.alert)
            mark = "" if row.calm else "! "  # colour is never the only sign
            style = "" if row.calm else "bold red"
            table.add_row(*(Text(safe(c, 60)) for c in (mark + cells[0], *cells[1:])), style=style)
        lines = _newest(self._events, width - 1, height - len(shown) - 3)
        self._live.update(Group(table, Text(hidden), *map(Text, lines)), refresh=True)


def _begun() -> Any:
    from rich.console import Console
    from rich.live import Live

    live = Live(console=Console(file=sys.stdout), auto_refresh=False)
    live.start()
    return live


def _newest(events: Iterable[str], width: int, most: int) -> list[str]:
    """As many of the last events as have room, each whole where it is not alone."""
    kept: list[str] = []
    for event in reversed(list(events)):
        lines = textwrap.wrap(event, max(20, width), subsequent_indent=" " * 11) or [""]
        if kept and len(kept) + len(lines) > most:
            break
        kept = [*lines, *kept]
    return kept[: max(1, most)]
