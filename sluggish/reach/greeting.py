"""The first words with a node's shell: it is there once it has said our own word back.

Nothing else tells a shell from a banner, a login file that prints, a `nologin` that explains
itself, or a home directory that hangs after the login went well.
"""

import secrets

MOST_NOISE = 1 << 16


class Greeting:
    """Takes our word out of what the far side prints; what stands before it is noise."""

    def __init__(self) -> None:
        self._word = secrets.token_hex(12)
        self._buffer = bytearray()
        self.heard = False
        self.noise = b""
        """What was printed before the shell answered, at most the last 64 KiB of it."""

    def before(self, script: bytes) -> bytes:
        """The script with the line in front that makes a shell say the word."""
        # in two halves, so that a far side that echoes its input is no shell
        return f"echo {self._word[:12]}''{self._word[12:]}\n".encode() + script

    def feed(self, data: bytes) -> bytes:
        """What belongs to the answer; empty until the shell is there."""
        if self.heard:
            return data
        self._buffer += data
        line = f"{self._word}\n".encode()
        at = self._buffer.find(line)
        if at < 0:
            del self._buffer[:-MOST_NOISE]
            self.noise = bytes(self._buffer)
            return b""
        self.heard = True
        self.noise = bytes(self._buffer[:at])
        rest = bytes(self._buffer[at + len(line) :])
        self._buffer.clear()
        return rest
