"""Every parser on junk and on spoiled real text: facts or ValueError, and a sound report."""

import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from storyroom import NEVER_ASKED

from sluggish.catalog import data
from sluggish.cli.demo import stories
from sluggish.diagnose import diagnose
from sluggish.evidence.decode import decode
from sluggish.evidence.model import Bundle, Evidence
from sluggish.evidence.open import load
from sluggish.facts.origin import Origin
from sluggish.probes import PROBES
from sluggish.report import terminal
from sluggish.report.json import render

PROBED = Path(__file__).parent / "probes"
AT = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)
ORIGIN = Origin(
    node="gpu-07",
    rank=3,
    sample="a",
    path="x",
    taken_at=AT,
    boot_at=AT.replace(day=1),
    exit_code=0,
)
IDS = [probe.ID for probe in PROBES]
BY_ID = {probe.ID: probe for probe in PROBES}
HOSTILE = (
    b"\0", b"\x1b[2J", b"\x1b]0;x\x07", b"\r", b"\n", b"\xff\xfe", b"\xe2\x80\xae", b"\xed\xa0\x80",
    b"\\ud800", b"-1", b"9" * 30, b"9" * 5000, b"1e308", b"NaN", b"-Infinity",
    b"9999-12-31T23:59:59", b"0001-01-01T00:00:00", b";reboot;", b"$(reboot)", b"`id`", b"' \" ",
    b"<script>", b"../..",
    b"\xd9\xa3", b"\xc2\xb2", b"0xffffffffffffffff", b"[", b"{", b"null", b"",
)  # fmt: skip
NUMBER, WORD = re.compile(rb"\d+"), re.compile(rb"[A-Za-z_]{3,}")
Change = tuple[int, int, int, bytes]


@cache
def bundle(name: str) -> Bundle:
    with as_file(files("sluggish.demo") / f"{name}.tar.gz") as path:
        loaded = load([str(path)], PROBES)
    return replace(loaded, evidence=tuple(holding(e, e.open()) for e in loaded.evidence))


def holding(item: Evidence, content: bytes) -> Evidence:
    """The same evidence with this content, in memory."""
    return replace(
        item,
        size=len(content),
        open=lambda: content,
        window=lambda at, length: content[at : at + length],
    )


@cache
def samples(probe: str) -> tuple[bytes, ...]:
    """Real text of a kind out of the packaged stories, each content once."""
    found = (e.open() for name in stories() for e in bundle(name).evidence if e.probe == probe)
    if probe in NEVER_ASKED:
        found = (p.read_bytes() for p in sorted((PROBED / probe).glob("*.txt")))
    return tuple(dict.fromkeys(content for content in found if content))[:4]


def cut(text: bytes, at: int, to: int, _: bytes) -> bytes:
    return text[:at]


def drop(text: bytes, at: int, to: int, _: bytes) -> bytes:
    return text[:at] + text[to:]


def repeat(text: bytes, at: int, to: int, _: bytes) -> bytes:
    return text[:at] + text[at:to] * 20 + text[to:]


def splice(text: bytes, at: int, to: int, token: bytes) -> bytes:
    return text[:at] + token + text[to:]


def swap_lines(text: bytes, at: int, to: int, _: bytes) -> bytes:
    rows = text.split(b"\n")
    one, other = at % len(rows), to % len(rows)
    rows[one], rows[other] = rows[other], rows[one]
    return b"\n".join(rows)


def change_number(text: bytes, at: int, to: int, token: bytes) -> bytes:
    found = NUMBER.search(text, at)
    return text[: found.start()] + token + text[found.end() :] if found else text


def change_word(text: bytes, at: int, to: int, token: bytes) -> bytes:
    found = WORD.search(text, at)
    return text[: found.start()] + token + text[found.end() :] if found else text


def other_ends(text: bytes, at: int, to: int, _: bytes) -> bytes:
    return text.replace(b"\n", (b"\r", b"\r\n", b" ", b"\n\n")[at % 4])


def utf_16(text: bytes, at: int, to: int, _: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode("utf-16")


SPOILERS: tuple[Callable[[bytes, int, int, bytes], bytes], ...] = (
    cut, drop, repeat, splice, swap_lines, change_number, change_word, other_ends, utf_16,
)  # fmt: skip
changes = st.lists(
    st.tuples(
        st.integers(0, len(SPOILERS) - 1),
        st.integers(0, 1 << 20),
        st.sampled_from([1, 4, 40, 400]),
        st.sampled_from(HOSTILE),
    ),
    min_size=1,
    max_size=6,
)


def spoiled(text: bytes, how: list[Change]) -> bytes:
    for number, where, length, token in how:
        at = where % max(1, len(text))
        text = SPOILERS[number](text, at, at + length, token)[: 1 << 20]
    return text


def facts_of(probe: ModuleType, content: bytes) -> list[Any]:
    """Facts up to the end or to the ValueError; any other exception fails the test."""
    binary = getattr(probe, "BINARY", False)
    found: list[Any] = []
    try:
        for fact in probe.parse(content if binary else decode(content), ORIGIN):
            found.append(fact)
    except ValueError:
        pass
    return found


@pytest.mark.parametrize("probe", IDS)
def test_the_packaged_stories_hold_text_of_every_kind(probe: str) -> None:
    assert any(facts_of(BY_ID[probe], content) for content in samples(probe))


@pytest.mark.parametrize("probe", IDS)
@settings(max_examples=100, deadline=None)
@given(st.one_of(st.binary(max_size=600), st.text(max_size=600).map(lambda t: t.encode())))
def test_junk_is_no_fact_and_no_crash(probe: str, content: bytes) -> None:
    assert BY_ID[probe].sniff(content) in (True, False)
    assert all(type(fact) in BY_ID[probe].FACTS for fact in facts_of(BY_ID[probe], content))


@pytest.mark.parametrize("probe", IDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(draw=st.data(), how=changes)
def test_spoiled_text_is_facts_or_a_value_error(
    probe: str, draw: st.DataObject, how: list[Change]
) -> None:
    content = spoiled(draw.draw(st.sampled_from(samples(probe))), how)
    assert BY_ID[probe].sniff(content[: 64 << 10]) in (True, False)
    assert all(type(fact) in BY_ID[probe].FACTS for fact in facts_of(BY_ID[probe], content))


UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
WORDS = {
    "node": r"(?P<node>[A-Za-z0-9][A-Za-z0-9._-]*)",
    "nodes": r"[A-Za-z0-9._,\[\]-]+",
    "job": r"\d{1,12}(?:[_+]\d{1,9})?",
    "number": r"\d{1,12}",
    "size": r"\d{1,6}",
    "gpu": r"\d{1,4}",
    "hca": r"[A-Za-z][A-Za-z0-9_]*",
    "reason": r"sluggish: [A-Z-]+(?: Xid\d+)?(?: gpu\d+)?(?: [A-Za-z]\w*)?(?: job=[\d_+]+)?",
}
IN_CODE = (
    'scontrol update NodeName={node} State=DRAIN Reason="{reason}"',
    "scontrol requeue {job}",
    "scancel {job}",
)


def pattern_of(template: str) -> re.Pattern[str]:
    """What a command of this template may look like; a node that stands twice is the same one."""
    out = ""
    for part in re.split(r"(\{\w+\})", template):
        blank = part[1:-1] if part[:1] == "{" and part[1:-1].isidentifier() else None
        if blank == "node" and WORDS[blank] in out:
            out += "(?P=node)"
        else:
            out += WORDS[blank] if blank else re.escape(part)
    return re.compile(out, re.ASCII)


def templates() -> list[str]:
    """Every command that can be printed, with its blanks."""
    steps = (s for cause in data.read("remedies.yaml", "sluggish").values() for s in cause.values())
    each = [step for some in steps for step in some if isinstance(step, dict)]
    return [*(text for step in each for text in step.get("commands", ())), *IN_CODE]


TEMPLATES = [pattern_of(text) for text in templates()]


def assert_sound(commands: Iterable[str], nodes: set[str]) -> None:
    """Only our own words, checked names and numbers: nothing of the evidence reaches a shell."""
    for command in commands:
        found = [match for t in TEMPLATES if (match := t.fullmatch(command))]
        assert found, command
        told = found[0].groupdict().get("node")
        assert told is None or told in nodes


def spoil_some(whole: Bundle, how: list[list[Change]], chosen: list[int]) -> Bundle:
    evidence = list(whole.evidence)
    for number, each in zip(chosen, how, strict=False):
        place = number % len(evidence)
        item: Evidence = evidence[place]
        if item.size:
            evidence[place] = holding(item, spoiled(item.open(), each))
    return replace(whole, evidence=tuple(evidence))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(stories()),
    st.lists(changes, min_size=1, max_size=12),
    st.lists(st.integers(0, 10_000), min_size=12, max_size=12),
)
def test_a_spoiled_story_has_a_verdict_and_a_sound_report(
    story: str, how: list[list[Change]], chosen: list[int]
) -> None:
    diagnosis = diagnose(spoil_some(bundle(story), how, chosen))
    document = render(diagnosis)
    assert not UNSAFE.search(document)
    told = json.loads(document, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert told["verdict"]["cause"] == diagnosis.verdict.cause
    assert not UNSAFE.search(terminal.render(diagnosis, explain=True))
    commands = [command for remedy in diagnosis.remedies for command in remedy.commands]
    assert_sound(commands, {e.node for e in bundle(story).evidence if e.node})


def test_a_command_with_foreign_text_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        assert_sound(["ssh gpu-07;reboot ibstat mlx5_0"], {"gpu-07"})
    with pytest.raises(AssertionError):
        assert_sound(["scancel 48213\x1b[2J"], {"gpu-07"})


def test_the_packed_stories_are_whole() -> None:
    for name in stories():
        with as_file(files("sluggish.demo") / f"{name}.tar.gz") as path, tarfile.open(path) as tar:
            count = sum(member.isfile() for member in tar)
        assert count > len(bundle(name).nodes) * 10
    by_kind: dict[str, int] = defaultdict(int)
    for item in bundle(stories()[0]).evidence:
        by_kind[item.probe] += 1
    assert set(by_kind) == set(IDS) - NEVER_ASKED
