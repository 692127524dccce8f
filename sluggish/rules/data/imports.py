"""DATA-IMPORT: a start-up that imports its image or its Python modules."""

import re
from collections.abc import Iterator

from sluggish.causes import Family, Phase
from sluggish.correlate.jobsense import folded, rank_of_pid
from sluggish.correlate.procs import deltas, what_it_waits_on
from sluggish.facts.derived import PhaseFact
from sluggish.facts.host import ProcessDelta, RankProcess, Stack
from sluggish.findings import Finding, Role, Spot, Strength, View, rule

STORM_SHARE = 0.5
"""Share of the ranks seen that stand in an import: fewer is somebody who is late."""
STORM_MIN = 2
MOVES_BYTES = 1 << 20
IMAGE = re.compile(r"enroot|mksquashfs|unsquashfs|squashfuse|skopeo|umoci|pyxis|mksquash|"
                   r"apptainer|singularity")  # fmt: skip
_VERB = re.compile(r"\b(?:import|load|create|build|pull|convert)\b|squash|skopeo|umoci")
_IMPORT = re.compile(
    r"_find_and_load|_load_unlocked|exec_module|_call_with_frames_removed|get_code"
)


@rule(
    "DATA-IMPORT",
    family=Family.DATA,
    needs=(RankProcess, Stack),
    wants=(PhaseFact,),
)
def data_import(view: View) -> Iterator[Finding]:
    """Start-up: a container image is imported, or many ranks read Python modules at once."""
    phase = view.one(PhaseFact)
    if phase is not None and phase.phase not in (Phase.START_UP, Phase.UNKNOWN):
        return
    moved = deltas(view.all(RankProcess))
    yield from _images(moved)
    yield from _storm(view, moved)


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


def _storm(view: View, moved: tuple[ProcessDelta, ...]) -> Iterator[Finding]:
    mains = [s for s in view.all(Stack) if s.main]
    importing = [s for s in mains if any(_IMPORT.match(f.function) for f in s.frames)]
    if len(importing) < max(STORM_MIN, STORM_SHARE * len(mains)):
        return
    ranks = rank_of_pid(view.all(RankProcess))
    pids = {(s.node, s.pid) for s in importing}
    mine = [d for d in moved if (d.node, d.pid) in pids]
    blocked = [d for d in mine if what_it_waits_on(d) in ("network", "disk")]
    going = [d for d in mine if d.seconds and _moves(d)]
    healthy = len(going) * 2 > len(mine) and mine
    says = f"{len(importing)} of {len(mains)} ranks seen import Python modules"
    says += f", {len(blocked)} of them in D on {blocked[0].wchan}" if blocked else ""
    yield Finding(
        node=None,
        subject="import",
        role=Role.CONTEXT if healthy else Role.ROOT,
        strength=Strength.STRONG if blocked or healthy else Strength.WEAK,
        says=says,
        source="stacks",
        spots=tuple(
            Spot(node=s.node, pid=s.pid, doing="imports modules",
                 rank=s.rank if s.rank is not None else ranks.get((s.node, s.pid or -1)))
            for s in importing[:64]
        ),
        subtype="import_storm",
        shared=True,
    )  # fmt: skip
