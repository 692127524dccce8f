"""The rules, one module a family of evidence. Adding one is a function and its line in a tuple."""

from sluggish.findings import Rule
from sluggish.rules import (
    app,
    collective,
    config,
    data,
    fabric,
    gpu,
    memory,
    node,
    progress,
    shape,
    xid,
)

RULES: tuple[Rule, ...] = (
    *node.RULES,
    *memory.RULES,
    *xid.RULES,
    *gpu.RULES,
    *fabric.RULES,
    *collective.RULES,
    *app.RULES,
    *data.RULES,
    *config.RULES,
    *progress.RULES,
    *shape.RULES,
)
