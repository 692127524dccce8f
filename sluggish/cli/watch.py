"""`sluggish watch`: follow jobs from outside, tell what happens, look at once where one stalls."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from sluggish.causes import EXIT_NOTHING, Cause
from sluggish.cli.watch_ask import Asking
from sluggish.cli.watch_look import document_of, line_of, look, remember
from sluggish.cli.watch_order import Order, order, states, wish_of
from sluggish.cli.watch_roll import Roll
from sluggish.cli.watch_screen import Screen
from sluggish.cli.watch_tell import Telling
from sluggish.evidence.source import EvidenceError
from sluggish.reach import notify
from sluggish.reach.stream import Clock, Streams
from sluggish.watch import dcgm
from sluggish.watch.follow import Follow
from sluggish.watch.screen import row
from sluggish.watch.state import Event

if TYPE_CHECKING:
    from sluggish.config import Config
    from sluggish.reach.prometheus import Answer
    from sluggish.verdict.model import Diagnosis, Verdict

__all__ = ["Order", "order", "run"]
WANTED_ENDS = ("pending", "completed", "cancelled", "requeued")
"""Subtypes of `not_running` for which nobody is called: somebody wanted them, or nothing ended."""


def run(order: Order, config: Config) -> int:
    """Follows until the jobs end; the exit code is the first verdict's, 0 where all ended well."""
    if config.webhook and (why := notify.unfit(config.webhook)):
        raise EvidenceError(f"webhook of the configuration: {why}")
    watch = _Watch(order, config)
    try:
        watch.start()
        while not watch.done:
            watch.step()
        return watch.code
    finally:
        watch.close()


class _Watch:
    """One run of the command."""

    def __init__(self, order: Order, config: Config) -> None:
        self._order = order
        self._config = config
        self._clock = Clock()
        self._events: list[Event] = []
        self._screen = Screen(wanted=not order.as_json)
        self._follow = Follow(
            Streams(self._clock), self._clock, order.rules, self._heard, states(config),
            lost_s=min(15.0, 3 * order.rules.every_s),
        )  # fmt: skip
        self._roll = Roll(
            order, config, self._follow, clock=self._clock, tell=self._tell, ended=self._ended,
            fail=self._fail,
        )  # fmt: skip
        waiting = self._roll.waiting
        self._asking = Asking(order, self._follow, lambda: list(waiting), self._clock)
        self._telling = Telling(order.execute, order.webhook or config.webhook)
        self._site = dcgm.Site()
        self._silent = ""
        self.code = 0

    def start(self) -> None:
        self._roll.start()
        self._asking.start()

    @property
    def done(self) -> bool:
        going = self._follow.jobs or self._roll.waiting or self._telling.busy
        return not (going or self._order.finds)

    def close(self) -> None:
        self._asking.stop()
        self._screen.pause()
        self._follow.close()

    def step(self) -> None:
        """A moment of listening, then what it brought."""
        self._follow.step(0.5)
        for at, answer in self._asking.metered():
            self._metered(at, answer)
        for said in self._asking.said():
            self._follow.slurm(said.states, said.at)
            self._roll.after(said)
        for job, why in self._telling.came():
            self._came(job, why)
        now = self._clock()
        told = self._follow.jobs.values()
        self._screen.rows([row(f.state, len(f.nodes), now, self._order.rules) for f in told], now)
        events, self._events = self._events, []
        for event in events:
            if event.kind == "alert":
                self._alarm(event)
        for job, followed in list(self._follow.jobs.items()):
            if followed.over:
                self._roll.over(job, followed.over)

    def _metered(self, at: float, answer: Answer) -> None:
        if answer.problem != self._silent:
            self._silent = answer.problem
            kind = "prometheus silent" if answer.problem else "prometheus back"
            self._tell(Event(kind=kind, at=at, says=answer.problem or "it answers again"))
        if not answer.problem:
            samples, xids = dcgm.samples(answer, self._site, at)
            self._follow.feed(samples, xids)
            self._follow.unseen(max(30.0, 4 * self._order.rules.every_s))

    # -- what it comes to

    def _heard(self, event: Event) -> None:
        self._tell(event)
        self._events.append(event)

    def _fail(self, code: int) -> None:
        self.code = self.code or code

    def _ended(self, job: str, state: str) -> None:
        event = Event(kind="ended", at=self._clock(), job=job, says=state)
        self._tell(event)
        if state == "COMPLETED":
            return
        if state == "GONE":
            says = "Slurm has forgotten how it ended"
            self._tell(Event(kind="blind", at=self._clock(), job=job, says=says))
            self._fail(EXIT_NOTHING)
            return
        self._look(event)

    def _alarm(self, event: Event) -> None:
        """The evidence is taken while it is fresh; a verdict that it moves is no alarm."""
        if event.job not in self._follow.jobs:
            return
        remember(event, self._follow.jobs[event.job], self._config)
        diagnosis = self._look(event)
        if diagnosis is not None and diagnosis.verdict.cause is Cause.PROGRESSING:
            self._follow.cleared(event.job)
            says = "the look says that it moves"
            self._tell(Event(kind="no alarm", at=self._clock(), job=event.job, says=says))

    def _look(self, event: Event) -> Diagnosis | None:
        wanted = wish_of(event.job, self._order, self._config)
        self._screen.pause()
        try:
            code, diagnosis, path = look(
                wanted, self._config, as_json=self._order.as_json, cloud=self._order.cloud
            )
        except Exception:  # a fault of ours must hide no alert, and end no watch of other jobs
            traceback.print_exc()
            code, diagnosis, path = 1, None, ""
        self._screen.resume()
        verdict = diagnosis.verdict if diagnosis else None
        if verdict is not None and verdict.cause is Cause.PROGRESSING:
            return diagnosis
        self._fail(code)
        if self._telling.wanted and (verdict is None or _pages(verdict)):
            self._telling.tell(event.job, document_of(event, diagnosis, path, code))
        elif verdict is not None:
            self._came(event.job, [])
        return diagnosis

    def _came(self, job: str, why: list[str]) -> None:
        """Everybody was told of a job, or why somebody was not."""
        for says in why:
            self._tell(Event(kind="not told", at=self._clock(), job=job, says=says))
        if not why:
            self._follow.told(job)
        if job in self._follow.jobs and not self._order.finds:
            self._roll.finish(job)

    def _tell(self, event: Event) -> None:
        self._screen.say(line_of(event, self._order.as_json))


def _pages(verdict: Verdict) -> bool:
    return verdict.cause is not Cause.NOT_RUNNING or verdict.subtype not in WANTED_ENDS
