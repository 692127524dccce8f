import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.loglines.nccl_prefix import nccl_prefix

CASES = {
    "warn with file": (
        "gpu-03:4182:4390 [5] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got x",
        ("gpu-03", 4182, 4390, 5, "transport/net_ib.cc", 1295, "WARN", "NET/IB : Got x"),
    ),
    "info without file": (
        "gpu-03:4182:4390 [0] NCCL INFO Using network IB",
        ("gpu-03", 4182, 4390, 0, None, None, "INFO", "Using network IB"),
    ),
    "launcher, stamp and prefix in front": (
        "[1,12]<stdout>:[2026-03-03 12:11:38] gpu-03.site.org:7:8 [-1] a.cu:9 NCCL WARN late ",
        ("gpu-03.site.org", 7, 8, -1, "a.cu", 9, "WARN", "late"),
    ),
    "function name of 2.30": (
        "[2026-11-24 03:04:17] gpu-03:7:8 [1] net/init.cc:120 (ncclNetInit) NCCL WARN no",
        ("gpu-03", 7, 8, 1, "net/init.cc", 120, "WARN", "no"),
    ),
    "empty host": (
        ":522:622 [2] NCCL INFO Bootstrap",
        (None, 522, 622, 2, None, None, "INFO", "Bootstrap"),
    ),
    "host taken off as a launcher's prefix": (
        "4182:4390 [5] NCCL INFO Using network IB",
        (None, 4182, 4390, 5, None, None, "INFO", "Using network IB"),
    ),
    "host cut by the poster": (
        "-worker-1:946:988 [0] transport/net_ib.cc:839 NCCL WARN x",
        ("-worker-1", 946, 988, 0, "transport/net_ib.cc", 839, "WARN", "x"),
    ),
    "call line has no device": (
        "gpu-03:4182:4390 NCCL CALL ncclAllReduce(0x7f)",
        ("gpu-03", 4182, 4390, None, None, None, "CALL", "ncclAllReduce(0x7f)"),
    ),
    "open mpi tag": (
        "[1,3]<stderr>:gpu-03:1:2 [0] NCCL INFO x",
        ("gpu-03", 1, 2, 0, None, None, "INFO", "x"),
    ),
    "second writer tears the first": (
        "step 3 NCCL is slow gpu-03:1:2 [0] NCCL INFO x",
        ("gpu-03", 1, 2, 0, None, None, "INFO", "x"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_prefix_is_split_into_its_parts(name: str) -> None:
    line, expected = CASES[name]
    assert tuple(nccl_prefix(line) or ()) == expected


@pytest.mark.parametrize(
    "text",
    ["", "NCCL WARN x", "12:34:56 [0] message", "uses NCCL INFO lines", "gpu:1:2 [0] NCCL "],
)
def test_other_text_has_no_prefix(text: str) -> None:
    assert nccl_prefix(text) is None


@given(st.text() | st.text(alphabet="a:1 []NCL.INFO-/"))
def test_any_text_is_split_or_refused(text: str) -> None:
    found = nccl_prefix(text)
    assert found is None or " NCCL " in text


@pytest.mark.parametrize("junk", ["a" * 2_000_000, "1:" * 1_000_000, " NCCL " * 300_000])
def test_a_very_long_line_costs_little(junk: str) -> None:
    started = time.perf_counter()
    assert nccl_prefix(junk) is None
    assert time.perf_counter() - started < 1
