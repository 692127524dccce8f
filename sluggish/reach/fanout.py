"""Many nodes at once: few handshakes at a time, open sessions unbounded, and one end for all."""

import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from sluggish.reach.model import Answer, Frame, Progress, Transport
from sluggish.text import safe

FILES_A_NODE = 4
"""A socket, or a courier's three pipes while it is being started."""


class Parser(Protocol):
    """What makes frames of a node's bytes, see `reach.frames.Frames`."""

    ended: bool
    noise: bytes

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
    connected: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)
    news: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False
    problem: BaseException | None = None
    """What our own listener raised: no node's fault, so it ends the round."""

    def tell(self, event: Progress) -> None:
        """One event at a time; after the end nobody listens any more."""
        with self.lock:
            if self.closed:
                return
            if event.kind == "connected":
                self.connected.add(event.node)
            try:
                self.on_event(event)
                return
            except BaseException as problem:
                self.closed, self.problem = True, problem
        with self.news:
            self.news.notify_all()

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
    second. `on_event` is called from threads, one call at a time; what it raises is raised here.
    KeyboardInterrupt goes through after the transport was closed; what had come by then was told
    by events.
    """
    names = tuple(dict.fromkeys(nodes))
    shared = _Round(
        transport=transport,
        script_for=script_for,
        frames=frames,
        deadline_s=deadline_s,
        on_event=on_event,
        slots=threading.Semaphore(workers),
    )
    _room_for(len(names))
    until = time.monotonic() + overall_s
    threading.Thread(target=_start, args=(shared, names, rate), daemon=True).start()
    try:
        with shared.news:
            while len(shared.answers) < len(names) and not shared.problem:
                left = until - time.monotonic()
                if left <= 0:
                    break
                shared.news.wait(min(1.0, left))
    except KeyboardInterrupt:
        shared.closed = True
        transport.close()
        raise
    if shared.problem is None:
        for node in names:
            if node not in shared.answers:
                shared.done(_late(shared, node, overall_s))
    with shared.lock:
        shared.closed = True
    if shared.problem is not None:
        transport.close()
        raise shared.problem
    return tuple(shared.answers[node] for node in names)


def _late(shared: _Round, node: str, overall_s: float) -> Answer:
    """What is said of a node that the round did not wait for."""
    over = f"the round's {overall_s:.0f} s were over"
    if node not in shared.begun:
        return Answer(node=node, failure="not run", says=f"{over} before its turn")
    how = "before its answer was whole" if node in shared.connected else "before it was connected"
    return Answer(node=node, failure="timeout", says=f"{over} {how}", elapsed_s=overall_s)


def _room_for(nodes: int) -> None:
    """Raises this process's own limit of open files as far as it may and has to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard if hard != resource.RLIM_INFINITY else 1 << 20, 256 + FILES_A_NODE * nodes)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _start(shared: _Round, nodes: Sequence[str], rate: float | None) -> None:
    """A thread a node, begun only when a handshake is free: no thread waits in a queue."""
    next_at = time.monotonic()
    for node in nodes:
        shared.slots.acquire()
        if rate:
            time.sleep(max(0.0, next_at - time.monotonic()))
            next_at = max(next_at, time.monotonic() - 1 / rate) + 1 / rate
        if shared.closed:
            return
        shared.begun.add(node)
        try:
            threading.Thread(target=_one, args=(shared, node), daemon=True).start()
        except RuntimeError as problem:  # no more threads on this machine
            shared.done(Answer(node=node, failure="not run", says=str(problem)))
            shared.slots.release()


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
        answer = Answer(node=node, failure="not run", says=safe(f"internal: {problem!r}", 300))
    release()
    shared.done(answer)


def _ask(shared: _Round, node: str, connected: Callable[[], None]) -> Answer:
    parser = shared.frames()

    faults: list[Exception] = []

    def sink(data: bytes) -> None:
        if faults:
            return
        try:
            for frame in parser.feed(data):
                shared.tell(Progress(node=node, kind="frame", frame=frame))
        except Exception as problem:  # ours: a transport would call it a broken connection
            faults.append(problem)

    script = shared.script_for(node)
    answer = shared.transport.run(node, script, shared.deadline_s, sink, connected)
    if faults:
        raise faults[0]
    for frame in parser.close():
        shared.tell(Progress(node=node, kind="frame", frame=frame))
    if answer.failure in ("timeout", "died") and parser.ended:
        return replace(answer, failure=None, says="")  # whole: only the connection did not end
    if answer.failure is None and not parser.ended:
        words = (parser.noise.decode("utf-8", "replace") + answer.stderr).strip().splitlines()
        said = safe(words[-1], 200) if words else ""
        says = f"the script ended before its end mark{': ' if said else ''}{said}"
        return replace(answer, failure="died", says=says)
    return answer
