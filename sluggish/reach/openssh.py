"""Any courier that brings a script to a node's shell: an argv template, OpenSSH by default."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sluggish.reach.errors import of_text
from sluggish.reach.greeting import Greeting
from sluggish.reach.model import Answer, Failure
from sluggish.text import is_node_name, safe

DEFAULT = ("ssh", "-T", "-o", "BatchMode=yes", "{node}", "sh", "-s")
CHUNK = 1 << 16
MOST_STDERR = 1 << 16
POLL_S = 0.2
LEAVE_S = 1.0
"""How long a child may take to go, and how long its last words are waited for."""


@dataclass(slots=True)
class OpenSshTransport:
    """Runs one child a node; `{node}` in the template is the node's name, checked before."""

    template: Sequence[str] = DEFAULT
    name: str = "openssh"
    at_once: int | None = None
    env: dict[str, str] | None = None
    quiet_s: float | None = None
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    """Node -> the part of a heterogeneous job that runs there, for `{part}` in the template."""
    _children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def argv(self, node: str) -> list[str]:
        """The template with the node's name; ValueError for a name that is none."""
        if not is_node_name(node):
            raise ValueError(f"not a node name: {safe(node, 80)}")
        part = str(self.parts.get(node, 0))
        return [word.replace("{part}", part).replace("{node}", node) for word in self.template]

    def run(
        self,
        node: str,
        script: bytes,
        deadline_s: float,
        sink: Callable[[bytes], None],
        on_connect: Callable[[], None],
    ) -> Answer:
        """See Transport. The child has a process group of its own, ended at the deadline."""
        began = time.monotonic()
        try:
            child = self._start(node)
        except (OSError, ValueError) as problem:
            return Answer(node=node, failure="not run", says=safe(str(problem)))
        talk = _Talk(
            sink=sink, on_connect=on_connect, until=began + deadline_s, quiet_s=self.quiet_s
        )
        try:
            talk.through(child, script)
        finally:
            _end([child])
            for stream in (child.stdin, child.stdout, child.stderr):
                with suppress(OSError):
                    if stream:
                        stream.close()
            with self._lock:
                self._children.discard(child)
        failure, says = talk.outcome(child.returncode, deadline_s)
        if self._closed and failure:
            failure, says = "not run", "stopped"
        return Answer(
            node=node,
            failure=failure,
            says=says,
            connect_s=talk.here_at - began if talk.here_at else None,
            elapsed_s=time.monotonic() - began,
            stderr=talk.words(),
        )

    def _start(self, node: str) -> subprocess.Popen[bytes]:
        argv = self.argv(node)
        with self._lock:
            if self._closed:
                raise ValueError("stopped")
            child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True, env=self.env,
            )  # fmt: skip
            self._children.add(child)
        return child

    def close(self) -> None:
        """Ends every child that is still there."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        _end(children)


@dataclass(slots=True)
class _Talk:
    """The script in, both outputs out."""

    sink: Callable[[bytes], None]
    on_connect: Callable[[], None]
    until: float
    greeting: Greeting = field(default_factory=Greeting)
    stderr: bytearray = field(default_factory=bytearray)
    here_at: float | None = None
    late: bool = False
    quiet_s: float | None = None
    silent: bool = False
    """Nothing came for `quiet_s`."""
    _heard: float = field(default_factory=time.monotonic)
    _ended: float | None = None

    def through(self, child: subprocess.Popen[bytes], script: bytes) -> None:
        """Until the child has ended and its answer is read, or the time is over."""
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        left = memoryview(self.greeting.before(script))
        with selectors.DefaultSelector() as waiting:
            for stream in (child.stdin, child.stdout, child.stderr):
                os.set_blocking(stream.fileno(), False)
            waiting.register(child.stdin, selectors.EVENT_WRITE)
            waiting.register(child.stdout, selectors.EVENT_READ)
            waiting.register(child.stderr, selectors.EVENT_READ)
            while waiting.get_map() and not self._over(child):
                for key, _ in waiting.select(max(0.0, min(POLL_S, self.until - time.monotonic()))):
                    if key.fileobj is child.stdin:
                        left = _write(child, left)
                        if not left:
                            waiting.unregister(key.fileobj)
                            with suppress(OSError):
                                child.stdin.close()
                    elif not self._read(key.fd, key.fileobj is child.stdout):
                        waiting.unregister(key.fileobj)
        if not self.late:
            with suppress(subprocess.TimeoutExpired):
                child.wait(min(LEAVE_S, max(0.0, self.until - time.monotonic())))

    def _over(self, child: subprocess.Popen[bytes]) -> bool:
        """Time is over, or the child has gone and only a stranger holds its outputs open.

        A master connection that ssh leaves behind (ControlPersist) keeps stderr for ever.
        """
        now = time.monotonic()
        self.silent = bool(self.quiet_s) and now > self._heard + (self.quiet_s or 0.0)
        self.late = now >= self.until or self.silent
        if self._ended is None and child.poll() is not None:
            self._ended = now
        return self.late or (self._ended is not None and now > self._ended + LEAVE_S)

    def _read(self, fd: int, is_answer: bool) -> bool:
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return True
        if not is_answer:
            self.stderr += data[: MOST_STDERR - len(self.stderr)]
            return bool(data)
        self._heard = time.monotonic()
        rest = self.greeting.feed(data)
        if self.greeting.heard and self.here_at is None:
            self.here_at = time.monotonic()
            self.on_connect()
        if rest:
            self.sink(rest)
        return bool(data)

    def words(self) -> str:
        """All that was printed beside the answer."""
        return (self.greeting.noise + bytes(self.stderr)).decode("utf-8", "replace")

    def outcome(self, code: int | None, deadline_s: float) -> tuple[Failure | None, str]:
        """Why there is no whole answer; None if there is one."""
        if self.here_at is not None:
            if self.silent:
                return "timeout", f"nothing came for {self.quiet_s or 0:.0f} s"
            if self.late:
                return "timeout", f"the script did not end in {deadline_s:.0f} s"
            if code == 0:
                return None, ""
            kind, says = of_text(self.words(), connected=True)
            return kind, f"{says} (exit code {code})"
        kind, says = of_text(self.words(), connected=False)
        if self.late and kind == "no shell":  # it told nothing that explains it
            return "timeout", f"no shell within {deadline_s:.0f} s and no word why"
        return kind, says if self.words().strip() else f"exit code {code}, and not a word"


def _write(child: subprocess.Popen[bytes], left: memoryview) -> memoryview:
    assert child.stdin
    try:
        return left[os.write(child.stdin.fileno(), left[:CHUNK]) :]
    except BlockingIOError:
        return left
    except OSError:  # the far side has gone: its outputs tell why
        return left[len(left) :]


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Asks all of them to go, then makes them: our own couriers, not what runs on a node."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        alive = [child for child in children if child.poll() is None]
        for child in alive:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, sign)
        until = time.monotonic() + LEAVE_S
        for child in alive:
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, until - time.monotonic()))
