"""The cheapest next look where the cause is not proved: never a guess instead."""

from collections.abc import Sequence

from sluggish.causes import Cause, Level, Phase
from sluggish.findings import Finding
from sluggish.hostlist import fold
from sluggish.text import is_node_name
from sluggish.verdict.case import Case, idle_side, moving
from sluggish.verdict.coverage import NAMES, answered, not_answered
from sluggish.verdict.model import Confidence, Culprit
from sluggish.verdict.tree import TREE

BY_SUBTYPE = {
    "all_joined": "compare port counters twice, 10 s apart, and NCCL's library versions over the "
    "nodes: every rank joined, so the transport or the library is next",
    "tie": "the stacks of both sides (py-spy dump): they differ one against one",
    "shutdown_hang": "py-spy dump of one rank: training is done, the teardown hangs",
    "start_up_hang": "NCCL_DEBUG=INFO at the next start; now: ps and py-spy dump on every node",
    "unobserved": "collect what is missing first: the job's nodes were not all seen",
    "hang": "the stacks of every rank (sluggish diagnose --job ID --poke, or py-spy dump): the "
    "smallest group of equal stacks is the suspect; NCCL RAS last, a query has ended jobs on some "
    "versions (docs/collectives.md)",
    "no_evidence": "give the job's log and the kernel log of its nodes",
}
OF_A_CAUSE: dict[tuple[Cause, str | None], str] = {
    (Cause.MEMORY, "cuda_oom"): "nvidia-smi on {where}: does another process hold memory of that "
    "GPU, and did the allocation grow (lines before the first error)?",
    (Cause.MEMORY, None): "dmesg -T on {where}: which process and which limit (memory.max of the "
    "step, or the host); sacct -j JOB -o JobID,MaxRSS,ReqMem",
    (Cause.APP_CRASH, "signal"): "dmesg -T on {where} at that time: SIGKILL is most often the OOM "
    "killer's, SIGSEGV leaves a line; then the log lines before it",
    (Cause.APP_CRASH, "app_xid"): "the job's log at that time, and one run with "
    "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer: which kernel did it",
    (Cause.APP_CRASH, None): "the log lines before the first error, on the rank that printed it",
    (Cause.CONFIG, "interface"): "ip -br addr on every node: which interface reaches the others "
    "(NCCL_SOCKET_IFNAME), and is a high port open between them (nc)?",
    (Cause.CONFIG, "hca_gid"): "show_gids on both ends: the RoCE v2 index with an IPv4 address is "
    "NCCL_IB_GID_INDEX; ping it from the other side",
    (Cause.CONFIG, "hca_mismatch"): "NCCL's `NET/IB : Using` line and ibstat of every node, "
    "side by side",
    (Cause.CONFIG, "p2p_acs"): "lspci -vvv on {where}: ACSCtl of the bridges above the GPUs; one "
    "short run with NCCL_P2P_DISABLE=1 tells whether it is that",
    (Cause.CONFIG, "limits"): "inside the step on {where}: ulimit -l, ulimit -n, df /dev/shm",
    (Cause.CONFIG, "library_bug"): "which libnccl the ranks have loaded, on every node: "
    "grep libnccl /proc/PID/maps",
    (Cause.CONFIG, "version_mismatch"): "nvidia-smi and cat /proc/driver/nvidia/version on every "
    "node",
    (Cause.CONFIG, "fabric_manager"): "on {where}: systemctl status nvidia-fabricmanager (started "
    "after the driver was loaded?), and the fabric state in nvidia-smi -q",
    (Cause.CONFIG, "environment"): "where the odd ranks have it from: /etc/nccl.conf, the image, a "
    "profile of the node (tr '\\0' '\\n' < /proc/PID/environ | grep ^NCCL_)",
    (Cause.CONFIG, "timeout_short"): "how long the work of the one rank takes: more than the "
    "timeout?",
    (Cause.CONFIG, None): "the log lines before the first error, on the rank that printed it",
    (Cause.IB_FAULT, "unreachable_peer"): "on the peer: does its process live, what ended it; then "
    "ibstat on both ends and port counters twice, 10 s apart",
    (Cause.IB_FAULT, None): "ibstat and port counters on {where} twice, 10 s apart; the switch's "
    "side of the link",
    (Cause.DATA_STALL, None): "on {where}: ps -eo pid,stat,wchan:32,args (state D?), dmesg for "
    "`not responding`, and the stacks of the loader's workers",
    (Cause.NODE_DOWN, None): "sinfo -R and slurmctld's log for {where}; its console and BMC "
    "(ipmitool sel list)",
}
"""What to look at next by cause and subtype; None: any other subtype."""
OF_A_GPU = (
    ("kernel_log", "dmesg -T on {where} around that time: Xid lines say which GPU and what it was"),
    ("nvidia_smi", "nvidia-smi -q on {where}: ECC, remapped rows, recovery action, fabric state"),
)
"""What tells more of a GPU's fault, in order, where it was not read yet."""
SEEN_ONLY: tuple[tuple[str, str], ...] = (
    ("SYNC-RAS", "ask RAS again 30 s later: counts that do not move are a hang; then the stacks of "
     "the ranks with the lowest count, or the process that it misses"),
    ("GPU-CUDA", "dmesg -T of that rank's node at that time: an Xid decides between program and "
     "device"),
    ("GPU-ECHO", "the kernel log before those lines (journalctl -k -b): they follow something"),
    ("GPU-STUCK", "lspci -d 10de: and dmesg -T there: are the GPUs on the bus, is the driver up"),
    ("IB-NCCL", "who ended first: sacct -j JOB -o JobID,State,ExitCode,NodeList, and oom-kills or "
     "tracebacks on the peer that closed its connection"),
    ("APP-EXCEPTION", "who ended first: these follow from an end elsewhere; the other ranks' logs "
     "and sacct -j JOB -o JobID,State,ExitCode,NodeList"),
    ("MEM-CUDA", "what stands before it in the log: it follows from something earlier"),
    ("GPU-XID", "nvidia-smi -q there: ECC, remapped rows, recovery action"),
    ("IB-FLAP", "ibstat there three times, 10 s apart, and NCCL's lines of the same minute"),
)  # fmt: skip
"""Rules whose context or consequence asks for one certain look."""


def next_probe(
    cause: Cause, subtype: str | None, sure: Confidence, case: Case, blamed: Sequence[Culprit] = ()
) -> str | None:
    """One sentence, or None where the verdict is sure."""
    if cause in (Cause.PROGRESSING, Cause.NOT_RUNNING) or sure.level is Level.HIGH:
        return None
    if cause is Cause.UNKNOWN:
        return _of_unknown(subtype, case)
    nodes = sorted({c.node for c in blamed if c.node and is_node_name(c.node)})
    where = fold(nodes) if nodes else "the node (sacct -j JOB -o NodeList; srun -l tells the rank)"
    if cause is Cause.GPU_FAULT:
        return _of_gpu(nodes, where, case)
    told = OF_A_CAUSE.get((cause, subtype)) or OF_A_CAUSE.get((cause, None))
    if told:
        return told.format(where=where)
    if subtype == "tie":
        return BY_SUBTYPE["tie"]
    starting = case.phase.phase in (Phase.START_UP, Phase.UNKNOWN)
    if starting and subtype == "missing_rank":
        return "on the node of the missing rank: does its process live (ps), what did it print last"
    if case.wait is None or not case.wait.observed:
        return "flight-recorder dumps or NCCL RAS would show which rank the others wait for"
    if case.wait.unobserved:
        ranks = ", ".join(str(r) for r in case.wait.unobserved[:4])
        return f"the state of rank {ranks}: is its process alive (ps), what does it do (py-spy)?"
    if cause is Cause.RANK_DESYNC:
        return _of_desync(case)
    return "the probes under 'not checked' on the culprit's node"


def _of_desync(case: Case) -> str:
    """What was not seen of the nodes; it looks like code, and a fault below would be told there."""
    for probe, name in (("kernel_log", "kernel log"), ("rank_procs", "processes of the ranks")):
        blind = [n for n in case.look.nodes if not answered(case.facts, probe, n)]
        refused = any(
            gap.probe == probe and gap.node in blind and gap.why.startswith("denied")
            for gap in case.facts.gaps
        )
        if names := [node for node in blind if is_node_name(node)]:
            how = ", as root or with --sudo" if refused else ""
            return f"the {name} of {fold(names)}{how}: is it only the code?"
    return "the kernel log and the processes of the ranks' nodes: is it only the code?"


def _of_gpu(nodes: list[str], where: str, case: Case) -> str:
    for probe, told in OF_A_GPU:
        if not nodes or not all(answered(case.facts, probe, node) for node in nodes):
            if case.facts.answered.get(probe) and not nodes:
                continue  # it was read, of a node that did not sign its lines
            return told.format(where=where)
    return "whether the others wait for that GPU's rank: flight-recorder dumps or NCCL RAS"


def _of_unknown(subtype: str | None, case: Case) -> str:
    roots = case.wait.roots if case.wait else ()
    if roots:
        ranks = ", ".join(str(root.rank) for root in roots[:4])
        return f"py-spy dump of rank {ranks}: the others wait for it"
    if case.wait and (idle := idle_side(case.wait)):
        ranks = ", ".join(str(rank) for rank in idle[:8])
        return f"py-spy dump of rank {ranks}: of these one may be waited for by all others"
    if told := _mute(case):
        return told
    if subtype == "hang" and case.facts.answered.get("nccl_ras"):
        return "py-spy dump on every rank: the smallest group of equal stacks is the suspect"
    if subtype == "unobserved" and (told := _moves_but(case) or _silent(case)):
        return told
    if subtype == "no_evidence":
        return _seen_only(case.findings) or _not_given(case)
    return BY_SUBTYPE.get(subtype or "", BY_SUBTYPE["no_evidence"])


def _seen_only(findings: Sequence[Finding]) -> str | None:
    seen = {finding.rule for finding in findings if finding.role.value != "all_clear"}
    return next((told for rule, told in SEEN_ONLY if rule in seen), None)


def _mute(case: Case) -> str | None:
    """A node that nobody reaches while others answer: whether it lives goes before its ranks."""
    gone = {gap.node for gap in case.facts.gaps if gap.why.startswith("unreachable")}
    mute = [node for node in case.look.nodes if node in gone and is_node_name(node)]
    if not mute or len(mute) == len(case.look.nodes):
        return None
    where = fold(mute)
    return (
        f"does {where} live: ping, its console and BMC, scontrol show node {where}; Slurm notices "
        "a node that is gone only after minutes"
    )


def _moves_but(case: Case) -> str | None:
    """It moves as far as can be seen, and what could not be seen keeps that from being said."""
    signs = moving(case)
    missing = [
        (probe, why, node)
        for question in TREE
        if question.id in ("gpu", "fabric", "memory")
        for node, holes in not_answered(question, case).items()
        for probe, why in holes
    ]
    if not signs or not missing:
        return None
    probe, why, _ = missing[0]
    nodes = {node: None for other, _, node in missing if other == probe and node}
    where = f" of {fold(nodes)}" if nodes else ""
    how = "; look as root, or with --sudo" if why.startswith("denied") else ""
    return (
        f"it moves as far as is seen ({signs[0].says}); that no fault is behind it is not known "
        f"without the {NAMES.get(probe, probe)}{where}{how}"
    )


def _silent(case: Case) -> str | None:
    """Some ranks say that they wait: those that printed nothing decide, rank 0 most often."""
    wait = case.wait
    if wait is None or not wait.waiters:
        return None
    if wait.seq is not None and wait.seq <= 1:
        return (
            "the first collective of its group never ended: NCCL_DEBUG=INFO for one start (which "
            "network, which HCAs, P2P), and whether every rank's process lives (ps)"
        )
    if wait.unobserved:
        who = "rank " + ", ".join(str(rank) for rank in wait.unobserved[:4])
        more = " and the others" if len(wait.unobserved) > 4 else ""
    else:
        who, more = "the ranks that printed no timeout", ""
        if 0 not in wait.waiters:
            more = ", rank 0 first (it saves, logs and evaluates)"
    return f"{who}{more}: alive (ps -ef)? and what do they do (py-spy dump)?"


def _not_given(case: Case) -> str:
    """Of the job's log and the kernel log the one that was not given."""
    log = bool(case.facts.answered.get("job_log"))
    kernel = bool(case.facts.answered.get("kernel_log"))
    if log and not kernel:
        return "the kernel log (dmesg -T) and nvidia-smi -q of the job's nodes; the log's beginning"
    if kernel and not log:
        return "the job's log, and nvidia-smi -q of that node"
    return BY_SUBTYPE["no_evidence"]
