"""The closed lists of the verdict: causes, subtypes, families of evidence, exit codes."""

from enum import StrEnum


class Cause(StrEnum):
    """What a job stopped of. One word of this list stands in every verdict."""

    NOT_RUNNING = "not_running"
    NODE_DOWN = "node_down"
    GPU_FAULT = "gpu_fault"
    IB_FAULT = "ib_fault"
    RANK_DESYNC = "rank_desync"
    DATA_STALL = "data_stall"
    MEMORY = "memory"
    APP_CRASH = "app_crash"
    CONFIG = "config"
    STRAGGLER = "straggler"
    PROGRESSING = "progressing"
    UNKNOWN = "unknown"


class Family(StrEnum):
    """Independent families of evidence; two findings of one family are one sign."""

    KERNEL = "kernel/driver"
    FABRIC = "fabric"
    COLLECTIVE = "collective"
    PROCESS = "process/host"
    SLURM = "slurm"
    DATA = "data"


class Phase(StrEnum):
    """Where in its life the job stood when it was looked at."""

    START_UP = "start-up"
    FIRST_STEP = "first step"
    STEADY = "steady"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    SHUTDOWN = "shutdown"
    UNKNOWN = "unknown"


class Level(StrEnum):
    """Confidence of a verdict; below low the verdict is unknown."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


SUBTYPES: dict[Cause, tuple[str, ...]] = {
    Cause.NOT_RUNNING: ("pending", "completed", "cancelled", "time_limit", "failed", "requeued"),
    Cause.NODE_DOWN: ("node_fail", "rebooted", "not_responding", "host_fault"),
    Cause.GPU_FAULT: (
        "off_bus", "missing", "ecc", "row_remap", "nvlink", "nvswitch", "gsp", "xid",
        "driver_stuck",
    ),
    Cause.IB_FAULT: (
        "port_down", "port_error", "link_degraded", "hca_fatal", "subnet_manager",
        "unreachable_peer", "shared_fabric",
    ),
    Cause.RANK_DESYNC: (
        "collective_mismatch", "size_mismatch", "missing_rank", "order_inversion",
        "tie",
    ),
    Cause.DATA_STALL: (
        "loader_wait", "storage", "checkpoint", "image_import", "import_storm",
        "network_wait", "stale_lock",
    ),
    Cause.MEMORY: ("host_oom", "cgroup_oom", "cuda_oom", "growth"),
    Cause.APP_CRASH: ("exception", "signal", "exit", "app_xid"),
    Cause.CONFIG: (
        "interface", "hca_gid", "hca_mismatch", "p2p_acs", "limits", "library_bug", "launch",
        "timeout_short", "version_mismatch", "environment",
        "fabric_manager",
    ),
    Cause.STRAGGLER: ("slow_gpu", "slow_host", "slow_link", "late_rank"),
    Cause.PROGRESSING: ("steady", "start_up", "checkpoint", "evaluation"),
    Cause.UNKNOWN: (
        "all_joined", "shutdown_hang", "start_up_hang", "hang", "unobserved",
        "no_evidence",
    ),
}  # fmt: skip

EXIT_CODES: dict[Cause, int] = {
    Cause.PROGRESSING: 0,
    Cause.GPU_FAULT: 10,
    Cause.IB_FAULT: 11,
    Cause.RANK_DESYNC: 12,
    Cause.DATA_STALL: 13,
    Cause.MEMORY: 14,
    Cause.STRAGGLER: 15,
    Cause.APP_CRASH: 16,
    Cause.CONFIG: 17,
    Cause.NODE_DOWN: 18,
    Cause.NOT_RUNNING: 19,
    Cause.UNKNOWN: 20,
}
EXIT_USAGE = 2
EXIT_NOTHING = 30  # nothing could be collected or recognised
EXIT_UNFIT = 40  # preflight: not fit to start
