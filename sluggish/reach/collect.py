"""A live look at a job: the job's logs and every node's answer become one Bundle."""

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

from sluggish import __version__
from sluggish.evidence.bundle import NODE_PROBES
from sluggish.evidence.model import Bundle, Clock, Evidence
from sluggish.reach.fanout import ask_all
from sluggish.reach.frames import Frames, clock_again, clock_of, evidence_of
from sluggish.reach.model import Answer, Ask, Frame, Progress, Transport
from sluggish.reach.script import build


@dataclass(slots=True)
class Look:
    """What has come home so far. The fan-out's threads add to it; who stops early has the rest."""

    folder: Path
    """Ours alone: every frame's bytes lie here until the bundle is packed."""
    nodes: tuple[str, ...]
    job: str | None
    evidence: list[Evidence] = field(default_factory=list)
    logs: tuple[Evidence, ...] = ()
    """The job's logs as they were last read here: they are read again at the end of a look."""
    clocks: dict[str, Clock] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _files: int = 0
    _sent: dict[str, datetime] = field(default_factory=dict)

    def add(self, items: Iterable[Evidence]) -> None:
        """Evidence that is no node's frame: Slurm's answers, what was not asked and why."""
        with self._lock:
            self.evidence += items

    def keep(self, node: str, frame: Frame) -> Evidence:
        """One frame to the disk; the evidence reads it back when it is wanted."""
        with self._lock:
            self._files += 1
            file = self.folder / str(self._files)
        if frame.content:
            file.write_bytes(frame.content)
        made = evidence_of(frame, node, path=str(file) if frame.content else "")
        with self._lock:
            self.evidence.append(made)
        return made

    def note(self, event: Progress, commands: Mapping[str, str]) -> Evidence | None:
        """Takes what an event of the fan-out brought; the evidence, if it was a frame."""
        now = datetime.now(UTC)
        if event.kind == "connected":
            self._sent[event.node] = now
        elif event.answer is not None:
            self.answers[event.node] = event.answer
        elif event.frame is not None and event.frame.probe == "clock":
            if event.node in self.clocks:
                known = self.clocks[event.node]
                self.clocks[event.node] = clock_again(known, event.frame, now)
        elif event.frame is not None:
            if event.frame.probe == "identity" and event.node not in self.clocks:
                sent = self._sent.get(event.node, now)
                self.clocks[event.node] = clock_of(event.frame, event.node, sent, now)
            frame = event.frame
            if not frame.name and frame.rights != "sudo":
                frame = replace(frame, command=commands.get(frame.probe, ""))
            return self.keep(event.node, frame)
        return None

    def bundle(self, probes: Sequence[ModuleType], taken_at: datetime) -> Bundle:
        """Everything so far as a Bundle; a node without an answer is there with the reason."""
        with self._lock:
            evidence = [*self.evidence, *self.logs]
        for node in self.nodes:
            evidence += _silence(node, self.answers.get(node), evidence)
        order = {probe.ID: number for number, probe in enumerate(probes)}
        place = {node: number for number, node in enumerate(self.nodes)}
        evidence.sort(
            key=lambda e: (
                place.get(e.node or "", -1), order.get(e.probe, 99), e.sample, e.rank or 0, e.path,
            )
        )  # fmt: skip
        return Bundle(
            tool_version=__version__,
            job_id=self.job,
            taken_at=taken_at,
            nodes=self.nodes,
            clocks=tuple(self.clocks[node] for node in self.nodes if node in self.clocks),
            evidence=tuple(evidence),
        )


def _silence(node: str, answer: Answer | None, evidence: Iterable[Evidence]) -> list[Evidence]:
    """What a node owes us, with why it is not there; of a first sample also its second."""
    told = {(item.probe, item.sample) for item in evidence if item.node == node}
    probes = {probe for probe, _ in told}
    if answer is not None and answer.failure is None:
        return []  # the script says itself what it could not do
    failure = answer.failure if answer else "not run"
    says = answer.says if answer else "stopped before its whole answer had come"
    owed = [(probe, "") for probe in NODE_PROBES if probe not in probes]
    owed += [(probe, "b") for probe, sample in told if sample == "a" and (probe, "b") not in told]
    return [
        Evidence(node=node, probe=probe, path="", sample=sample, error=failure, stderr=says)
        for probe, sample in owed
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how wide a round may be."""

    workers: int = 32
    """Handshakes at one time; open sessions are not counted."""
    connect_rate: float | None = None
    """Most new connections a second; None: as fast as the workers go."""
    node_s: float = 45.0
    """One node's whole answer, the sampling window included."""
    overall_s: float = 90.0
    """The whole round: whoever has not answered by then is a gap."""


def ask_round(
    look: Look,
    nodes: Sequence[str],
    ask_of: Callable[[str], Ask],
    transport: Transport,
    probes: Sequence[ModuleType],
    limits: Limits,
    tell: Callable[[Progress, Evidence | None], None] | None,
) -> tuple[Answer, ...]:
    """One round of the same question to many nodes; everything lands in `look` as it comes."""
    boundary = secrets.token_hex(16)
    asks = {node: ask_of(node) for node in nodes}
    scripts = {ask: build(ask, boundary, probes) for ask in set(asks.values())}
    window_s = max((ask.window_s for ask in asks.values()), default=0.0)
    cap_bytes = max((ask.cap_bytes for ask in asks.values()), default=0)

    # a longer one is a script of this version: docs/probes has its text
    commands = {p.ID: p.COMMAND for p in probes if "\n" not in p.COMMAND.strip()}

    def on_event(event: Progress) -> None:
        made = look.note(event, commands)
        if tell:
            tell(event, made)

    return ask_all(
        nodes,
        lambda node: scripts[asks[node]],
        transport,
        frames=lambda: Frames(boundary, cap_bytes),
        workers=min(limits.workers, transport.at_once or limits.workers),
        rate=limits.connect_rate,
        deadline_s=limits.node_s + window_s,
        overall_s=limits.overall_s + window_s,
        on_event=on_event,
    )
