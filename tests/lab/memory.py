"""A real kill by a memory cgroup: the kernel does it, its lines go into the node's own log."""

import contextlib
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from . import sims
from .cluster import Lab, wait_for

_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


@contextmanager
def limited(lab: Lab, node: str, job: str, mib: int = 64, step: str = "0") -> Generator[Path]:
    """A cgroup named as Slurm would name the step's, on the machine; gone at the end.

    `enter` puts processes into it; what they allocate from then on counts against its limit. Who is
    still in it at the end lives on outside. The node sees the groups, read-only, meanwhile.
    """
    root = _V1 if _V1.is_dir() else _V2
    top = root / lab.dir.name
    group = top / node / f"slurm/uid_5001/job_{job}/step_{step}"
    group.mkdir(parents=True)
    if root == _V2:
        _hand_down(root, group)
    limits = {"memory.limit_in_bytes": mib << 20, "memory.memsw.limit_in_bytes": mib << 20}
    limits |= {"memory.max": mib << 20, "memory.swap.max": 0}
    for name, value in limits.items():
        if (group / name).exists():
            (group / name).write_text(str(value))
    kind = "cgroup -o ro,memory" if root == _V1 else "cgroup2 -o ro"
    lab.sh(node, f"mkdir -p {root} && mount -n -t {kind} lab {root}")
    try:
        yield group
    finally:
        lab.sh(node, f"umount -n -l {root}")
        for pid in (group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):  # it has ended by itself
                (root / "cgroup.procs").write_text(pid)
        while group != root:
            wait_for(lambda place=group: _removed(place), 20, f"{group} is in use")
            group = group.parent


def _hand_down(root: Path, group: Path) -> None:
    """Version 2 lets a group limit memory where every group above hands the controller down."""
    for place in reversed(group.parents):
        if place.is_relative_to(root):
            (place / "cgroup.subtree_control").write_text("+memory")


def enter(lab: Lab, node: str, group: Path, pid: int) -> None:
    """Moves a process, by its number on the node."""
    (group / "cgroup.procs").write_text(str(lab.host_pid(node, pid)))


def copy_kill(lab: Lab, node: str, group: Path, victim: int) -> str:
    """Waits for the kernel's lines about this cgroup and copies them to the node's log.

    `victim`: the killed process as the node numbered it; the kernel counts for the whole machine.
    The paths lose what lies above Slurm's part. Gives back the line that says who was killed.
    """
    path = "/" + str(group.relative_to(_V1 if _V1.is_dir() else _V2))
    above = path.partition("/slurm/")[0]
    lines: list[str] = []

    def told() -> bool:
        found = subprocess.run(["/bin/dmesg"], capture_output=True, text=True, check=True).stdout
        lines[:] = [line.partition("] ")[2] for line in found.splitlines()]
        starts = [i for i, line in enumerate(lines) if f"{path}," in line and "oom-kill:" in line]
        if not starts:
            return False
        end = starts[-1] + 2
        first = max(i for i in range(starts[-1]) if "invoked oom-killer" in lines[i])
        lines[:] = lines[first:end]
        return len(lines) > 1 and "Killed process" in lines[-1]

    wait_for(told, 20, f"no kill in {group}")
    (killed,) = re.findall(r"Killed process (\d+) ", lines[-1])
    told_there = [re.sub(rf"\b{killed}\b", str(victim), x.replace(above, "")) for x in lines]
    for line in told_there:
        sims.kernel(lab, node, line)
    return told_there[-1]


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return any(group.glob("*/"))  # another test of this lab has one: it takes this one along
    return True
