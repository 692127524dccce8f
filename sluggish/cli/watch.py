"""`sluggish watch`: follow jobs from outside, tell what happens, look at once where one stalls."""

from __future__ import annotations

import json
import os
import queue
import shlex
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluggish.causes import EXIT_NOTHING, Cause
from sluggish.cli.collect import transport_of
from sluggish.cli.live import wish
from sluggish.cli.notes import Notes
from sluggish.cli.watch_look import document_of, line_of, look
from sluggish.cli.watch_screen import Screen
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.reach import jobs, notify, paths, prometheus, slurm
from sluggish.reach.prometheus import Answer
from sluggish.reach.state import folders
from sluggish.reach.stream import Clock, Streams
from sluggish.text import counted, safe
from sluggish.watch import dcgm
from sluggish.watch.follow import ALIVE, WAITS, Follow
from sluggish.watch.screen import row
from sluggish.watch.state import Event, Rules

if TYPE_CHECKING:
    from sluggish.cli.live import Wanted
    from sluggish.verdict.model import Diagnosis

POLL_S = 15.0
"""Slurm is asked this often, once for all jobs."""
FIND_S = 60.0
"""How often new jobs of a user or partition are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person asked for."""

    jobs: Sequence[str] = ()
    user: str | None = None
    partition: str | None = None
    transport: str | None = None
    rules: Rules = field(default_factory=Rules)
    execute: str | None = None
    webhook: str | None = None
    as_json: bool = False
    cloud: bool = False
    sudo: bool = False
    poll_s: float = POLL_S
    prometheus: str | None = None

    @property
    def finds(self) -> bool:
        return self.user is not None or self.partition is not None


def run(order: Order, config: Config) -> int:
    """Follows until the jobs end; the exit code is the worst verdict's, 0 where all ended well."""
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
        self._streams = Streams(self._clock)
        self._events: list[Event] = []
        self._notes = Notes()
        self._screen = Screen(wanted=not order.as_json)
        self.follow = Follow(
            self._streams, self._clock, order.rules, self._heard, _folder(config),
            lost_s=min(15.0, 3 * order.rules.every_s),
        )  # fmt: skip
        self._slurm: queue.SimpleQueue[tuple[float, Any, Any]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._metrics: queue.SimpleQueue[tuple[float, Answer]] = queue.SimpleQueue()
        self._site = dcgm.Site()
        self._silent = ""
        self._waiting: dict[str, str] = {}
        """Jobs that do not run yet, or not any more, with the state Slurm gave them."""
        self.code = 0

    # -- begin and end

    def start(self) -> None:
        for job in self._order.jobs:
            self._waiting[str(wish_of(job, self._order, self._config).job)] = ""
        if self._order.finds:
            found = jobs.running(self._order.user, self._order.partition)
            self._waiting |= {one.id: one.state for one in found or ()}
        for job in list(self._waiting):
            self._begin(job, first=True)
        threading.Thread(target=self._ask_slurm, daemon=True).start()
        if self._order.prometheus is not None:
            threading.Thread(target=self._ask_prometheus, daemon=True).start()

    @property
    def done(self) -> bool:
        return not (self.follow.jobs or self._waiting or self._order.finds)

    def close(self) -> None:
        self._stop.set()
        self._screen.pause()
        self.follow.close()

    def _begin(self, job: str, first: bool = False) -> None:
        view = slurm.look(job)
        told = view.job
        if told is None:
            if first and jobs.states([job]) is None:
                self.follow.slurm(None, self._clock())  # said at once, not after the first poll
            elif first:  # its own no, and not its silence
                del self._waiting[job]
                self.code = self.code or EXIT_NOTHING
                self._tell(Event(kind="unknown", at=self._clock(), job=job, says=view.no_job))
            return
        if told.state in WAITS:
            if self._waiting.get(job) != told.state:
                self._tell(Event(kind="waits", at=self._clock(), job=job, says=told.state or ""))
            self._waiting[job] = told.state or ""
            return
        self._waiting.pop(job, None)
        if told.state not in ALIVE:
            self._ended(job, told.state or "GONE")
            return
        job = told.id  # of a whole array one task was chosen
        if job in self.follow.jobs:
            return
        raw = told.raw_id or told.id
        way = None
        if self._order.prometheus is None:
            way = transport_of(
                view, name=self._order.transport or self._config.transport,
                config=self._config, notes=self._notes,
            )  # fmt: skip
            way.quiet_s = 4 * self._order.rules.every_s + 5.0
        self.follow.begin(
            job,
            raw_id=raw,
            started_at=told.started_at.timestamp() if told.started_at else None,
            nodes=view.nodes,
            uid=view.uid,
            logs=view.log_paths,
            transport=way,
        )
        nodes = counted(len(view.nodes), "node", "nodes")
        says = f"{safe(told.name or '', 40)} on {nodes} by {way.name if way else 'Prometheus'}"
        self._tell(Event(kind="watched", at=self._clock(), job=job, says=says))

    # -- the loop

    def step(self) -> None:
        """A moment of listening, then what it brought."""
        self.follow.step(0.5)
        while not self._metrics.empty():
            self._metered(self._metrics.get())
        while not self._slurm.empty():
            asked_at, told, found = self._slurm.get()
            self.follow.slurm(told, asked_at)
            self._after_slurm(told, found)
        now = self._clock()
        told = self.follow.jobs.items()
        rows = [row(f.state, len(f.nodes), now, self._order.rules) for _, f in told]
        self._screen.rows(rows, now)
        for event in self._drained():
            if event.kind == "alert":
                self._alarm(event)
        for job, followed in list(self.follow.jobs.items()):
            if followed.over:
                self._over(job, followed.over)

    def _drained(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _heard(self, event: Event) -> None:
        self._tell(event)
        self._events.append(event)

    def _ask_slurm(self) -> None:
        """Runs beside the loop: slurmctld may take its time, or be away."""
        find_s = min(FIND_S, 4 * self._order.poll_s)
        next_find = time.monotonic() + find_s
        while not self._stop.wait(self._order.poll_s):
            asked_at = self._clock()
            told = jobs.states([*self.follow.jobs, *self._waiting])
            found = None
            if self._order.finds and time.monotonic() > next_find:
                next_find = time.monotonic() + find_s
                found = jobs.running(self._order.user, self._order.partition)
            self._slurm.put((asked_at, told, found))

    def _ask_prometheus(self) -> None:
        """Runs beside the loop. The logs of jobs whose GPUs are quiet are sized as well."""
        while not self._stop.wait(self._order.rules.every_s):
            answer = prometheus.ask(self._order.prometheus or "")
            for followed in list(self.follow.jobs.values()):
                if followed.state.quiet_since is not None and followed.uid is not None:
                    followed.size = _sized(followed.logs, followed.uid)
            self._metrics.put((self._clock(), answer))

    def _metered(self, told: tuple[float, Answer]) -> None:
        at, answer = told
        if answer.problem != self._silent:
            self._silent = answer.problem
            kind = "prometheus silent" if answer.problem else "prometheus back"
            self._tell(Event(kind=kind, at=at, says=answer.problem or "it answers again"))
        if not answer.problem:
            samples, xids = dcgm.samples(answer, self._site, at)
            self.follow.feed(samples, xids)
            self.follow.unseen(max(30.0, 4 * self._order.rules.every_s))

    def _after_slurm(self, told: Any, found: Any) -> None:
        for one in found or ():
            if one.id not in self.follow.jobs and one.id not in self._waiting:
                self._waiting[one.id] = one.state
        if told is None:
            return
        for job in list(self._waiting):
            row = told.get(job)
            if row is None or row.state != self._waiting[job]:
                self._begin(job, first=row is None)

    # -- what it comes to

    def _over(self, job: str, state: str) -> None:
        self.follow.end(job)
        if state in WAITS:
            self._tell(Event(kind="requeued", at=self._clock(), job=job, says=state))
            self._waiting[job] = ""
            return
        if state == "GONE":
            view = slurm.look(job)
            state = view.job.state or "GONE" if view.job else "GONE"
        self._ended(job, state)

    def _ended(self, job: str, state: str) -> None:
        self._tell(Event(kind="ended", at=self._clock(), job=job, says=state))
        if state == "COMPLETED":
            return
        if state == "GONE":
            self._tell(Event(kind="blind", at=self._clock(), job=job,
                             says="Slurm has forgotten how it ended"))  # fmt: skip
            self.code = self.code or EXIT_NOTHING
            return
        self._look(job, Event(kind="ended", at=self._clock(), job=job, says=state))

    def _alarm(self, event: Event) -> None:
        """The evidence is taken while it is fresh; a verdict that it moves is no alarm."""
        self._remember(event)
        diagnosis = self._look(event.job, event)
        if diagnosis is None:
            return
        if diagnosis.verdict.cause is Cause.PROGRESSING:
            self._tell(Event(kind="no alarm", at=self._clock(), job=event.job,
                             says="the look says that it moves"))  # fmt: skip
        elif not self._order.finds and event.job in self.follow.jobs:
            self.follow.end(event.job)

    def _remember(self, event: Event) -> None:
        from sluggish.cli.history import remember_alert
        from sluggish.history.model import Alert
        from sluggish.hostlist import fold

        followed = self.follow.jobs.get(event.job)
        began = followed.state.started_at if followed else None
        alert = Alert(
            job=event.job,
            started=datetime.fromtimestamp(began, UTC) if began else None,
            at=datetime.fromtimestamp(event.at, UTC),
            nodes=fold(followed.nodes) if followed else "",
            says=event.says,
        )
        remember_alert(alert, self._config)

    def _look(self, job: str, event: Event) -> Diagnosis | None:
        wanted = wish_of(job, self._order, self._config)
        self._screen.pause()
        code, diagnosis, path = look(
            wanted, self._config, as_json=self._order.as_json, cloud=self._order.cloud
        )
        self._screen.resume()
        if diagnosis is None or diagnosis.verdict.cause is not Cause.PROGRESSING:
            self.code = self.code or code
            self._notify(event, diagnosis, path, code)
        return diagnosis

    def _notify(self, event: Event, diagnosis: Diagnosis | None, path: str, code: int) -> None:
        document = document_of(event, diagnosis, path, code)
        text = json.dumps(document).encode()
        told: list[str] = []
        if self._order.execute:
            env = {"SLUGGISH_JOB": event.job, "SLUGGISH_EXIT": str(code),
                   "SLUGGISH_CAUSE": str(document["verdict"]["cause"]),
                   "SLUGGISH_BUNDLE": path}  # fmt: skip
            told.append(notify.execute(shlex.split(self._order.execute), text, env))
        hook = self._order.webhook or self._config.webhook
        if hook:
            told.append(notify.post(hook, text, time.sleep))
        for why in told:
            if why:
                self._tell(Event(kind="not told", at=self._clock(), job=event.job, says=why))

    def _tell(self, event: Event) -> None:
        self._screen.say(line_of(event, self._order.as_json))


def _sized(logs: Sequence[str], uid: int) -> tuple[float, float] | None:
    """Bytes of a job's logs and their newest time; None where they cannot be seen from here."""
    found = [paths.stat(log, uid=uid, timeout_s=2.0) for log in logs[:4]]
    seen = [one for one in found if not one.error and one.mtime]
    if not seen:
        return None
    newest = max(one.mtime.timestamp() for one in seen if one.mtime)
    return float(sum(one.size for one in seen)), newest


def wish_of(job: str, order: Order, config: Config) -> Wanted:
    """A look at this job as `diagnose --job` would take it."""
    return wish(job, config, transport=order.transport, window_s=None, sudo=order.sudo, poke=False)


def _folder(config: Config) -> Path | None:
    """Where states are kept: the directory of the bundles."""
    places = folders(os.environ, config.state.dir)
    return places[0] / "watch" if places else None


def order(*, interval: int, notice: float, alert: float, **told: Any) -> Order:
    """What the command line says. The window and the sign follow the notice."""
    window = max(4.0 * interval, notice / 2)
    if notice < window or alert < notice:
        raise EvidenceError(
            "expected --interval S, --notice of 4 S or more, --alert of that or more"
        )
    rules = Rules(
        every_s=float(interval), window_s=window, notice_s=notice, alert_s=alert,
        sign_s=min(60.0, window), gone_s=min(75.0, window),
    )  # fmt: skip
    for name in ("webhook", "prometheus"):
        if (url := told.get(name)) and not url.startswith(("http://", "https://")):
            raise EvidenceError(f"--{name}: expected an http or https address")
    return Order(rules=rules, poll_s=min(POLL_S, 3.0 * interval), **told)
