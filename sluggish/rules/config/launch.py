"""CFG-LAUNCH, CFG-TIMEOUT, CFG-VERSIONS, CFG-NCCLBUG: how it was started, and with what."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sluggish.catalog.nccl import NcclBug, bugs
from sluggish.causes import Family
from sluggish.facts.collective import RankRecord, WatchdogTimeout
from sluggish.facts.derived import Look, Onset
from sluggish.facts.gpu import Gpu, SmiFailure
from sluggish.facts.host import NodeIdentity, Stack
from sluggish.facts.log import LogSign, LogSpan, ProcessExit, Progress, Version
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.hostlist import fold
from sluggish.job import Job
from sluggish.rules.config.common import root, stepped

LEAKED = "ncclLocalOpAppend"
"""NVIDIA/nccl commit 25368a7f and marin issue 7344: the waiting rank spins there for ever."""
NEAR_TIMEOUT = 0.05
"""A bar that has run as long as the timeout, within 5 %, is what the others waited for."""
RESTART = timedelta(minutes=10)
"""What is printed later than this after the timeout is of the next start."""
_BAR_TIME = re.compile(r"\[(?:(?P<h>\d{1,4}):)?(?P<m>\d{1,2}):(?P<s>\d\d)<")


@rule(
    "CFG-LAUNCH",
    family=Family.PROCESS,
    needs=(LogSign, ProcessExit),
    wants=(Job, Look, Progress, LogSpan),
)
def cfg_launch(view: View) -> Iterator[Finding]:
    """The job was started so that ranks share a GPU, miscount, or outlive a dead one."""
    signs = view.all(LogSign)
    doubled = [s for s in signs if s.kind == "duplicate_gpu"]
    if doubled:
        yield root(f"two ranks use one GPU: rank {doubled[0].detail}", Strength.DECISIVE,
                   sign=doubled[0])  # fmt: skip
    for sign in [s for s in signs if s.kind == "world_mismatch"][:1]:
        yield root("the ranks disagree on the world size", Strength.STRONG, sign=sign)
    yield from _start_up(view, signs)
    started = [s for s in signs if s.kind == "launch_flags" and s.detail.startswith("srun")]
    careless = [s for s in started if not _kills(s.detail)]
    job = next(iter(view.all(Job)), None)
    died = any(e.exit_code or e.signal for e in view.all(ProcessExit))
    if careless and died and job is not None and job.state == "RUNNING":
        yield root(
            "a process has ended and the step runs on: srun without --kill-on-bad-exit",
            Strength.WEAK, sign=careless[0], role=Role.HOUSEKEEPING,
        )  # fmt: skip


_AT_START = {
    "rank_count": "the ranks disagree on how many they are",
    "port_in_use": "the port of the rendezvous is taken: another job, or what is left of one",
    "container_failed": "the container did not start",
}


def _start_up(view: View, signs: Sequence[LogSign]) -> Iterator[Finding]:
    """What keeps a job from starting; of a job that has stepped it is another start's line."""
    if stepped(view):
        return
    for kind, says in _AT_START.items():
        mine = [s for s in signs if s.kind == kind]
        if not mine:
            continue
        nodes = {s.node for s in mine}
        one = nodes.pop() if len(nodes) == 1 else None
        told = f": {mine[0].detail[:90]}" if mine[0].detail else ""
        yield root(f"{says}{told}", Strength.STRONG, sign=mine[0], node=one, shared=one is None,
                   spots=(Spot(node=one),) if one else ())  # fmt: skip


def _kills(words: str) -> bool:
    return "kill-on-bad-exit" in words or re.search(r" -K(?:\s|=|1|\Z)", words) is not None


@rule(
    "CFG-TIMEOUT",
    family=Family.COLLECTIVE,
    needs=(WatchdogTimeout,),
    wants=(Progress, Onset, LogSign, LogSpan),
)
def cfg_timeout(view: View) -> Iterator[Finding]:
    """The others' timeout is shorter than work that one rank does alone, and does."""
    timeouts = [w for w in view.all(WatchdogTimeout) if w.timeout_ms]
    if not timeouts or not timeouts[0].timeout_ms:
        return
    limit = timedelta(milliseconds=timeouts[0].timeout_ms)
    onset = view.one(Onset)
    first = min((w.at for w in timeouts if w.at), default=None)
    alone = [
        p for p in view.all(Progress)
        if p.kind in ("bar", "evaluation", "checkpoint_end", "evaluation_end")
    ]  # fmt: skip
    for mark in alone:
        ran = _bar_seconds(mark.line) if mark.kind in ("bar", "evaluation") else None
        seconds = limit.total_seconds()
        if ran is not None and abs(ran - seconds) <= NEAR_TIMEOUT * seconds:
            yield _short(mark, limit, f"one rank's own work had run {ran:.0f} s")
            return
        if mark.at and onset and first and onset.latest + limit / 2 < mark.at < first + RESTART:
            yield _short(mark, limit, "one rank's own work went on while the others waited")
            return
    if onset and first and not stepped(view):
        yield from _still_starting(view, onset.latest + limit / 2, first, limit)


def _still_starting(
    view: View, since: datetime, until: datetime, limit: timedelta
) -> Iterator[Finding]:
    """Start-up work late in the wait and before the first timeout; later it is the next start's."""
    starts: list[Progress | LogSign] = [p for p in view.all(Progress) if p.kind == "init"]
    starts += [s for s in view.all(LogSign) if s.kind in ("compile", "image_import")]
    for mark in starts:
        if mark.at and since < mark.at < until:
            yield _short(mark, limit, "one rank was still starting while the others waited")
            return


def _bar_seconds(line: str) -> float | None:
    found = None
    for found in _BAR_TIME.finditer(line[-400:]):  # noqa: B007  # the last one
        pass
    if found is None:
        return None
    return int(found["h"] or 0) * 3600 + int(found["m"]) * 60 + int(found["s"])


def _short(mark: Progress | LogSign, limit: timedelta, why: str) -> Finding:
    return Finding(
        node=mark.node,
        subject=f"rank {mark.rank}" if mark.rank is not None else "job",
        role=Role.ROOT,
        strength=Strength.STRONG,
        at=mark.at,
        says=f"{why}; the timeout is {limit.total_seconds():.0f} s",
        quote=mark.line,
        source="job log",
        shared=True,
    )


@rule(
    "CFG-VERSIONS",
    family=Family.PROCESS,
    needs=(Version, Gpu, LogSign, SmiFailure),
    wants=(Progress, Look, LogSpan, RankRecord),
)
def cfg_versions(view: View) -> Iterator[Finding]:
    """Nodes of one job run different versions of the driver, of NCCL, its plugin or PyTorch."""
    moved = stepped(view)
    yield from _unloaded(view, moved)
    for sign in [s for s in view.all(LogSign) if s.kind == "driver_old"][:1]:
        yield root("the driver, or the GPU, is older than the program's CUDA needs",
                   Strength.STRONG, sign=sign)  # fmt: skip
    told_of: dict[str, list[tuple[str | None, str]]] = {
        what: [(v.node, v.version) for v in view.all(Version) if v.component == component]
        for what, component in _COMPONENTS.items()
    }
    told_of["NCCL"] += [(r.node, r.library) for r in view.all(RankRecord) if r.library]
    told_of["driver"] = [(g.node, g.driver) for g in view.all(Gpu) if g.driver]
    for what, told in told_of.items():
        by_version: dict[str, set[str]] = defaultdict(set)
        for node, number in told:
            by_version[number.split("+")[0]].add(node or "")
        if len(by_version) < 2:
            continue
        listed = "; ".join(
            f"{number} on {fold(sorted(n for n in nodes if n)) or 'some ranks'}"
            for number, nodes in sorted(by_version.items())
        )
        strong = what == "NCCL" and not moved
        odd = _odd_node(by_version)
        yield root(
            f"different {what} versions in one job: {listed}",
            Strength.STRONG if strong else Strength.WEAK,
            role=Role.ROOT if not moved else Role.HOUSEKEEPING,
            node=odd, shared=odd is None, spots=(Spot(node=odd),) if odd else (),
        )  # fmt: skip


_COMPONENTS = {"NCCL": "nccl", "NCCL plugin": "nccl_plugin", "PyTorch": "torch"}


def _odd_node(by_version: dict[str, set[str]]) -> str | None:
    """The one node that differs where all the others, two or more, are alike."""
    if len(by_version) != 2 or set.intersection(*by_version.values()):
        return None
    few, many = sorted(by_version.values(), key=len)
    if "" in few | many or len(few) != 1 or len(many) < 2:
        return None
    return next(iter(few))


def _unloaded(view: View, moved: bool) -> Iterator[Finding]:
    """Libraries newer than the kernel module that is loaded: no new process can use a GPU there."""
    signs = [s for s in view.all(LogSign) if s.kind == "driver_mismatch"]
    failed = [f for f in view.all(SmiFailure) if f.kind == "version_mismatch"]
    nodes = sorted({f.node for f in failed if f.node} or {s.node for s in signs if s.node})
    if not signs and (moved or not failed):
        return  # a running job keeps the libraries that it has loaded
    where = f" on {fold(nodes)}" if nodes else ""
    yield root(
        f"libraries and kernel module of the driver differ{where}",
        Strength.DECISIVE if signs and failed else Strength.STRONG if signs else Strength.WEAK,
        sign=signs[0] if signs else None, quote=signs[0].line if signs else failed[0].line,
        node=nodes[0] if len(nodes) == 1 else None, shared=len(nodes) != 1,
        spots=tuple(Spot(node=node) for node in nodes),
    )  # fmt: skip


@rule(
    "CFG-NCCLBUG",
    family=Family.COLLECTIVE,
    needs=(Version, RankRecord, Stack),
    wants=(NodeIdentity,),
)
def cfg_ncclbug(view: View) -> Iterator[Finding]:
    """This version of NCCL has a known bug that hangs a job on this platform."""
    versions = {v.version for v in view.all(Version) if v.component == "nccl"}
    versions |= {r.library for r in view.all(RankRecord) if r.library}
    machines = {n.arch for n in view.all(NodeIdentity) if n.arch} or {None}
    known: dict[str, tuple[NcclBug, str]] = {}
    for version in sorted(versions):
        for machine in machines:
            for bug in bugs(version, machine):
                if bug.kind == "hang":
                    known.setdefault(bug.id, (bug, version))
    for bug, version in known.values():
        # a version is no event: it explains a hang that nothing else explains
        yield root(f"NCCL {version}: {bug.title} ({bug.fix})", Strength.WEAK, source="NCCL version")
    if not known:
        yield from _by_stack(view.all(Stack))


def _by_stack(stacks: Sequence[Stack]) -> Iterator[Finding]:
    """A thread that spins for a free slot of NCCL's proxy: below 2.29.3 on ARM they leak."""
    for stack in stacks:
        if any(LEAKED in frame.function for frame in stack.frames[:3]):
            yield root(
                f"a thread stands in {LEAKED}: before NCCL 2.29.3 its slots leak on ARM hosts, "
                "look which libnccl is loaded", Strength.WEAK, source="stacks",
                quote=" < ".join(frame.function for frame in stack.frames[:4]),
            )  # fmt: skip
            return
