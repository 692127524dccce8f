"""What passes through the reach room: what is asked of a node, and what came of asking."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

Failure = Literal[
    "refused",  # nobody listens: the port answered with a reset
    "unreachable",  # no answer to the connect at all
    "no banner",  # the connect is taken, then silence or junk: itself a sign of a stuck node
    "auth denied",  # key, PAM or pam_slurm_adopt said no
    "auth hangs",  # the account or home directory of the node does not answer
    "host key",  # unknown or changed: refused, with the command that adds it
    "timeout",  # connected, and the deadline came before the answer's end
    "died",  # the connection broke off while the script ran
    "no shell",  # connected, and no POSIX sh answered
    "not run",  # nobody could be asked (no such program, no allocation, interrupted)
]
"""Why a node gave no full answer. docs/bundle-format.md lists them as `nodes[].error`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One round: what every node of it is asked. The script is made from this and nothing else."""

    job: str | None = None
    """Slurm's raw job number, digits only."""
    uid: int | None = None
    """The job owner's user id: what the job controls is read as this user, never as root."""
    user: str | None = None
    """The owner's name, where a name is needed (`runuser`, `sudo`)."""
    probes: tuple[str, ...] = ()
    """Ids of the probes to run, in the order of a look; empty: every probe with a command."""
    window_s: float = 10.0
    """Seconds between sample `a` and sample `b`; 0: only one sample."""
    logs: tuple[str, ...] = ()
    """Job logs to send head and tail of; absolute paths."""
    dumps: tuple[str, ...] = ()
    """Prefixes of flight-recorder dumps known beforehand; the processes' own are found there."""
    dumps_after: datetime | None = None
    """Dumps older than this (the job's start) are another job's."""
    asked_at: datetime | None = None
    """The collector's time: a node whose clock is behind stamps its files with its own."""
    ras: bool = False
    """Ask NCCL RAS, twice a window apart."""
    poke: bool = False
    """Stacks by py-spy, the recorder's pipe: touches the job."""
    sudo: bool = False
    """The six exact commands of docs/permissions.md through `sudo -n`."""
    probe_s: float = 8.0
    """Deadline of one probe."""
    cap_bytes: int = 32 << 20
    """Most bytes of one probe's answer."""
    node_cap_bytes: int = 256 << 20
    """Most bytes of one node's whole answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One piece of a node's answer: what one probe printed there once."""

    probe: str
    sample: str = ""
    rank: int | None = None
    name: str = ""
    """File name on the node, for dumps and logs."""
    command: str = ""
    rights: str | None = None
    started_at: datetime | None = None
    duration_s: float | None = None
    exit_code: int | None = None
    error: str | None = None
    """As in Evidence: `timeout`, `denied`, `not found`, `stuck`, `truncated`."""
    stderr: str = ""
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of asking one node."""

    node: str
    failure: Failure | None = None
    says: str = ""
    """The reason in the tool's own words, safe to print, one line."""
    connect_s: float | None = None
    """Seconds until the shell was there; None if it never was."""
    elapsed_s: float = 0.0
    stderr: str = ""
    """What the connection itself printed beside the framed answer."""


class Transport(Protocol):
    """A way to run the script on one node. Stateless between nodes but for shared gateways."""

    name: str
    at_once: int | None
    """Most connections that it may make at one time; None: as many as the round allows."""
    quiet_s: float | None
    """A talk in which nothing came for so long is over: a cut line tells nobody. None: never."""

    def run(
        self,
        node: str,
        script: bytes,
        deadline_s: float,
        sink: Callable[[bytes], None],
        on_connect: Callable[[], None],
    ) -> Answer:
        """Feeds `script` to `sh -s` on the node; stdout goes to `sink` as it arrives.

        `on_connect` is called once the shell is there: the costly part of a connection is over.

        Never raises for what a node or the network does: that is the Answer's `failure`.
        """
        ...

    def close(self) -> None:
        """Drops what is still open, at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One event of a fan-out, for whoever shows it."""

    node: str
    kind: Literal["connected", "frame", "done"]
    frame: Frame | None = None
    answer: Answer | None = None
