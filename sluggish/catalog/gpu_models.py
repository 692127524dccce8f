"""Reads gpu_models.yaml: default power limit and known watts by model."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from sluggish.catalog import data


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """One board. Watts are (lowest, highest) seen; empty where nobody has published them."""

    name: str
    match: tuple[str, ...]
    limit_w: float
    source: str
    idle_w: tuple[float, ...] = ()
    context_w: tuple[float, ...] = ()
    spin_w: tuple[float, ...] = ()
    work_w: tuple[float, ...] = ()


def model(product_name: str | None) -> GpuModel | None:
    """The entry for nvidia-smi's product name, e.g. `NVIDIA H100 80GB HBM3`; None if unknown."""
    words = (product_name or "").upper()
    return next((m for m in models() if all(w.upper() in words for w in m.match)), None)


@cache
def models() -> tuple[GpuModel, ...]:
    """Every entry, in the order in which they match."""
    return tuple(_entry(raw) for raw in data.read("gpu_models.yaml")["models"])


def _entry(raw: dict[str, Any]) -> GpuModel:
    def watts(key: str) -> tuple[float, ...]:
        return tuple(float(w) for w in raw.get(key, ()))

    return GpuModel(
        name=str(raw["name"]),
        match=tuple(str(w) for w in raw["match"]),
        limit_w=float(raw["limit_w"]),
        source=str(raw["source"]),
        idle_w=watts("idle_w"),
        context_w=watts("context_w"),
        spin_w=watts("spin_w"),
        work_w=watts("work_w"),
    )
