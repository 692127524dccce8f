"""Any courier that brings a script to a node's shell: an argv template, OpenSSH by default."""

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sluggish.reach.errors import of_text
from sluggish.reach.model import Answer, Failure
from sluggish.text import is_node_name, safe

DEFAULT = ("ssh", "-T", "-o", "BatchMode=yes", "{node}", "sh", "-s")
CHUNK = 1 << 16
MOST_STDERR = 1 << 16
GRACE_S = 1.0


@dataclass(slots=True)
class OpenSshTransport:
    """Runs one child a node; `{node}` in the template is the node's name, checked before."""

    template: Sequence[str] = DEFAULT
    name: str = "openssh"
    env: dict[str, str] | None = None
    _children: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def argv(self, node: str) -> list[str]:
        """The template with the node's name; ValueError for a name that is none."""
        if not is_node_name(node):
            raise ValueError(f"not a node name: {safe(node, 80)}")
        return [part.replace("{node}", node) for part in self.template]

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
            child = subprocess.Popen(
                self.argv(node),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=self.env,
            )
        except (OSError, ValueError) as problem:
            on_connect()
            return Answer(node=node, failure="not run", says=safe(str(problem)))
        with self._lock:
            self._children.add(child)
            closed = self._closed
        if closed:
            _end(child)
        try:
            talk = _talk(child, script, began + deadline_s, sink, on_connect)
        finally:
            with self._lock:
                self._children.discard(child)
            _end(child)
        elapsed = time.monotonic() - began
        text = talk.stderr.decode("utf-8", "replace")
        failure, says = _outcome(child.returncode, talk, text, deadline_s)
        return Answer(
            node=node,
            failure=failure,
            says=says,
            connect_s=talk.connect_s - began if talk.connect_s else None,
            elapsed_s=elapsed,
            stderr=text,
        )

    def close(self) -> None:
        """Ends every child that is still there."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            _end(child)


@dataclass(slots=True)
class _Talk:
    stderr: bytes = b""
    connect_s: float | None = None
    late: bool = False


def _talk(
    child: subprocess.Popen[bytes],
    script: bytes,
    until: float,
    sink: Callable[[bytes], None],
    on_connect: Callable[[], None],
) -> _Talk:
    """The script in, both outputs out, until both are closed or the time is over."""
    talk = _Talk()
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    left = memoryview(script)
    with selectors.DefaultSelector() as waiting:
        for stream in (child.stdin, child.stdout, child.stderr):
            os.set_blocking(stream.fileno(), False)
        waiting.register(child.stdin, selectors.EVENT_WRITE)
        waiting.register(child.stdout, selectors.EVENT_READ)
        waiting.register(child.stderr, selectors.EVENT_READ)
        while waiting.get_map():
            now = time.monotonic()
            if now >= until:
                talk.late = True
                break
            for key, _ in waiting.select(until - now):
                stream = key.fileobj
                if stream is child.stdin:
                    left = _write(child, left)
                    if not left:
                        waiting.unregister(stream)
                        with suppress(OSError):
                            child.stdin.close()
                    continue
                data = os.read(key.fd, CHUNK)
                if not data:
                    waiting.unregister(stream)
                elif stream is child.stdout:
                    if talk.connect_s is None:
                        talk.connect_s = time.monotonic()
                        on_connect()
                    sink(data)
                elif len(talk.stderr) < MOST_STDERR:
                    talk.stderr += data[: MOST_STDERR - len(talk.stderr)]
    if not talk.late:
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_S)
    return talk


def _write(child: subprocess.Popen[bytes], left: memoryview) -> memoryview:
    assert child.stdin
    try:
        return left[os.write(child.stdin.fileno(), left[:CHUNK]) :]
    except BlockingIOError:
        return left
    except OSError:  # the far side has gone: its outputs tell why
        return left[len(left) :]


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout, child.stderr):
        with suppress(OSError, ValueError):
            if stream:
                stream.close()
    for sign in (signal.SIGTERM, signal.SIGKILL):  # our own ssh, not what runs on the node
        if child.poll() is not None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            child.wait(0.5)


def _outcome(
    code: int | None, talk: _Talk, text: str, deadline_s: float
) -> tuple[Failure | None, str]:
    if talk.late and talk.connect_s is None:
        kind, says = of_text(text, connected=False)
        return kind if text.strip() else "unreachable", says or f"no answer in {deadline_s:.0f} s"
    if talk.late:
        return "timeout", f"the script did not end in {deadline_s:.0f} s"
    if talk.connect_s is None or code not in (0, None):
        kind, says = of_text(text, connected=talk.connect_s is not None)
        return kind, says or f"exit code {code}"
    return None, ""
