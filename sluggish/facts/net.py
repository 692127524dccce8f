"""Facts about the TCP and UDP connections of the job's processes."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """One connection that a process of the node holds, from `ss`. Times count back from the look.

    Connections whose owner `ss` may not show (another user's, the kernel's) are not facts.
    """

    node: str | None
    at: datetime | None
    protocol: str
    """tcp or udp."""
    state: str
    """ESTAB, SYN-SENT, CLOSE-WAIT, FIN-WAIT-1, ...; of UDP ESTAB is a peer that was named."""
    local: str
    local_port: int | None
    peer: str
    """Address without interface and brackets."""
    peer_port: int | None
    pids: tuple[int, ...] = ()
    process: str = ""
    unread_bytes: int = 0
    """Arrived and not yet read by the program."""
    unsent_bytes: int = 0
    """Written by the program and not yet acknowledged by the peer."""
    last_sent_s: float | None = None
    last_received_s: float | None = None
    """Seconds since data came; for a connection without any, since it was made."""
    received_bytes: int | None = None
    retrans: int = 0
    """Retransmissions of what is outstanding now."""
    backoff: int = 0
    """How often the retransmission timer was doubled."""
    timer: str = ""
    """on (retransmission), keepalive, persist (the peer's window is shut), or empty."""
