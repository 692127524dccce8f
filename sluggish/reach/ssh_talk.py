"""On an open SSH connection: the script in, both outputs out, and each wait has an end."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sluggish.reach.errors import of_text
from sluggish.reach.greeting import Greeting
from sluggish.reach.model import Failure
from sluggish.text import safe

CHANNEL_S = 10.0
CHUNK = 1 << 16
MOST_STDERR = 1 << 16
POLL_S = 0.2
LEAVE_S = 1.0
"""How long the last bytes of a shell that has ended are waited for."""


@dataclass(slots=True)
class Talk:
    """The script in, both outputs out."""

    greeting: Greeting
    sink: Callable[[bytes], None]
    until: float
    stderr: bytearray = field(default_factory=bytearray)
    connect_s: float | None = None
    quiet_s: float | None = None
    """See Transport."""
    _heard: float = field(default_factory=time.monotonic)
    _ended: float | None = None

    def through(
        self, connection: Any, script: bytes, here: Callable[[], None]
    ) -> tuple[Failure | None, str]:
        """Until the far side ends, the line breaks or time is over; None if all was well."""
        channel = connection.client.get_transport().open_session(timeout=CHANNEL_S)
        channel.settimeout(POLL_S)
        channel.exec_command("sh -s")
        left = memoryview(self.greeting.before(script))
        while True:
            if left and channel.send_ready():
                with suppress(TimeoutError):
                    left = left[channel.send(left[:CHUNK]) :]
                if not left:
                    channel.shutdown_write()
            moved = self._drain(channel, here)
            now = time.monotonic()
            if now >= self.until:
                return self._late()
            if self.quiet_s and now > self._heard + self.quiet_s:
                return "timeout", f"nothing came for {self.quiet_s:.0f} s"
            if moved or (left and channel.send_ready()):
                continue
            if channel.eof_received or channel.closed or self._left_behind(channel):
                break
            with suppress(TimeoutError):
                self._out(channel.recv(CHUNK), here)
        channel.status_event.wait(min(2.0, max(0.1, self.until - time.monotonic())))
        while self._drain(channel, here):
            pass
        return self._outcome(channel.exit_status)

    def _left_behind(self, channel: Any) -> bool:
        """The shell has gone, and a child of it that hangs keeps the channel open.

        The exit status may come before the last bytes: sshd still reads the shell's pipe.
        """
        now = time.monotonic()
        if not channel.exit_status_ready():
            return False
        if self._ended is None:
            self._ended = now
        return now > self._ended + LEAVE_S

    def _drain(self, channel: Any, here: Callable[[], None]) -> bool:
        moved = False
        if channel.recv_ready():
            self._out(channel.recv(CHUNK), here)
            moved = True
        if channel.recv_stderr_ready():
            data = channel.recv_stderr(CHUNK)
            self.stderr += data[: max(0, MOST_STDERR - len(self.stderr))]
            moved = True
        return moved

    def _out(self, data: bytes, here: Callable[[], None]) -> None:
        self._heard = time.monotonic()
        before = self.greeting.heard
        rest = self.greeting.feed(data)
        if self.greeting.heard and not before:
            here()
        if rest:
            self.sink(rest)

    def _late(self) -> tuple[Failure, str]:
        if self.greeting.heard:
            return "timeout", "the script did not end within its deadline"
        return "auth hangs", "logged in, and no shell: its home or login files hang"

    def _outcome(self, code: int) -> tuple[Failure | None, str]:
        words = (self.greeting.noise + bytes(self.stderr)).decode("utf-8", "replace")
        if self.greeting.heard:
            if code == 0:
                return None, ""
            if code == -1:
                return "died", "the connection ended in mid-answer"
            return "died", of_text(words, connected=True)[1] + f" (exit code {code})"
        if code == -1:
            return "died", "logged in, and the connection ended before a shell was there"
        lines = words.strip().splitlines()
        return "no shell", safe(lines[-1], 300) if lines else f"exit code {code}, and not a word"
