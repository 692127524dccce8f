"""What the job's processes did between two samples, and what each of them is to its rank."""

import re
from collections.abc import Iterable
from datetime import timedelta
from statistics import median

from sluggish.facts.host import ProcessDelta, RankProcess

SAME_START = timedelta(seconds=2)
"""A pid whose start differs by more belongs to another process now."""
NETWORK_WAITS = re.compile(
    r"nfs|rpc_|lustre|ldlm|\bll_|osc_|ptlrpc|cl_(?:sync|io)|obd_|mdc_|gpfs|mmfs|cxi|beegfs|FhgfsOps|"
    r"ceph|cifs|smb|fuse_|request_wait_answer|wait_on_commit|netfs|afs_|9p|p9_",
    re.IGNORECASE,
)
"""Kernel functions of network file systems (Linux and Lustre source)."""
LOCAL_WAITS = re.compile(
    r"io_schedule|folio_wait|wait_on_page|wait_on_buffer|blk_|jbd2|xfs_|ext4_|btrfs_|percpu_rwsem|"
    r"bio_|squashfs|overlay|do_writepages|balance_dirty",
    re.IGNORECASE,
)
"""Page and block waits: local disk, or a network file system one level further up the stack."""
GPU_WAITS = re.compile(r"nvidia|\buvm_|\bnv_|\bos_acquire|\brm_|_nv\d{6}", re.IGNORECASE)


def deltas(processes: Iterable[RankProcess]) -> tuple[ProcessDelta, ...]:
    """One delta a process of sample a (or of the only sample); processes gone in b are marked."""
    first: dict[tuple[str | None, int], RankProcess] = {}
    second: dict[tuple[str | None, int], RankProcess] = {}
    for process in processes:
        place = second if process.sample == "b" else first
        place.setdefault((process.node, process.pid), process)
    twice = {node for node, _ in second}
    ranks = _rank_pids(first.values()) | _rank_pids(second.values())
    parents = {key: process.ppid for key, process in [*second.items(), *first.items()]}
    out: list[ProcessDelta] = []
    for key in [*first, *(key for key in second if key not in first)]:
        a, b = first.get(key), second.get(key)
        if a and b and _reused(a, b):
            b = None
        whose = _owner(key, parents, ranks)
        out.append(_delta(a, b, whose, ranks, key[0] in twice))
    return tuple(out)


def what_it_waits_on(process: RankProcess | ProcessDelta) -> str | None:
    """`network`, `disk`, `gpu`, `other` for a process in D; None for one that is not."""
    words = [process.wchan or "", *process.kernel_stack, *(w for _, w in process.blocked_threads)]
    blocked = process.state == "D" or bool(process.blocked_threads)
    if not blocked:
        return None
    for pattern, name in ((NETWORK_WAITS, "network"), (GPU_WAITS, "gpu"), (LOCAL_WAITS, "disk")):
        if any(pattern.search(word) for word in words):
            return name
    return "other"


def odd_cpu(found: Iterable[ProcessDelta]) -> tuple[ProcessDelta, ...]:
    """Ranks whose CPU rate stands apart from all the others: at most a quarter of them.

    A spinning NCCL rank burns about one core; one that waits outside burns none (or the reverse).
    """
    ranks = [d for d in found if d.role == "rank" and d.cpu_rate is not None]
    if len(ranks) < 4:
        return ()
    middle = median(d.cpu_rate or 0.0 for d in ranks)
    odd = tuple(d for d in ranks if abs((d.cpu_rate or 0.0) - middle) > max(0.4, 0.5 * middle))
    return odd if odd and len(odd) * 4 <= len(ranks) else ()


def _rank_pids(processes: Iterable[RankProcess]) -> dict[tuple[str | None, int], int]:
    return {
        (p.node, p.pid): p.rank for p in processes if p.rank is not None and not p.inherited_rank
    }


def _reused(a: RankProcess, b: RankProcess) -> bool:
    if a.started_at and b.started_at:
        return abs(a.started_at - b.started_at) > SAME_START
    return a.cpu_s is not None and b.cpu_s is not None and b.cpu_s < a.cpu_s


def _owner(
    key: tuple[str | None, int],
    parents: dict[tuple[str | None, int], int | None],
    ranks: dict[tuple[str | None, int], int],
) -> tuple[str | None, int] | None:
    """The rank process that this one is or descends from."""
    seen: set[int] = set()
    node, pid = key
    while pid not in seen:
        if (node, pid) in ranks:
            return node, pid
        seen.add(pid)
        above = parents.get((node, pid))
        if above is None:
            return None
        pid = above
    return None


def _delta(
    a: RankProcess | None,
    b: RankProcess | None,
    whose: tuple[str | None, int] | None,
    ranks: dict[tuple[str | None, int], int],
    twice: bool,
) -> ProcessDelta:
    last = b or a
    assert last is not None
    span = (b.at - a.at).total_seconds() if a and b and a.at and b.at else None
    seconds = span if span and span > 0 else None
    cpu = _grown(a.cpu_s, b.cpu_s) if a and b else None
    return ProcessDelta(
        node=last.node,
        pid=last.pid,
        name=last.name,
        cmdline=last.cmdline,
        role="rank" if whose == (last.node, last.pid) else "worker" if whose else "other",
        rank=ranks[whose] if whose else None,
        seconds=seconds,
        cpu_rate=round(cpu / seconds, 3) if cpu is not None and seconds else None,
        cpu_s=cpu,
        read_bytes=_whole(a.read_bytes, b.read_bytes) if a and b else None,
        written_bytes=_whole(a.written_bytes, b.written_bytes) if a and b else None,
        rss_bytes=last.rss_bytes,
        rss_growth_bytes=b.rss_bytes - a.rss_bytes
        if a and b and a.rss_bytes is not None and b.rss_bytes is not None
        else None,
        state=last.state,
        stuck=bool(a and b and a.state == "D" and b.state == "D" and a.wchan == b.wchan),
        wchan=last.wchan,
        kernel_stack=last.kernel_stack,
        open_files=last.open_files,
        blocked_threads=last.blocked_threads,
        gone=b is None and twice,
        job_id=last.job_id,
    )


def _grown(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else max(0.0, round(b - a, 3))


def _whole(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(0, b - a)
