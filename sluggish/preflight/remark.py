"""One thing that speaks against a start on a node."""

from dataclasses import dataclass

OK, WARN, FAIL, UNCHECKED = "ok", "warn", "fail", "not checked"
"""The verdicts of a node, as the screen and the JSON document write them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What was seen, or could not be, on one node."""

    node: str
    area: str
    state: str
    """WARN, FAIL or UNCHECKED."""
    says: str
    rule: str = ""
    """The rule of a diagnosis that says it; empty where preflight itself does."""
    hardware: bool = False
    """True: the node's own hardware, so that a drain is right."""
