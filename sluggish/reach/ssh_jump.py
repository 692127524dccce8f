"""A channel through a jump host in place of a socket."""

import threading
from contextlib import suppress
from typing import Any

JUMP_LOST = "the connection to the jump host is gone, the node may be well"
GOING_S = 0.2
"""How long a connection that has broken takes to say so."""


class JumpSocket:
    """Sends nothing after it was closed, whichever thread tries.

    paramiko's own Channel can: sshd answers data on a closed channel by ending the whole connection
    to the jump host, and with it those to all other nodes (seen with OpenSSH 9.2).
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._lock = threading.Lock()
        self._closed = False

    def send(self, data: bytes) -> int:
        with self._lock:
            if self._closed:
                raise OSError("closed")
            return self._channel.send(data)

    def recv(self, size: int) -> bytes:
        return self._channel.recv(size)

    def settimeout(self, seconds: float | None) -> None:
        self._channel.settimeout(seconds)

    def getpeername(self) -> Any:
        return self._channel.getpeername()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            with suppress(Exception):  # the jump host may have gone before
                self._channel.close()

    def lost(self) -> bool:
        """The connection to the jump host itself has ended."""
        gateway = self._channel.get_transport()
        if (
            self._channel.closed or self._channel.eof_received
        ):  # its thread ends the channels first, then itself
            gateway.join(GOING_S)
        return not gateway.is_active()


def jump_lost(connection: Any) -> bool:
    """What ended a node's session was the way to it."""
    socket = connection.connect_kwargs.get("sock")
    return isinstance(socket, JumpSocket) and socket.lost()
