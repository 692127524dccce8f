"""Rules about what the kernel log says of GPUs: Xid, SXid, and trouble without either word."""

from sluggish.findings import Rule
from sluggish.rules.xid.hardware import gpu_xid
from sluggish.rules.xid.lost import gpu_lost, gpu_sxid
from sluggish.rules.xid.program import gpu_app_xid, gpu_echo

RULES: tuple[Rule, ...] = (gpu_xid, gpu_app_xid, gpu_lost, gpu_sxid, gpu_echo)
