"""RAS's text report: tables, then one block a communicator in trouble.

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         8        32        32   RUNNING  MISMATCH

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  Rank 12 has launched up to operation 641 -- GPU 4 managed by process 323032 on node 10.0.2.24
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.facts.collective import RasCounts, RasRank, RasReport
from sluggish.facts.log import Version
from sluggish.facts.origin import Origin

_VERSION = re.compile(r"^NCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})", re.MULTILINE)
_ROW = re.compile(
    r"^ {0,8}(?P<group>\d{1,9}) +(?P<comms>\d{1,9}) +\d{1,9} +[\d-]{1,20} +(?P<size>\d{1,9})"
    r" +\d{1,9} +(?P<status>[A-Z]{2,12}) +(?P<errors>[A-Z,]{2,40})\s*$"
)
BLOCK = re.compile(
    r"^#(?P<group>\d{1,9})-\d{1,9} \((?P<hash>[0-9a-f]{1,32})\) (?P<kind>[A-Z]{2,20})",
    re.MULTILINE,
)
_DIFFERENT = re.compile(r"^ *Communicator ranks have different (?P<what>\w{2,30})(?P<rest>.*)$")
_MANY = re.compile(
    r"^ *(?P<n>\d{1,9}) ranks have (?:launched up to operation (?P<number>\d{1,19})"
    r"|(?P<none>not launched any)|status (?P<status>[A-Z]{2,12}))"
)
_RANK = re.compile(
    r"^ *Rank (?P<rank>\d{1,9})(?: has (?:launched up to operation (?P<number>\d{1,19})"
    r"|(?P<none>not launched any) operations|status (?P<status>[A-Z]{2,12})))? -- "
    r"(?:GPU (?P<gpu>\d{1,4})(?: \(NVML (?P<nvml>\d{1,4})\))? managed by process (?P<pid>\d{1,10})"
    r" on node (?P<host>\S{1,253})|\[process)"
)
_PROCESS = re.compile(r"^ *Process (?P<pid>\d{1,10}) on node (?P<host>\S{1,253}) managing GPU")
_MISSING = re.compile(r"^ *The missing ranks?: (?P<ranks>[\d, -]{1,4000})")
_TIMEOUTS = re.compile(r"Encountered (\d{1,9}) communication timeout")
_PER_RANK = re.compile(r"^ {1,20}(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9}) +(\d{1,9})\s*$")


@dataclass(slots=True)
class _State:
    """Where the reader stands."""

    sizes: dict[str, int] = field(default_factory=dict)
    statuses: set[str] = field(default_factory=set)
    comms: int = 0
    section: str = ""
    comm: str = ""
    size: int = 0
    op: str = ""
    rows: list[list[object]] = field(default_factory=list)
    facts: list[RasCounts | RasRank] = field(default_factory=list)
    dead: set[tuple[str, int]] = field(default_factory=set)
    unresponsive: set[tuple[str, int]] = field(default_factory=set)


def parse_text(text: str, origin: Origin) -> Iterator[RasReport | RasRank | RasCounts | Version]:
    """A report that is cut short yields what it shows, marked as not complete."""
    if not ("Communicators..." in text or "Job summary" in text or BLOCK.search(text)):
        raise ValueError("expected a RAS report: Job summary and Communicators")
    state = _State()
    sample = origin.sample or origin.path
    for line in text.split("\n"):
        _read(line.rstrip()[:4000], state, origin.node, sample)
    _close(state, origin.node, sample)
    version = _VERSION.search(text)
    timeouts = _TIMEOUTS.search(text)
    yield RasReport(
        node=origin.node,
        sample=sample,
        version=version[1] if version else "",
        at=origin.taken_at,
        communicators=state.comms,
        processes=_processes(text),
        complete=_whole(text, state),
        initialising="INIT" in state.statuses,
        timeouts=int(timeouts[1]) if timeouts else 0,
        dead=tuple(sorted(state.dead)),
        unresponsive=tuple(sorted(state.unresponsive)),
        notes=("no communicator",) if "No communicator data" in text else (),
    )
    if version:
        yield Version(node=origin.node, rank=None, component="nccl", version=version[1])
    yield from state.facts


def _whole(text: str, state: _State) -> bool:
    """A report that announces trouble tells it further down, and ends with a line's end."""
    if not text.endswith("\n") or "Communicators..." not in text:
        return False
    told = "\nWarnings\n" in text or "\nErrors\n" in text
    return bool(state.comms or "No communicator data" in text) and (
        told or not ("MISMATCH" in text or "INCOMPLETE" in text)
    )


def _processes(text: str) -> int | None:
    found = next((m for line in text.split("\n")[:60] if (m := _PER_RANK.match(line))), None)
    return int(found[4]) if found else None


def _read(line: str, state: _State, node: str | None, sample: str) -> None:
    row = _ROW.match(line)
    if row:
        state.sizes[row["group"]] = int(row["size"])
        state.statuses.add(row["status"])
        state.comms += int(row["comms"])
        return
    block = BLOCK.match(line)
    if block:
        _close(state, node, sample)
        state.comm, state.section = block["hash"].lstrip("0") or "0", block["kind"]
        state.size = state.sizes.get(block["group"], 0)
    elif line in ("DEAD", "INCOMPLETE", "TIMEOUT"):
        _close(state, node, sample)
        state.comm, state.section = "", line
    elif different := _DIFFERENT.match(line):
        _close(state, node, sample)
        what = different["what"]
        state.op = {"status": "status", "collective": ""}.get(what, what)
        state.rows = []
    elif process := _PROCESS.match(line):
        where = (process["host"], int(process["pid"]))
        (state.dead if state.section == "DEAD" else state.unresponsive).add(where)
    elif state.comm:
        _in_block(line, state, node, sample)


def _in_block(line: str, state: _State, node: str | None, sample: str) -> None:
    many, rank = _MANY.match(line), _RANK.match(line)
    if many:
        number = many["status"] or int(many["number"] or 0)
        state.rows.append([number, int(many["n"]), []])
    elif rank:
        alone = rank["number"] or rank["none"] or rank["status"]
        if alone:
            state.rows.append([rank["status"] or int(rank["number"] or 0), 1, []])
        if state.rows and isinstance(state.rows[-1][2], list):
            state.rows[-1][2].append(int(rank["rank"]))
        kind = "unresponsive" if state.section == "INCOMPLETE" else "listed"
        state.facts.append(_listed(rank, state, node, sample, kind))
    elif missing := _MISSING.match(line):
        for number in _ranks(missing["ranks"]):
            state.facts.append(
                RasRank(
                    node=node,
                    comm=state.comm,
                    rank=number,
                    size=state.size,
                    sample=sample,
                    state="missing",
                )
            )


def _ranks(text: str) -> Iterator[int]:
    """`21` or `3, 7-9`."""
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdecimal() and (not last or last.isdecimal()):
            yield from range(int(first), min(int(last or first), int(first) + 100_000) + 1)


def _listed(
    rank: re.Match[str], state: _State, node: str | None, sample: str, kind: str
) -> RasRank:
    gpu = int(rank["gpu"]) if rank["gpu"] else None
    return RasRank(
        node=node,
        comm=state.comm,
        rank=int(rank["rank"]),
        size=state.size,
        sample=sample,
        host=rank["host"],
        pid=int(rank["pid"]) if rank["pid"] else None,
        cuda_device=gpu,
        nvml_device=int(rank["nvml"]) if rank["nvml"] else gpu,
        state=kind,
    )


def _close(state: _State, node: str | None, sample: str) -> None:
    """End of a table of counts."""
    rows = [
        (n, how_many, tuple(listed) if isinstance(listed, list) else ())
        for n, how_many, listed in state.rows
        if isinstance(n, int) and isinstance(how_many, int)
    ]
    if rows and state.op != "status" and state.comm:
        state.facts.append(
            RasCounts(
                node=node,
                comm=state.comm,
                size=state.size or None,
                op=state.op,
                rows=tuple(sorted(rows)),
                sample=sample,
            )
        )
    state.rows, state.op = [], ""
