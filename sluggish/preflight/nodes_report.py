"""The answer to `--nodes`, `--job` and `--local`, for people and for scripts."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluggish.causes import EXIT_NOTHING, EXIT_UNFIT
from sluggish.hostlist import fold
from sluggish.preflight.documents import NodeDoc, NodesDocument, RemarkDoc, written
from sluggish.preflight.fitness import Fitness, any_answer
from sluggish.preflight.remark import FAIL, OK, UNCHECKED, WARN, Remark
from sluggish.preflight.screen import block, finished, steps, wrapped
from sluggish.report.terminal import Look
from sluggish.text import safe

SIGNS = {FAIL: "✗", WARN: "!", UNCHECKED: "?", OK: "✓"}
COLUMN = 13
"""Width of the verdict's word on a line."""
WIDEST = 24
"""A node list that is longer stands on a line of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was looked at, and what came of it."""

    found: tuple[Fitness, ...]
    took_s: float
    hardware_only: bool = False
    """Only failed hardware is to fail: a failing prolog drains the node."""

    @property
    def exit_code(self) -> int:
        """40 where a node is unfit, 30 where no node answered at all, else 0."""
        if any(one.broken if self.hardware_only else one.unfit for one in self.found):
            return EXIT_UNFIT
        return 0 if any_answer(self.found) else EXIT_NOTHING


def render(checked: Checked, look: Look) -> str:
    """The screen."""
    return finished(_lines(checked, look), look)


def _lines(checked: Checked, look: Look) -> Iterator[str]:
    found = checked.found
    nodes = fold(one.node for one in found)
    count = f"{len(found)} node{'s' if len(found) != 1 else ''}"
    title = f"sluggish preflight  {count} ({nodes})  looked {checked.took_s:.0f} s"
    yield from wrapped("", title, look)
    yield ""
    yield from _headline(checked, look)
    yield ""
    for state in (FAIL, WARN, UNCHECKED):
        for remark, where in _folded(found, state):
            yield from _line(state, where, _says(remark), look)
    for bare, says in ((False, ""), (True, "; no GPU on the PCI bus")):
        good = [o.node for o in found if o.verdict == OK and (o.gpus == 0) is bare]
        if good:
            yield from _line(OK, good, f"everything that was asked is in order{says}", look)
    advice = list(_advice(found))
    if advice:
        yield ""
        yield "DO THIS (nothing was changed)"
        yield from steps(advice, look)
    yield ""
    rules = next((r.rule for one in found for r in one.remarks if r.rule), "")
    more = f"   sluggish explain {rules}" if rules else ""
    yield f" exit {checked.exit_code}   docs/preflight.md{more}"


def _headline(checked: Checked, look: Look) -> Iterator[str]:
    found = checked.found
    unfit = [one.node for one in found if one.unfit]
    broken = [one.node for one in found if one.broken]
    if unfit:
        says = f"{fold(unfit)}: no job should start there"
        if broken:
            says += f"; hardware of {fold(broken)}"
        elif checked.hardware_only:
            says += "; no hardware failed, so this is no failure here"
        yield from block("NOT FIT", [says], look)
        return
    if not any_answer(found):
        yield from block("UNKNOWN", ["no node gave an answer: nothing is known of them"], look)
        return
    blind = [o.node for o in found if any(r.state == UNCHECKED for r in o.remarks)]
    warned = [one.node for one in found if one.verdict == WARN]
    says = "as far as could be seen" if blind else "all that was asked is seen"
    says += f"; {len(warned)} with a warning" if warned else ""
    says += f"; on {fold(blind)} not all could be checked" if blind else ""
    yield from block("FIT", [says], look)


def _folded(found: Sequence[Fitness], state: str) -> Iterator[tuple[Remark, list[str]]]:
    """Equal remarks of several nodes as one."""
    groups: dict[tuple[str, str, bool], list[Remark]] = defaultdict(list)
    for one in found:
        for remark in one.remarks:
            if remark.state == state:
                groups[remark.says, remark.rule, remark.hardware].append(remark)
    for remarks in groups.values():
        yield remarks[0], [remark.node for remark in remarks]


def _line(state: str, nodes: Sequence[str], says: str, look: Look) -> Iterator[str]:
    head = f" {SIGNS[state]} {state:<{COLUMN}}"
    where = safe(fold(nodes), 400)
    if len(where) > WIDEST:
        yield from wrapped(head, where, look)
        yield from wrapped(" " * len(head), says, look)
    else:
        yield from wrapped(f"{head}{where}  ", says, look)


def _says(remark: Remark) -> str:
    told = f" [{remark.rule}]" if remark.rule else ""
    return safe(remark.says, 500) + told + (" (hardware)" if remark.hardware else "")


def _advice(found: Sequence[Fitness]) -> Iterator[tuple[str, tuple[str, ...]]]:
    unfit = [one.node for one in found if one.unfit]
    if not unfit:
        return
    if len(unfit) < len(found):
        yield "start without what is unfit", (f"sbatch --exclude={fold(unfit)} ...",)
    broken = [one for one in found if one.broken]
    for one in broken[:4]:
        worst = next(r for r in one.remarks if r.state == FAIL and r.hardware)
        yield (
            f"{one.node}: look again and drain it, if nobody has: {worst.says}",
            (f"scontrol show node {one.node} | grep -i -E 'state|reason'",),
        )
    rest = [one.node for one in found if one.unfit and not one.broken]
    if rest:
        yield f"{fold(rest)}: a setting or something left behind, no reason for a drain", ()


def document(checked: Checked) -> str:
    """The same as one JSON document; docs/preflight.schema.json describes it."""
    seen = any_answer(checked.found)
    nodes = [
        NodeDoc(
            node=one.node,
            verdict=one.verdict,
            answered=not one.silent,
            hardware=one.broken,
            gpus=one.gpus,
            remarks=[_remark(remark) for remark in one.remarks],
        )
        for one in checked.found
    ]
    return written(
        NodesDocument(
            fit=not any(one.unfit for one in checked.found) if seen else None,
            exit_code=checked.exit_code,
            hardware_only=checked.hardware_only,
            nodes=nodes,
        )
    )


def _remark(remark: Remark) -> RemarkDoc:
    return RemarkDoc(
        state=remark.state,
        area=remark.area,
        says=safe(remark.says, 1_000),
        rule=remark.rule or None,
        hardware=remark.hardware,
    )
