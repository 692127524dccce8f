"""What a person asks of the watch, checked before it begins."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluggish.cli.live import wish
from sluggish.config import Config
from sluggish.evidence.source import EvidenceError
from sluggish.reach import notify
from sluggish.reach.state import folders
from sluggish.watch.state import Rules

if TYPE_CHECKING:
    from sluggish.cli.live import Wanted

POLL_S = 15.0
"""Slurm is asked this often, once for all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a person asked for."""

    jobs: Sequence[str] = ()
    user: str | None = None
    partition: str | None = None
    transport: str | None = None
    rules: Rules = field(default_factory=Rules)
    execute: Sequence[str] = ()
    webhook: str | None = None
    as_json: bool = False
    cloud: bool = False
    sudo: bool = False
    poll_s: float = POLL_S
    prometheus: str | None = None

    @property
    def finds(self) -> bool:
        return self.user is not None or self.partition is not None

    @property
    def whose(self) -> str:
        """`of alice in partition gpu`."""
        told = [f"of {self.user}"] if self.user else []
        return " ".join([*told, *([f"in partition {self.partition}"] if self.partition else [])])


def order(
    *, interval: int, notice: float, alert: float, execute: str | None = None, **told: Any
) -> Order:
    """What the command line says. The window and the sign follow the notice."""
    window = max(4.0 * interval, notice / 2)
    if notice < window or alert < notice:
        raise EvidenceError(
            "expected --interval S, --notice of 4 S or more, --alert of that or more"
        )
    rules = Rules(
        every_s=float(interval), window_s=window, notice_s=notice, alert_s=alert,
        sign_s=min(60.0, window), gone_s=min(75.0, window),
    )  # fmt: skip
    for name in ("webhook", "prometheus"):
        if (url := told.get(name)) is not None and (why := notify.unfit(url)):
            raise EvidenceError(f"--{name}: {why}")
    try:
        argv = shlex.split(execute or "")
    except ValueError as problem:
        raise EvidenceError(f"--exec: {problem}") from None
    if execute is not None and not argv:
        raise EvidenceError("--exec: expected a program")
    return Order(rules=rules, poll_s=min(POLL_S, 3.0 * interval), execute=argv, **told)


def wish_of(job: str, order: Order, config: Config) -> "Wanted":
    """A look at this job as `diagnose --job` would take it."""
    return wish(job, config, transport=order.transport, window_s=None, sudo=order.sudo, poke=False)


def states(config: Config) -> Path | None:
    """Where states are kept: the directory of the bundles."""
    places = folders(os.environ, config.state.dir)
    return places[0] / "watch" if places else None
