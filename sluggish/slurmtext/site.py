"""`scontrol show config`: how this Slurm is set up."""

import re

SETTINGS = (
    "AccountingStorageType",
    "HealthCheckInterval",
    "HealthCheckProgram",
    "MinJobAge",
    "PrivateData",
    "SLURM_VERSION",
    "SlurmdTimeout",
    "SlurmUser",
)
"""What decides how the other answers are read; the rest is not kept."""

# `PrivateData             = jobs,nodes`   `SLURM_VERSION           = 22.05.8`
_SETTING = re.compile(r"([A-Za-z_]{1,40})\s{0,60}=\s{0,4}(.{0,400}?)\s*\Z")


def settings(text: str) -> dict[str, str]:
    """The settings of `SETTINGS` that stand there; `(null)` is an empty text."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _SETTING.match(line.strip())
        if match and match[1] in SETTINGS:
            found[match[1]] = "" if match[2] in ("(null)", "none") else match[2]
    return found


def seconds_of(value: str | None) -> int | None:
    """`300 sec` -> 300."""
    match = re.match(r"(\d{1,9})(?: sec)?\Z", (value or "").strip(), re.ASCII)
    return int(match[1]) if match else None
