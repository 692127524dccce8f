"""Preliminary lines on stderr while a live look runs: each thing once, equal ones folded."""

import sys
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import cast

from sluggish.evidence.model import Clock, Evidence
from sluggish.evidence.open import text_of
from sluggish.facts.store import parsed
from sluggish.reach.model import Answer, Progress
from sluggish.report import live

QUICK = ("kernel_log", "nvidia_smi", "ib_ports", "mounts", "rank_procs")
"""Probes whose answer can hold a decisive fact that is worth a line at once."""
MOST_BYTES = 4 << 20
"""A bigger answer is not read twice for the sake of a preliminary line."""
APART = 3
"""Nodes with the same line that are shown one by one; the others are counted at the end."""
EVERY_S = 2.0


class Notes:
    """Says what is known so far. Called from the threads of the fan-out."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._said: dict[str, list[str]] = {}
        self._counted = 0.0
        self.total = 0
        self.answers: dict[str, Answer] = {}

    def say(self, lines: Iterable[str] | str) -> None:
        """Each line with the seconds since the start; all of them are preliminary."""
        for line in (lines,) if isinstance(lines, str) else lines:
            with self._lock:
                if sys.__stderr__ is not None:
                    print(f"{time.monotonic() - self._began:5.1f} s  {line}", file=sys.stderr)
                    sys.stderr.flush()

    def of_node(self, event: Progress, made: Evidence | None, clock: Clock | None) -> None:
        """A line a decisive fact; where the fan-out stands, now and then."""
        if made is not None and made.probe in QUICK and 0 < made.size <= MOST_BYTES:
            for words in self._decisive(made, clock):
                with self._lock:
                    nodes = self._said.setdefault(words, [])
                    new = event.node not in nodes
                    nodes += [event.node] if new else []
                if new and len(nodes) <= APART:
                    self.say(f"{event.node}: {words}")
        if event.answer is not None:
            self.answers[event.node] = event.answer
            now = time.monotonic()
            done = len(self.answers) == self.total
            if done or now - self._counted > EVERY_S:
                self._counted = now
                self.counts()

    def counts(self) -> None:
        """How many nodes answered, how many could not be asked and why, how many are waited for."""
        failed = [a.failure for a in self.answers.values() if a.failure]
        self.say(live.counts(self.total, len(self.answers) - len(failed), failed))

    def folded(self) -> None:
        """At the end: how many more nodes said what was shown of a few."""
        for words, nodes in self._said.items():
            if len(nodes) > APART:
                self.say(f"on {len(nodes)} nodes: {words}")

    def _decisive(self, made: Evidence, clock: Clock | None) -> list[str]:
        """What was not understood is left to the diagnosis."""
        from sluggish.probes import PROBES

        (probe,) = (probe for probe in PROBES if made.probe == probe.ID)
        clocks = {clock.node: clock} if clock else {}
        if probe.ID == "nvidia_smi":  # its GPUs are read once, for the verdict
            probe = SimpleNamespace(ID=probe.ID, parse=probe.troubles)
        found = parsed(None, made, cast(ModuleType, probe), clocks, text_of).found
        return list(live.decisive(found, datetime.now(UTC)))
