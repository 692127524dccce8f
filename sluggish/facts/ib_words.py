"""The words of ibstat, ibstatus, ibv_devinfo and sysfs for one and the same thing, made one."""

import re

# ibstat `Active`; sysfs and ibstatus `4: ACTIVE`; ibv_devinfo `PORT_ACTIVE (4)`; iblinkinfo
# `Initialize`
# (rdma-core infiniband-diags/ibstat.c, libibverbs/examples/devinfo.c, kernel core/sysfs.c)
_STATES = {
    "down": "down", "init": "initializing", "initialize": "initializing",
    "initializing": "initializing", "armed": "armed", "active": "active",
    "activedefer": "active_defer",
}  # fmt: skip

# ibstat `PortConfigurationTraining`; sysfs `5: LinkUp`; ibv_devinfo `LINK_UP (5)`, and its
# misspelt `PORT_CONFIGURATION TRAINNING`
_PHYSICAL = {
    "nostatechange": "no_state_change", "sleep": "sleep", "polling": "polling",
    "disabled": "disabled", "portconfigurationtraining": "training",
    "portconfigurationtrainning": "training", "linkup": "linkup",
    "linkerrorrecovery": "link_error_recovery", "phytest": "phy_test",
}  # fmt: skip

_RATE = re.compile(r"\s*(\d{1,6}(?:\.\d{1,3})?)(?:\s*Gb/sec)?(?:\s*\((\d{1,2}X)?[^)]*\))?\s*\Z")
_HCA = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
_LAYERS = {"infiniband": "infiniband", "ib": "infiniband", "ethernet": "ethernet"}


def state(text: str) -> str:
    """`active`, `down`, `initializing`, `armed`, `active_defer`; `unknown` for anything else."""
    return _STATES.get(_bare(text).removeprefix("port"), "unknown")


def physical(text: str) -> str | None:
    """`linkup`, `polling`, `disabled`, ...; None where the word is not known."""
    return _PHYSICAL.get(_bare(text))


def rate(text: str) -> tuple[float | None, str | None]:
    """`400`, `40 (FDR10)`, `2.5`, `400 Gb/sec (4X NDR)` as (Gb/s, lanes)."""
    found = _RATE.match(text[:80])
    return (float(found[1]), found[2]) if found else (None, None)


def layer(text: str) -> str | None:
    """`infiniband`, `ethernet`; None where blank or unknown. `IB` is what old kernels give."""
    return _LAYERS.get(text.strip().lower())


def number(text: str) -> int | None:
    """Decimal or 0x number; None for anything else (`unknown`, `N/A (no PMA)`)."""
    text = text.strip()[:40]
    try:
        return int(text, 16) if text.lower().startswith("0x") else int(text)
    except ValueError:
        return None


def is_hca(name: str) -> bool:
    """Whether this can be the name of an RDMA device: names come from untrusted text."""
    return bool(_HCA.match(name))


def natural(name: str) -> tuple[tuple[bool, int | str], ...]:
    """Sort key that puts mlx5_2 before mlx5_10, as the tools do not."""
    parts = re.split(r"(\d{1,9})", name)
    return tuple((False, int(p)) if p.isdecimal() else (True, p) for p in parts)


def _bare(text: str) -> str:
    """Letters only, lower case: drops `4: `, ` (4)`, underscores and spaces."""
    return re.sub(r"\(\d+\)|[^a-z]", "", text[:80].lower())
