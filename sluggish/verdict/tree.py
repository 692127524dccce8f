"""TREE: the questions in reading order, cause before symptom, each with the rules it listens to."""

from dataclasses import dataclass
from enum import StrEnum

from sluggish.causes import Cause


class Kind(StrEnum):
    """How a question convicts."""

    STATE = "state"  # Slurm's own word: decides at once
    HARD = "hard"  # a recorded event: the earliest decisive one at the right place wins
    ORDER = "order"  # decided by reading order: the first yes ends the walk
    MOVING = "moving"  # needs positive signs and every node seen
    OPEN = "open"  # says that it hangs, not why


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question of the tree."""

    id: str
    asks: str
    cause: Cause
    listens: dict[str, str | None]
    """Rule id -> the subtype that its finding means, unless the finding names one itself."""
    kind: Kind = Kind.ORDER
    must: tuple[tuple[str, ...], ...] = ()
    """Probes without which "no" is blind on a node; one of each tuple is enough."""
    also: tuple[str, ...] = ()
    """Probes that must have run on every node if they ran on any."""


TREE: tuple[Question, ...] = (
    Question(
        id="slurm",
        asks="Does Slurm say that the job is not running?",
        cause=Cause.NOT_RUNNING,
        listens={"JOB-STATE": "failed"},
        kind=Kind.STATE,
        must=(("slurm_job", "sacct"),),
    ),
    Question(
        id="node",
        asks="Did a node of the job die, reboot or fail?",
        cause=Cause.NODE_DOWN,
        listens={
            "NODE-DOWN": "node_fail",
            "NODE-REBOOT": "rebooted",
            "NODE-FAULT": "host_fault",
            "NODE-SILENT": None,
            "NODE-UNKILLABLE": None,
            "NODE-CLOCK": None,
        },
        kind=Kind.HARD,
        must=(("slurm_node",),),
        also=("identity",),
    ),
    Question(
        id="memory",
        asks="Did the kernel kill a process of the job for memory, or is memory used up?",
        cause=Cause.MEMORY,
        listens={"MEM-OOM": "host_oom", "MEM-STEP": "cgroup_oom", "MEM-GROWTH": "growth"},
        kind=Kind.HARD,
        must=(("kernel_log",), ("memory",)),
    ),
    Question(
        id="gpu",
        asks="Did a GPU of the job fail, at the place where the others wait?",
        cause=Cause.GPU_FAULT,
        listens={
            "GPU-XID": "xid",
            "GPU-LOST": "off_bus",
            "GPU-SXID": "nvswitch",
            "GPU-MISSING": "missing",
            "GPU-ECC": "ecc",
            "GPU-REMAP": "row_remap",
            "GPU-RECOVERY": "xid",
            "GPU-STUCK": "driver_stuck",
            "GPU-FABRIC": "nvlink",
            "GPU-DOMAIN": "nvlink",
            "GPU-CUDA": "ecc",
            "GPU-ECHO": None,
            "GPU-LEFTOVER": None,
        },
        kind=Kind.HARD,
        must=(("kernel_log",), ("nvidia_smi",)),
        also=("gpu_samples", "gpu_bus"),
    ),
    Question(
        id="fabric",
        asks="Did a port, a link or the subnet that the job uses fail?",
        cause=Cause.IB_FAULT,
        listens={
            "IB-FATAL": "hca_fatal",
            "IB-SM": "subnet_manager",
            "IB-LEAF": "shared_fabric",
            "IB-PORT": "port_down",
            "IB-ASYNC": "port_error",
            "IB-FLAP": "port_error",
            "IB-NCCL": "unreachable_peer",
            "IB-RATE": "link_degraded",
            "IB-COUNTERS": "port_error",
            "IB-REPORT": "port_error",
            "IB-QUIET": None,
        },
        kind=Kind.HARD,
        must=(("ib_ports", "ibstat", "ibstatus", "ibv_devinfo", "slingshot"), ("kernel_log",)),
        also=("ib_ports", "ibstat", "ibstatus", "ibv_devinfo", "ib_counters"),
    ),
    Question(
        id="cuda_memory",
        asks="Did a rank run out of GPU memory before the others timed out?",
        cause=Cause.MEMORY,
        listens={"MEM-CUDA": "cuda_oom"},
        kind=Kind.HARD,
        must=(("job_log",),),
    ),
    Question(
        id="crash",
        asks="Did a rank's program end or raise before the others timed out?",
        cause=Cause.APP_CRASH,
        listens={
            "GPU-APP-XID": "app_xid",
            "APP-EXCEPTION": "exception",
            "APP-SIGNAL": "signal",
            "APP-EXIT": "exit",
            "PROC-GONE": "exit",
        },
        kind=Kind.HARD,
        must=(("job_log",), ("rank_procs",)),
    ),
    Question(
        id="mismatch",
        asks="Do ranks of one process group sit in different collectives or sizes?",
        cause=Cause.RANK_DESYNC,
        listens={
            "SYNC-OP": "collective_mismatch",
            "SYNC-SIZE": "size_mismatch",
            "SYNC-CYCLE": "order_inversion",
            "SYNC-TIE": "tie",
        },
    ),
    Question(
        id="pause",
        asks="Is the job in a checkpoint, an evaluation or a start-up that moves?",
        cause=Cause.PROGRESSING,
        listens={"PROG-CKPT": "checkpoint", "PROG-EVAL": "evaluation", "PROG-INIT": "start_up"},
        kind=Kind.MOVING,
    ),
    Question(
        id="data",
        asks="Does the rank that is waited for wait for data, storage, a service or a checkpoint?",
        cause=Cause.DATA_STALL,
        listens={
            "DATA-STORAGE": "storage",
            "DATA-TARGET": "storage",
            "DATA-AUTH": "storage",
            "DATA-NETWORK": "network_wait",
            "DATA-LOADER": "loader_wait",
            "DATA-CKPT": "checkpoint",
            "DATA-IMPORT": "image_import",
            "START-LOCK": "stale_lock",
        },
        must=(("rank_procs",), ("mounts",)),
        also=("stacks", "sockets"),
    ),
    Question(
        id="config",
        asks="Is there a sign of a wrong setting, launch or library?",
        cause=Cause.CONFIG,
        listens={
            "CFG-IFACE": "interface",
            "CFG-PORTS": "hca_gid",
            "CFG-GID": "hca_gid",
            "CFG-HCASET": "hca_mismatch",
            "CFG-P2P": "p2p_acs",
            "CFG-NVLS": "fabric_manager",
            "CFG-LIMITS": "limits",
            "CFG-NCCLBUG": "library_bug",
            "CFG-LAUNCH": "launch",
            "CFG-TIMEOUT": "timeout_short",
            "CFG-VERSIONS": "version_mismatch",
            "CFG-ENV": "environment",
        },
    ),
    Question(
        id="missing",
        asks="Has one rank not arrived at a collective in which the others wait?",
        cause=Cause.RANK_DESYNC,
        listens={
            "SYNC-MISSING": "missing_rank",
            "DATA-STEPS": "missing_rank",
            "START-RENDEZVOUS": "missing_rank",
        },
    ),
    Question(
        id="straggler",
        asks="Does the job move, held back by one slow part?",
        cause=Cause.STRAGGLER,
        listens={
            "SLOW-GPU": "slow_gpu",
            "SLOW-LINK": "slow_link",
            "SLOW-HOST": "slow_host",
            "SLOW-RANK": "late_rank",
        },
        kind=Kind.MOVING,
    ),
    Question(
        id="steps",
        asks="Do the training steps go on, with every node seen?",
        cause=Cause.PROGRESSING,
        listens={"PROG-STEPS": "steady"},
        kind=Kind.MOVING,
    ),
    Question(
        id="hang",
        asks="Does it hang without a proved cause?",
        cause=Cause.UNKNOWN,
        listens={
            "SYNC-STALL": "all_joined",
            "SHUTDOWN-HANG": "shutdown_hang",
            "SYNC-DEVICE": "hang",
            "SYNC-UNSEEN": "unobserved",
            "SYNC-WATCHDOG": "hang",
            "SYNC-RAS": None,
            "HANG-SPLIT": "hang",
            "HANG-SPIN": "hang",
            "HANG-PARKED": "hang",
            "PROC-ODD": None,
            "PROC-STACK": None,
        },
        kind=Kind.OPEN,
    ),
)


def mermaid(tree: tuple[Question, ...] = TREE) -> str:
    """The tree as a Mermaid flow chart: docs/decision-tree.md is drawn from this literal."""
    lines = ["flowchart TD"]
    for here, after in zip(tree, (*tree[1:], None), strict=True):
        lines.append(f'    {here.id}{{"{here.asks}"}}')
        lines.append(f'    {here.id} -- yes --> {here.id}_leaf["{here.cause}"]')
        lines.append(f"    {here.id} -- no --> {after.id if after else 'nothing'}")
    lines.append('    nothing["unknown: no evidence"]')
    return "\n".join(lines)


def page(tree: tuple[Question, ...] = TREE) -> str:
    """The text of docs/decision-tree.md."""
    rows = ["| # | question | rules it listens to | verdict |", "|---|---|---|---|"]
    for number, question in enumerate(tree, 1):
        rules = ", ".join(f"[{r}](rules/{r}.md)" for r in question.listens)
        kinds = " / ".join(dict.fromkeys(s for s in question.listens.values() if s))
        rows.append(f"| {number} | {question.asks} | {rules} | `{question.cause}`: {kinds} |")
    return (
        "# The decision tree\n\n"
        "Drawn from the literal `TREE` in `sluggish/verdict/tree.py`; do not edit by hand, run "
        "`scripts/regenerate`.\n\n"
        "The questions are asked in this order, cause before symptom. A *hard* question (node, "
        "memory, GPU, fabric, crash) convicts by a recorded event at the place where the others "
        "wait: an agreeing place before an unknown one, a decisive sign before a strong one, and "
        "of two decisive ones the earlier. The others end the walk at the first yes. Weak signs "
        "are only used when nothing stronger is found.\n\n"
        f"```mermaid\n{mermaid(tree)}\n```\n\n" + "\n".join(rows) + "\n"
    )
