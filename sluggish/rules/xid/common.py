"""Helpers that the Xid rules share: the window, places, standing faults, coverage."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sluggish.correlate.window import SLACK, When, when
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Gpu, Xid
from sluggish.facts.host import KernelSpan
from sluggish.findings import Finding, Role, Spot, Strength, View
from sluggish.hostlist import fold
from sluggish.rules.xid.elimination import by_layout, index_before, layout_index, left_over

SOURCE = "kernel"
ASKERS = frozenset({119, 120})
"""On these the pid is whoever asked the GPU, often nvidia-smi: it accuses nobody."""
WHEN_WORDS = {
    When.HISTORY: "before the job started",
    When.EARLIER: "long before the stall",
    When.AFTERMATH: "after the stall had begun",
    When.TEARDOWN: "while the job was torn down",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What every rule of this family looks at beside its own facts."""

    look: Look | None
    onset: Onset | None
    places: tuple[Place, ...]
    gpus: tuple[Gpu, ...]

    def when(self, at: datetime | None) -> When:
        """Where an event lies relative to the stall."""
        return when(at, self.look, self.onset)


def scene(view: View) -> Scene:
    """The scene of a view that declared Look, Onset, Place and Gpu."""
    return Scene(
        look=view.one(Look), onset=view.one(Onset), places=view.all(Place), gpus=view.all(Gpu)
    )


def same_node(one: str | None, other: str | None) -> bool:
    """Whether two names mean one host: logs print the short name, Slurm may not."""
    if one is None or other is None:
        return one is other
    return one == other or one.split(".")[0] == other.split(".")[0]


def gpu_at(now: Scene, node: str | None, pci: str | None) -> Gpu | None:
    """nvidia-smi's word about a GPU, if it lists it."""
    if pci is None:
        return None
    return next((g for g in now.gpus if g.pci == pci and same_node(g.node, node)), None)


def spot(now: Scene, node: str | None, pci: str | None, pid: int | None) -> Spot:
    """The place of a GPU (or of a process, where no GPU is named), with its rank if it is known."""
    gpu = gpu_at(now, node, pci)
    here = [p for p in now.places if same_node(p.node, node)]
    gpus = [g for g in now.gpus if same_node(g.node, node)]
    share = now.look.gpus_per_node if now.look else None
    place = next((p for p in here if pid is not None and p.pid == pid), None)
    if place is None and pci and share and gpus:
        place = left_over(pci, gpus, here, now.places, share)
    if place is None and (gpu is not None or not gpus):
        place = next((p for p in here if _at(p, pci, gpu)), None)
    index = index_before(pci, gpus, share) if pci and share else None
    if pci and not gpus:  # nvidia-smi did not answer there
        index = layout_index(pci, now.gpus)
        if place is None and index is not None:
            place = by_layout(index, here, now.places)
    return Spot(
        node=node,
        rank=place.rank if place else None,
        pid=pid if pid is not None else (place.pid if place else None),
        gpu_index=gpu.index if gpu else index,
        gpu_uuid=gpu.uuid if gpu else (place.gpu_uuid if place else None),
        gpu_pci=pci or None,
    )


def _at(place: Place, pci: str | None, gpu: Gpu | None) -> bool:
    if not pci:
        return False
    if place.gpu_pci:
        return place.gpu_pci == pci
    if gpu is None:
        return False
    if place.gpu_uuid and gpu.uuid:
        return place.gpu_uuid == gpu.uuid
    return place.gpu_index is not None and place.gpu_index == gpu.index


def is_others(now: Scene, node: str | None, pci: str | None) -> bool:
    """True where all ranks of the job on this node are known to run on other GPUs."""
    share = now.look.gpus_per_node if now.look else None
    here = [p for p in now.places if same_node(p.node, node)]
    placed = [p for p in here if p.gpu_pci or p.gpu_uuid or p.gpu_index is not None]
    if not pci or share is None or len(placed) < share:
        return False
    gpu = gpu_at(now, node, pci)
    listed = any(same_node(g.node, node) for g in now.gpus)
    if gpu is None and (listed or not all(p.gpu_pci for p in placed)):
        return False  # once a GPU is gone the indexes of the others have moved
    return not any(_at(p, pci, gpu) for p in placed)


def standing(now: Scene, node: str | None, pci: str | None) -> bool | None:
    """Whether nvidia-smi shows the fault now: gone, unreadable, waiting for an action.

    None where nvidia-smi was not read on the node.
    """
    here = [g for g in now.gpus if same_node(g.node, node) and g.pci]
    if not here or not pci:
        return None
    gpu = next((g for g in here if g.pci == pci), None)
    if gpu is None:
        return True
    return bool(gpu.errors) or (gpu.recovery_action or "none").strip().lower() not in ("none", "")


def subject(now: Scene, node: str | None, pci: str | None) -> str:
    """`gpu 3`, or its address where nvidia-smi does not list it."""
    gpu = gpu_at(now, node, pci)
    if gpu and gpu.index is not None:
        return f"gpu {gpu.index}"
    return f"gpu {pci}" if pci else "gpu"


def culprit_pid(fact: Xid) -> int | None:
    """The pid of a line, unless it is only whoever asked."""
    return None if fact.code in ASKERS else fact.pid


def mark_shared(findings: Iterable[Finding]) -> list[Finding]:
    """The same kind of fault on two or more nodes is one shared cause: no drain lines."""
    items = list(findings)
    nodes: dict[str | None, set[str | None]] = {}
    for f in items:
        if f.role is Role.ROOT and f.strength is not Strength.WEAK and f.node is not None:
            nodes.setdefault(f.subtype, set()).add(f.node)
    return [
        replace(f, shared=True) if f.role is Role.ROOT and len(nodes.get(f.subtype, ())) > 1 else f
        for f in items
    ]


def covers(span: KernelSpan, started: datetime | None) -> bool:
    """Whether a kernel log is all that was printed since the start of the job."""
    if span.filtered:
        return False
    if started is None or span.first_at is None:
        return span.from_boot
    return span.first_at <= started + SLACK


def all_clear(view: View, what: str) -> Finding | None:
    """`no <what> since job start on 2 nodes`, with the nodes it does not speak for; None if none.

    A node counts only where its kernel log was read and reaches back to the start of the job.
    """
    look = view.one(Look)
    started = look.job_started_at if look else None
    spans = view.all(KernelSpan)
    nodes = look.nodes if look and look.nodes else tuple(sorted({s.node for s in spans if s.node}))
    good = [
        n
        for n in nodes
        if view.saw(KernelSpan, n) or any(same_node(s.node, n) for s in spans)
        if any(same_node(s.node, n) and covers(s, started) for s in spans)
    ]
    if not good:
        return None
    blind = [n for n in nodes if n not in good]
    since = "job start" if started else "boot"
    says = f"no {what} since {since} on {len(good)} node{'s' if len(good) != 1 else ''}"
    if blind:
        says += f"; kernel log missing or too short on {fold(blind)}"
    return Finding(
        node=None,
        subject="job",
        role=Role.ALL_CLEAR,
        strength=Strength.WEAK if blind else Strength.STRONG,
        says=says,
        source=SOURCE,
    )
