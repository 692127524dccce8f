"""Telling others beside the loop: a page that hangs must not hold the watch of other jobs."""

import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sluggish.reach import notify

LONGEST_S = 150.0
"""A minute for the program, three tries of the address; a server that drips may hold a thread."""


class Telling:
    """Documents under way, and what came of them."""

    def __init__(self, execute: Sequence[str], webhook: str | None) -> None:
        self._execute = execute
        self._webhook = webhook
        self._done: queue.SimpleQueue[tuple[int, list[str]]] = queue.SimpleQueue()
        self._under_way: dict[int, tuple[str, float]] = {}
        self._count = 0

    @property
    def wanted(self) -> bool:
        return bool(self._execute or self._webhook)

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    def tell(self, job: str, document: Mapping[str, Any]) -> None:
        """Begins to tell of this job; `came` says when it is done."""
        self._count += 1
        self._under_way[self._count] = (job, time.monotonic() + LONGEST_S)
        argv = (self._count, json.dumps(document).encode(), _env(document))
        threading.Thread(target=self._send, args=argv, daemon=True).start()

    def came(self) -> Iterator[tuple[str, list[str]]]:
        """The jobs of which all is told by now, and why somebody was not."""
        while not self._done.empty():
            number, why = self._done.get()
            if number in self._under_way:
                yield self._under_way.pop(number)[0], why
        now = time.monotonic()
        for number in [n for n, (_, until) in self._under_way.items() if now > until]:
            yield self._under_way.pop(number)[0], [f"not told within {LONGEST_S:.0f} s"]

    def _send(self, number: int, document: bytes, env: Mapping[str, str]) -> None:
        told: list[str] = []
        if self._webhook:
            told.append(notify.post(self._webhook, document, time.sleep))
        if self._execute:
            told.append(notify.execute(self._execute, document, env))
        self._done.put((number, [why for why in told if why]))


def _env(document: Mapping[str, Any]) -> dict[str, str]:
    return {
        "SLUGGISH_JOB": str(document["job"]),
        "SLUGGISH_EXIT": str(document["exit_code"]),
        "SLUGGISH_CAUSE": document["verdict"]["cause"] or "",
        "SLUGGISH_BUNDLE": document["bundle"] or "",
    }
