"""The JSON documents of `sluggish preflight`; docs/preflight.schema.json describes them."""

from typing import Annotated

import msgspec

from sluggish import __version__
from sluggish.causes import EXIT_NOTHING, EXIT_UNFIT
from sluggish.preflight.remark import FAIL, OK, UNCHECKED, WARN
from sluggish.report.parts import Closed

SCHEMA = 1
"""Number of this format; it goes up when a key changes its meaning or goes."""
LONG = 2_000
"""A text is cut here; it is made safe to print."""


def _one_of(*values: str | int) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={"enum": list(values)})


State = Annotated[str, _one_of(FAIL, WARN, UNCHECKED)]
Verdict = Annotated[str, _one_of(OK, WARN, FAIL, UNCHECKED)]
ExitCode = Annotated[int, _one_of(0, EXIT_NOTHING, EXIT_UNFIT)]


class _Head(Closed, kw_only=True, tag_field="check"):
    """What every document begins with; `check` tells which of them it is."""

    schema: int = SCHEMA
    tool_version: str = __version__
    fit: bool | None
    """null: nothing was seen, no node answered."""
    exit_code: ExitCode


class RankDoc(Closed):
    """What one rank has in an epoch."""

    rank: int
    blocks: int
    batches: int
    steps: int


class CountsDocument(_Head, kw_only=True, tag="counts"):
    """`--counts`, `--dataset`."""

    says: str
    source: str
    how: str
    batch_size: int
    grad_accum: int
    drop_last: bool
    gap_steps: int
    spread_pct: float
    ranks: list[RankDoc]


class NoteDoc(Closed):
    """A remark on a launch script; `line` is null where something is missing, `better` empty
    where the line goes."""

    unfit: bool
    line: int | None
    says: str
    better: list[str]


class ScriptDocument(_Head, kw_only=True, tag="script"):
    """`--script`."""

    source: str
    notes: list[NoteDoc]
    not_checked: list[str]


class RemarkDoc(Closed):
    """What was seen, or could not be, on one node."""

    state: State
    area: str
    says: str
    rule: str | None
    hardware: bool


class NodeDoc(Closed):
    """The verdict of one node."""

    node: str
    verdict: Verdict
    answered: bool
    hardware: bool
    gpus: int | None
    """On its PCI bus; null where that was not seen."""
    remarks: list[RemarkDoc]


class NodesDocument(_Head, kw_only=True, tag="nodes"):
    """`--nodes`, `--job`, `--local`."""

    hardware_only: bool
    nodes: list[NodeDoc]


AnyDocument = CountsDocument | ScriptDocument | NodesDocument


def written(document: AnyDocument) -> str:
    """As text, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n"
