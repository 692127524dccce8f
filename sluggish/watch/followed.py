"""One job under watch: what its nodes' lines and connections change, and what they tell."""

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from sluggish.reach.stream import Link
from sluggish.text import safe
from sluggish.watch import kernel
from sluggish.watch.advance import hard, softened
from sluggish.watch.sample import Note
from sluggish.watch.setting import watchdog_s
from sluggish.watch.state import Event, Job, Node

NOT_THE_NODE = ("auth denied", "auth hangs", "host key", "not run", "no shell")
"""Failures that say nothing of a node: a session that ends with its job is told so by PAM."""


@dataclass(slots=True)
class Followed:
    """What is kept of it besides its state."""

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
    held: tuple[str, ...] | None = None
    """The nodes that squeue gave it first."""
    stopped: bool = False
    """Slurm has suspended it: it stands still, and rightly."""
    logs: tuple[str, ...] = ()
    uid: int | None = None
    size: tuple[float, float] | None = None
    """Of its logs, and their newest time, as the watcher's own machine saw them last."""
    began: float = 0.0

    def event(self, kind: str, at: float, node: str | None, says: str) -> Event:
        return Event(kind=kind, at=at, job=self.state.job, node=node, says=says)


def noted(followed: Followed, note: Note) -> list[Event]:
    """A line of a node that is no sample."""
    state, node = followed.state, note.node
    if note.kind == "begun":
        hertz = note.text.rpartition("|")[2]
        if hertz.isdigit() and 0 < int(hertz) <= 10_000:
            followed.ticks[node] = float(hertz)
    elif note.kind == "setting":
        name, _, value = note.text.partition("=")
        followed.state = _set(state, node, name, value)
    elif note.kind == "kernel" and note.text == "-":
        says = "the kernel log cannot be followed there: no right to read it"
        return [followed.event("blind", note.at, node, says)]
    elif note.kind == "kernel":
        boot = followed.ups.get(node)
        found = kernel.events(note.text, job=state.job, node=node, at=note.at, boot_at=boot)
        for event in found:
            if event.kind in kernel.STOPS:
                followed.state = hard(followed.state, f"{event.says} on {node}", note.at)
        return found
    elif note.kind == "gpu says":
        return [followed.event("gpu", note.at, node, f"nvidia-smi: {safe(note.text, 160)}")]
    return []


def _set(state: Job, node: str, name: str, value: str) -> Job:
    """A setting of a rank's environment: the watchdog's time, or which GPUs are the job's."""
    if name == "SLURM_STEP_GPUS":
        told = {int(part) for part in value.split(",")[:64] if part.isdigit() and len(part) < 4}
        known = state.nodes.get(node, Node())
        mine = tuple(sorted(told.union(known.mine)))
        return replace(state, nodes={**state.nodes, node: replace(known, mine=mine)})
    seconds = watchdog_s(name, value)
    return replace(state, watchdog_s=seconds) if seconds else state


def linked(followed: Followed, link: Link, now: float) -> list[Event]:
    """A connection came up or broke."""
    if link.kind == "up":
        followed.down.pop(link.node, None)
        if link.node in followed.told_lost:
            followed.told_lost.discard(link.node)
            followed.state = softened(followed.state, _lost_words(link.node))
            return [followed.event("node back", now, link.node, "answers again")]
    elif link.failure is not None:  # else the script's own end: it is begun again
        since = followed.down.get(link.node, (link.at, link))[0]
        followed.down[link.node] = (since, link)
    return []


def lost(followed: Followed, now: float, after_s: float) -> list[Event]:
    """Nodes that stay away while Slurm says, asked after the break, that the job runs."""
    found: list[Event] = []
    for node, (since, link) in followed.down.items():
        if node in followed.told_lost or now - since < after_s or link.tries < 2:
            continue
        followed.told_lost.add(node)
        says = f"{link.failure}: {safe(link.says, 160)}"
        if link.failure in NOT_THE_NODE:
            found.append(followed.event("blind", now, node, f"not followed: {says}"))
            continue
        found.append(followed.event("node lost", now, node, says))
        if node in followed.state.nodes:
            followed.state = hard(followed.state, f"{_lost_words(node)} ({link.failure})", now)
    return found


def _lost_words(node: str) -> str:
    return f"{node} is lost"
