"""DCGM's values of a site as samples a node: the same watch without a session on any node.

Seen: the GPUs, Xids by their last code, NVLink and PCIe bytes. Not seen: processes, io, kernel. So
an alert that nothing else confirms waits until shortly before the watchdog.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from sluggish.reach.prometheus import Answer, Value
from sluggish.watch.sample import MOST_GPUS, Gpu, Sample

_PLAIN = {
    "DCGM_FI_DEV_GPU_UTIL": "util",
    "DCGM_FI_DEV_POWER_USAGE": "power_w",
    "DCGM_FI_DEV_FB_USED": "memory_mib",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "mem_util",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "limit_w",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "limit_w",
}
_BYTES = "_BYTES"
XID = "DCGM_FI_DEV_XID_ERRORS"
_Key = tuple[str, int]


@dataclass(slots=True)
class Site:
    """What has to be kept between two rounds: when each node was scraped, bytes so far, Xids."""

    scraped: dict[str, float] = field(default_factory=dict[str, float])
    moved: dict[str, float] = field(default_factory=dict[str, float])
    xids: dict[_Key, int] = field(default_factory=dict[_Key, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class NewXid:
    """The field keeps its last code for ever: only a change is news."""

    node: str
    gpu: int
    code: int


def samples(answer: Answer, site: Site, at: float) -> tuple[list[Sample], list[NewXid]]:
    """A sample of each node that was scraped since the last round; `site` is brought up to date."""
    gpus: dict[str, dict[int, dict[str, float]]] = {}
    rates: dict[str, float] = {}
    xids: list[NewXid] = []
    for one in answer.values:
        key = _key(one)
        if key is None or one.value != one.value:
            continue
        name = one.labels.get("__name__", "")
        if name in _PLAIN:
            told = gpus.setdefault(key[0], {}).setdefault(key[1], {})
            told[_PLAIN[name]] = one.value
        elif name.endswith(_BYTES):
            rates[key[0]] = rates.get(key[0], 0.0) + max(0.0, one.value)
        elif name == XID:
            code = int(one.value)
            if site.xids.get(key, code) != code and code:
                xids.append(NewXid(node=key[0], gpu=key[1], code=code))
            site.xids[key] = code
    fresh = _fresh(answer.scraped, site)
    found: list[Sample] = []
    for node in sorted(gpus):
        if node not in fresh:
            continue
        moved = None
        if node in rates:
            spent = fresh[node]
            moved = site.moved.get(node, 0.0) + rates[node] * spent
            site.moved[node] = moved
        rows = tuple(_gpu(index, told) for index, told in sorted(gpus[node].items()))
        found.append(Sample(node=node, at=at, gpus=rows, traffic_bytes=moved))
    return found, xids


def _fresh(scraped: Iterable[Value], site: Site) -> dict[str, float]:
    """Nodes with news, and the seconds since the news before."""
    newest: dict[str, float] = {}
    for one in scraped:
        key = _key(one)
        if key is not None:
            newest[key[0]] = max(newest.get(key[0], 0.0), one.value)
    found: dict[str, float] = {}
    for node, when in newest.items():
        before = site.scraped.get(node)
        if before is None or when > before:
            found[node] = min(600.0, when - before) if before is not None else 0.0
            site.scraped[node] = when
    return found


def _key(one: Value) -> _Key | None:
    labels = one.labels
    host = labels.get("Hostname") or labels.get("instance", "").rpartition(":")[0]
    index = labels.get("gpu", "")
    if not host or not index.isdigit() or int(index) >= MOST_GPUS or labels.get("GPU_I_ID"):
        return None  # an instance of MIG has no power of its own
    return host.split(".")[0], int(index)


def _gpu(index: int, told: dict[str, float]) -> Gpu:
    return msgspec.structs.replace(Gpu(index=index), **told)
