"""Both cores for thousands of files: a map over forked processes, with the answer of a plain map.

The work and its items are inherited, never sent; results come back pickled, in the items' order.
A worker that dies (killed for memory, a fault in a library) costs the one item it was at.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sluggish.evidence.model import Evidence

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkProcess

T = TypeVar("T")
R = TypeVar("R")

WORTH_FILES = 64
WORTH_BYTES = 32 << 20  # about 0.3 s of unpickling: forking and sending cost 0.05 s
MOST_WORKERS = 16  # each holds one dump's objects, 12 MB for 2,000 entries
AHEAD = 8  # items that a worker is given before it has answered the last ones


@dataclass(frozen=True, slots=True)
class Lost:
    """No result: the process that worked on this item died."""

    why: str


def spread(
    work: Callable[[Evidence], R], items: Sequence[Evidence], *, shared: tuple[type, ...] = ()
) -> Iterator[R | Lost]:
    """`map(work, items)`, over processes where there is enough to read and it is safe to fork."""
    heavy = sum(item.size for item in items) >= WORTH_BYTES and len(items) > WORTH_FILES
    workers = min(cores(), MOST_WORKERS) if heavy and _may_fork() else 1
    if workers < 2:
        return map(work, items)
    return forked(work, items, workers=workers, shared=shared)


def cores() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _may_fork() -> bool:
    """A process with threads must not fork: a lock that one of them holds stays shut for ever."""
    return sys.platform == "linux" and threading.active_count() == 1


@dataclass(slots=True)
class _Worker:
    process: ForkProcess
    pipe: Connection
    given: deque[int] = field(default_factory=deque)
    known: list[Any] = field(default_factory=list)
    """Shared objects that this worker has sent, by number."""


def forked(
    work: Callable[[T], R], items: Sequence[T], *, workers: int, shared: tuple[type, ...] = ()
) -> Iterator[R | Lost]:
    """Results in the order of the items. An exception of `work` is raised here.

    Objects of the `shared` types are sent once a worker, however many results hold them.
    """
    from multiprocessing.connection import wait

    todo = deque(range(len(items)))
    crew: dict[Connection, _Worker] = {}
    done: dict[int, R | Lost] = {}
    turn = 0
    gc.freeze()  # the children's collector need not touch, and so copy, what they inherit
    try:
        while turn < len(items):
            while todo and len(crew) < workers:
                new = _start(work, items, shared, [w.pipe for w in crew.values()])
                crew[new.pipe] = new
                _give(new, todo)
            for pipe in wait(list(crew)):
                worker = crew[pipe]  # pyright: ignore[reportArgumentType]
                answer = _answer(worker)
                if answer is None:
                    del crew[worker.pipe]
                    _bury(worker, todo, done)
                    continue
                done[worker.given.popleft()] = answer[0]
                _give(worker, todo)
            while turn in done:
                yield done.pop(turn)
                turn += 1
    finally:
        for worker in crew.values():
            worker.pipe.close()
            worker.process.terminate()
        for worker in crew.values():
            worker.process.join()
        gc.unfreeze()


def _start(
    work: Callable[[T], R],
    items: Sequence[T],
    shared: tuple[type, ...],
    others: list[Connection],
) -> _Worker:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, [ours, *others], work, items, shared), daemon=True
    )
    with warnings.catch_warnings():  # Python 3.12 warns of any thread; `spread` has looked
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    theirs.close()
    return _Worker(process=process, pipe=ours)


def _give(worker: _Worker, todo: deque[int]) -> None:
    """Keep a worker supplied, so that it never waits for us."""
    if len(worker.given) > AHEAD // 2 or not todo:
        return
    batch = [todo.popleft() for _ in range(min(AHEAD, len(todo)))]
    worker.given.extend(batch)
    try:
        worker.pipe.send(batch)
    except OSError:
        return  # it has just died: the next look at its pipe finds that out


def _answer(worker: _Worker) -> tuple[Any] | None:
    """The next result; None where the worker has died."""
    try:
        content = worker.pipe.recv_bytes()
    except (EOFError, OSError):
        return None
    good, result = _Unpickler(io.BytesIO(content), worker.known).load()
    if not good:
        raise result
    return (result,)


def _bury(worker: _Worker, todo: deque[int], done: dict[int, Any]) -> None:
    """The first item without an answer is lost, the others go to somebody else."""
    worker.pipe.close()
    worker.process.join()
    code = worker.process.exitcode or 0
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    if worker.given:
        done[worker.given.popleft()] = Lost(f"the process that read it died ({how})")
    todo.extendleft(reversed(worker.given))


def _serve(
    pipe: Connection,
    others: list[Connection],
    work: Callable[[Any], Any],
    items: Sequence[Any],
    shared: tuple[type, ...],
) -> None:
    """Life of a worker: ends when the pipe is closed, also by the death of the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends us, cleanly
    for other in others:  # else a sibling would keep our parent's end open
        other.close()
    sent: dict[int, int] = {}
    kept: list[object] = []  # so that no id() is used again
    try:
        while True:
            for index in pipe.recv():
                out = io.BytesIO()
                pickler = _Pickler(out, shared, sent, kept)
                try:
                    pickler.dump((True, work(items[index])))
                except Exception as problem:  # our bug: it is raised in the parent
                    out = io.BytesIO(pickle.dumps((False, problem)))
                pipe.send_bytes(out.getbuffer())
    except (EOFError, OSError):
        os._exit(0)


class _Pickler(pickle.Pickler):
    """Sends objects of the shared types once, then by their number."""

    def __init__(
        self, out: io.BytesIO, shared: tuple[type, ...], sent: dict[int, int], kept: list[object]
    ) -> None:
        super().__init__(out, protocol=5)
        self._shared, self._sent, self._kept = shared, sent, kept

    def persistent_id(self, obj: object, /) -> tuple[int, bytes] | None:
        if type(obj) not in self._shared:
            return None
        number = self._sent.get(id(obj))
        if number is not None:
            return number, b""
        self._sent[id(obj)] = number = len(self._sent)
        self._kept.append(obj)
        return number, pickle.dumps(obj, protocol=5)


class _Unpickler(pickle.Unpickler):
    """Reads what our own children sent."""

    def __init__(self, content: io.BytesIO, known: list[Any]) -> None:
        super().__init__(content)
        self._known = known

    def persistent_load(self, pid: tuple[int, bytes], /) -> Any:
        number, content = pid
        if number == len(self._known):
            self._known.append(pickle.loads(content))
        return self._known[number]
