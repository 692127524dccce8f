"""Facts that the fabric's own tools tell: of no known time, and of ends that are named in words.

A host's end is known by its node description (`gpu-07 mlx5_3`), a switch by its own.
"""

from dataclasses import dataclass
from datetime import datetime

LANE_GBPS = {
    "SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0,
    "NDR": 100.0, "XDR": 200.0,
}  # fmt: skip
"""Gb/s of one lane by the name of its speed (IBTA; kernel core/sysfs.c)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricReport:
    """One error of a report of the fabric's own tools (ibdiagnet, UFM); of no known time."""

    kind: str
    """counter, link, cable, unhealthy, link_down."""
    ends: tuple[str, ...]
    """Ports as the tool names them: `gpu-03/U1/P1`, `S.../N.../P1/3/1`."""
    says: str
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSummary:
    """What stands at the end of a report: ibdiagnet's table, the sums of ibqueryerrors."""

    stages: tuple[tuple[str, int, int], ...]
    """(name, warnings, errors)."""
    tool: str = "ibdiagnet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortQuery:
    """Counters of one port, asked over the fabric by its LID (perfquery); names as in sysfs."""

    node: str | None
    """Where the tool ran: not always where the port is."""
    lid: int
    port: int | None
    """None: the sum of all ports of that LID's device."""
    sample: str
    at: datetime | None
    """When it was printed; of a mailed file its own time."""
    counters: dict[str, int]
    wide: bool = False
    """True: counters of 64 bits (-x). They are other registers than the narrow ones."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortTotals:
    """Error counters of one port since somebody cleared them (ibqueryerrors); names as in sysfs."""

    end: str
    port: int
    counters: dict[str, int]
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricLink:
    """One link between two named ends (iblinkinfo, ibnetdiscover)."""

    tool: str
    ends: tuple[str, str]
    ports: tuple[int, int]
    state: str
    """As in `Port`; unknown where the tool does not print it."""
    lanes: int | None = None
    lane_gbps: float | None = None
    could_be: str = ""
    """What both ends can do and the link does not: `4X`, `12X 25.0 Gbps`. Empty: nothing more."""
    line: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricMember:
    """A host's HCA that answered from the fabric (ibhosts, ibnetdiscover, iblinkinfo)."""

    tool: str
    end: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetManager:
    """What `sminfo` was told."""

    answers: bool
    node: str | None = None
    """Where it was asked: from a port that is not up a manager cannot be reached anyway."""
    lid: int | None = None
    state: str | None = None
    """`MASTER`, `STANDBY`, `DISCOVERING`, `NOTACTIVE`."""
    line: str = ""
