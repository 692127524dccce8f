"""CFG-LIMITS: locked memory, shared memory, disk: limits that a program runs into."""

from collections.abc import Iterator, Sequence

from sluggish.causes import Family
from sluggish.correlate.logorder import before_timeouts
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.fabric import NcclTrouble
from sluggish.facts.host import Filesystem, Mount, RankProcess
from sluggish.facts.log import LogSign, LogSpan
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.rules.config.common import root

SMALL_MEMLOCK = 1 << 30
"""RDMA registers gigabytes; slurmd under systemd hands on 64 KiB (ai4d-iasc/trixie #81)."""
NO_ROOM = 0.99
"""Of a local disk: ext4 keeps 5 % for root, so that users are refused before df says 100 %."""
IMAGES = {"squashfs", "iso9660", "erofs", "overlay"}
SHOWN = 3
FULL = 0.9
ROOMY = 0.5
"""A /dev/shm emptier than this at the look speaks against it (trap T13)."""


@rule(
    "CFG-LIMITS",
    family=Family.PROCESS,
    needs=(LogSign, NcclTrouble, RankProcess),
    wants=(Filesystem, Mount, WatchdogTimeout, LogSpan),
)
def cfg_limits(view: View) -> Iterator[Finding]:
    """The program runs into a limit of locked memory, shared memory or disk space."""
    signs = view.all(LogSign)
    yield from _memlock(view, [s for s in signs if s.kind == "memlock"])
    yield from _shared_memory(view, [s for s in signs if s.kind == "shm_full"])
    for sign in [s for s in signs if s.kind == "files_limit"][:1]:
        yield root("too many open files: ulimit -n, or the loader's sharing strategy",
                   Strength.STRONG, sign=sign)  # fmt: skip
    shared = any(s.kind == "shm_full" for s in signs)
    yield from _disk(view, [s for s in signs if s.kind == "disk_full"], shared=shared)


def _memlock(view: View, signs: Sequence[LogSign]) -> Iterator[Finding]:
    small = [
        p for p in view.all(RankProcess)
        if p.rank is not None and p.memlock_bytes is not None
        and 0 <= p.memlock_bytes < SMALL_MEMLOCK
    ]  # fmt: skip
    registered = [t for t in view.all(NcclTrouble)
                  if t.kind == "reg_mr" and "Cannot allocate" in t.line]  # fmt: skip
    unknown = [t for t in view.all(NcclTrouble) if t.kind == "reg_mr" and t not in registered]
    limit = f" (ulimit -l is {small[0].memlock_bytes // 1024} KiB)" if (
        small and small[0].memlock_bytes is not None) else ""  # fmt: skip
    if signs or registered:
        quote = signs[0].line if signs else registered[0].line
        nodes = {fact.node for fact in (*signs, *registered)}
        one = nodes.pop() if len(nodes) == 1 else None  # slurmd's limit is each node's own
        yield root(
            f"memory cannot be registered for RDMA: the limit of locked memory{limit}, not RAM",
            Strength.DECISIVE if small else Strength.STRONG, quote=quote,
            sign=signs[0] if signs else None, node=one, shared=one is None,
            spots=(Spot(node=one),) if one else (),
        )  # fmt: skip
    elif unknown:
        yield root(f"memory cannot be registered for RDMA{limit}: locked memory, or the GPU's "
                   "peer memory module", Strength.WEAK, quote=unknown[0].line)  # fmt: skip
    elif small:
        yield root(f"ranks may lock little memory{limit}", Strength.WEAK, role=Role.HOUSEKEEPING,
                   source="/proc")  # fmt: skip


def _shared_memory(view: View, signs: Sequence[LogSign]) -> Iterator[Finding]:
    if not signs:
        return
    head = signs[0]
    if before_timeouts(head, view.all(WatchdogTimeout), view.all(LogSpan)) is False:
        yield root("shared memory ran out after the first timeout", Strength.WEAK, sign=head,
                   role=Role.CONSEQUENCE)  # fmt: skip
        return
    mounts = [f for f in view.all(Filesystem) if f.path == "/dev/shm" and f.size_bytes > 0]
    used = max((f.used_bytes / f.size_bytes for f in mounts), default=None)
    told = "" if used is None else f"; {used:.0%} used at the look"
    roomy = used is not None and used < ROOMY
    strength = Strength.DECISIVE if used is not None and used >= FULL else Strength.STRONG
    yield root(f"shared memory (/dev/shm) is too small for the loader or NCCL{told}",
               Strength.WEAK if roomy else strength, sign=head, shared=False)  # fmt: skip


def _disk(view: View, signs: Sequence[LogSign], *, shared: bool) -> Iterator[Finding]:
    rest = [s for s in signs if "/dev/shm" not in s.line and "shm" not in s.detail]
    full = _full(view)
    if full and not rest:
        where = ", ".join(f"{path} on {fold(nodes)}" for path, nodes in list(full.items())[:SHOWN])
        yield root(f"no space left on a local disk: {where}", Strength.WEAK,
                   role=Role.HOUSEKEEPING, source="df")  # fmt: skip
    if not rest or shared:
        return
    head = rest[0]
    late = before_timeouts(head, view.all(WatchdogTimeout), view.all(LogSpan)) is False
    quota = "quota exceeded" in head.line.lower()
    where = f": {head.detail}" if head.detail else "" if quota else " (disk, quota or /dev/shm)"
    disk = next((p for p in sorted(full, key=len, reverse=True) if _below(head.detail, p)), None)
    if disk:
        where += f"; {disk} is full on {fold(full[disk])}"
    what = "quota exceeded" if quota else "no space left"
    yield root(f"{what}{where}", Strength.WEAK if late else Strength.STRONG, sign=head,
               role=Role.CONSEQUENCE if late else Role.ROOT, shared=False)  # fmt: skip


def _full(view: View) -> dict[str, list[str]]:
    """Local file systems without room, with their nodes; images and media are full by nature."""
    aside = {(m.node, m.path) for m in view.all(Mount) if m.read_only or m.fstype in IMAGES}
    found: dict[str, list[str]] = {}
    for one in view.all(Filesystem):
        used = one.size_bytes and one.used_bytes / one.size_bytes
        known = one.path != "/dev/shm" and (one.node, one.path) not in aside
        if known and one.node and used >= NO_ROOM:
            found.setdefault(one.path, []).append(one.node)
    return {path: sorted(nodes) for path, nodes in sorted(found.items())}


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
