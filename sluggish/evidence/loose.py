"""Loose files: whatever somebody mailed, each recognised by its content, never by its name."""

import codecs
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType

from sluggish.evidence import bug_report, gathered, transcript
from sluggish.evidence.archive import OTHER_PACKERS
from sluggish.evidence.decode import decode, without_colours
from sluggish.evidence.model import Evidence, Unread
from sluggish.evidence.naming import hosts_in, node_of, own_host, rank_of, sample_of
from sluggish.evidence.source import Item, unreadable
from sluggish.text import counted, safe

HEAD = 64 << 10
MORE_WINDOWS = 6
"""Looks into a long file whose beginning and end no probe knows."""
WINDOWED = ("job_log", "kernel_log")
"""Read by windows around their probe's needles, whatever their size."""
MAX_WHOLE = 64 << 20
"""Of a file that is parsed whole; beyond it head and tail are read."""
KEEP_HEAD, KEEP_TAIL = 8 << 20, 56 << 20
BINARY_SHARE = 0.1
TWO_SAMPLES = ("ib_counters", "rank_procs", "memory", "nccl_ras")
OF_A_JOB = (
    "job_log", "slurm_job", "slurm_node", "sacct", "nccl_ras", "topology", "ibdiagnet", "ibdiags",
)  # fmt: skip
OF_A_RANK = ("flight_recorder", "stacks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A file with the probes that know its content, and the hosts that its content shows."""

    item: Item
    kinds: tuple[str, ...]
    hosts: frozenset[str] = frozenset()
    own: str | None = None


def recognise(head: bytes, probes: Iterable[ModuleType]) -> list[str]:
    """Ids of the probes that know this content; a file may be of several kinds.

    A dump is a dump alone: the file names in its stacks must not make it a log too.
    """
    probes = tuple(probes)
    dumps = [p.ID for p in probes if getattr(p, "BINARY", False) and p.sniff(head)]
    if dumps:
        return dumps
    text = plain(head)
    return [p.ID for p in probes if not getattr(p, "BINARY", False) and p.sniff(text)]


def plain(head: bytes) -> bytes:
    """UTF-16 as UTF-8, no colours, plain line ends, so that `sniff` sees one form."""
    marks = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8)
    if head.startswith(marks) or b"\0" in head:
        return decode(head).encode()
    return without_colours(head).replace(b"\r\n", b"\n")


def look_at(
    items: Iterable[Item | Unread], probes: Sequence[ModuleType]
) -> tuple[list[Seen], list[Unread]]:
    """Each file with what it is, and the files that are not evidence."""
    seen: list[Seen] = []
    unread: list[Unread] = []
    for item in items:
        for one in [item] if isinstance(item, Unread) else _look(item, probes):
            if isinstance(one, Unread):
                unread.append(one)
            else:
                seen.append(one)
    return seen, unread


def _look(item: Item, probes: Sequence[ModuleType]) -> list[Seen | Unread]:
    try:
        if bug_report.is_report(item.read(0, bug_report.HEAD)):
            return _of_report(item, probes)
        return _of_nodes(item, probes) or _of_commands(item, probes) or [_recognised(item, probes)]
    except OSError as problem:
        return [unreadable(item.name, problem)]


def _of_report(item: Item, probes: Sequence[ModuleType]) -> list[Seen | Unread]:
    """The parts of a report that a probe knows, and one line that names what of it is not read."""
    report = bug_report.apart(item)
    found = [_recognised(part, probes) for part in report.parts]
    seen = [replace(one, own=one.own or report.host) for one in found if isinstance(one, Seen)]
    names = ", ".join(one.item.name.rsplit("/", 1)[-1] for one in seen) or "nothing"
    others = report.others + len(found) - len(seen)
    rest = counted(others, "other part is", "other parts are")
    why = f"a report of NVIDIA's script: of it {names} is read, {rest} not"
    return [*seen, Unread(path=item.name, why=why)]


def _of_nodes(item: Item, probes: Sequence[ModuleType]) -> list[Seen | Unread]:
    """The parts of a file that a parallel shell wrote; nothing where no part is of a node's kind.

    A job's log stays whole: the names in front of its lines are taken off by its own reader.
    """
    if "job_log" in recognise(item.read(0, HEAD), probes):
        return []
    found = [
        (part.node, one)
        for part in gathered.apart(item)
        for one in _of_commands(part.item, probes) or [_recognised(part.item, probes)]
    ]
    seen = [one for _, one in found if isinstance(one, Seen) and {*one.kinds} - {*OF_A_JOB}]
    if not seen:
        return []
    return [
        replace(one, own=node, hosts=one.hosts | {node}) if isinstance(one, Seen) else one
        for node, one in found
    ]


def _of_commands(item: Item, probes: Sequence[ModuleType]) -> list[Seen | Unread]:
    """The answers in a transcript of a terminal; nothing where fewer than two are of a kind."""
    log = "job_log" in recognise(item.read(0, HEAD), probes)
    parts = transcript.apart(item, bare=not log)
    found = [(part, _recognised(part.item, probes)) for part in parts]
    known = [(part, one) for part, one in found if isinstance(one, Seen)]
    if len(known) < transcript.FEWEST:
        return []
    seen: list[Seen | Unread] = [
        replace(
            one, own=one.own or part.node, hosts=one.hosts | ({part.node} if part.node else set())
        )
        for part, one in known
    ]
    others = [part.command for part, one in found if isinstance(one, Unread)]
    if others:
        rest = counted(len(others), "answer is", "answers are")
        why = f"a transcript: {rest} of no known kind ({safe(', '.join(others), 120)})"
        seen.append(Unread(path=item.name, why=why))
    return seen


def _recognised(item: Item, probes: Sequence[ModuleType]) -> Seen | Unread:
    head = item.read(0, HEAD)
    if not head:
        return Unread(path=item.name, why="empty")
    if not item.size:  # a file of /proc or /sys, or one that has just been made
        return Unread(path=item.name, why="a file without a size, as in /proc: copy it first")
    kinds = set(recognise(head, probes))
    dump = any(getattr(probe, "BINARY", False) for probe in probes if probe.ID in kinds)
    if item.size > HEAD and not dump:
        kinds |= set(recognise(item.read(item.size - HEAD, HEAD), probes))
        step = item.size // (MORE_WINDOWS + 1)
        for count in range(MORE_WINDOWS if not kinds else 0):
            kinds |= set(recognise(item.read(step * (count + 1), HEAD), probes))
    if not kinds:
        return Unread(path=item.name, why=_why_unknown(head))
    order = tuple(probe.ID for probe in probes if probe.ID in kinds)
    if dump:
        return Seen(item=item, kinds=order)
    text = decode(head)
    hosts = frozenset() if _is_binary(head) else frozenset(hosts_in(text))
    return Seen(item=item, kinds=order, hosts=hosts, own=own_host(text))


def _why_unknown(head: bytes) -> str:
    for magic, why in OTHER_PACKERS.items():
        if head.startswith(magic):
            return why
    return "binary, of no known kind" if _is_binary(head) else "no probe knows this content"


def _is_binary(head: bytes) -> bool:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    odd = sum(head.count(bytes([code])) for code in (*range(7), *range(14, 27)))
    odd += head.decode("utf-8", "replace").count("\ufffd")
    return odd > BINARY_SHARE * len(head)


def assemble(
    seen: Sequence[Seen], asked: Iterable[str] = ()
) -> tuple[list[Evidence], list[Unread]]:
    """Evidence with node, rank and sample; `asked` are nodes known from a bundle beside them."""
    known = frozenset(asked).union(*(one.hosts for one in seen))
    ordered = sorted(seen, key=lambda one: one.item.name)
    made = [(one.item, _evidence(one, kind, known)) for one in ordered for kind in one.kinds]
    alike = Counter(_whose(each) for _, each in made)
    found: list[Evidence] = []
    unread: list[Unread] = []
    copies: dict[tuple[object, str], str] = {}
    for item, each in made:
        whose = _whose(each)
        digest = _digest(item) if alike[whose] > 1 and each.probe not in TWO_SAMPLES else ""
        if digest and (whose, digest) in copies:
            why = f"the same content as {copies[whose, digest]}"
            unread.append(Unread(path=each.path, why=why))
            continue
        copies.setdefault((whose, digest), each.path)
        found.append(each)
    return _samples(found), unread


def _whose(made: Evidence) -> tuple[str, str | None, int | None, int]:
    """Only what agrees in this can be a copy; two ranks' empty dumps are equal and two facts."""
    return made.probe, made.node, made.rank, made.size


def _evidence(one: Seen, kind: str, known: frozenset[str]) -> Evidence:
    item = one.item
    node = None
    if kind in OF_A_RANK or kind in ("job_log", "ibdiags"):
        node = node_of(item.name, known, guess=False)
        if node is None and kind in OF_A_RANK:  # `nccl_trace_rank_gpu-07_5`; folders hold all
            node = node_of(item.name.rsplit("/", 1)[-1], known)
    elif kind not in OF_A_JOB:
        node = one.own or node_of(item.name, known)
    cut = item.size > MAX_WHOLE and kind not in WINDOWED
    return Evidence(
        node=node,
        probe=kind,
        path=item.name,
        rank=rank_of(item.name, dump=kind in OF_A_RANK)
        if kind in (*OF_A_RANK, "job_log")
        else None,
        error="truncated" if item.truncated or cut else None,
        stderr="the compressed stream ends early" if item.truncated else "",
        loose=True,
        size=item.size,
        open=whole_of(item),
        file=item.file,
        mtime=item.mtime,
        window=item.read,
    )


def whole_of(item: Item) -> Callable[[], bytes]:
    """A lazy opener; of a file beyond the cap it gives head and tail, cut at line ends."""

    def read() -> bytes:
        if item.size <= MAX_WHOLE:
            return item.read(0, item.size)
        head = item.read(0, KEEP_HEAD)
        tail = item.read(item.size - KEEP_TAIL, KEEP_TAIL)
        return head[: head.rfind(b"\n") + 1] + tail[tail.find(b"\n") + 1 :]

    return read


def _digest(item: Item) -> str:
    import hashlib  # 5 ms that most runs do not need

    if item.size > (16 << 20):
        return ""
    try:
        return hashlib.sha256(item.read(0, item.size)).hexdigest()
    except OSError:  # it vanished: reading it again will say so
        return ""


def _samples(found: list[Evidence]) -> list[Evidence]:
    groups: dict[tuple[str, str | None], list[int]] = defaultdict(list)
    for index, made in enumerate(found):
        if made.probe in TWO_SAMPLES:
            groups[made.probe, made.node].append(index)
    for places in groups.values():
        named = [sample_of(found[place].path) for place in places]
        pairs = named.count("a") == named.count("b") == len(named) / 2  # a file a device, twice
        one_pair = (named.count("a"), named.count("b")) == (1, 1)
        if len(places) < 2 or not (pairs or one_pair):
            named = ["a", *[""] * (len(places) - 2), "b"] if len(places) > 1 else [""]
            places.sort(key=lambda place: _when(found[place]))
        for place, sample in zip(places, named, strict=True):
            found[place] = replace(found[place], sample=sample)
    return found


def _when(made: Evidence) -> tuple[float, str]:
    return (made.mtime.timestamp() if made.mtime else 0.0, made.path)
