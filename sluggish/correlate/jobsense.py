"""What belongs to the job of the look: its ids, its pids, its nodes; and words for coverage."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from sluggish.facts.derived import Look
from sluggish.facts.host import RankProcess
from sluggish.facts.log import NcclInit, ProcessExit
from sluggish.hostlist import fold
from sluggish.job import Job

Key = tuple[str | None, int]


def job_ids(jobs: Iterable[Job], processes: Iterable[RankProcess] = ()) -> frozenset[str]:
    """Plain numbers under which cgroups and messages may name the job."""
    found: set[str] = set()
    for job in jobs:
        found |= {job.id, re.split(r"[_+]", job.id)[0], job.raw_id or job.id}
    found |= {process.job_id for process in processes if process.job_id}
    return frozenset(found)


def rank_of_pid(processes: Iterable[RankProcess], inits: Iterable[NcclInit] = ()) -> dict[Key, int]:
    """(node, pid) -> rank, from the processes' environment first."""
    found: dict[Key, int] = {(i.node, i.pid): i.rank for i in inits if i.pid is not None}
    found.update({(p.node, p.pid): p.rank for p in processes if p.rank is not None})
    return found


def rank_of_task(end: ProcessExit, jobs: Iterable[Job], look: Look | None) -> int | None:
    """srun counts tasks: they are the ranks where the job has one task a rank."""
    if end.rank is not None or end.task is None or look is None or look.world_size is None:
        return end.rank
    told = {job.num_tasks for job in jobs if job.num_tasks}
    return end.task if told == {look.world_size} else None


def missing_ranks(
    processes: Iterable[RankProcess], look: Look | None
) -> dict[str | None, dict[int, int]]:
    """Node -> local rank -> rank, where the ranks of a node are numbered in a row with holes."""
    there: dict[str | None, dict[int, int]] = {}
    for p in processes:
        if p.rank is not None and p.local_rank is not None and not p.inherited_rank:
            there.setdefault(p.node, {})[p.local_rank] = p.rank
    if look is None or not look.world_size or not look.nodes:
        return {}
    size = look.world_size // len(look.nodes)
    out: dict[str | None, dict[int, int]] = {}
    for node, found in there.items():
        offsets = {rank - local for local, rank in found.items()}
        if len(offsets) == 1:
            offset = offsets.pop()
            out[node] = {n: offset + n for n in range(size) if n not in found}
    return out


def in_job(node: str | None, look: Look | None) -> bool:
    """Whether a node is one of the job's; True where the job's nodes are not known."""
    if look is None or not look.nodes or node is None:
        return True
    return node.split(".")[0] in _short_names(look.nodes)


@lru_cache(maxsize=4)
def _short_names(nodes: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.split(".")[0] for name in nodes)


def split_seen(look: Look | None, saw: Callable[[str], bool]) -> tuple[list[str], list[str]]:
    """The job's nodes on which something was looked for, and the blind ones."""
    nodes = look.nodes if look else ()
    return [n for n in nodes if saw(n)], [n for n in nodes if not saw(n)]


def on_nodes(seen: list[str], blind: list[str]) -> str:
    """`on 2 nodes`, `on gpu-07; not seen on gpu-08`."""
    where = f"on {fold(seen)}" if len(seen) == 1 else f"on {len(seen)} nodes"
    return f"{where}; not seen on {fold(blind)}" if blind else where


def folded(nodes: Iterable[str | None]) -> str:
    """Names for a sentence; a missing name reads "a node"."""
    names = [node for node in dict.fromkeys(nodes) if node]
    return fold(names) if names else "a node"


def ranks_words(ranks: Iterable[int | None]) -> str:
    """`rank 3`, `ranks 3, 5`, `12 ranks`, or nothing."""
    known = sorted({rank for rank in ranks if rank is not None})
    if not known:
        return ""
    if len(known) > 4:
        return f"{len(known)} ranks"
    return f"rank{'s' if len(known) > 1 else ''} {', '.join(map(str, known))}"


def share(part: float, whole: float) -> str:
    """`41%`, never above what it is."""
    return f"{int(100 * part / whole)}%" if whole else "?"
