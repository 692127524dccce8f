"""All readers of job-log lines in one list: a new speaker is added here."""

from collections.abc import Callable, Iterable
from typing import Any

from sluggish.facts.collective import Fingerprint, WatchdogTimeout
from sluggish.facts.fabric import (
    NcclAddress,
    NcclAsyncEvent,
    NcclCompletion,
    NcclHcas,
    NcclNetwork,
    NcclPath,
    NcclTrouble,
)
from sluggish.facts.log import NcclInit, NcclSetting
from sluggish.loglines import (
    frameworks,
    launch,
    nccl_init,
    nccl_net,
    python,
    signs,
    training,
    watchdog,
)
from sluggish.loglines.line import Line

Reader = Callable[[Iterable[Line]], Iterable[Any]]

READERS: tuple[Reader, ...] = (
    python.parse, signs.parse, nccl_net.parse, nccl_init.parse, watchdog.parse,
    frameworks.parse,
)  # fmt: skip
"""Those that need nothing but lines; progress and launch are called with more."""
FACTS: tuple[type, ...] = (
    NcclAddress, NcclAsyncEvent, NcclCompletion, NcclHcas, NcclNetwork, NcclPath, NcclTrouble,
    NcclInit, NcclSetting, WatchdogTimeout, Fingerprint,
)  # fmt: skip
"""What the readers of NCCL and of the watchdog yield."""
NEEDLES: tuple[bytes, ...] = tuple(
    dict.fromkeys(
        needle
        for module in (python, launch, training, signs, nccl_net, nccl_init, watchdog, frameworks)
        for needle in module.NEEDLES
    )
)
