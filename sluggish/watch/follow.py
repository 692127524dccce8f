"""Many jobs followed at once: lines of their nodes and Slurm's word in, events out."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from sluggish.job import Neighbour
from sluggish.reach.model import Transport
from sluggish.reach.sampler import LIFE_S, build
from sluggish.reach.stream import Line, Link, Streams
from sluggish.text import safe
from sluggish.watch import kernel, store
from sluggish.watch.advance import advance, hard
from sluggish.watch.dcgm import NewXid
from sluggish.watch.followed import Followed, linked, lost, noted
from sluggish.watch.judge import cleared, judge
from sluggish.watch.resume import taken_up
from sluggish.watch.sample import Note, Sample, parse
from sluggish.watch.state import Event, Job, Rules

STOPPED = ("SUSPENDED", "STOPPED")
ALIVE = ("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", *STOPPED)
"""`squeue`, "JOB STATE CODES": the processes are there, or may be."""
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
MOVED = "MOVED"
"""Ours, no word of Slurm's: it runs on other nodes than before, requeued or resized."""
SAVE_S = 30.0
SAID_AGAIN_S = 60.0
"""The same words of one node are not told twice within so long."""


class Follow:
    """Keeps the state of every job; `tell` gets each event as it happens."""

    def __init__(
        self,
        streams: Streams,
        clock: Callable[[], float],
        rules: Rules,
        tell: Callable[[Event], None],
        folder: Path | None = None,
        lost_s: float = 15.0,
    ) -> None:
        self.streams = streams
        self.jobs: dict[str, Followed] = {}
        self._clock = clock
        self._rules = rules
        self._tell_to = tell
        self._folder = folder
        self._lost_s = lost_s
        self._slurm_since: float | None = None
        self._save_failed = ""
        if folder is not None:
            store.tidy(folder, clock())

    # -- which jobs

    def begin(
        self,
        job: str,
        *,
        raw_id: str,
        started_at: float | None,
        nodes: tuple[str, ...],
        uid: int | None,
        logs: tuple[str, ...],
        transport: Transport | None,
    ) -> None:
        """Follows a job's nodes from now on; without a transport somebody feeds its samples."""
        known = store.load(self._folder, job, started_at) if self._folder else None
        now = self._clock()
        state = taken_up(known, now) if known else Job(job=job, started_at=started_at)
        close = transport.close if transport else _nothing
        self.jobs[job] = Followed(
            state=state, nodes=nodes, close=close, logs=logs, uid=uid, began=now
        )
        if transport is None:
            return
        every = max(1, round(self._rules.every_s))
        for number, node in enumerate(nodes):
            # the batch script runs on the first node: what it writes is fresh there
            own = logs if number == 0 else ()
            script = build(job=raw_id, uid=uid, logs=own, every_s=every)
            self.streams.follow(job, node, script, transport, LIFE_S + 120.0)

    def end(self, job: str) -> None:
        """Stops following it; its learned state goes with it."""
        if self._left(job) and self._folder:
            store.forget(self._folder, job)

    def leave(self, job: str) -> None:
        """Stops following it and keeps its state: it may be begun again on other nodes."""
        followed = self._left(job)
        if followed:
            self._save(followed, self._clock(), now=True)

    def _left(self, job: str) -> Followed | None:
        followed = self.jobs.pop(job, None)
        if followed:
            self.streams.leave(job)
            followed.close()
        return followed

    def close(self) -> None:
        """Stops everything and keeps what was learned."""
        self.streams.close()
        for followed in self.jobs.values():
            followed.close()
            self._save(followed, self._clock(), now=True)

    # -- what comes

    def step(self, wait_s: float) -> None:
        """What has come from the nodes by now; waits for it a moment."""
        for item in self.streams.take(wait_s):
            followed = self.jobs.get(item.stream)
            if followed is None:
                continue
            if isinstance(item, Link):
                self._tell(followed, linked(followed, item, self._clock()))
            else:
                self._line(followed, item)
        now = self._clock()
        for followed in self.jobs.values():
            if followed.down and not followed.stopped:
                self._judge(followed, now)  # a silent node brings no sample that would
            self._save(followed, now)

    def feed(self, samples: Iterable[Sample], xids: Iterable[NewXid]) -> None:
        """Samples that came otherwise than by a session, e.g. a site's metrics."""
        mine: dict[str, list[Followed]] = {}
        for followed in self.jobs.values():
            for node in followed.nodes:
                mine.setdefault(node.split(".")[0], []).append(followed)
        for sample in samples:
            for followed in mine.get(sample.node, ()):
                if followed.size and sample.node == followed.nodes[0].split(".")[0]:
                    size, newest = followed.size
                    sample = replace(sample, log_bytes=size, log_at=newest)
                self._sample(followed, sample)
        for xid in xids:
            for followed in mine.get(xid.node, ()):
                says = f"Xid {xid.code} on GPU {xid.gpu}"
                cause = kernel.cause(xid.code)
                kind = "xid" if cause else "xid of a program"
                now = self._clock()
                self._say(followed, followed.event(kind, now, xid.node, says))
                if cause:
                    where = f"{says} of {xid.node}"
                    followed.state = hard(followed.state, where, now)

    def unseen(self, after_s: float) -> None:
        """Says once of each node that no sample has come of it."""
        now = self._clock()
        for followed in self.jobs.values():
            if now - followed.began < after_s:
                continue
            known = {name.split(".")[0] for name in followed.state.nodes}
            for node in followed.nodes:
                if node.split(".")[0] not in known and node not in followed.told_lost:
                    followed.told_lost.add(node)
                    says = "no metric of this node: it is not watched"
                    self._say(followed, followed.event("blind", now, node, says))

    def _line(self, followed: Followed, line: Line) -> None:
        ticks = followed.ticks.get(line.node, 100.0)
        found = parse(line.text, line.node, line.at, ticks)
        if isinstance(found, Sample):
            followed.ups.setdefault(line.node, line.at - _uptime(line.text))
            self._sample(followed, found)
        elif isinstance(found, Note):
            self._tell(followed, noted(followed, found))

    def _sample(self, followed: Followed, sample: Sample) -> None:
        if followed.stopped:
            return
        knew = followed.state.moved_at is not None
        followed.state, events = advance(followed.state, sample, self._rules)
        self._tell(followed, events)
        if not knew and followed.state.moved_at is not None:
            self._save(followed, self._clock(), now=True)

    def _tell(self, followed: Followed, events: Iterable[Event]) -> None:
        for event in events:
            self._say(followed, event)

    def _say(self, followed: Followed, event: Event) -> None:
        key = (event.node or "", f"{event.kind} {event.says}")
        last = followed.said.get(key)
        if last is not None and event.at - last < SAID_AGAIN_S and event.kind != "alert":
            return
        if len(followed.said) > 1000:
            followed.said.clear()
        followed.said[key] = event.at
        self._tell_to(event)

    # -- what came of an alert

    def told(self, job: str) -> None:
        """Somebody knows of its alert: after a restart that stretch of quiet is not told again."""
        self._settle(job, lambda state: replace(state, told=state.alerted))

    def cleared(self, job: str) -> None:
        """A look saw it move: there was no alarm."""
        self._settle(job, lambda state: cleared(state, self._clock()))

    def _settle(self, job: str, change: Callable[[Job], Job]) -> None:
        followed = self.jobs.get(job)
        if followed:
            followed.state = change(followed.state)
            self._save(followed, self._clock(), now=True)

    def _judge(self, followed: Followed, now: float) -> None:
        followed.state, events = judge(followed.state, now, self._rules)
        self._tell(followed, events)

    # -- Slurm's word

    def slurm(self, told: Mapping[str, Neighbour] | None, asked_at: float) -> None:
        """What squeue said; None: it did not answer, which says nothing of the jobs."""
        if told is None:
            if self._slurm_since is None:
                self._slurm_since = asked_at
                self._tell_to(Event(kind="slurm silent", at=asked_at, says="squeue has no answer"))
            return
        if self._slurm_since is not None:
            gone = asked_at - self._slurm_since
            self._slurm_since = None
            self._tell_to(Event(kind="slurm back", at=asked_at, says=f"after {gone:.0f} s"))
        for job, followed in self.jobs.items():
            row = told.get(job)
            if row is None:
                followed.over = "GONE"
                continue
            self._stopped(followed, row.state, asked_at)
            if row.state not in ALIVE:
                followed.over = row.state
            elif row.state not in ("COMPLETING", *STOPPED):
                self._tell(followed, lost(followed, asked_at, self._lost_s))
                followed.held = followed.held or row.nodes
                if row.nodes and set(row.nodes) != set(followed.held):
                    followed.over = MOVED

    def _stopped(self, followed: Followed, state: str, at: float) -> None:
        """A suspended job stands still and rightly; what it showed before is no quiet of now."""
        if followed.stopped == (state in STOPPED):
            return
        followed.stopped = not followed.stopped
        kind, says = ("stopped", state) if followed.stopped else ("runs", "goes on")
        followed.state = replace(followed.state, quiet_since=None, noticed=False, alerted=False)
        self._say(followed, followed.event(kind, at, None, says))

    # -- its own state

    def _save(self, followed: Followed, at: float, now: bool = False) -> None:
        if self._folder is None or (not now and at - followed.saved_at < SAVE_S):
            return
        followed.saved_at = at
        why = store.save(self._folder, followed.state)
        if why and why != self._save_failed:
            says = f"the watch's state is not kept: {safe(why, 160)}"
            self._tell_to(Event(kind="blind", at=at, job=followed.state.job, says=says))
        self._save_failed = why


def _nothing() -> None:
    pass


def _uptime(text: str) -> float:
    try:
        return float(text.split("|", 2)[1])
    except (ValueError, IndexError):
        return 0.0
