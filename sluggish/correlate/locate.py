"""Where: rank -> node, pid, GPU, from every source that tells, never from order."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from sluggish.facts.collective import GroupHead, RankRecord
from sluggish.facts.derived import Place
from sluggish.facts.gpu import Gpu
from sluggish.facts.host import RankProcess, Stack
from sluggish.facts.log import NcclInit
from sluggish.facts.store import Facts


def places(facts: Facts) -> tuple[Place, ...]:
    """One Place a rank that any source mentions; a field that no source tells stays None.

    Order of trust: the process's own environment, NCCL's init line, a recorder's header.
    """
    known: dict[int, Place] = {}
    for process in facts.all(RankProcess):
        if process.rank is not None and _is_the_rank_itself(process):
            _merge(known, _of_process(process))
    for line in _lines_of_the_world(facts):
        _merge(known, _of_init(line))
    for record in facts.all(RankRecord):
        _merge(
            known,
            Place(rank=record.rank, node=record.node, pid=record.pid, source=record.source),
        )
    found = _Gpus(facts)
    return tuple(_with_gpu(place, found.of(place)) for _, place in sorted(known.items()))


def _lines_of_the_world(facts: Facts) -> list[NcclInit]:
    """Sub-communicators count their own ranks: only the world's lines name global ones.

    A job need not have made a communicator of the world. Then the largest are several of one
    size, each with a rank 0 on a node of its own, or another source tells of a larger world.
    """
    size = max((line.world_size for line in facts.all(NcclInit)), default=0)
    told = [p.world_size for p in facts.all(RankProcess) if p.world_size]
    told += [len(h.group.ranks) for h in facts.all(GroupHead) if h.group.desc == "default_pg"]
    lines = [line for line in facts.all(NcclInit) if line.world_size == size]
    homes: dict[int, set[str | None]] = defaultdict(set)
    for line in lines:
        homes[line.rank].add(line.node)
    twice = sum(len(nodes) > 1 for nodes in homes.values())
    return [] if max(told, default=0) > size or 2 * twice > len(homes) else lines


def at_home(facts: Facts, known: Iterable[Place]) -> None:
    """Gives stacks that tell only their rank or pid the node where that process lives.

    A mailed `py-spy dump` names no host; without this the nodes would count as not asked.
    """
    ranks = {place.rank: place.node for place in known}
    pids: dict[int, set[str | None]] = {}
    for process in facts.all(RankProcess):
        pids.setdefault(process.pid, set()).add(process.node)
    for number, stack in enumerate(facts.all(Stack)):
        homes = pids.get(stack.pid or -1, set())
        node = ranks.get(stack.rank if stack.rank is not None else -1)
        node = node or (next(iter(homes)) if len(homes) == 1 else None)
        if stack.node is None and node is not None:
            facts.facts[Stack][number] = replace(stack, node=node)
            facts.answered["stacks"].add(node)
            facts.seen[Stack].add(node)


class _Gpus:
    """GPUs by process, by address and, only where no GPU is missing, by index."""

    def __init__(self, facts: Facts) -> None:
        gpus = facts.all(Gpu)
        self._by_pid = {(g.node, p.pid): g for g in gpus for p in g.processes}
        self._by_pci = {(g.node, g.pci): g for g in gpus if g.pci}
        self._by_index = {(g.node, g.index): g for g in gpus if g.index is not None}
        counts = Counter(g.node for g in gpus)
        self._whole = {n for n, count in counts.items() if count == max(counts.values())}

    def of(self, place: Place) -> Gpu | None:
        """nvidia-smi counts anew when a GPU has left the bus: then an index names another one."""
        if (place.node, place.pid) in self._by_pid and place.pid is not None:
            return self._by_pid[place.node, place.pid]
        if place.gpu_pci is not None:
            return self._by_pci.get((place.node, place.gpu_pci))
        if place.node in self._whole and place.gpu_index is not None:
            return self._by_index.get((place.node, place.gpu_index))
        return None


def _is_the_rank_itself(process: RankProcess) -> bool:
    """Loader workers inherit RANK: the rank is the one whose parent has no rank, see procs."""
    return process.sample in ("", "a") and not process.inherited_rank


def _of_process(process: RankProcess) -> Place:
    return Place(
        rank=process.rank if process.rank is not None else -1,
        node=process.node,
        local_rank=process.local_rank,
        pid=process.pid,
        source="process environment",
    )


def _of_init(line: NcclInit) -> Place:
    return Place(
        rank=line.rank,
        node=line.node,
        pid=line.pid,
        gpu_index=line.nvml_device,
        gpu_pci=line.pci,
        source="NCCL init line",
    )


def _merge(known: dict[int, Place], new: Place) -> None:
    old = known.get(new.rank)
    if old is None:
        known[new.rank] = new
        return
    if old.node and new.node and old.node.split(".")[0] != new.node.split(".")[0]:
        return  # another run's line: the more trusted source stands
    fields = ("node", "local_rank", "pid", "gpu_index", "gpu_uuid", "gpu_pci", "hca")
    missing = {f: getattr(new, f) for f in fields if getattr(old, f) is None}
    known[new.rank] = replace(old, **missing)


def _with_gpu(place: Place, gpu: Gpu | None) -> Place:
    if gpu is None:
        return place
    return replace(place, gpu_index=gpu.index, gpu_uuid=gpu.uuid, gpu_pci=gpu.pci)
