"""NCCL's RAS (2.24 on): one answer of any rank tells the launches of the whole job.

`verbose status` as text, or JSON (2.28.7 on). Rights: whoever reaches localhost:28028 of a node of
the job. Not harmless: queries have crashed jobs (nccl #1669 and others), the live side asks only
under its own guards. Traps: five operations are counted, no send, recv or all-to-all; a rank counts
within its communicator; the text lists the minority, which may be the leaders; 2.28.9 leaves a
comma out between missing ranks; a big answer may be cut short. Formats: NVIDIA/nccl
`src/ras/client_support.cc`, `docs/userguide/source/troubleshooting/ras.rst`.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from sluggish.facts.collective import RasCounts, RasRank, RasReport
from sluggish.facts.log import Version
from sluggish.facts.origin import Origin
from sluggish.probes.nccl_ras.text import parse_text

ID = "nccl_ras"
COMMAND = """\
port=${SLUGGISH_RAS_PORT:-28028}
ask() { printf 'timeout 5\\nverbose status\\n'; sleep 6; }
if command -v nc > /dev/null; then ask | nc localhost "$port"
elif command -v ncat > /dev/null; then ask | ncat localhost "$port"
elif command -v socat > /dev/null; then ask | socat - "TCP:localhost:$port"
elif command -v bash > /dev/null; then
  ask | bash -c 'exec 3<> "/dev/tcp/localhost/$0" || exit 1
    cat <&3 & cat >&3; kill $! 2> /dev/null; :' "$port"
else echo 'no nc, ncat, socat or bash here: not found' >&2; exit 127
fi
"""
FACTS: tuple[type, ...] = (RasReport, RasRank, RasCounts, Version)
BINARY = False

_MISSING_COMMA = re.compile(r"\}(\s{1,40})\{")
_STATES = {"init_state", "async_error"}
MAX_RANKS = 4_000_000


# #0-0 (fa93daea854b060b) MISMATCH       (somebody mailed only the part that tells the trouble)
_BLOCK = re.compile(rb"#\d{1,9}-\d{1,9} \([0-9a-f]{1,32}\) [A-Z]{4,20}\s")


def sniff(head: bytes) -> bool:
    """The tables of the text form, or the JSON form's own keys."""
    if b"Job summary\n===" in head or b"Job summary\r\n===" in head:
        return b"Processes" in head or b"Communicators" in head
    if b"\nCommunicators..." in head and b"Ranks" in head:
        return True
    if _BLOCK.match(head.lstrip()):
        return True
    text = head.lstrip()
    return text[:1] == b"{" and b'"communicators"' in head and b'"collective_counts"' in head


def parse(text: str, origin: Origin) -> Iterator[RasReport | RasRank | RasCounts | Version]:
    """One RasReport, then ranks (JSON) or counts (text). ValueError for anything else."""
    body = _after_greeting(text)
    if body.startswith("{"):
        yield from _json(body, origin)
        return
    yield from parse_text(body, origin)


def _after_greeting(text: str) -> str:
    """Without the protocol's own words: `SERVER PROTOCOL 2`, `OK`."""
    lines = text.lstrip("\ufeff \r\n").split("\n")
    while lines and re.match(r"(?:SERVER PROTOCOL \d{1,3}|OK)\s*\Z", lines[0]):
        lines.pop(0)
    if lines and lines[0].startswith("ERROR:"):
        raise ValueError(f"expected a RAS report, RAS answered {lines[0].strip()[:120]}")
    return "\n".join(lines).lstrip()


def _json(body: str, origin: Origin) -> Iterator[RasReport | RasRank | Version]:
    try:
        told = _decode(body)
        facts = list(_facts(told, origin))
    except (KeyError, TypeError, AttributeError, RecursionError) as what:
        raise ValueError(f"expected RAS JSON: {type(what).__name__} {what}") from None
    yield from facts


def _decode(body: str) -> dict[str, Any]:
    """The first JSON object; 2.28.9's missing commas put in."""
    end = body.rfind("}")
    for attempt in (body[: end + 1], _MISSING_COMMA.sub(r"},\1{", body[: end + 1])):
        try:
            told = msgspec.json.decode(attempt)
        except (msgspec.MsgspecError, UnicodeError):
            continue
        if isinstance(told, dict) and isinstance(told.get("communicators"), list):
            return told
        raise ValueError("expected RAS JSON with communicators")
    raise ValueError("expected whole RAS JSON: it is cut short or malformed")


def _facts(told: dict[str, Any], origin: Origin) -> Iterator[RasReport | RasRank | Version]:
    ranks = [row for comm in told["communicators"] for row in _of_comm(comm, origin)]
    if len(ranks) > MAX_RANKS:
        raise ValueError(f"expected at most {MAX_RANKS} ranks")
    version = str(told.get("nccl_version", ""))[:40]
    yield RasReport(
        node=origin.node,
        sample=origin.sample or origin.path,
        version=version,
        at=origin.taken_at,
        communicators=len(told["communicators"]),
        processes=len({(r.host, r.pid) for r in ranks}),
        initialising=any(r.state == "init" for r in ranks),
        timeouts=int((told.get("ras") or {}).get("timeouts_count", 0)),
        dead=_processes(ranks, "dead"),
        unresponsive=_processes(ranks, "unresponsive"),
    )
    if version:
        yield Version(node=origin.node, rank=None, component="nccl", version=version)
    yield from ranks


def _processes(ranks: list[RasRank], state: str) -> tuple[tuple[str, int], ...]:
    found = {(r.host or "", r.pid or 0) for r in ranks if r.state == state}
    return tuple(sorted(found))


def _of_comm(comm: dict[str, Any], origin: Origin) -> Iterator[RasRank]:
    name = str(comm["hash"]).removeprefix("0x")[:40]
    size = int(comm["size"])
    for row in comm.get("ranks") or ():
        counts = row.get("collective_counts") or {}
        yield _rank(row, name, size, origin, _state(row["status"]), counts)
    for row in comm.get("missing_ranks") or ():
        status = row.get("status") or {}
        state = "dead" if status.get("considered_dead") else "unresponsive"
        if not status.get("considered_dead") and not status.get("unresponsive"):
            state = "nocomm"
        yield _rank(row, name, size, origin, state, {})


def _rank(
    row: dict[str, Any], comm: str, size: int, origin: Origin, state: str, counts: dict[str, Any]
) -> RasRank:
    pid = int(row.get("pid", -1))
    host = str(row.get("host", ""))[:253]
    return RasRank(
        node=origin.node,
        comm=comm,
        rank=int(row["rank"]),
        size=size,
        sample=origin.sample or origin.path,
        host=host if host not in ("", "unknown") else None,
        pid=pid if pid > 0 else None,
        cuda_device=int(row.get("cuda_dev", -1)),
        nvml_device=int(row.get("nvml_dev", -1)),
        counts=tuple(sorted((str(op)[:40], int(n)) for op, n in counts.items())),
        state=state,
    )


def _state(status: dict[str, Any]) -> str:
    """NCCL's own order: abort, finalize, then init_state (0 success, 7 in progress)."""
    if status.get("abort_flag"):
        return "abort"
    if status.get("finalize_called") or status.get("destroy_flag"):
        return "finalize"
    if int(status.get("init_state", 0)) == 7:
        return "init"
    if any(int(status.get(key, 0)) not in (0, 7) for key in _STATES):
        return "error"
    return "running"
