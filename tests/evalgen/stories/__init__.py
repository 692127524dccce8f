"""Whole incidents: each a world, and what a specialist would say of it."""

from __future__ import annotations

from . import desync, hardware, host, others, quiet, startup
from .common import Expected, Story

STORIES: dict[str, Story] = {
    story.__name__: story
    for module in (desync, hardware, host, startup, others, quiet)
    for story in module.STORIES
}

__all__ = ["STORIES", "Expected", "Story"]
