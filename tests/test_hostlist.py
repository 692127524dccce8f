"""Node lists: every shape that Slurm prints, both ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.hostlist import LIMIT, expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu07", ["gpu07"]),
        ("gpu[03-05,09]", ["gpu03", "gpu04", "gpu05", "gpu09"]),
        ("node[001-003,010]", ["node001", "node002", "node003", "node010"]),
        ("rack[1-2]node[01-02]", ["rack1node01", "rack1node02", "rack2node01", "rack2node02"]),
        ("a[1,3-4]b[08-10],login1",
         [f"a{a}b{b}" for a in (1, 3, 4) for b in ("08", "09", "10")] + ["login1"]),
        ("tux[0-1][0-1]", ["tux00", "tux01", "tux10", "tux11"]),
        ("node[01-3]", ["node01", "node02", "node03"]),
        ("node[1-2]-ib", ["node1-ib", "node2-ib"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("a1,,b2", ["a1", "b2"]),
        ("  gpu-01.cluster.example , gpu-02 ", ["gpu-01.cluster.example", "gpu-02"]),
        ("(null)", []),
        ("None assigned", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_list_expands_to_its_names(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node[01-02", "not closed"),
        ("node01-02]", "do not match"),
        ("node[1-[2-3]]", "do not match"),
        ("node[3-1]", "rising"),
        ("node[a-b]", "range"),
        ("node[]", "range"),
        ("node[1-999999999]", f"{LIMIT}"),
        ("n[1-1000][1-1000]", f"{LIMIT}"),
        ("n[1-99999],m[1-99999]", f"{LIMIT}"),
        ("n[1-9999999999999]", "range"),
        ("two words", "blank"),
    ],
)
def test_a_list_that_is_none_is_refused_and_says_why(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        expand(text)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu03", "gpu04", "gpu05"], "gpu[03-05]"),
        (["gpu03"], "gpu03"),
        (["gpu05", "gpu03", "gpu04", "gpu03"], "gpu[03-05]"),
        (["n8", "n9", "n10", "n12"], "n[8-10,12]"),
        (["r1n01", "r1n02", "r2n01"], "r1n[01-02],r2n01"),
        (["node1-ib0", "node2-ib0"], "node[1-2]-ib0"),
        (["login", "gpu-1.x.org", "gpu-2.x.org"], "login,gpu-[1-2].x.org"),
        ([], ""),
    ],
)
def test_names_fold_to_one_short_text(names: list[str], text: str) -> None:
    assert fold(names) == text


_name = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,3}(\.[a-z]{1,2}[0-9]{0,2})?", fullmatch=True)


@given(st.lists(_name, max_size=40))
def test_folding_and_expanding_gives_the_same_names(names: list[str]) -> None:
    assert sorted(expand(fold(names))) == sorted(set(names))


@given(st.text())
def test_any_text_is_a_list_of_names_or_a_value_error(text: str) -> None:
    try:
        names = expand(text)
    except ValueError:
        return
    assert all(name and "[" not in name and "," not in name for name in names)


@given(st.lists(st.text()))
def test_any_names_fold_without_an_error(names: list[str]) -> None:
    assert isinstance(fold(names), str)
