"""GPU-APP-XID and GPU-ECHO: what a program did to its GPU, and lines that only follow."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sluggish.catalog.xid import xid
from sluggish.causes import Family
from sluggish.correlate.bursts import after_pmu_failure, bursts, pmu_failures
from sluggish.correlate.window import When
from sluggish.correlate.xidrole import ECHOES, RECOVERY, role
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.gpu import Burst, Gpu, Xid
from sluggish.facts.host import RankProcess
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.rules.xid.advice import announced, recovery_words
from sluggish.rules.xid.common import (
    SOURCE,
    WHEN_WORDS,
    Scene,
    is_others,
    mark_shared,
    same_node,
    scene,
    spot,
    subject,
)

_WANTS = (Gpu, Look, Onset, Place)


@rule("GPU-APP-XID", family=Family.KERNEL, needs=(Xid,), wants=(*_WANTS, RankProcess))
def gpu_app_xid(view: View) -> Iterator[Finding]:
    """A program made its GPU raise a fault: that rank is dead and its peers wait."""
    now = scene(view)
    found = [f for burst in bursts(view.all(Xid)) for f in _of_burst(view, now, burst)]
    yield from mark_shared(found)


def is_program_fault(fact: Xid, failures: Sequence[Xid]) -> bool:
    """The code blames the program, and no failure of the GPU stands just before it."""
    entry = xid(fact.code)
    if entry is None or fact.code in ECHOES or fact.caused_by is not None:
        return False
    blames = entry.hang == "cause_app" or (
        entry.hang == "possible" and entry.fault == "application"
    )
    return blames and not after_pmu_failure(fact, failures)


def _of_burst(view: View, now: Scene, burst: Burst) -> Iterator[Finding]:
    faults = _faults(burst)
    if not faults:
        return
    root = faults[0]
    where = now.when(root.at)
    number = announced(view.all(Xid), root)
    part, strength = _part(now, root, where)
    stranger = part is Role.ROOT and _is_stranger(view, now, root)
    if stranger:
        strength = Strength.WEAK
    once = {(x.pci, x.pid): x for x in reversed(faults)}
    gpus = {x.pci for x in faults}
    yield Finding(
        node=root.node,
        subject=subject(now, root.node, root.pci),
        role=part,
        strength=strength,
        at=root.at,
        says=_says(root, gpus)
        + ("; each rank of the node lives, none has this pid" if stranger else "")
        + recovery_words(number)
        + _when(where)
        + _before(view, now, root),
        quote=root.line,
        source=SOURCE,
        spots=tuple(_spot(now, x, stranger) for x in reversed(once.values())),
        subtype="app_xid",
        action="reboot_node" if number in (2, 7) else "restart_app",
    )


def _faults(burst: Burst) -> list[Xid]:
    """Program faults of the burst. Beside a failed GPU only those that other GPUs had before it."""
    failures = pmu_failures(burst.xids)
    faults = [x for x in burst.xids if is_program_fault(x, failures)]
    root = burst.root
    if root is None or is_program_fault(root, failures):
        return faults
    before = frozenset(burst.xids[: burst.xids.index(root)])
    return [x for x in faults if x.pci != root.pci and x in before]


def _part(now: Scene, fact: Xid, where: When) -> tuple[Role, Strength]:
    """Only a fault in the window is a cause; the pid of a rank makes it decisive."""
    ours = fact.pid is not None and any(
        p.pid == fact.pid and same_node(p.node, fact.node) for p in now.places
    )
    if where in (When.AFTERMATH, When.TEARDOWN):
        return Role.CONSEQUENCE, Strength.STRONG
    if where in (When.HISTORY, When.EARLIER) or is_others(now, fact.node, fact.pci):
        return Role.CONTEXT, Strength.WEAK
    if role(fact).hang == "possible":
        return Role.ROOT, Strength.WEAK
    if where is When.CAUSE:
        return Role.ROOT, Strength.DECISIVE if ours else Strength.STRONG
    return Role.ROOT, Strength.STRONG if ours else Strength.WEAK


def _spot(now: Scene, fact: Xid, stranger: bool) -> Spot:
    found = spot(now, fact.node, fact.pci, fact.pid)
    return replace(found, rank=None) if stranger else found


def _is_stranger(view: View, now: Scene, fact: Xid) -> bool:
    """A process that is no rank, on a node where each of the job's ranks is there and lives."""
    share = now.look.gpus_per_node if now.look else None
    here = [p for p in view.all(RankProcess) if same_node(p.node, fact.node)]
    alive = {p.rank for p in here if p.rank is not None and p.state not in ("Z", "X")}
    known = fact.pid is None or any(p.pid == fact.pid for p in here)
    return not known and share is not None and len(alive) >= share


def _says(fact: Xid, gpus: set[str]) -> str:
    many = (
        f" on {len(gpus)} GPUs: a program or library fault, no single GPU"
        if gpus - {fact.pci}
        else ""
    )
    by = f" by {fact.process} (pid {fact.pid})" if fact.process and fact.pid else ""
    return f"Xid {fact.code}{by}: {role(fact).meaning}{many}"


def _when(where: When) -> str:
    return f"; {WHEN_WORDS[where]}" if where in WHEN_WORDS else ""


def _before(view: View, now: Scene, fact: Xid) -> str:
    """The same fault on the same GPU before this job: then the GPU itself is a suspect."""
    old = any(
        x.code == fact.code and x.pci == fact.pci and same_node(x.node, fact.node)
        and now.when(x.at) is When.HISTORY
        for x in view.all(Xid)
    )  # fmt: skip
    return "; this GPU had it before this job too: if it follows the GPU, suspect it" if old else ""


@rule("GPU-ECHO", family=Family.KERNEL, needs=(Xid,), wants=_WANTS)
def gpu_echo(view: View) -> Iterator[Finding]:
    """Only lines that follow something else were printed: the reason stands elsewhere."""
    now = scene(view)
    for burst in bursts(view.all(Xid)):
        echoes = [x for x in burst.xids if x.code in ECHOES]
        if not echoes or burst.root is not None or burst.named_cause is not None:
            continue
        where = now.when(echoes[0].at)
        if where is When.HISTORY:
            continue
        yield _echo(view, now, echoes, where)


def _echo(view: View, now: Scene, echoes: list[Xid], where: When) -> Finding:
    first = echoes[0]
    counts = Counter(x.code for x in echoes)
    listed = ", ".join(f"Xid {c} x{n}" if n > 1 else f"Xid {c}" for c, n in sorted(counts.items()))
    asks = next((x for x in reversed(echoes) if x.code == RECOVERY), None)
    words = recovery_words(announced(view.all(Xid), asks)) if asks else ""
    return Finding(
        node=first.node,
        subject=subject(now, first.node, first.pci),
        role=Role.CONSEQUENCE if where is When.TEARDOWN else Role.CONTEXT,
        strength=Strength.WEAK,
        at=first.at,
        says=f"{listed}: clean-up after a process or an error whose own line is elsewhere"
        + words + _when(where),
        quote=first.line,
        source=SOURCE,
        spots=(spot(now, first.node, first.pci, first.pid),),
    )  # fmt: skip
