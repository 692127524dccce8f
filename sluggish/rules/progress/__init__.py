"""Moving, pausing, starting, ending: what the training loop says of itself."""

from sluggish.findings import Rule
from sluggish.rules.progress.moving import prog_ckpt, prog_eval, prog_init, prog_steps
from sluggish.rules.progress.standing import data_steps, shutdown_hang, start_rendezvous

RULES: tuple[Rule, ...] = (
    prog_steps, prog_ckpt, prog_eval, prog_init, shutdown_hang, start_rendezvous, data_steps,
)  # fmt: skip
