"""Takes a job log apart into lines, and off each line what launchers and collectors put in front.

Colours go, progress bars written with carriage returns become lines of their own, and a record
glued to a bar or to another writer's half line begins a line of its own. The prefix of c10d
(`[E616 13:41:10.909 ProcessGroupNCCL.cpp:565]`) and of NCCL stay: they belong to the speaker.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from sluggish.facts.origin import Origin
from sluggish.loglines.line import Line
from sluggish.loglines.stamps import ISO, clock, from_iso, without_date, without_year, zone_of
from sluggish.loglines.wrapped import Wrapper, peel, wrappers
from sluggish.text import strip_ansi

LONGEST = 16_384
"""A longer line is cut into pieces of this length: every reader stays linear and quick."""
MAX_PREFIXES = 8
"""Launchers nest: collector, srun, torchrun, Ray, logging."""
LABEL_SHARE = 0.3
"""Share of lines that must carry `3: ` or `gpu-07: ` before it counts as a launcher's label."""
LABEL_SAMPLE = 4_000

# ^[[36m and [36m: escapes shown by a pager, or whose ESC a copy lost (seen: vLLM logs)
_BROKEN_ANSI = re.compile(r"\^?\[\[?\d{1,3}(?:;\d{1,3}){0,4}m|\^\[(?=\[)")
# ESC [E socket.cpp:957] ...: the bracket of c10d's level read as a cursor command
_SWALLOWED = re.compile(r"\x1b\[(?=[EWI] \w+\.cpp)")
# 100%|####| 3/3 [00:43<00:00, 14.22s/it]Traceback (most recent call last):
# consumed_samples=2.56e+7][E ProcessGroupNCCL.cpp:475] ...
# loss/train/total[6]:[E1122 10:00:00.1 ProcessGroupNCCL.cpp:607] ...
_GLUED = re.compile(
    r"Traceback \(most recent call last\):|\[rank\d{1,6}\]:|\[\d{1,3}\]:\[[EWIF]"
    r"|\[[EWIF](?:\d{3,4} \d\d:\d\d:\d\d\.\d+)? ?\w{1,60}\.cpp:\d"
    r"|slurmstepd: (?:error|fatal)|srun: (?:error|Force|Job)"
    r"|(?<=[\]\d%sx])(?:WARNING|ERROR|INFO):[a-z]"
)
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\](?: \(Ray .{0,300})?\Z")

# [rank3]: text    [RANK 1] text    [rank: 3] text
_RANK = re.compile(r"\[(?:rank|RANK )(?P<rank>\d{1,6})\]:? ?|\[rank: ?(?P<rank2>\d{1,6})\]:? ?")
# [default7]: text (torchrun role and local rank)    [6]: text (Composer)
_ROLE = re.compile(r"\[[a-z_]{0,30}(?P<local>\d{1,4})\]: ?")
# [1,12]<stdout>: text (Open MPI: job, rank)
_OPENMPI = re.compile(r"\[\d{1,6},(?P<rank>\d{1,6})\]<std(?:out|err|diag)>: ?")
# [2024-02-27T21:35:28.705869Z] fa88a9df [rank=1] || text (Determined)
_DETERMINED = re.compile(rf"\[{ISO}\] [0-9a-f]{{6,12}} (?:\[rank=(?P<rank>\d{{1,6}})\] )?\|\| ?")
# [2025-02-24 14:09:34 TP14] text (sglang)    [2026-11-24 03:00:00,123] text
_BRACKET_ISO = re.compile(rf"\[{ISO}(?: [A-Z]{{2}}\d{{1,5}}){{0,4}}\] ?(?:- )?")
# [08/22 14:35:16 d2.engine]: text (detectron2)    [05/07/24 15:51:09] INFO  text (RichHandler)
_BRACKET_US = re.compile(
    r"\[(?P<M>\d\d)/(?P<D>\d\d)(?:/(?P<Y>\d\d))? (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?: [\w.]{1,80})?\]:? ?"
)
# [NeMo I 2024-05-07 15:51:09 nemo_logging:393] text
_NEMO = re.compile(rf"\[NeMo [A-Z] {ISO}[^\]]{{0,200}}\] ?")
# [titan] 2025-06-16 13:41:10,909 - root - INFO - text
_TITAN = re.compile(r"\[titan\] ?")
# [80746] [rank0]: text (line numbers of a viewer)
_VIEWER = re.compile(r"\[\d{1,9}\] (?=\[rank\d)")
# [E616 13:41:10.909476913 ProcessGroupNCCL.cpp:565] ...: month and day without a leading zero
_C10D = re.compile(
    r"\[[EWIF](?P<M>\d{1,2})(?P<D>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9}) "
)
# W0616 13:41:10.909000 4182 torch/distributed/run.py:766] text (torch's Python logging)
_GLOG = re.compile(
    r"[EWIFVC](?P<M>\d\d)(?P<D>\d\d) (?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)\.(?P<f>\d{1,9}) +"
    r"(?P<pid>\d{1,9}) [^\s\]]{1,300}\] ?"
)
# (ActorModelRayActorBOX pid=12903, ip=10.0.3.5) text
_RAY = re.compile(
    r"\([\w<>.:-]{1,120}(?: rank=(?P<rank>\d{1,6}))? pid=(?P<pid>\d{1,9})(?:, ip=[\w.:]{1,60})?\) ?"
)
# dinov2-giant-nodes.node-b.nolog [stderr] text (milabench)
_MILABENCH = re.compile(r"[\w-]{1,80}\.(?P<node>[\w-]{1,80})(?:\.nolog)? \[std(?:err|out)\] ?")
#   | 2024-08-23T22:22:51.873Z | text (CloudWatch)
_PIPED = re.compile(rf"(?:[\w./-]{{1,80}} )?\s{{0,8}}\| {ISO} \| ?")
# 2026-11-24 03:00:00,123 - text    2024-08-23T22:22:51.873Z stdout F text
_PLAIN_ISO = re.compile(rf"{ISO}(?: std(?:out|err) [FP])?:?(?: - | \| | ?)")
# 18:11:06.680 [rank4]: text (a collector's clock)
_TIME_ONLY = re.compile(r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))? (?=[\[(A-Z])")
_LABEL = re.compile(r" {0,5}(?P<task>\d{1,6}): ?")
_HOST = re.compile(r"(?P<node>[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,5}): ?")
_BOX = re.compile(r"[│┃] ?(?P<text>.*?)\s*[│┃]?\Z", re.DOTALL)
_BOX_EDGE = "╭╰╮╯┌└├━─"


@dataclass(slots=True)
class _Head:
    """What the prefixes of one line told."""

    at: datetime | None = None
    zoned: bool = False
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    node: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Habits:
    """What holds for the whole log."""

    zone: timezone
    taken_at: datetime | None
    labels: bool
    hosts: frozenset[str]
    worn: tuple[Wrapper, ...] = ()
    many: bool = False
    """Several hosts sign the wrappers: a single one may be where the log was collected."""


def lines(text: str, origin: Origin) -> Iterator[Line]:
    """Every line of a log, cleaned. A piece between carriage returns is a line."""
    habits = _habits(text, origin)
    order = 0
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        for row, outer in _unwrapped(text[start:end], habits):
            for piece in _pieces(row):
                for line in _records(piece, order, origin, habits, outer):
                    yield line
                    order += 1
        start = end + 1


def _unwrapped(row: str, habits: _Habits) -> Iterator[tuple[str, _Head]]:
    """What the program printed, and what the collector around it told of time and node."""
    head = _Head()
    if not habits.worn:
        yield row, head
        return
    peeled = peel(row, habits.worn)
    for found in peeled.told:
        names = found.re.groupindex
        if habits.many and "node" in names:
            head.node = found["node"]
        if "Y" in names:
            _dated(found, head, habits)
    for line in peeled.text.split("\n"):
        yield line, head


def _habits(text: str, origin: Origin) -> _Habits:
    sample = [
        strip_ansi(line) for line in text[:2_000_000].split("\n", LABEL_SAMPLE)[:LABEL_SAMPLE]
    ]
    sample = [line for line in sample if line.strip()]
    worn = wrappers(sample)
    signed: set[str] = set()
    if worn:
        peeled = [peel(line, worn) for line in sample]
        signed = {m["node"] for p in peeled for m in p.told if "node" in m.re.groupindex}
        rows = (row for p in peeled for row in p.text.split("\n"))
        sample = [strip_ansi(row) for row in rows if row.strip()]
    enough = max(2, int(len(sample) * LABEL_SHARE))
    labels = sum(1 for line in sample if _LABEL.match(line)) >= enough
    named = [found["node"] for line in sample if (found := _HOST.match(line[:400]))]
    hosts = [name for name in named if any(c.isdigit() for c in name) and _is_host(name)]
    known = frozenset(hosts) if len(hosts) >= enough else frozenset[str]()
    return _Habits(
        zone=zone_of(origin),
        taken_at=origin.taken_at or origin.mtime,
        labels=labels,
        hosts=known,
        worn=worn,
        many=len(signed) > 1,
    )


# rank0: text     GPU3: text     Stage-1: text
_SPEAKER = re.compile(
    r"(?:(?:rank|task|step|proc|local|epoch|iter|stage)[-_]?\d{1,6}|(?:gpu|cuda|mlx\d)_?\d)\Z",
    re.IGNORECASE,
)


def _is_host(name: str) -> bool:
    return not name.endswith(("Error", "Exception", "Warning")) and not _SPEAKER.match(name)


def _pieces(line: str) -> Iterator[str]:
    """The physical line without escapes, between carriage returns, in bearable lengths."""
    for part in line.split("\r") if "\r" in line else (line,):
        for begin in range(0, len(part), LONGEST):
            yield part[begin : begin + LONGEST]
        if not part:
            yield part


def _clean(piece: str) -> str:
    if "\x1b" in piece:
        piece = strip_ansi(_SWALLOWED.sub("[", piece))
    if "m" in piece or "^" in piece:
        piece = _BROKEN_ANSI.sub("", piece)
    if "\0" in piece:
        piece = piece.replace("\0", "")
    if piece.endswith((")", "cluster]")):
        piece = _REPEATED.sub("", piece)
    return piece.rstrip()


def _records(
    piece: str, order: int, origin: Origin, habits: _Habits, outer: _Head
) -> Iterator[Line]:
    text = _clean(piece)
    while True:
        head = replace(outer)
        text = _strip(text, head, habits)
        glued = _GLUED.search(text, 1)
        rest = ""
        if glued and not _quoted(text, glued.start()):
            text, rest = text[: glued.start()], text[glued.start() :]
        yield Line(
            text=text,
            raw=piece[:2_000] if len(piece) > 2_000 else piece,
            order=order,
            at=head.at,
            rank=head.rank if head.rank is not None else origin.rank,
            local_rank=head.local_rank,
            task=head.task,
            node=head.node or origin.node,
            pid=head.pid,
        )
        if not rest:
            return
        text = rest
        order += 1


def _quoted(text: str, at: int) -> bool:
    """Whether the find is named inside a sentence and not written over another line's end."""
    before = text[max(0, at - 2) : at]
    return before.endswith(("'", '"', "`")) or before in (": ", "] ") or text[:at].isspace()


def _strip(text: str, head: _Head, habits: _Habits) -> str:
    for _ in range(MAX_PREFIXES):
        used = _one_prefix(text, head, habits)
        if used is None:
            break
        text = text[used:]
    if text[:1] in "│┃" and text and (boxed := _BOX.match(text)):
        return boxed["text"]
    if text[:1] in _BOX_EDGE and text:
        return text.strip(_BOX_EDGE + " ")
    return text


def _one_prefix(text: str, head: _Head, habits: _Habits) -> int | None:
    first = text[:1]
    if first == "[":
        return _bracket(text, head, habits)
    if first.isdigit():
        return _digits(text, head, habits)
    if first == "(":
        return _ray(text, head)
    if first in (" ", "|"):
        return _blank(text, head, habits)
    return _word(text, head, habits) if first.isalpha() else None


def _bracket(text: str, head: _Head, habits: _Habits) -> int | None:
    if found := _RANK.match(text):
        head.rank = int(found["rank"] or found["rank2"])
        return found.end()
    if found := _C10D.match(text):  # stays: it belongs to the record
        told = clock(found["h"], found["m"], found["s"], found["f"])
        if told:
            month, day = int(found["M"]), int(found["D"])
            _date(head, without_year(month, day, told, habits.zone, habits.taken_at), zoned=False)
        return None
    if found := _DETERMINED.match(text):
        head.rank = int(found["rank"]) if found["rank"] else head.rank
        return _dated(found, head, habits)
    if found := _BRACKET_ISO.match(text) or _NEMO.match(text):
        return _dated(found, head, habits)
    if found := _BRACKET_US.match(text):
        return _us_date(found, head, habits)
    if found := _OPENMPI.match(text):
        head.rank = int(found["rank"])
        return found.end()
    if found := _TITAN.match(text) or _VIEWER.match(text):
        return found.end()
    if found := _ROLE.match(text):
        head.local_rank = int(found["local"])
        return found.end()
    return None


def _digits(text: str, head: _Head, habits: _Habits) -> int | None:
    if found := _PLAIN_ISO.match(text):
        return _dated(found, head, habits)
    if found := _TIME_ONLY.match(text):
        told = clock(found["h"], found["m"], found["s"], found["f"])
        if told:
            _date(head, without_date(told, habits.zone, habits.taken_at), zoned=False)
        return found.end()
    return _label(text, head, habits)


def _label(text: str, head: _Head, habits: _Habits) -> int | None:
    if habits.labels and head.task is None and (found := _LABEL.match(text)):
        head.task = int(found["task"])
        return found.end()
    return None


def _ray(text: str, head: _Head) -> int | None:
    found = _RAY.match(text)
    if not found:
        return None
    head.pid = int(found["pid"])
    head.rank = int(found["rank"]) if found["rank"] else head.rank
    return found.end()


def _blank(text: str, head: _Head, habits: _Habits) -> int | None:
    if found := _PIPED.match(text.lstrip(" ")):
        return _dated(found, head, habits) + len(text) - len(text.lstrip(" "))
    return _label(text, head, habits)


def _word(text: str, head: _Head, habits: _Habits) -> int | None:
    if found := _GLOG.match(text):
        told = clock(found["h"], found["m"], found["s"], found["f"])
        if told:
            month, day = int(found["M"]), int(found["D"])
            _date(head, without_year(month, day, told, habits.zone, habits.taken_at), zoned=False)
        head.pid = int(found["pid"])
        return found.end()
    if habits.hosts and (found := _HOST.match(text[:400])) and found["node"] in habits.hosts:
        head.node = found["node"]
        return found.end()
    if found := _MILABENCH.match(text) or _PIPED.match(text):
        if "node" in found.re.groupindex:
            head.node = found["node"]
            return found.end()
        return _dated(found, head, habits)
    return None


def _dated(found: re.Match[str], head: _Head, habits: _Habits) -> int:
    _date(head, from_iso(found, habits.zone), zoned=found["z"] is not None)
    return found.end()


def _us_date(found: re.Match[str], head: _Head, habits: _Habits) -> int:
    told = clock(found["h"], found["m"], found["s"])
    month, day = int(found["M"]), int(found["D"])
    if told and found["Y"]:
        try:
            year = 2000 + int(found["Y"])
            at = datetime(year, month, day, told.hour, told.minute, told.second)
            _date(head, at.replace(tzinfo=habits.zone), zoned=False)
        except ValueError:
            pass
    elif told:
        _date(head, without_year(month, day, told, habits.zone, habits.taken_at), zoned=False)
    return found.end()


def _date(head: _Head, at: datetime | None, *, zoned: bool) -> None:
    """The innermost stamp counts, but one with a zone beats one without."""
    if at is not None and (zoned or not head.zoned):
        head.at, head.zoned = at, zoned or head.zoned
