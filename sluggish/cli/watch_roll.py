"""Which jobs are followed: those asked for and found, until they end; arrays task by task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluggish.causes import EXIT_NOTHING, EXIT_USAGE
from sluggish.cli.collect import transport_of
from sluggish.cli.notes import Notes
from sluggish.cli.watch_order import Order, wish_of
from sluggish.evidence.source import EvidenceError
from sluggish.reach import jobs, slurm
from sluggish.text import counted, safe
from sluggish.watch.follow import ALIVE, MOVED, WAITS, Follow
from sluggish.watch.state import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sluggish.cli.watch_ask import Said
    from sluggish.config import Config
    from sluggish.job import Job, Neighbour
    from sluggish.reach.slurm import SlurmView


class Roll:
    """`tell` gets events; `ended` a job that is over with Slurm's word; `fail` an exit code."""

    def __init__(
        self, order: Order, config: Config, follow: Follow, *, clock: Callable[[], float],
        tell: Callable[[Event], None], ended: Callable[[str, str], None],
        fail: Callable[[int], None],
    ) -> None:  # fmt: skip
        self._order = order
        self._config = config
        self._follow = follow
        self._clock = clock
        self._tell = tell
        self._ended = ended
        self._fail = fail
        self._notes = Notes()
        self._problem = ""
        self.waiting: dict[str, str] = {}
        """Jobs that do not run yet, or not any more, with the state Slurm gave them."""
        self._finished: set[str] = set()
        """Jobs that have their verdict, or cannot be followed: they are not begun again."""

    def start(self) -> None:
        for job in self._order.jobs:
            self.waiting[str(wish_of(job, self._order, self._config).job)] = ""
        told = jobs.states(list(self.waiting))
        if self._order.finds:
            found = jobs.running(self._order.user, self._order.partition)
            told = None if found is None else told
            if found is not None and not found and not self.waiting:
                self._say("waits", "", f"no job {self._order.whose} runs: looking for one")
            self._find(found or ())
        if told is None:
            self._follow.slurm(None, self._clock())  # said at once, not after the first poll
        for job in list(self.waiting):
            if not self._tasks(job, told or {}):
                self._begin(job, first=told is not None)

    def after(self, said: Said) -> None:
        """What Slurm told in a round. Called after the followed jobs have had their states."""
        if said.problem != self._problem:
            self._problem = said.problem
            if said.problem:
                self._say("blind", "", f"no new job is found: {said.problem}")
        self._find(said.found)
        if said.states is None:
            return
        for job in list(self.waiting):
            if self._tasks(job, said.states):
                continue
            row = said.states.get(job)
            if row is None or row.state != self.waiting[job]:
                self._begin(job, first=row is None)

    def over(self, job: str, state: str) -> None:
        """Slurm says that a followed job does not run any more, or not there."""
        if state == MOVED:
            self._follow.leave(job)
            self._say("moved", job, "it runs on other nodes than before")
            self._begin(job)
            return
        self._follow.end(job)
        if state in WAITS:
            self._say("requeued", job, state)
            self.waiting[job] = ""
            return
        if state == "GONE":
            view = slurm.look(job)
            state = view.job.state or "GONE" if view.job else "GONE"
        self._ended(job, state)

    def finish(self, job: str) -> None:
        """It has its verdict, and that was all that was wanted."""
        self._finished.add(job)
        self._follow.end(job)

    def _find(self, found: Iterable[Neighbour]) -> None:
        for one in found:
            job = one.id.partition("+")[0]  # the parts of a heterogeneous job are one job
            if job not in self._follow.jobs and job not in self._finished:
                self.waiting.setdefault(job, one.state)
                self._begin(job)

    def _tasks(self, job: str, told: Mapping[str, Neighbour]) -> bool:
        """Begins the tasks of an array that run; it is waited for while some have not run yet."""
        tasks = {one.id: one for one in told.values() if one.id.startswith(f"{job}_")}
        going = {name: one for name, one in tasks.items() if one.state in (*ALIVE, *WAITS)}
        if not going:
            return False
        later = [name for name, one in going.items() if one.state in WAITS]
        if later and not self.waiting[job]:
            self._say("waits", job, f"{' '.join(later)} {going[later[0]].state}")
            self.waiting[job] = going[later[0]].state
        if not later:
            del self.waiting[job]
        for name in going.keys() - set(later) - self._follow.jobs.keys() - self._finished:
            self._begin(name)
        return True

    def _begin(self, job: str, first: bool = False) -> None:
        view = slurm.look(job)
        told = view.job
        if told is None:
            if first:  # its own no, and not its silence
                self.waiting.pop(job, None)
                self._fail(EXIT_NOTHING)
                self._say("unknown", job, view.no_job)
            return
        if told.state in WAITS:
            if self.waiting.get(job) != told.state:
                self._say("waits", job, told.state or "")
            self.waiting[job] = told.state or ""
            return
        self.waiting.pop(job, None)
        if told.state not in ALIVE:
            self._ended(job, told.state or "GONE")
        elif told.id not in self._follow.jobs:  # of a whole array one task was chosen
            try:
                self._take(told, view)
            except EvidenceError as problem:
                self._finished.add(told.id)
                self._fail(EXIT_USAGE)
                self._say("blind", told.id, f"not followed: {problem}")

    def _take(self, told: Job, view: SlurmView) -> None:
        way = None
        if self._order.prometheus is None:
            way = transport_of(
                view, name=self._order.transport or self._config.transport,
                config=self._config, notes=self._notes,
            )  # fmt: skip
            way.quiet_s = 4 * self._order.rules.every_s + 5.0
        # a step that runs now may be a small one before the training
        nodes = view.nodes if view.asked.step else told.nodes or view.nodes
        self._follow.begin(
            told.id,
            raw_id=told.raw_id or told.id,
            started_at=told.started_at.timestamp() if told.started_at else None,
            nodes=nodes,
            uid=view.uid,
            logs=view.log_paths,
            transport=way,
        )
        where = counted(len(nodes), "node", "nodes")
        says = f"{safe(told.name or '', 40)} on {where} by {way.name if way else 'Prometheus'}"
        self._say("watched", told.id, says)

    def _say(self, kind: str, job: str, says: str) -> None:
        self._tell(Event(kind=kind, at=self._clock(), job=job, says=safe(says, 300)))
