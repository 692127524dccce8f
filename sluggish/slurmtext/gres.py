"""Which of a node's GPUs a job holds: `GRES=gpu:b300:2(IDX:0-1)` of `scontrol -d show job`."""

import re

from sluggish.hostlist import expand

# Nodes=n[1-2] CPU_IDs=0-7 Mem=102400 GRES=gpu:h100:6(IDX:0-3,6-7)      (`GRES_IDX=` before 20.02)
_SHARE = re.compile(
    r"(?:^|\s)Nodes=([^\s=]{1,4000}) CPU_IDs=[^\s=]{0,4000} Mem=\d{1,12}[KMGT]? "
    r"GRES(?:_IDX)?=([^\s=]{0,2000})",
    re.ASCII,
)
_GPUS = re.compile(r"(?:^|,)gpu(?::[^,()]{0,100})?\(IDX:([0-9,-]{1,1000})\)", re.ASCII)
MOST = 256
"""No node has more GPUs; an index above is none."""


def gpu_indexes(record: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(node, Slurm's indexes of its GPUs) of a job's record; a node told twice is left out.

    Slurm counts the devices of a node in the order of its gres.conf, which with AutoDetect is the
    order of the PCI addresses. Shards and MIG instances count differently and are not read.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    for nodes, gres in _SHARE.findall(record):
        indexes = [i for text in _GPUS.findall(gres) for i in _numbers(text)]
        if not indexes:
            continue
        for node in expand(nodes):
            found[node] = None if node in found else tuple(sorted(set(indexes)))
    return tuple((node, told) for node, told in found.items() if told)


def _numbers(text: str) -> list[int]:
    """`0-3,6` as 0, 1, 2, 3, 6."""
    out: list[int] = []
    for part in text.split(","):
        match = re.match(r"(\d{1,3})(?:-(\d{1,3}))?\Z", part, re.ASCII)
        if match and int(match[2] or match[1]) < MOST:
            out += range(int(match[1]), int(match[2] or match[1]) + 1)
    return out
