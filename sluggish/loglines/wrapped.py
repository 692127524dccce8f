"""What collectors and viewers lay around every line of a log, taken off before anything is read.

Containers (docker's json-file, CRI), Kubernetes (`kubectl logs --prefix --timestamps`, exported
JSON), syslog and the journal, parallel shells, `cat -n`, `grep -H`, quoted mail. Only what nearly
all lines carry is a wrapper: one that some lines carry belongs to their speaker.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluggish.loglines.stamps import ISO

SHARE = 0.9
"""So many of the lines that are not blank must carry it; collectors add lines of their own."""
DEEPEST = 4
"""Wrappers nest: a viewer around Kubernetes around a container's runtime."""
LEAST = 3
"""Fewer lines prove no habit."""

_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        # [pod/trainer-0-x7k2p/pytorch] text        (kubectl logs --prefix)
        r"\[pod/[\w.-]{1,253}/[\w.-]{1,253}\] ",
        # 2026-11-24T03:00:00.123456789Z stdout F text   (CRI: containerd, cri-o)
        rf"{ISO} std(?:out|err) [FP] ",
        # 2026-11-24T03:00:00.123456789Z text       (kubectl logs, docker logs --timestamps)
        rf"(?=\S{{20}}\d{{9}}Z ){ISO} ",
        # Nov 24 03:00:00 gpu-07 slurmstepd[812]: text      (syslog, journalctl)
        r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d (?P<node>[A-Za-z0-9][\w.-]{0,252}) "
        r"[\w./@-]{1,60}(?:\[\d{1,10}\])?: ",
        # 2026-11-24T03:00:00.123+00:00 gpu-07 trainer[812]: text
        rf"{ISO} (?P<node>[A-Za-z0-9][\w.-]{{0,252}}) [\w./@-]{{1,60}}\[\d{{1,10}}\]: ",
        # trainer-3  | text                         (docker compose)
        r"[a-z][\w.-]{0,60}[-_]\d{1,6} {1,20}\| ",
        # gpu-07: text                              (pdsh, clush)
        r"(?!(?i:(?:rank|task|step|proc|local|epoch|iter|stage)[-_]?\d{1,6}|(?:gpu|cuda|mlx\d)_?\d):)"
        r"(?P<node>(?=[\w.-]*\d)[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,62}){0,5})"
        r"(?<!Error)(?<!Exception)(?<!Warning): ",
        r" {0,8}\d{1,9}\t",  # `cat -n`
        r"[\w./-]{1,200}\.(?:log|out|err|txt):(?:\d{1,9}:(?! ))?",  # `grep -H`, `grep -rn`
        r"> ?",  # a quoted mail
    )
)
_TEXTS = ("log", "message", "msg", "textPayload", "MESSAGE")
_TIMES = ("time", "timestamp", "@timestamp", "ts")
_STAMP = re.compile(ISO)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """One layer; without a pattern it is a JSON object a line."""

    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class Peeled:
    """A line without its wrappers, and the matches that tell a time or a node, outermost first."""

    text: str
    told: tuple[re.Match[str], ...] = ()


def wrappers(sample: Sequence[str]) -> tuple[Wrapper, ...]:
    """The wrappers of a log, outermost first, from its first lines."""
    found: list[Wrapper] = []
    lines = [line for line in sample if line.strip()]
    while len(lines) >= LEAST and len(found) < DEEPEST:
        one = next((w for w in _CANDIDATES if _is_worn(w, lines)), None)
        if one is None or one in found:
            break
        found.append(one)
        peeled = (_peel_one(line, one) for line in lines)
        lines = [line for p in peeled if p for line in p.text.split("\n") if line.strip()]
    return tuple(found)


_CANDIDATES = (Wrapper(), *(Wrapper(pattern) for pattern in _PATTERNS))


def _is_worn(wrapper: Wrapper, lines: Sequence[str]) -> bool:
    if not any(_peel_one(line, wrapper) for line in lines[:LEAST]):
        return False
    return sum(1 for line in lines if _peel_one(line, wrapper)) >= SHARE * len(lines)


def peel(line: str, worn: Sequence[Wrapper]) -> Peeled:
    """The line without what it wears of these; a line without a wrapper is left as it is."""
    told: list[re.Match[str]] = []
    for wrapper in worn:
        one = _peel_one(line, wrapper)
        if one is None:
            break
        line = one.text
        told += one.told
    return Peeled(line, tuple(told))


def _peel_one(line: str, wrapper: Wrapper) -> Peeled | None:
    if wrapper.pattern is None:
        return _json(line)
    found = wrapper.pattern.match(line[:800])
    if found is None:
        # trailing blanks are often lost: an empty line of the program
        found = wrapper.pattern.fullmatch(line + " ") if len(line) < 400 else None
        return Peeled("", (found,)) if found else None
    told = (found,) if found.re.groupindex else ()
    return Peeled(line[found.end() :], told)


def _json(line: str) -> Peeled | None:
    """`{"log":"text\\n","stream":"stdout","time":"2026-..Z"}`, and the like of exporters."""
    if not line.startswith("{") or not line.rstrip().endswith("}"):
        return None
    try:
        record: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    text = next((record[k] for k in _TEXTS if isinstance(record.get(k), str)), None)
    if text is None:
        return None
    times = (record[k] for k in _TIMES if isinstance(record.get(k), str))
    stamp = next((found for t in times if (found := _STAMP.match(t))), None)
    return Peeled(text.rstrip("\r\n"), (stamp,) if stamp else ())
