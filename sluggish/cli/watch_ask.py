"""Who is asked beside the loop of a watch: Slurm and Prometheus, which may take their time."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluggish.cli.watch_order import Order
from sluggish.evidence.source import EvidenceError
from sluggish.job import Neighbour
from sluggish.reach import jobs, paths, prometheus
from sluggish.reach.prometheus import Answer
from sluggish.watch.follow import Follow

FIND_S = 60.0
"""How often new jobs of a user or partition are looked for, while some are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One round of Slurm's."""

    at: float
    states: Mapping[str, Neighbour] | None
    """None: it did not answer."""
    found: Sequence[Neighbour] = ()
    problem: str = ""
    """Why no job can be found any more, e.g. a partition that was removed."""


class Asking:
    """The threads, and what they brought. `waiting`: jobs that are not followed yet."""

    def __init__(
        self, order: Order, follow: Follow, waiting: Callable[[], Sequence[str]],
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._order = order
        self._follow = follow
        self._waiting = waiting
        self._clock = clock
        self._stop = threading.Event()
        self._slurm: queue.SimpleQueue[Said] = queue.SimpleQueue()
        self._metrics: queue.SimpleQueue[tuple[float, Answer]] = queue.SimpleQueue()

    def start(self) -> None:
        threading.Thread(target=self._ask_slurm, daemon=True).start()
        if self._order.prometheus is not None:
            threading.Thread(target=self._ask_prometheus, daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def said(self) -> Iterator[Said]:
        while not self._slurm.empty():
            yield self._slurm.get()

    def metered(self) -> Iterator[tuple[float, Answer]]:
        while not self._metrics.empty():
            yield self._metrics.get()

    def _ask_slurm(self) -> None:
        find_s = min(FIND_S, 4 * self._order.poll_s)
        next_find = time.monotonic() + find_s
        while not self._stop.wait(self._order.poll_s):
            at = self._clock()
            ids = [*list(self._follow.jobs), *self._waiting()]
            told = jobs.states(ids)
            found: Sequence[Neighbour] | None = ()
            problem = ""
            # with nobody to follow this is the only question
            if self._order.finds and (not ids or time.monotonic() > next_find):
                next_find = time.monotonic() + find_s
                try:
                    found = jobs.running(self._order.user, self._order.partition)
                except EvidenceError as told_so:
                    problem = str(told_so)
                told = None if found is None and not ids else told
            self._slurm.put(Said(at=at, states=told, found=found or (), problem=problem))

    def _ask_prometheus(self) -> None:
        """The logs of jobs whose GPUs are quiet are sized as well."""
        while not self._stop.wait(self._order.rules.every_s):
            answer = prometheus.ask(self._order.prometheus or "")
            for followed in list(self._follow.jobs.values()):
                if followed.state.quiet_since is not None and followed.uid is not None:
                    followed.size = _sized(followed.logs, followed.uid)
            self._metrics.put((self._clock(), answer))


def _sized(logs: Sequence[str], uid: int) -> tuple[float, float] | None:
    """Bytes of a job's logs and their newest time; None where they cannot be seen from here."""
    found = [paths.stat(log, uid=uid, timeout_s=2.0) for log in logs[:4]]
    seen = [one for one in found if not one.error and one.mtime]
    if not seen:
        return None
    newest = max(one.mtime.timestamp() for one in seen if one.mtime)
    return float(sum(one.size for one in seen)), newest
