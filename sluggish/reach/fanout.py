"""Many nodes at once: few handshakes at a time, open sessions unbounded, and one end for all."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sluggish.reach.model import Answer, Frame, Progress, Transport

QUEUE_S = 0.05


class Parser(Protocol):
    """What makes frames of a node's bytes, see `reach.frames.Frames`."""

    ended: bool

    def feed(self, data: bytes) -> Iterator[Frame]: ...

    def close(self) -> tuple[Frame, ...]: ...


@dataclass(slots=True)
class _Round:
    """What the threads of one fan-out share."""

    transport: Transport
    script_for: Callable[[str], bytes]
    frames: Callable[[], Parser]
    deadline_s: float
    on_event: Callable[[Progress], None]
    slots: threading.Semaphore
    answers: dict[str, Answer] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    news: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False

    def tell(self, event: Progress) -> None:
        """One event at a time; after the end nobody listens any more."""
        with self.lock:
            if not self.closed:
                self.on_event(event)

    def done(self, answer: Answer) -> None:
        self.tell(Progress(node=answer.node, kind="done", answer=answer))
        with self.news:
            self.answers.setdefault(answer.node, answer)
            self.news.notify_all()


def ask_all(
    nodes: Sequence[str],
    script_for: Callable[[str], bytes],
    transport: Transport,
    *,
    frames: Callable[[], Parser],
    workers: int = 32,
    rate: float | None = None,
    deadline_s: float,
    overall_s: float,
    on_event: Callable[[Progress], None],
) -> tuple[Answer, ...]:
    """One answer a node, in their order; a node that is late is `timeout`, never waited for.

    At most `workers` connections are being made at one time, at most `rate` new ones begin a
    second. `on_event` is called from threads, one call at a time. KeyboardInterrupt goes through
    after the transport was closed; what had come by then was told by events.
    """
    shared = _Round(
        transport=transport,
        script_for=script_for,
        frames=frames,
        deadline_s=deadline_s,
        on_event=on_event,
        slots=threading.Semaphore(workers),
    )
    until = time.monotonic() + overall_s
    starter = threading.Thread(target=_start, args=(shared, nodes, rate), daemon=True)
    starter.start()
    try:
        with shared.news:
            while len(shared.answers) < len(set(nodes)) and time.monotonic() < until:
                shared.news.wait(min(1.0, max(0.0, until - time.monotonic())))
    except KeyboardInterrupt:
        with shared.lock:
            shared.closed = True
        transport.close()
        raise
    late = [node for node in dict.fromkeys(nodes) if node not in shared.answers]
    for node in late:
        says = f"no whole answer within {overall_s:.0f} s: not waited for"
        shared.done(Answer(node=node, failure="timeout", says=says, elapsed_s=overall_s))
    with shared.lock:
        shared.closed = True
    return tuple(shared.answers[node] for node in dict.fromkeys(nodes))


def _start(shared: _Round, nodes: Sequence[str], rate: float | None) -> None:
    """A thread a node, begun only when a handshake is free: no thread waits in a queue."""
    for node in dict.fromkeys(nodes):
        shared.slots.acquire()
        if shared.closed:
            return
        try:
            threading.Thread(target=_one, args=(shared, node), daemon=True).start()
        except RuntimeError as problem:  # no more threads on this machine
            shared.done(Answer(node=node, failure="not run", says=str(problem)))
            shared.slots.release()
        if rate:
            time.sleep(1 / rate)


def _one(shared: _Round, node: str) -> None:
    released = threading.Event()

    def release() -> None:
        if not released.is_set():
            released.set()
            shared.slots.release()

    def connected() -> None:
        release()
        shared.tell(Progress(node=node, kind="connected"))

    try:
        answer = _ask(shared, node, connected)
    except Exception as problem:  # a fault of ours on one node must not cost the others
        answer = Answer(node=node, failure="not run", says=f"internal: {problem!r}"[:300])
    release()
    shared.done(answer)


def _ask(shared: _Round, node: str, connected: Callable[[], None]) -> Answer:
    parser = shared.frames()

    def sink(data: bytes) -> None:
        for frame in parser.feed(data):
            shared.tell(Progress(node=node, kind="frame", frame=frame))

    script = shared.script_for(node)
    answer = shared.transport.run(node, script, shared.deadline_s, sink, connected)
    for frame in parser.close():
        shared.tell(Progress(node=node, kind="frame", frame=frame))
    if answer.failure is None and not parser.ended:
        return _cut_off(answer)
    return answer


def _cut_off(answer: Answer) -> Answer:
    """The connection ended well and the script did not say its end: no shell, or it was cut."""
    failure = "no shell" if answer.connect_s is None or not answer.stderr else "died"
    says = answer.stderr.strip().splitlines()[:1] or ["the answer ended before its end mark"]
    return Answer(
        node=answer.node,
        failure=failure,
        says=says[0][:300],
        connect_s=answer.connect_s,
        elapsed_s=answer.elapsed_s,
        stderr=answer.stderr,
    )
