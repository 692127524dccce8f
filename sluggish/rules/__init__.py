"""The rules, one module a family of evidence. Adding one is a function and its line in a tuple."""

from sluggish.findings import Rule
from sluggish.rules import fabric, gpu, shape

RULES: tuple[Rule, ...] = (
    *gpu.RULES,
    *fabric.RULES,
    *shape.RULES,
)
