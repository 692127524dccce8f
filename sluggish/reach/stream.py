"""Long-lived talks: a script a node that prints lines for hours, begun again where it ends.

A thread a node over the transports of a look. What comes is put into one bounded queue: where the
reader is slow the nodes wait, and memory stays as it is.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sluggish.reach.model import Answer, Failure, Transport

QUEUED = 20_000
MOST_LINE = 16_384
AT_ONCE = 32
"""Handshakes at one time."""
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a node, when it came, and of which stream."""

    stream: str
    node: str
    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection that came up or broke."""

    stream: str
    node: str
    at: float
    kind: Literal["up", "down"]
    failure: Failure | None = None
    """Why it broke; None where the far side ended by itself."""
    says: str = ""
    tries: int = 0
    """Tries since it was last up."""


@dataclass(slots=True)
class _One:
    """One node of one stream."""

    stream: str
    node: str
    script: bytes
    transport: Transport
    deadline_s: float
    stopped: threading.Event = field(default_factory=threading.Event)


class Clock:
    """Wall time that never jumps: read once, then counted by the machine's monotonic clock."""

    def __init__(self) -> None:
        self._base = time.time() - time.monotonic()

    def __call__(self) -> float:
        return self._base + time.monotonic()


class Streams:
    """Every node that is followed. Threads are daemons: none holds the program's end."""

    def __init__(self, clock: Callable[[], float], pause_s: float = FIRST_PAUSE_S) -> None:
        self._clock = clock
        self._pause_s = pause_s
        self._queue: queue.Queue[Line | Link] = queue.Queue(QUEUED)
        self._ones: dict[tuple[str, str], _One] = {}
        self._slots = threading.Semaphore(AT_ONCE)
        self._closed = False

    def follow(
        self, stream: str, node: str, script: bytes, transport: Transport, deadline_s: float
    ) -> None:
        """Begins to follow a node; once for each stream and node."""
        if (stream, node) in self._ones:
            return
        one = _One(
            stream=stream, node=node, script=script, transport=transport, deadline_s=deadline_s
        )
        self._ones[stream, node] = one
        threading.Thread(target=self._loop, args=(one,), daemon=True).start()

    def leave(self, stream: str) -> None:
        """Ends a stream; its transport is closed by whoever made it."""
        for key in [key for key in self._ones if key[0] == stream]:
            self._ones.pop(key).stopped.set()

    def close(self) -> None:
        """Ends all of them; what is queued is dropped, so that no thread waits for a reader."""
        self._closed = True
        for one in self._ones.values():
            one.stopped.set()
        for _ in self.take(0):
            pass

    def take(self, wait_s: float) -> Iterator[Line | Link]:
        """What has come; waits for the first so long."""
        try:
            yield self._queue.get(timeout=wait_s) if wait_s > 0 else self._queue.get_nowait()
            for _ in range(QUEUED):
                yield self._queue.get_nowait()
        except queue.Empty:
            return

    def _put(self, one: _One, item: Line | Link) -> None:
        while not (self._closed or one.stopped.is_set()):
            try:
                self._queue.put(item, timeout=1.0)
                return
            except queue.Full:
                continue

    def _loop(self, one: _One) -> None:
        pause, tries = self._pause_s, 0
        while not (self._closed or one.stopped.is_set()):
            came: list[float] = []
            answer = self._talk(one, came)
            tries = 1 if came else tries + 1
            pause = self._pause_s if came else min(LONGEST_PAUSE_S, pause * 2)
            down = Link(
                stream=one.stream, node=one.node, at=self._clock(), kind="down",
                failure=answer.failure, says=answer.says, tries=tries,
            )  # fmt: skip
            self._put(one, down)
            one.stopped.wait(pause * random.uniform(0.7, 1.3))

    def _talk(self, one: _One, came: list[float]) -> Answer:
        buffer = bytearray()
        held = threading.Lock()

        def release() -> None:
            if held.acquire(blocking=False):
                self._slots.release()

        def here() -> None:
            release()
            came.append(self._clock())
            self._put(one, Link(stream=one.stream, node=one.node, at=came[0], kind="up"))

        def sink(data: bytes) -> None:
            buffer.extend(data)
            if one.stopped.is_set():
                raise EOFError("stopped")
            *lines, rest = buffer.split(b"\n")
            buffer[:] = rest if len(rest) <= MOST_LINE else b""
            for line in lines:
                text = line[:MOST_LINE].decode("utf-8", "replace")
                item = Line(stream=one.stream, node=one.node, at=self._clock(), text=text)
                self._put(one, item)

        self._slots.acquire()
        try:
            return one.transport.run(one.node, one.script, one.deadline_s, sink, here)
        except Exception as problem:  # a fault of ours on one node must not end the watch
            return Answer(node=one.node, failure="not run", says=f"internal: {problem!r}"[:200])
        finally:
            release()
