"""The prefix that NCCL puts before every line of its log: who says it, on which device."""

import re
from typing import NamedTuple

MAX_PREFIX = 600
"""Characters before ` NCCL ` in which a prefix is looked for; keeps long lines linear."""
MAX_TRIES = 8
"""Occurrences of ` NCCL ` in one line that are tried: torn lines hold two, rarely three."""

NEEDLE = b"NCCL "
"""Every line that carries the prefix contains it."""


class NcclPrefix(NamedTuple):
    """The parts of the prefix; None where the line does not carry the part."""

    host: str | None
    """As printed (NCCL cuts it at the first dot); may begin with `-` where a poster cut it."""
    pid: int
    tid: int
    dev: int | None
    """CUDA device of the thread, not the rank; may be negative; absent on CALL lines."""
    file: str | None
    lineno: int | None
    level: str
    """WARN, INFO, ERROR, ..."""
    msg: str


# gpu-03:4182:4390 [5] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got ...   (2.4 to 2.28)
# gpu-03:4182:4390 [5] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ...           (INFO: no file)
# gpu-03:4182:4390 [5] init.cc:120 (ncclNetInit) NCCL WARN ...               (2.30: function)
# gpu-03:4182:4390 [0] int cm_req_handle(nccl_net_ofi_context_t*, uint16_t):46 NCCL WARN ...
#                                       (aws-ofi-nccl: its function, as the compiler calls it)
# :4182:4390 [2] NCCL INFO ...                                               (empty host)
# 4182:4390 [2] NCCL INFO ...                  (host taken off, as the prefix of a launcher)
# gpu-03:4182:4390 NCCL CALL ncclAllReduce(...)                              (no device)
# forms: NVIDIA/nccl src/debug.cc, tags v2.4 to v2.30
_BEFORE = re.compile(
    r"(?:(?P<host>[\w.-]{0,255}):)?(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    r"(?: \[(?P<dev>-?\d{1,6})\])?"
    r"(?: (?P<file>[^\s:\[\]]{1,200}|\w[\w :*&<>,~()]{1,300}\)):(?P<line>\d{1,7})"
    r"(?: \(\w{1,100}\))?)?\Z"
)
_AFTER = re.compile(r"(?P<level>[A-Z]{3,9})(?: (?P<msg>.*))?", re.DOTALL)


def nccl_prefix(text: str) -> NcclPrefix | None:
    """Split an NCCL line into its prefix and message; None for any other text.

    The prefix may start in the middle of the line: launchers, time stamps and torn writers put
    their own text in front.
    """
    end = text.find(" NCCL ")
    for _ in range(MAX_TRIES):
        if end < 0:
            return None
        before = _BEFORE.search(text, max(0, end - MAX_PREFIX), end)
        after = _AFTER.match(text, end + 6) if before else None
        if before and after:
            return _prefix(before, after)
        end = text.find(" NCCL ", end + 5)
    return None


def _prefix(before: re.Match[str], after: re.Match[str]) -> NcclPrefix:
    dev, line = before["dev"], before["line"]
    return NcclPrefix(
        host=before["host"] or None,
        pid=int(before["pid"]),
        tid=int(before["tid"]),
        dev=None if dev is None else int(dev),
        file=before["file"],
        lineno=None if line is None else int(line),
        level=after["level"],
        msg=(after["msg"] or "").rstrip(),
    )
