"""The six stories that ship for `sluggish demo`, as deterministic archives."""

from __future__ import annotations

import json

from .bundle import archive
from .stories import STORIES

PACKAGED = ("seed", "xid79", "ib_port_down", "loader_nfs", "cgroup_oom", "healthy")
LIMIT = 150_000
"""Bytes an archive may take."""


def packaged() -> dict[str, tuple[bytes, str]]:
    """Name -> (archive, expected verdict as JSON text)."""
    out = {}
    for name in PACKAGED:
        world, expected = STORIES[name]()
        text = json.dumps(expected.document(world), indent=1) + "\n"
        out[name] = (archive(world, name), text)
    return out
