"""What paramiko's own threads say of a connection: kept as evidence, never printed."""

import logging
import threading
from dataclasses import dataclass, field

MOST_LINES = 12
_ROOT = "sluggish-ssh"


@dataclass(slots=True)
class SshLog:
    """A log channel a host; `take` gives its lines and forgets them."""

    _lines: dict[str, list[str]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def channel(self, host: str) -> str:
        """A name for `SSHClient.set_log_channel`."""
        root = logging.getLogger(_ROOT)
        root.propagate = False
        root.addHandler(logging.NullHandler())
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        name = f"{_ROOT}.{host.replace('.', '_')}"
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        for handler in [*logger.handlers]:
            logger.removeHandler(handler)
        logger.addHandler(_Keep(self, host))
        return name

    def add(self, host: str, line: str) -> None:
        with self._lock:
            lines = self._lines.setdefault(host, [])
            if len(lines) < MOST_LINES:
                lines.append(line[:300])

    def take(self, host: str) -> str:
        """Its lines so far; those of a traceback are left out."""
        with self._lock:
            lines = self._lines.pop(host, [])
        return "".join(f"paramiko: {line}\n" for line in lines if not line.startswith(("  ", "Tr")))


class _Keep(logging.Handler):
    def __init__(self, log: SshLog, host: str) -> None:
        super().__init__()
        self._log = log
        self._host = host

    def emit(self, record: logging.LogRecord) -> None:
        self._log.add(self._host, record.getMessage())
