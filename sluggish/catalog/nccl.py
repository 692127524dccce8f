"""Reads nccl.yaml: default network timeouts and known library bugs by version and platform."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from sluggish.catalog import data

BASE_TIMEOUT_S = 4.096e-6
"""InfiniBand local ACK timeout: this times two to the power of the timeout value (IBTA)."""

RAS_ABSENT, RAS_UNSAFE, RAS_UNPROVED, RAS_SAFE, RAS_UNKNOWN = (
    "absent", "unsafe", "unproved", "safe", "unknown",
)  # fmt: skip

_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclBug:
    """A known bug or trap of some versions."""

    id: str
    kind: str
    """hang, ras_crash (do not query RAS), ras_format, behaviour (a trap, not a bug)."""
    title: str
    looks_like: str
    fix: str
    source: str
    since: Version | None = None
    before: Version | None = None
    arch: str | None = None
    """None: every platform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RasReport:
    """One public report of jobs that RAS harmed."""

    when: str
    what: str
    source: str
    since: Version
    before: Version


@dataclass(frozen=True, slots=True, kw_only=True)
class RasSafety:
    """Whether RAS of a version may be asked."""

    state: str
    """absent, unsafe, unproved (no report, and no proof), safe, unknown (version not known)."""
    reports: tuple[RasReport, ...]
    read: str
    """Month in which the reports were read, `2026-11`."""

    @property
    def may_ask(self) -> bool:
        """Without a person's word: only where it is known to be safe or nothing speaks against."""
        return self.state in (RAS_SAFE, RAS_UNPROVED)


def ras_safety(nccl: str | None) -> RasSafety:
    """What is known of querying RAS of this NCCL version. An unknown version is not asked."""
    data = _ras()
    number = version(nccl) if nccl else None
    if number is None:
        return RasSafety(state=RAS_UNKNOWN, reports=(), read=str(data["read"]))
    found = tuple(r for r in ras_reports() if r.since <= number < r.before)
    if number < _number(data["since"]):
        state = RAS_ABSENT
    elif any(number[: len(_number(v))] == _number(v) for v in data["safe"]):
        state, found = RAS_SAFE, ()
    else:
        state = RAS_UNSAFE if found else RAS_UNPROVED
    return RasSafety(state=state, reports=found, read=str(data["read"]))


@cache
def ras_reports() -> tuple[RasReport, ...]:
    """Every report of the catalogue."""
    return tuple(
        RasReport(
            when=row["when"],
            what=row["what"],
            source=row["source"],
            since=_number(row["from"]),
            before=_number(row["before"]),
        )
        for row in _ras()["unsafe"]
    )


@cache
def _ras() -> dict[str, Any]:
    return _catalogue()["ras"]


def _number(text: str) -> Version:
    return version(text) or ()


def version(text: str) -> Version | None:
    """`2.27.7`, `NCCL version 2.27.7+cuda12.4`, `22707` (NCCL_VERSION_CODE) as numbers."""
    found = _VERSION.search(text[:200])
    if not found:
        return None
    parts = tuple(int(part) for part in found[0].split("."))
    if len(parts) == 1 and parts[0] >= 2000:  # a version code, not a version
        code = parts[0]
        if code < 10000:  # up to 2.8: major * 1000 + minor * 100 + patch
            return code // 1000, code // 100 % 10, code % 100
        return code // 10000, code // 100 % 100, code % 100
    return parts


@cache
def table() -> tuple[NcclBug, ...]:
    """Every entry of the catalogue."""
    return tuple(_bug(entry) for entry in _catalogue()["bugs"])


def bugs(nccl: str | None, arch: str | None = None) -> list[NcclBug]:
    """Known bugs of this NCCL version on this platform (`uname -m`).

    A bug of one platform is only listed where `arch` is known to be that platform: an unknown
    version or platform gives no bug, not every bug.
    """
    number = version(nccl) if nccl else None
    if number is None:
        return []
    return [bug for bug in table() if _fits(bug, number, arch)]


def give_up_s(nccl: str | None, timeout: int | None = None, retries: int | None = None) -> float:
    """Seconds after which a queue pair without answer fails: 4.096 us * 2^timeout * retries.

    `timeout` and `retries` are NCCL_IB_TIMEOUT and NCCL_IB_RETRY_CNT where the job set them.
    An unknown version is given the longest default: never call a wait too long by mistake.
    """
    data = _catalogue()
    exponent = _default_timeout(data["timeout_defaults"], nccl) if timeout is None else timeout
    return BASE_TIMEOUT_S * 2.0**exponent * (data["retries"] if retries is None else retries)


def _default_timeout(rows: list[dict[str, Any]], nccl: str | None) -> int:
    number = version(nccl) if nccl else None
    known: list[tuple[Version, int]] = [
        (version(row["from"]) or (), row["timeout"]) for row in rows
    ]
    return max(
        (value for since, value in known if number is None or number >= since), default=known[0][1]
    )


def _fits(bug: NcclBug, number: Version, arch: str | None) -> bool:
    after = bug.since is None or number >= bug.since
    early = bug.before is None or number < bug.before
    return after and early and (bug.arch is None or bug.arch == _arch(arch))


def _arch(arch: str | None) -> str | None:
    return "aarch64" if arch in ("arm64", "aarch64") else arch


def _bug(told: dict[str, Any]) -> NcclBug:
    entry = dict(told)
    since, before = entry.pop("from", None), entry.pop("before", None)
    return NcclBug(
        since=version(since) if since else None, before=version(before) if before else None, **entry
    )


@cache
def _catalogue() -> dict[str, Any]:
    return data.read("nccl.yaml")
