"""A jump host's connection: each thread is told its own refusal, in the words of that sshd.

paramiko keeps one refusal for all threads that open channels and drops the words, so a name that
does not resolve there, a port that nobody listens at and a dead node all look alike.
Imports paramiko: load it late.
"""

import threading
from typing import Any

from paramiko import Message, Transport

from sluggish.reach.errors import NotThrough

_Paramiko: Any = Transport


class JumpTransport(_Paramiko):
    """paramiko's Transport, whose refusals are kept by the channel's number."""

    def __init__(self, sock: Any, **more: Any) -> None:
        self._refusals: dict[int, NotThrough] = {}
        self._mine = threading.local()
        super().__init__(sock, **more)

    def open_through(self, there: tuple[str, int], timeout_s: float) -> Any:
        """A channel to a host and port; raises NotThrough where the jump host says why not."""
        self._mine.number = -1
        try:
            return self.open_channel("direct-tcpip", there, ("", 0), timeout=timeout_s)
        except Exception:
            told = self._refusals.pop(self._mine.number, None)
            if told is None:
                raise
            raise told from None

    def _next_channel(self) -> int:
        self._mine.number = super()._next_channel()
        return self._mine.number

    def _parse_channel_open_failure(self, m: Any) -> None:
        copy = Message(m.asbytes())
        number, code, words = copy.get_int(), copy.get_int(), copy.get_binary()
        self._refusals[number] = NotThrough(code, words.decode("utf-8", "replace"))
        super()._parse_channel_open_failure(m)
