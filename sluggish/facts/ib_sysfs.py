"""`path:value` lines of /sys/class/infiniband, as `grep -r .` prints them."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from sluggish.facts.ib_words import is_hca

MAX_LINE = 2000
"""Longer lines are no sysfs values."""


class Entry(NamedTuple):
    """One file of one HCA."""

    hca: str
    key: str
    """Path below the HCA: `ports/1/state`, `device`, `fw_ver`."""
    value: str
    path: str
    """What stands before the HCA: may hold the resolved PCI address."""


# /sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE      (absolute)
# mlx5_0/ports/1/rate:400 Gb/sec (4X NDR)                   (run inside the folder; also ./mlx5_0)
# mlx5_0/device:../../../0000:18:00.0                       (target of the link)
# mlx5_0/device -> ../../../0000:18:00.0                    (form of ls -l)
# /sys/devices/pci0000:17/0000:18:00.0/infiniband/mlx5_0/fw_ver:28.39.3004     (resolved)
# names of files: kernel Documentation/ABI/stable/sysfs-class-infiniband
_ENTRY = re.compile(
    r"(?P<hca>[A-Za-z][A-Za-z0-9_.-]{0,63})/"
    r"(?P<key>ports/\d{1,3}/[A-Za-z0-9_/]{1,120}"
    r"|device(?:/[A-Za-z0-9_./@-]{1,200})?"
    r"|hw_counters/\w{1,80}"
    r"|fw_ver|hca_type|board_id|node_desc|node_type|node_guid|sys_image_guid|hw_rev)"
    r"(?::| -> )(?P<value>.*)\Z"
)
_START = re.compile(
    r"(?:^|/)(?=[A-Za-z][A-Za-z0-9_.-]{0,63}/(?:ports/|device|hw_counters/|[a-z_]{6,14}:))"
)
_BDF = re.compile(
    r"(?<![0-9a-fA-F:])([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])(?!\d)"
)


def entries(text: str) -> Iterator[Entry]:
    """Every `path:value` line of an HCA; other lines are passed over."""
    for line in text.splitlines():
        if len(line) > MAX_LINE:
            continue
        for start in _START.finditer(line):
            found = _ENTRY.match(line, start.end())
            if found and is_hca(found["hca"]):
                value = found["value"].strip()
                yield Entry(found["hca"], found["key"], value, line[: start.end()])
                break


def pci_of(text: str) -> str | None:
    """The last PCI address in a path, lower case: the function itself, behind its bridges."""
    found = _BDF.findall(text)
    return found[-1].lower() if found else None
