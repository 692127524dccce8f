"""Many jobs followed at once: lines of their nodes and Slurm's word in, events out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
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
from sluggish.watch.judge import judge
from sluggish.watch.sample import Note, Sample, parse
from sluggish.watch.setting import watchdog_s
from sluggish.watch.state import Event, Job, Node, Rules

ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED")
WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
NOT_THE_NODE = ("auth denied", "auth hangs", "host key", "not run", "no shell")
"""Failures that say nothing of a node: a session that ends with its job is told so by PAM."""
SAVE_S = 30.0
SAID_AGAIN_S = 60.0
"""The same words of one node are not told twice within so long."""


@dataclass(slots=True)
class Followed:
    """One job under watch."""

    state: Job
    nodes: tuple[str, ...]
    close: Callable[[], None]
    """Ends its connections."""
    down: dict[str, tuple[float, Link]] = field(default_factory=dict[str, tuple[float, Link]])
    """Nodes whose connection is broken: since when, and the last word."""
    told_lost: set[str] = field(default_factory=set[str])
    ups: dict[str, float] = field(default_factory=dict[str, float])
    """Boot time of a node on our clock, from its uptime."""
    ticks: dict[str, float] = field(default_factory=dict[str, float])
    said: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    saved_at: float = 0.0
    over: str = ""
    """Slurm's word for its end."""
    logs: tuple[str, ...] = ()
    uid: int | None = None
    size: tuple[float, float] | None = None
    """Of its logs, and their newest time, as the watcher's own machine saw them last."""
    began: float = 0.0


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
        state = known or Job(job=job, started_at=started_at)
        close = transport.close if transport else _nothing
        self.jobs[job] = Followed(
            state=state, nodes=nodes, close=close, logs=logs, uid=uid, began=self._clock()
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
        followed = self.jobs.pop(job, None)
        if followed:
            self.streams.leave(job)
            followed.close()
            if self._folder:
                store.forget(self._folder, job)

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
                self._link(followed, item)
            else:
                self._line(followed, item)
        now = self._clock()
        for followed in self.jobs.values():
            if followed.down:
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
                followed.state, events = advance(followed.state, sample, self._rules)
                for event in events:
                    self._say(followed, event)
        for xid in xids:
            for followed in mine.get(xid.node, ()):
                says = f"Xid {xid.code} on GPU {xid.gpu}"
                cause = kernel.cause(xid.code)
                kind = "xid" if cause else "xid of a program"
                self._say(followed, self._event(followed, kind, xid.node, says))
                if cause:
                    where = f"{says} of {xid.node}"
                    followed.state = hard(followed.state, where, self._clock())

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
                    self._say(followed, self._event(followed, "blind", node, says))

    def _line(self, followed: Followed, line: Line) -> None:
        ticks = followed.ticks.get(line.node, 100.0)
        found = parse(line.text, line.node, line.at, ticks)
        if isinstance(found, Sample):
            followed.ups.setdefault(line.node, line.at - _uptime(line.text))
            followed.state, events = advance(followed.state, found, self._rules)
            for event in events:
                self._say(followed, event)
        elif isinstance(found, Note):
            self._note(followed, found)

    def _note(self, followed: Followed, note: Note) -> None:
        state = followed.state
        if note.kind == "begun":
            hertz = note.text.rpartition("|")[2]
            if hertz.isdigit() and 0 < int(hertz) <= 10_000:
                followed.ticks[note.node] = float(hertz)
        elif note.kind == "setting":
            name, _, value = note.text.partition("=")
            followed.state = _set(state, note.node, name, value)
        elif note.kind == "kernel" and note.text == "-":
            says = "the kernel log cannot be followed there: no right to read it"
            self._once(followed, "blind", note, says)
        elif note.kind == "kernel":
            boot = followed.ups.get(note.node)
            found = kernel.events(note.text, job=state.job, node=note.node, at=note.at,
                                  boot_at=boot)  # fmt: skip
            for event in found:
                if event.kind in kernel.STOPS:
                    where = f"{event.says} on {note.node}"
                    followed.state = hard(followed.state, where, note.at)
                self._say(followed, event)
        elif note.kind == "gpu says":
            self._once(followed, "gpu", note, f"nvidia-smi: {safe(note.text, 160)}")

    def _once(self, followed: Followed, kind: str, note: Note, says: str) -> None:
        event = Event(kind=kind, at=note.at, job=followed.state.job, node=note.node, says=says)
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

    # -- connections

    def _link(self, followed: Followed, link: Link) -> None:
        if link.kind == "up":
            followed.down.pop(link.node, None)
            if link.node in followed.told_lost:
                followed.told_lost.discard(link.node)
                self._say(followed, self._event(followed, "node back", link.node, "answers again"))
            return
        if link.failure is None:  # the script's own end: it is begun again
            return
        since = followed.down.get(link.node, (link.at, link))[0]
        followed.down[link.node] = (since, link)

    def lost(self, followed: Followed, now: float) -> None:
        """Nodes that stay away while Slurm says, asked after the break, that the job runs."""
        for node, (since, link) in followed.down.items():
            if node in followed.told_lost or now - since < self._lost_s or link.tries < 2:
                continue
            followed.told_lost.add(node)
            says = f"{link.failure}: {safe(link.says, 160)}"
            if link.failure in NOT_THE_NODE:
                self._say(followed, self._event(followed, "blind", node, f"not followed: {says}"))
                continue
            self._say(followed, self._event(followed, "node lost", node, says))
            if node in followed.state.nodes:
                followed.state = hard(followed.state, f"{node} is lost ({link.failure})", now)

    def _event(self, followed: Followed, kind: str, node: str | None, says: str) -> Event:
        return Event(kind=kind, at=self._clock(), job=followed.state.job, node=node, says=says)

    def _judge(self, followed: Followed, now: float) -> None:
        followed.state, events = judge(followed.state, now, self._rules)
        for event in events:
            self._say(followed, event)

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
            elif row.state in ALIVE and row.state != "COMPLETING":
                self.lost(followed, asked_at)
            elif row.state != "COMPLETING":
                followed.over = row.state

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


def _set(state: Job, node: str, name: str, value: str) -> Job:
    """A setting of a rank's environment: the watchdog's time, or which GPUs are the job's."""
    if name == "SLURM_STEP_GPUS":
        told = {int(part) for part in value.split(",")[:64] if part.isdigit() and len(part) < 4}
        known = state.nodes.get(node, Node())
        mine = tuple(sorted(told.union(known.mine)))
        return replace(state, nodes={**state.nodes, node: replace(known, mine=mine)})
    seconds = watchdog_s(name, value)
    return replace(state, watchdog_s=seconds) if seconds else state
