"""All readers of job-log lines in one list: a new speaker is added here."""

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sluggish.facts.collective import Fingerprint, WatchdogTimeout
from sluggish.facts.fabric import (
    NcclAddress,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    NcclNetwork,
    NcclTrouble,
)
from sluggish.facts.log import NcclInit
from sluggish.loglines import launch, nccl_net, python, signs, training
from sluggish.loglines.line import Line

Reader = Callable[[Iterable[Line]], Iterable[Any]]

_LATER = tuple(
    import_module(f"sluggish.loglines.{name}")
    for name in ("watchdog", "nccl_init")
    if find_spec(f"sluggish.loglines.{name}")
)

READERS: tuple[Reader, ...] = (
    python.parse, signs.parse, nccl_net.parse, *(module.parse for module in _LATER),
)  # fmt: skip
"""Those that need nothing but lines; progress and launch are called with more."""
FACTS: tuple[type, ...] = (
    NcclAddress, NcclAsyncEvent, NcclCompletion, NcclHcas, NcclNetwork, NcclTrouble, NcclInit,
    WatchdogTimeout, Fingerprint,
)  # fmt: skip
"""What the readers of NCCL and of the watchdog yield."""
NEEDLES: tuple[bytes, ...] = tuple(
    dict.fromkeys(
        needle
        for module in (python, launch, training, signs, nccl_net, *_LATER)
        for needle in module.NEEDLES
    )
)
