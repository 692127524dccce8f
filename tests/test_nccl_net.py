"""NCCL's network lines of every era: lines of our own in NCCL's forms, and their exact parse."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.fabric import NcclCompletion
from sluggish.loglines.line import Line
from sluggish.loglines.nccl_net import NEEDLES, parse

CASES = yaml.safe_load((Path(__file__).parent / "loglines" / "nccl_net.yaml").read_text("utf-8"))
COMPLETION = (
    "node", "device", "pid", "peer", "status", "vendor_error", "opcode", "request", "hca",
    "local_gid", "remote_gid",
)  # fmt: skip


def _line(text: str, **more: Any) -> Line:
    return Line(text=text, raw=text, order=0, **more)


@pytest.mark.parametrize("name", CASES["lines"])
def test_a_line_gives_exactly_its_fields(name: str) -> None:
    case = CASES["lines"][name]
    found = list(parse([_line(case["line"])]))
    if case["type"] is None:
        assert found == []
        return
    assert [type(fact).__name__ for fact in found] == [case["type"]]
    keys = COMPLETION if case["type"] == "NcclCompletion" else tuple(case["fields"])
    got = {key: getattr(found[0], key) for key in keys}
    got = {k: list(v) if isinstance(v, tuple) else v for k, v in got.items()}
    assert got == {key: case["fields"].get(key) for key in keys}
    assert found[0].line == case["line"]


@pytest.mark.parametrize("name", CASES["lines"])
def test_every_line_that_is_read_holds_a_needle(name: str) -> None:
    case = CASES["lines"][name]
    if case["type"] is not None:
        assert any(needle in case["line"].encode() for needle in NEEDLES)


@pytest.mark.parametrize("name", CASES["lines"])
@pytest.mark.parametrize("front", ["0: ", "[rank3]:", "pod-7 | 95%|####| 3/5 ", "x" * 9000 + " "])
def test_text_of_launchers_in_front_changes_nothing(name: str, front: str) -> None:
    case = CASES["lines"][name]
    plain = list(parse([_line(case["line"])]))
    found = list(parse([_line(front + case["line"])]))
    assert [type(fact) for fact in found] == [type(fact) for fact in plain]
    for one, other in zip(found, plain, strict=True):
        ours = {k: getattr(one, k) for k in one.__dataclass_fields__ if k != "line"}
        assert ours == {k: getattr(other, k) for k in other.__dataclass_fields__ if k != "line"}


def test_the_last_error_below_a_pytorch_exception_has_no_prefix() -> None:
    text = "NET/IB: Got completion from peer 10.9.0.4<7> with status=12 opcode=0 vendor err 129"
    [found] = parse([_line(text, rank=11)])
    assert isinstance(found, NcclCompletion)
    assert (found.node, found.pid, found.rank) == (None, None, 11)
    assert (found.peer, found.status, found.vendor_error) == ("10.9.0.4", 12, 129)


@given(st.lists(st.text() | st.sampled_from([c["line"][:60] for c in CASES["lines"].values()])))
def test_any_lines_are_read_without_harm(texts: list[str]) -> None:
    for fact in parse(_line(text) for text in texts):
        assert any(needle in fact.line.encode() for needle in NEEDLES)


@given(st.sampled_from(list(CASES["lines"].values())), st.integers(0, 400))
def test_a_line_cut_anywhere_never_invents_a_field(case: dict[str, Any], end: int) -> None:
    for fact in parse([_line(case["line"][:end])]):
        if isinstance(fact, NcclCompletion):
            assert fact.vendor_error is None or str(fact.vendor_error) in case["line"]
