"""The live screen of `sluggish watch`: a row a job, the last events below it."""

import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

from sluggish.text import safe
from sluggish.watch.screen import HEADER, Row

KEPT = 10
EVERY_S = 1.0


class Screen:
    """Redraws in place on a terminal; elsewhere every line is printed and stays."""

    def __init__(self, wanted: bool) -> None:
        self._live: Any = None
        self._rows: Sequence[Row] = ()
        self._events: deque[str] = deque(maxlen=KEPT)
        self._drawn = 0.0
        if wanted and sys.stdout.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(file=sys.stdout), auto_refresh=False)
            self._live.start()

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
        """After it."""
        if self._live is not None:
            self._live.start()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for name in HEADER:
            table.add_column(name)
        for row in self._rows:
            cells = (row.job, row.nodes, row.shape, row.since, row.life, row.alert)
            mark = "" if row.calm else "! "  # colour is never the only sign
            style = "" if row.calm else "bold red"
            table.add_row(*(Text(safe(c, 60)) for c in (mark + cells[0], *cells[1:])), style=style)
        events = [Text(line) for line in self._events]
        self._live.update(Group(table, Text(""), *events), refresh=True)
