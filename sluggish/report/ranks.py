"""The answer of `sluggish ranks` as a screen, one JSON document, or a table of ranks and groups."""

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from sluggish import __version__
from sluggish.correlate.waitgraph import job_heads
from sluggish.facts.collective import GroupHead, RankRecord
from sluggish.facts.store import Facts
from sluggish.hostlist import fold_numbers
from sluggish.ranks import GroupState, RankCulprit, RanksAnswer, role_of
from sluggish.report.parts import Closed, CulpritDoc, GpuDoc
from sluggish.text import counted, safe

SCHEMA = 1
WIDTH = 100
MOST_GROUPS = 8


class State(StrEnum):
    """State of the wait-for graph, a closed list."""

    NONE = "none"
    MISMATCH = "mismatch"
    HOST_STUCK = "host_stuck"
    DEVICE_STUCK = "device_stuck"
    CYCLE = "cycle"
    ALL_JOINED = "all_joined"
    UNOBSERVED = "unobserved"
    TIE = "tie"


STATES = {
    State.NONE: "nothing is pending: no rank waits in a collective",
    State.MISMATCH: "ranks of one group sit in different collectives",
    State.HOST_STUCK: "a rank never posted the collective in which the others wait",
    State.DEVICE_STUCK: "a rank posted what its peers have finished, and did not finish it",
    State.CYCLE: "ranks wait for one another across groups: order inversion",
    State.ALL_JOINED: "everybody posted, nobody finished: not a desync; GPU, fabric or library",
    State.UNOBSERVED: "the waiters wait for ranks that left nothing to read",
    State.TIE: "ranks differ one against one: both are shown, neither is blamed",
}

SIDED = (State.MISMATCH, State.TIE, State.CYCLE, State.HOST_STUCK)
"""States whose sides are shown."""


class GroupDoc(Closed):
    name: str
    desc: str
    role: str | None
    size: int
    ranks: list[int]
    observed: int
    last_completed: int | None
    last_enqueued: int | None
    waiting: list[int]
    behind: list[int]


class SideDoc(Closed):
    operation: str
    ranks: list[int]


class WaitingDoc(Closed):
    operation: str | None
    mismatch: str | None
    ranks: int
    inside: int
    sides: list[SideDoc]


class RanksDocument(Closed):
    schema: int
    tool_version: str
    state: State
    culprits: list[CulpritDoc]
    slow: list[CulpritDoc]
    unobserved: list[int]
    groups: list[GroupDoc]
    waiting: WaitingDoc
    observed: int
    world_size: int | None
    sources: list[str]
    notes: list[str]
    not_visible: list[str]


def render_json(answer: RanksAnswer) -> str:
    """One document; texts of the evidence are made safe."""
    document = RanksDocument(
        schema=SCHEMA,
        tool_version=__version__,
        state=State(answer.state),
        culprits=[_culprit(c) for c in answer.culprits],
        slow=[_culprit(c) for c in answer.slow],
        unobserved=list(answer.unobserved),
        groups=[_group(g) for g in answer.groups],
        waiting=WaitingDoc(
            operation=_safe(answer.operation),
            mismatch=answer.mismatch,
            ranks=answer.waiters,
            inside=answer.inside,
            sides=[SideDoc(operation=safe(op), ranks=list(r)) for op, r in answer.sides],
        ),
        observed=answer.observed,
        world_size=answer.world_size,
        sources=list(answer.sources),
        notes=[safe(note) for note in answer.notes],
        not_visible=[safe(what) for what in answer.not_visible],
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _culprit(one: RankCulprit) -> CulpritDoc:
    return CulpritDoc(
        rank=one.rank,
        node=_safe(one.node),
        pid=one.pid,
        gpu=GpuDoc(index=one.gpu.index, uuid=_safe(one.gpu.uuid), pci=_safe(one.gpu.pci)),
        hca=_safe(one.hca),
        group=_safe(one.group),
        seq=one.seq,
        operation=_safe(one.operation),
        doing=_safe(one.doing),
        source_line=_safe(one.source_line),
    )


def _group(one: GroupState) -> GroupDoc:
    return GroupDoc(
        name=safe(one.name),
        desc=safe(one.desc),
        role=one.role,
        size=one.size,
        ranks=list(one.ranks),
        observed=one.observed,
        last_completed=one.last_completed,
        last_enqueued=one.last_enqueued,
        waiting=list(one.waiting),
        behind=list(one.behind),
    )


def _safe(text: str | None) -> str | None:
    return None if text is None else safe(text)


def render_csv(facts: Facts) -> str:
    """One row a rank and group: how far it came and in what it waits."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(
        ["rank", "group", "desc", "size", "last_enqueued", "last_completed", "waits_in", "seq",
         "source"]
    )  # fmt: skip
    told = job_heads(facts.all(RankRecord), facts.all(GroupHead))
    heads = sorted(told, key=lambda h: (h.rank, h.group.name, h.group.ranks))
    for head in heads:
        first = head.pending[0] if head.pending else None
        table.writerow(
            [head.rank, _cell(head.group.name), _cell(head.group.desc), len(head.group.ranks),
             head.last_enqueued, head.last_completed, _cell(first.op) if first else "",
             first.seq if first else "", head.source]
        )  # fmt: skip
    return out.getvalue()


def _cell(text: str) -> str:
    """A spreadsheet must not run what a group is called."""
    text = safe(text)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text


def render(answer: RanksAnswer, width: int = WIDTH) -> str:
    """The screen: the answer in the first line, the culprits under it."""
    lines: list[str] = []
    for head, text in _lines(answer):
        lines += textwrap.wrap(
            safe(text, 2_000),
            width,
            initial_indent=f"{head:10}",
            subsequent_indent=" " * 10,
            break_on_hyphens=False,
        )
    return "\n".join(lines) + "\n"


def _lines(answer: RanksAnswer) -> Iterator[tuple[str, str]]:
    yield "STATE", f"{answer.state}: {_state_words(answer)}"
    for one in answer.culprits:
        yield "CULPRIT", _words(one)
    for one in answer.slow:
        yield "SLOW", _words(one)
    if answer.operation:
        yield "WAITING", _waiting_words(answer)
    for operation, ranks in answer.sides if answer.state in SIDED else ():
        yield "SIDE", f"{_folded(ranks)}: {operation}"
    if answer.unobserved:
        yield (
            "NOT SEEN",
            f"{_folded(answer.unobserved)}: no record, so no culprit by that",
        )
    for ranks, doing in answer.stacks[:4]:
        yield "STACKS", f"{_folded(ranks)}: {doing}"
    hangs = answer.state != State.NONE
    waiting = [group for group in answer.groups if group.waiting and hangs]
    names = Counter(_name(group) for group in waiting)
    for group in waiting[:MOST_GROUPS]:
        yield "GROUP", _group_words(group, alone=names[_name(group)] == 1)
    if len(waiting) > MOST_GROUPS:
        yield "GROUP", f"and {len(waiting) - MOST_GROUPS} more groups in which somebody waits"
    of = f" of {answer.world_size}" if answer.world_size else ""
    yield "SEEN", f"{answer.observed}{of} ranks by {', '.join(answer.sources) or 'no source'}"
    for note in answer.notes:
        yield "NOTE", note
    for what in answer.not_visible:
        yield "BLIND", what


def _state_words(answer: RanksAnswer) -> str:
    if answer.state == "none" and answer.unobserved:
        return (
            "nothing is pending on the ranks that were seen; "
            f"{counted(len(answer.unobserved), 'was', 'were')} not, so this is no all-clear"
        )
    return STATES[State(answer.state)]


def _waiting_words(answer: RanksAnswer) -> str:
    ranks = counted(answer.waiters, "rank", "ranks")
    some = f", {answer.inside} of them" if 0 < answer.inside < answer.waiters else ""
    return f"{ranks}{some} in {answer.operation}"


def _folded(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) != 1)} {fold_numbers(ranks)}"


def _words(one: RankCulprit) -> str:
    parts = [f"rank {one.rank}", one.node, f"pid {one.pid}" if one.pid else None]
    if one.gpu.index is not None:
        parts.append(f"GPU {one.gpu.index}")
    parts += [one.gpu.pci, one.doing, one.operation]
    if one.group:
        role = role_of(one.group)
        of = f" ({role})" if role and role != one.group.lower() else ""
        # who is in no collective is not in this one either: it is where the others wait for it
        where = "in" if one.operation or not one.seq else "waited for in"
        parts.append(f"{where} {one.group}{of}" + (f" #{one.seq}" if one.seq is not None else ""))
    parts.append(one.source_line)
    return "  ".join(part for part in parts if part)


def _group_words(group: GroupState, *, alone: bool) -> str:
    role = f" ({group.role})" if group.role else ""
    of = "" if alone or not group.ranks else f" of {_shortened(group.ranks)}"
    wait = f"{len(group.waiting)} of {counted(group.size, 'rank', 'ranks')}"
    text = f"{_name(group)}{role}{of}: {wait} wait{'s' * (len(group.waiting) == 1)}"
    if group.last_enqueued is not None and group.last_enqueued >= 0:
        text += f", posted up to #{group.last_enqueued}"
    if group.last_completed is not None:
        told = f"all finished #{group.last_completed}"
        text += f", {told if group.last_completed >= 0 else 'not all finished any'}"
    return text + (f"; behind: {fold_numbers(group.behind)}" if group.behind else "")


def _name(group: GroupState) -> str:
    return group.desc or group.name


def _shortened(ranks: Sequence[int]) -> str:
    """Members where two groups share a name: the first of them tell them apart."""
    parts = fold_numbers(ranks).split(",")
    return f"ranks {','.join(parts[:8])}" + (",..." if len(parts) > 8 else "")
