"""Pure: facts of nodes to a verdict a node: fit to start, with a warning, unfit, or not checked.

What the rules of a diagnosis already say is taken over; only what matters before a start alone is
judged here and in `alike`. A probe that could not run is a hole and never a healthy value.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sluggish.facts.derived import Look
from sluggish.facts.gpu import Gpu, GpuCount, SmiFailure
from sluggish.facts.host import Filesystem, HostMemory, Mount
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.preflight.alike import alike
from sluggish.preflight.leftover import leftover
from sluggish.preflight.remark import FAIL, OK, UNCHECKED, WARN, Remark
from sluggish.preflight.unseen import AREAS, holes, on_bus, silence, unasked
from sluggish.rules import RULES

HARDWARE = frozenset({
    "GPU-MISSING", "GPU-ECC", "GPU-REMAP", "GPU-RECOVERY", "GPU-FABRIC", "GPU-STUCK", "GPU-XID",
    "GPU-LOST", "GPU-SXID", "IB-PORT", "IB-FATAL", "SLOW-LINK", "NODE-FAULT",
})  # fmt: skip
"""Rules whose failures are the node's own hardware."""
BY_LOG = frozenset({"GPU-XID", "GPU-LOST", "GPU-SXID", "IB-FATAL", "IB-FLAP", "NODE-FAULT"})
"""They read what happened since the boot: unfit only where something of it still stands."""
SOFT = frozenset({"SLOW-LINK", "IB-RATE", "CFG-PORTS", "GPU-ECC"})
"""Such a node starts and runs, slower or otherwise than its peers."""
TOLD = frozenset({"CFG-PORTS", "NODE-CLOCK"})
"""What they say in passing of a node is worth a look before a start."""
ASKED = HARDWARE | SOFT | TOLD | {"IB-SM", "IB-FLAP", "GPU-DOMAIN"}
BROKEN_SMI = {
    "no_driver": "the NVIDIA driver is not loaded",
    "no_devices": "the driver sees no GPU",
    "version_mismatch": "libraries and kernel module of the driver differ until a reboot",
    "unknown_error": "nvidia-smi fails",
}
MAY_BE_BARE = ("no_devices", "no_driver")
"""On a node without a GPU on its bus this is as it should be."""
LITTLE_FREE, HALF_FREE = 0.10, 0.50
"""Of a node on which nothing runs yet nearly all memory is free."""
FULL, FILLED = 0.90, 0.50
"""Of /dev/shm: NCCL and data loaders fail with a bus error when it is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """The verdict of one node."""

    node: str
    remarks: tuple[Remark, ...]
    """Worst first; nothing that is in order."""
    silent: bool = False
    """True: it gave no answer at all."""
    gpus: int | None = None
    """On its PCI bus, those that do not answer too; None where the bus was not seen."""

    @property
    def verdict(self) -> str:
        """`fail`, `warn`, `not checked` or `ok`, the worst there is."""
        found = {remark.state for remark in self.remarks}
        return next((state for state in (FAIL, WARN, UNCHECKED) if state in found), OK)

    @property
    def unfit(self) -> bool:
        """Whether a job must not start here."""
        return self.verdict == FAIL

    @property
    def broken(self) -> bool:
        """Whether it is unfit by its own hardware: only this may drain it."""
        return any(remark.state == FAIL and remark.hardware for remark in self.remarks)


def judge(
    facts: Facts, nodes: Sequence[str], *, job: str | None = None, gpus: int | None = None
) -> tuple[Fitness, ...]:
    """A verdict for every node that was asked.

    `job`: whose processes are no leftovers. `gpus`: how many it needs on each node.
    """
    if gpus:
        facts.facts[Look] = [replace(look, gpus_per_node=gpus) for look in facts.all(Look)]
    remarks = [
        *_by_rules(facts),
        *_driver(facts, gpus),
        *_no_gpu(facts, gpus),
        *_host(facts),
        *unasked(facts),
        *alike(facts),
        *leftover(facts, job),
    ]
    out: list[Fitness] = []
    for node in nodes:
        answered = any(node in facts.answered.get(probe, ()) for _, ways in AREAS for probe in ways)
        mine = list(dict.fromkeys(r for r in remarks if r.node == node))
        blind = list(holes(facts, node)) if answered else [silence(facts, node)]
        worst = (FAIL, WARN, UNCHECKED)
        ordered = sorted([*mine, *blind], key=lambda r: (worst.index(r.state), not r.hardware))
        gpus = next((c.count + len(c.dead) for c in on_bus(facts, node)), None)
        out.append(Fitness(node=node, remarks=tuple(ordered), silent=not answered, gpus=gpus))
    return tuple(out)


def _by_rules(facts: Facts) -> Iterator[Remark]:
    for rule in RULES:
        if rule.id in ASKED:
            for finding in ask(rule, facts):
                state = _state(finding)
                if state:
                    yield from _of_finding(finding, state)


def _state(found: Finding) -> str | None:
    """What a finding means before a start; None where it says nothing against the node."""
    if found.rule == "GPU-REMAP" and found.action == "rma":
        return (
            FAIL  # the flag of a failed remap never goes away: old news for a job, not for a start
        )
    if found.role is Role.HOUSEKEEPING:
        return WARN
    if found.role is Role.CONTEXT:
        return WARN if found.rule in TOLD and found.node else None
    if found.role is not Role.ROOT:
        return None
    if found.rule in SOFT:
        return WARN
    if found.rule == "IB-PORT" and found.quote:
        return FAIL  # the kernel saw the link go down since the boot: it was in use
    if found.strength is Strength.DECISIVE:
        return FAIL
    return FAIL if found.strength is Strength.STRONG and found.rule not in BY_LOG else WARN


def _of_finding(found: Finding, state: str) -> Iterator[Remark]:
    nodes = dict.fromkeys(spot.node for spot in found.spots if spot.node)
    own = not found.shared and found.action != "check_fabric"
    for node in nodes or dict.fromkeys([found.node] if found.node else []):
        subject = "" if found.subject in ("node", "job") else f"{found.subject}: "
        yield Remark(
            node=node,
            area=subject.rstrip(": ") or "node",
            state=state,
            says=f"{subject}{found.says}" if subject.rstrip(": ") not in found.says else found.says,
            rule=found.rule,
            hardware=own and found.rule in HARDWARE,
        )


def _driver(facts: Facts, gpus: int | None) -> Iterator[Remark]:
    """nvidia-smi ran and says that nothing can use a GPU here, although the bus shows some."""
    has = {g.node for g in facts.all(Gpu)}
    on_bus = {c.node for c in facts.all(GpuCount) if c.source == "pci" and c.count}
    for failure in facts.all(SmiFailure):
        says = BROKEN_SMI.get(failure.kind)
        if failure.node is None or says is None or failure.node in has:
            continue
        if failure.kind in MAY_BE_BARE and failure.node not in on_bus:
            continue
        hidden = failure.kind == "no_devices" and not gpus
        says += "; a container or cgroup may hide them" if hidden else ""
        yield Remark(node=failure.node, area="driver", state=WARN if hidden else FAIL,
                     says=f"driver: {says}", rule="GPU-STUCK")  # fmt: skip


def _no_gpu(facts: Facts, gpus: int | None) -> Iterator[Remark]:
    """The bus shows none where the job needs some, or where a driver waits for one."""
    waits = {f.node for f in facts.all(SmiFailure) if f.kind in ("no_devices", "no_driver")}
    for bus in facts.all(GpuCount):
        if bus.node and bus.source == "pci" and not bus.count and not bus.dead:
            needed = f"the job needs {gpus}" if gpus else "and a driver is installed"
            if gpus or bus.node in waits:
                yield Remark(
                    node=bus.node, area="GPUs", state=FAIL if gpus else WARN,
                    says=f"GPUs: none on the PCI bus, {needed}", rule="GPU-MISSING",
                    hardware=bool(gpus),
                )  # fmt: skip


def _host(facts: Facts) -> Iterator[Remark]:
    for memory in facts.all(HostMemory):
        if memory.node and memory.total_bytes and memory.available_bytes is not None:
            share = memory.available_bytes / memory.total_bytes
            if share < HALF_FREE:
                yield Remark(
                    node=memory.node, area="memory", state=FAIL if share < LITTLE_FREE else WARN,
                    says=f"memory: only {share:.0%} of {_gib(memory.total_bytes)} is free",
                )  # fmt: skip
    for files in facts.all(Filesystem):
        used = files.used_bytes / files.size_bytes if files.size_bytes else 0.0
        if files.node and files.path == "/dev/shm" and used > FILLED:
            yield Remark(
                node=files.node, area="/dev/shm", state=FAIL if used > FULL else WARN,
                says=f"/dev/shm: {used:.0%} of {_gib(files.size_bytes)} is used before the start",
            )  # fmt: skip
    for mount in facts.all(Mount):
        if mount.node and mount.answered is False:
            what = f"mount {mount.path} ({mount.source or mount.fstype})"
            yield Remark(node=mount.node, area="mounts", state=FAIL, rule="DATA-STORAGE",
                         says=f"{what} does not answer")  # fmt: skip


def _gib(size: int) -> str:
    return f"{size / (1 << 30):,.0f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):,.0f} MiB"


def any_answer(found: Iterable[Fitness]) -> bool:
    """Whether anything at all was seen."""
    return any(not one.silent for one in found)
