"""DCGM-exporter's metrics of a whole site, one question to Prometheus's HTTP API a round.

`GET /api/v1/query` (Prometheus documentation, "HTTP API"). A value of a target that is gone is
answered for five minutes more, so the time of each node's last scrape is asked as well.
"""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sluggish.text import safe

MOST_BYTES = 256 << 20
TIMEOUT_S = 10.0
FIELDS = (
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_PROF_NVLINK_TX_BYTES", "DCGM_FI_PROF_NVLINK_RX_BYTES",
    "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",
)  # fmt: skip
SCRAPED = "DCGM_FI_DEV_GPU_UTIL"


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Reply(msgspec.Struct):
    status: str
    data: _Data | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One GPU's value of one field. `labels` are Prometheus's, the field's name among them."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a round brought; `problem` says in one line why it brought nothing."""

    values: tuple[Value, ...] = ()
    scraped: tuple[Value, ...] = ()
    """When each GPU was last scraped, seconds since the epoch."""
    problem: str = ""


def ask(url: str, timeout_s: float = TIMEOUT_S) -> Answer:
    """Every GPU of the site, as last scraped. Never raises for what the server does."""
    names = "|".join(FIELDS)
    values, why = _query(url, f'{{__name__=~"{names}"}}', timeout_s)
    if why:
        return Answer(problem=why)
    scraped, why = _query(url, f"timestamp({SCRAPED})", timeout_s)
    if not why and not values:
        why = "knows no metric of DCGM-exporter"
    return Answer(values=values, scraped=scraped, problem=why)


def _query(url: str, query: str, timeout_s: float) -> tuple[tuple[Value, ...], str]:
    where = urllib.parse.urlsplit(url).hostname or "prometheus"
    told = urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(
            f"{url.rstrip('/')}/api/v1/query?{told}", timeout=timeout_s
        ) as answer:
            body: Any = answer.read(MOST_BYTES)
        reply = msgspec.json.decode(body, type=_Reply)
    except urllib.error.HTTPError as problem:
        problem.close()
        return (), f"{where}: HTTP {problem.code}"
    except msgspec.MsgspecError as problem:
        return (), safe(f"{where}: no answer of Prometheus's: {problem}", 200)
    except (OSError, ValueError, http.client.HTTPException) as problem:
        return (), safe(f"{where}: {getattr(problem, 'reason', None) or problem}", 200)
    if reply.status != "success" or reply.data is None:
        return (), safe(f"{where}: {reply.error or reply.status}", 200)
    found: list[Value] = []
    for series in reply.data.result:
        try:
            found.append(Value(labels=series.metric, value=float(series.value[1])))
        except ValueError:
            continue
    return tuple(found), ""
