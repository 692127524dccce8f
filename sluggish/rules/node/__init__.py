"""Rules on the job's state, its nodes and its processes."""

from sluggish.rules.node.clock import node_clock
from sluggish.rules.node.down import node_down, node_silent
from sluggish.rules.node.fault import node_fault
from sluggish.rules.node.gone import proc_gone
from sluggish.rules.node.jobstate import job_state
from sluggish.rules.node.reboot import node_reboot
from sluggish.rules.node.slow import proc_odd, slow_host
from sluggish.rules.node.stack import proc_stack
from sluggish.rules.node.unkillable import node_unkillable

RULES = (
    job_state, node_down, node_reboot, node_fault, node_silent, proc_gone, proc_odd, proc_stack,
    slow_host, node_unkillable, node_clock,
)  # fmt: skip
