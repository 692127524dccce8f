"""The screen: verdict in the first three lines, 100 columns, glyph and word, never colour alone."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sluggish.causes import EXIT_CODES, Cause, Level
from sluggish.findings import Finding, Role, Strength
from sluggish.job import Job
from sluggish.report import words
from sluggish.text import safe
from sluggish.verdict.model import Culprit, Diagnosis, NotChecked, Verdict

WIDTH = 100
MOST_EVIDENCE = 9
MOST_CULPRITS = 4
MOST_GAPS = 7
MOST_OF_A_PLACE = 3  # what one place lacks for one reason is named up to here
MOST_UNREAD = 3
MOST_HOUSEKEEPING = 4
NEEDS = {"root": "root", "slurm administrator": "a Slurm administrator"}
NO_NODE_AT_FAULT = (
    Cause.RANK_DESYNC,
    Cause.DATA_STALL,
    Cause.APP_CRASH,
    Cause.CONFIG,
    Cause.MEMORY,
)
_ASCII = str.maketrans({"✗": "x", "✓": "+", "·": "-", "↔": "-", "…": "~"})  # fmt: skip
_COLOUR = {"✗": "31", "✓": "32", "·": "2", "?": "33", "!": "33"}
_VERDICT_COLOUR = {Cause.PROGRESSING: "1;32", Cause.UNKNOWN: "1;33", Cause.NOT_RUNNING: "1;33"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What the terminal can show."""

    colour: bool = False
    unicode: bool = True
    width: int = WIDTH


def render(diagnosis: Diagnosis, look: Look | None = None, *, explain: bool = False) -> str:
    """The whole screen. Text out of evidence is made safe here, line for line."""
    look = look or Look()
    out: list[str] = []
    for block in (_head, _evidence, _housekeeping, _path if explain else _nothing, _ruled_out,
                  _remedies, _not_checked):  # fmt: skip
        lines = list(block(diagnosis, look))
        if lines:
            out += [*([""] if out else []), *lines]
    cause = diagnosis.verdict.cause
    text = "\n".join(_styled(line, cause, look) for line in out) + "\n"
    if not look.unicode:
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    return text


def _wrap(head: str, text: str, look: Look, indent: int | None = None) -> list[str]:
    """`head` and then the text, made safe and broken into lines under one another."""
    space = " " * (len(head) if indent is None else indent)
    return textwrap.wrap(
        safe(text, 1_200),
        look.width,
        initial_indent=head,
        subsequent_indent=space,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _head(d: Diagnosis, look: Look) -> Iterator[str]:
    verdict = d.verdict
    yield _title(d, look.width)
    yield ""
    yield from _headline(verdict, look)
    yield from _culprits(verdict, look)
    yield from _wrap("SINCE     ", _since(d), look)
    for why in [f"not higher: {verdict.confidence.why_not_higher}"] * bool(
        verdict.confidence.why_not_higher and verdict.confidence.level
    ):
        yield from _wrap("          ", why, look)
    for line in verdict.contradicts[:3]:
        yield from _wrap("AGAINST   ", line, look)
    if verdict.next_probe:
        yield from _wrap("NEXT      ", verdict.next_probe, look)


def _title(d: Diagnosis, width: int) -> str:
    """One line always, so that the verdict stands in the third."""
    summary = d.summary
    state = safe(d.job.state, 20).lower() if d.job and d.job.state else ""
    if d.job and (ran := _ran(d.job, d.taken_at)) is not None:
        state = f"{state or 'ended'} after {words.lasting(ran)}"
    elif summary.elapsed_s is not None:
        state = f"{state or 'age'} {words.lasting(summary.elapsed_s)}"
    looks = [""]
    if d.taken_at:
        took = f" in {summary.took_s:.0f} s" if summary.took_s else ""
        clock = f"looked {d.taken_at:%H:%M:%S}Z"
        looks = [f"looked {d.taken_at:%Y-%m-%d %H:%M:%S}Z{took}", f"{clock}{took}", clock]
    version = f"sluggish {d.tool_version}".strip()
    # what is left out first where the terminal is narrow: the day, the version, name and user
    tries = [(version, _job(d), at) for at in looks]
    tries += [("sluggish", job, looks[-1]) for job in (_job(d), _job(d, most=3), _job(d, most=2))]
    lines = [
        safe("  ".join(part for part in (head, job, _size(d), state, at) if part))
        for head, job, at in tries
    ]
    line = next((line for line in lines if len(line) <= width), lines[-1])
    return line if len(line) <= width else line[: width - 1] + "…"


def _ran(job: Job, now: datetime | None) -> float | None:
    """How long a job ran that had ended by the look: its age says nothing then."""
    if job.started_at is None or job.ended_at is None or now is None or job.ended_at > now:
        return None
    return (job.ended_at - job.started_at).total_seconds()


def _job(d: Diagnosis, *, most: int = 4) -> str:
    """`job 48213 llm-70b (alice)`; `most` 3 is without the name, 2 without the user."""
    if d.job is None:
        return "job not known"
    user = f"({safe(d.job.user, 20)})" if d.job.user else ""
    parts = ("job", safe(d.job.id, 20), safe(d.job.name or "", 24) * (most > 3), user * (most > 2))
    return " ".join(part for part in parts if part)


def _size(d: Diagnosis) -> str:
    summary = d.summary
    if not summary.nodes:
        return f"{summary.world_size} ranks" if summary.world_size else ""
    count = len(summary.nodes)
    size = f"{count} node" + ("s" if count > 1 else "")
    if not summary.gpus_per_node:
        return size
    model = words.model(summary.gpu_model) if summary.gpu_model else "GPUs"
    return f"{size} x {summary.gpus_per_node} {model}"


def _headline(verdict: Verdict, look: Look) -> Iterator[str]:
    left = words.HEADLINE[verdict.cause]
    where = _where(verdict)
    if verdict.subtype:
        left += f" ({verdict.subtype.replace('_', ' ')})"
    if where:
        left += f": {where}" if ":" not in left else f"; {where}"
    right = _sure(verdict)
    lines = _wrap("VERDICT   ", left, look)
    if len(lines) == 1 and len(lines[0]) + 2 + len(right) <= look.width:
        yield lines[0] + right.rjust(look.width - len(lines[0]))
        return
    yield from lines
    yield from _wrap("          ", right, look)


def _where(verdict: Verdict) -> str:
    """The place in the headline: one word for one culprit or for many of one kind."""
    if not verdict.culprits:
        return ""
    first = verdict.culprits[0]
    if len(verdict.culprits) > 1:
        nodes = [c.node for c in verdict.culprits if c.node]
        return words.folded(nodes) if len(set(nodes)) > 1 else ""
    if first.hca and verdict.subtype in words.LINK_SUBTYPES:
        return f"link {first.node or ''} {first.hca} ↔ switch"
    if verdict.cause is Cause.GPU_FAULT and first.node:
        gpu = f" GPU {first.gpu_index}" if first.gpu_index is not None else ""
        return f"{first.node}{gpu}"
    if first.rank is not None:
        return f"rank {first.rank}"
    return first.node or ""


def _sure(verdict: Verdict) -> str:
    level = verdict.confidence.level
    families = [words.FAMILY[family] for family in verdict.families]
    count = f"{len(families)} independent: {', '.join(families)}" if families else ""
    marks = [count, "preliminary: loose files" if verdict.preliminary else ""]
    said = "; ".join(mark for mark in marks if mark)
    word = f"confidence {level.upper()}" if level else "confidence none"
    return f"{word} ({said})" if said else word


def _culprits(verdict: Verdict, look: Look) -> Iterator[str]:
    lines = _culprit_lines(verdict)
    if not lines:
        yield "CULPRIT   none named"
    for count, line in enumerate(lines[:MOST_CULPRITS]):
        yield from _wrap("CULPRIT   " if not count else "          ", line, look)
    if len(lines) > MOST_CULPRITS:
        yield f"          and {len(lines) - MOST_CULPRITS} more (--json lists all)"


def _culprit_lines(verdict: Verdict) -> list[str]:
    """One line a culprit; those that differ in their node alone are folded."""
    groups: dict[tuple[str, str], list[Culprit]] = {}
    for culprit in verdict.culprits:
        alike = (culprit.hca or "", culprit.doing or "")
        key = alike if verdict.shared else (str(len(groups)), "")
        groups.setdefault(key, []).append(culprit)
    lines: list[str] = []
    for group in groups.values():
        if len(group) > 1:
            what = "  ".join(safe(part, 80) for part in (group[0].hca, group[0].doing) if part)
            nodes = words.folded(c.node for c in group if c.node)
            lines.append(f"{len(group)} places, one shared cause: {nodes}  {what}".rstrip())
            continue
        parts = (words.place(group[0], verdict.subtype), words.doing(group[0]))
        lines.append("  ".join(part for part in parts if part))
    return [line for line in lines if line]


def _since(d: Diagnosis) -> str:
    verdict, onset = d.verdict, d.verdict.onset
    if onset is None:
        return "not known" if verdict.cause is not Cause.PROGRESSING else "no stall seen"
    ago = words.age(onset.latest, d.taken_at)
    times = words.clock(onset.latest, d.taken_at) + (f" ({ago})" if ago else "")
    if (onset.latest - onset.earliest).total_seconds() >= 60:
        times = f"{words.clock(onset.earliest, d.taken_at)} to {times}"
    parts = [f"{times}, from {onset.source}"]
    if verdict.cost_gpu_hours is not None:
        parts.append(f"{verdict.cost_gpu_hours:.1f} GPU-hours lost")
    if verdict.victims:
        some = words.ranks(verdict.victims)
        which = f" ({some})" if len(some) <= 24 else ""
        parts.append(f"{len(verdict.victims)} ranks wait{which}")
    return "; ".join(parts)


def _evidence(d: Diagnosis, look: Look) -> Iterator[str]:
    yield "EVIDENCE"
    rows = _rows(d)
    if not rows:
        yield " · nothing was found that speaks for a cause"
    for glyph, found in rows[:MOST_EVIDENCE]:
        yield from _finding(glyph, found, d, look)
    if len(rows) > MOST_EVIDENCE:
        yield f"   and {len(rows) - MOST_EVIDENCE} more (--json lists all)"


def _rows(d: Diagnosis) -> list[tuple[str, list[Finding]]]:
    """Findings in the order of their weight; those that say the same on many nodes are one row."""
    shown = (Role.ROOT, Role.CONSEQUENCE, Role.CONTEXT)
    speaking = {
        rule for answer in d.verdict.path if answer.answer == "yes" for rule in answer.rules
    }
    groups: dict[tuple[str, str, Role, str], list[Finding]] = {}
    for finding in d.findings:
        if finding.role in shown:
            key = (finding.rule, finding.says, finding.role, finding.source)
            groups.setdefault(key, []).append(finding)
    order = list(Strength)

    def weight(group: list[Finding]) -> tuple[bool, int, int]:
        head = group[0]
        mine = head.rule in speaking and head.role is Role.ROOT
        return (not mine, shown.index(head.role), order.index(head.strength))

    rows = sorted(groups.values(), key=weight)
    bad = "✓" if d.verdict.cause is Cause.PROGRESSING else "✗"
    return [(bad if group[0].role is Role.ROOT else "·", group) for group in rows]


def _finding(glyph: str, group: list[Finding], d: Diagnosis, look: Look) -> list[str]:
    head = group[0]
    nodes = words.folded(f.node for f in group if f.node)
    times = [f.at for f in group if f.at]
    at = words.clock(min(times), d.taken_at) if times else ""
    places = {f.subject for f in group}
    subject = head.subject if len(places) == 1 and head.subject not in ("job", head.node) else ""
    where = " ".join(part for part in (nodes, _source(head.source), at) if part)
    says = head.says if subject in head.says else f"{subject}: {head.says}"
    first = f" {glyph} {head.rule:<12} {safe(where, 60):<23}  "
    return _wrap(first, says, look, indent=40)


def _source(source: str) -> str:
    """One source; where several probes told the same, the first and how many more."""
    names = source.split()
    many = len(names) > 2 and all("_" in name or name.startswith("ib") for name in names)
    return f"{names[0]} +{len(names) - 1}" if many else source


def _housekeeping(d: Diagnosis, look: Look) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in d.findings:
        if finding.role is Role.HOUSEKEEPING:
            key = (finding.rule, finding.says, finding.subject)
            groups.setdefault(key, []).append(finding)
    if not groups:
        return
    yield "HOUSEKEEPING (true, not the cause)"
    for group in list(groups.values())[:MOST_HOUSEKEEPING]:
        yield from _finding("!", group, d, look)
    if len(groups) > MOST_HOUSEKEEPING:
        yield f"   and {len(groups) - MOST_HOUSEKEEPING} more (--json lists all)"


def _nothing(d: Diagnosis, look: Look) -> Iterator[str]:
    yield from ()


def _path(d: Diagnosis, look: Look) -> Iterator[str]:
    yield "PATH THROUGH THE TREE"
    glyphs = {"yes": "✗", "no": "✓", "unknown": "?"}
    for answer in d.verdict.path:
        blind = f"; blind on {words.folded(answer.blind)}" if answer.blind else ""
        said = f" [{', '.join(answer.rules)}]" if answer.rules else ""
        text = f"{answer.text} {answer.answer}{said}" + (f": {answer.says}" if answer.says else "")
        head = f" {glyphs.get(answer.answer, '?')} {answer.question:<11} "
        yield from _wrap(head, text + blind, look)


def _ruled_out(d: Diagnosis, look: Look) -> Iterator[str]:
    yield "RULED OUT"
    if not d.verdict.ruled_out:
        yield " · nothing: no cause was looked for on every node"
    for out in d.verdict.ruled_out:
        yield from _wrap(f" ✓ {words.AREA.get(out.cause, out.cause):<10} ",
                         f"{out.why} ({out.coverage})", look)  # fmt: skip


def _remedies(d: Diagnosis, look: Look) -> Iterator[str]:
    evidence = f"; evidence: {safe(d.bundle, 80)}" if d.bundle else ""
    why = _why_no_drain(d)
    yield from _wrap("", f"DO THIS, IN ORDER ({why}nothing was changed{evidence})", look, indent=2)
    if not d.remedies:
        yield "   nothing to do"
    for number, remedy in enumerate(d.remedies, 1):
        notes = [remedy.title, *[remedy.effect] * bool(remedy.effect)]
        text = ": ".join(notes)
        text += f"; first: {remedy.precondition}" if remedy.precondition else ""
        if remedy.needs in NEEDS:
            text += "; needs " + NEEDS[remedy.needs]
        yield from _wrap(f"{number:>2} ", text, look)
        yield from (f"   {safe(command, 1_000)}" for command in remedy.commands)


def _why_no_drain(d: Diagnosis) -> str:
    verdict = d.verdict
    if any("State=DRAIN" in command for remedy in d.remedies for command in remedy.commands):
        return ""
    if verdict.cause in NO_NODE_AT_FAULT:
        return "no drain: no node is at fault; "
    if verdict.shared:
        return "no drain: the cause is shared by many nodes; "
    if verdict.cause is Cause.UNKNOWN:
        return "no drain: no cause is proved; "
    hardware = verdict.cause in (Cause.GPU_FAULT, Cause.IB_FAULT)
    if hardware and verdict.confidence.level is not Level.HIGH:
        return "no drain: confidence is not high; "
    return ""


def _not_checked(d: Diagnosis, look: Look) -> Iterator[str]:
    yield "NOT CHECKED"
    unread = [f"{gone.path}: {gone.why}" for gone in d.unread]
    # what was given and not read comes first: the reader believes that it was looked at
    lines = [*unread[:MOST_UNREAD], *_gaps(d.verdict.not_checked), *unread[MOST_UNREAD:]]
    if not lines:
        yield " · nothing that this version knows how to look at"
    for line in lines[:MOST_GAPS]:
        yield from _wrap(" ? ", line, look)
    if len(lines) > MOST_GAPS:
        yield f"   and {len(lines) - MOST_GAPS} more (--json lists all)"
    rule = next(
        (r for a in d.verdict.path if a.answer == "yes" for r in a.rules),
        next((f.rule for f in d.findings if f.role is Role.ROOT), ""),
    )
    hint = f"   sluggish explain {rule}" if rule else ""
    level = d.verdict.confidence.level
    told = f"{d.verdict.cause}" + (f"/{d.verdict.subtype}" if d.verdict.subtype else "")
    told += f" ({level})" if level else ""
    yield f" exit {EXIT_CODES[d.verdict.cause]}   {told}{hint}"


def _gaps(gaps: Iterable[NotChecked]) -> Iterator[str]:
    """One line a thing and reason, its places folded; a place that lacks all is one line too."""
    groups: dict[tuple[str, str], list[str]] = {}
    for gap in gaps:
        groups.setdefault((gap.what, gap.why), []).extend([gap.where] if gap.where else [])
    silent: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (what, why), places in groups.items():
        silent.setdefault((tuple(dict.fromkeys(places)), why), []).append(what)
    for (places, why), whats in silent.items():
        where = f"{words.folded(places)} " if places else ""
        told = f" ({why})" if why else ""
        if places and why and len(whats) > MOST_OF_A_PLACE:
            first = ", ".join(whats[:MOST_OF_A_PLACE])
            yield f"{where}{first} and {len(whats) - MOST_OF_A_PLACE} more{told}"
            continue
        yield from (f"{where}{what}{told}" for what in whats)


def _styled(line: str, cause: Cause, look: Look) -> str:
    if not look.colour:
        return line
    if line.startswith("VERDICT"):
        return f"\x1b[{_VERDICT_COLOUR.get(cause, '1;31')}m{line}\x1b[0m"
    glyph = line[1:2]
    if line[:1] == " " and glyph in _COLOUR and line[2:3] == " ":
        return f" \x1b[{_COLOUR[glyph]}m{glyph}\x1b[0m{line[2:]}"
    if line[:1].isupper():
        return f"\x1b[1m{line}\x1b[0m"
    return line
