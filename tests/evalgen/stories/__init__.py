"""Whole incidents: each a world, and what a specialist would say of it."""

from __future__ import annotations

from . import (
    bare,
    desync,
    ends,
    fabrics,
    hardware,
    host,
    links,
    noise,
    others,
    quiet,
    settings,
    startup,
)
from .common import Expected, Story

_MODULES = (
    desync, hardware, links, fabrics, host, ends, startup, settings, others, bare, quiet, noise,
)  # fmt: skip
STORIES: dict[str, Story] = {
    story.__name__: story for module in _MODULES for story in module.STORIES
}

__all__ = ["STORIES", "Expected", "Story"]
