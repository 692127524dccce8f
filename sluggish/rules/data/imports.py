"""DATA-IMPORT: a start-up that imports its image or its Python modules."""

import re
from collections.abc import Iterator
from datetime import timedelta

from sluggish.causes import Family, Phase
from sluggish.correlate.jobsense import folded, rank_of_pid
from sluggish.correlate.procs import deltas, what_it_waits_on
from sluggish.facts.derived import Look, PhaseFact
from sluggish.facts.host import ProcessDelta, RankProcess, Stack
from sluggish.facts.log import LogSign
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

STORM_SHARE = 0.5
"""Share of the ranks seen that stand in an import: fewer is somebody who is late."""
STORM_MIN = 2
MOVES_BYTES = 1 << 20
BRISK_BPS = 5_000_000
"""Bytes/s of a rank whose imports come along; from a slow file system it is a tenth of that."""
LONG = timedelta(minutes=10)
"""An image that is not there after this long is why the job has not started (judgement)."""
IMAGE = re.compile(r"enroot|mksquashfs|unsquashfs|squashfuse|skopeo|umoci|pyxis|mksquash|"
                   r"apptainer|singularity")  # fmt: skip
_VERB = re.compile(r"\b(?:import|load|create|build|pull|convert)\b|squash|skopeo|umoci")
_IMPORT = re.compile(
    r"_find_and_load|_load_unlocked|exec_module|_call_with_frames_removed|get_code"
)


@rule(
    "DATA-IMPORT",
    family=Family.DATA,
    needs=(RankProcess, Stack, LogSign),
    wants=(PhaseFact, Look),
)
def data_import(view: View) -> Iterator[Finding]:
    """Start-up: a container image is imported, or many ranks read Python modules at once."""
    phase = view.one(PhaseFact)
    if phase is not None and phase.phase not in (Phase.START_UP, Phase.UNKNOWN):
        return
    moved = deltas(view.all(RankProcess))
    images = list(_images(moved))
    yield from images or _not_yet(view, moved)
    yield from _storm(view, moved) or _slow_start(moved, phase)


def _images(moved: tuple[ProcessDelta, ...]) -> Iterator[Finding]:
    found = [d for d in moved if IMAGE.search(d.name) and _VERB.search(d.cmdline + " " + d.name)]
    if not found:
        return
    stuck = [d for d in found if not _moves(d) and what_it_waits_on(d) in ("network", "disk")]
    still = [d for d in found if d.seconds and not _moves(d)]
    nodes = list(dict.fromkeys(d.node for d in found))
    dead = stuck or (still if len(still) == len(found) else [])
    says = f"{folded(nodes)} still import{'s' if len(nodes) == 1 else ''} the container image"
    says += f" ({found[0].name})" + (", and no byte moves" if dead else "")
    yield Finding(
        node=nodes[0] if len(nodes) == 1 else None,
        subject="image",
        role=Role.ROOT if dead else Role.CONTEXT,
        strength=Strength.STRONG if stuck else Strength.WEAK if dead else Strength.STRONG,
        says=says,
        source="processes",
        spots=tuple(Spot(node=d.node, pid=d.pid, doing="imports the image") for d in found),
        subtype="image_import",
        shared=len(nodes) > 1,
    )


def _moves(delta: ProcessDelta) -> bool:
    moved = (delta.read_bytes or 0) + (delta.written_bytes or 0)
    return moved >= MOVES_BYTES or (delta.cpu_rate or 0.0) > 0.2


def _not_yet(view: View, moved: tuple[ProcessDelta, ...]) -> Iterator[Finding]:
    """The log tells of an image import, and some nodes have no rank yet while the others have."""
    look = view.one(Look)
    signs = [s for s in view.all(LogSign) if s.kind == "image_import"]
    if look is None or not signs:
        return
    have = {d.node for d in moved if d.role == "rank"}
    empty = [n for n in look.nodes if n not in have and view.saw(RankProcess, n)]
    if not have or not empty or len(empty) * 2 > len(look.nodes):
        return
    late = bool(look.at and look.job_started_at and look.at - look.job_started_at >= LONG)
    yield Finding(
        node=empty[0] if len(empty) == 1 else None,
        subject="image",
        role=Role.ROOT if late else Role.CONTEXT,
        strength=Strength.STRONG,
        says=f"no rank on {folded(empty)} yet, the other {len(have)} nodes have theirs; "
        "the log tells of an image import",
        quote=signs[0].line,
        source="job log, processes",
        spots=tuple(Spot(node=node, doing="still imports the image") for node in empty),
        subtype="image_import",
        shared=len(empty) > 1,
    )


def _storm(view: View, moved: tuple[ProcessDelta, ...]) -> tuple[Finding, ...]:
    mains = [s for s in view.all(Stack) if s.main]
    importing = [s for s in mains if any(_IMPORT.match(f.function) for f in s.frames)]
    if len(importing) < max(STORM_MIN, STORM_SHARE * len(mains)):
        return ()
    ranks = rank_of_pid(view.all(RankProcess))
    pids = {(s.node, s.pid) for s in importing}
    mine = [d for d in moved if (d.node, d.pid) in pids]
    blocked = [d for d in mine if what_it_waits_on(d) in ("network", "disk")]
    brisk = [d for d in mine if _brisk(d)]
    healthy = len(brisk) * 2 > len(mine) and bool(mine)
    says = f"{len(importing)} of {len(mains)} ranks seen import Python modules"
    says += f", {len(blocked)} of them in D on {blocked[0].wchan}" if blocked else ""
    spots = tuple(
        Spot(
            node=s.node,
            pid=s.pid,
            doing="imports modules",
            rank=s.rank if s.rank is not None else ranks.get((s.node, s.pid or -1)),
        )
        for s in importing[:64]
    )
    strength = Strength.STRONG if blocked or healthy else Strength.WEAK
    return (_storm_finding(says, healthy, strength, "stacks", spots),)


def _slow_start(moved: tuple[ProcessDelta, ...], phase: PhaseFact | None) -> tuple[Finding, ...]:
    """Without stacks: at start-up most ranks sit in D on a network file system, byte by byte."""
    ranks = [d for d in moved if d.role == "rank"]
    slow = [d for d in ranks if d.stuck and what_it_waits_on(d) == "network" and not _brisk(d)]
    starting = phase is not None and phase.phase is Phase.START_UP
    if not starting or len(slow) < 4 or len(slow) < STORM_SHARE * len(ranks):
        return ()
    says = f"{len(slow)} of {len(ranks)} ranks read slowly at start-up, in D on {slow[0].wchan}"
    spots = tuple(Spot(node=d.node, pid=d.pid, rank=d.rank, doing="reads") for d in slow[:64])
    return (_storm_finding(says, False, Strength.WEAK, "processes", spots),)


def _brisk(delta: ProcessDelta) -> bool:
    if not delta.seconds:
        return False
    return (delta.read_bytes or 0) / delta.seconds >= BRISK_BPS or (delta.cpu_rate or 0.0) > 0.5


def _storm_finding(
    says: str, healthy: bool, strength: Strength, source: str, spots: tuple[Spot, ...]
) -> Finding:
    return Finding(
        node=None,
        subject="import",
        role=Role.CONTEXT if healthy else Role.ROOT,
        strength=strength,
        says=says,
        source=source,
        spots=spots,
        subtype="import_storm",
        shared=True,
    )
