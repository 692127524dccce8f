"""What the driver and the bus say of GPUs: missing, memory, recovery, fabric, stuck, slow."""

from sluggish.findings import Rule
from sluggish.rules.gpu.domain import gpu_domain
from sluggish.rules.gpu.leftover import gpu_leftover
from sluggish.rules.gpu.memory import gpu_ecc, gpu_remap
from sluggish.rules.gpu.missing import gpu_missing
from sluggish.rules.gpu.recovery import gpu_fabric, gpu_recovery
from sluggish.rules.gpu.slow import slow_gpu
from sluggish.rules.gpu.stuck import gpu_stuck

RULES: tuple[Rule, ...] = (
    gpu_missing,
    gpu_ecc,
    gpu_remap,
    gpu_recovery,
    gpu_stuck,
    gpu_fabric,
    gpu_domain,
    slow_gpu,
    gpu_leftover,
)
