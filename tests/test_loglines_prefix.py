"""What launchers and collectors put in front of a line, taken off."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.origin import Origin
from sluggish.loglines.line import Line
from sluggish.loglines.prefix import LONGEST, lines

TAKEN = Origin(taken_at=datetime(2026, 12, 1, tzinfo=UTC))


def one(text: str, origin: Origin = TAKEN) -> Line:
    (line,) = lines(text, origin)
    return line


@pytest.mark.parametrize(
    ("raw", "text", "told"),
    [
        ("[rank3]:     return f(x)", "    return f(x)", {"rank": 3}),
        ("[rank0]:[rank0]: twice", "twice", {"rank": 0}),
        ("[rank: 3] Seed set to 1", "Seed set to 1", {"rank": 3}),
        ("[default7]:ValueError: bad", "ValueError: bad", {"local_rank": 7}),
        ("[6]:[E1122 10:00:00.5 ProcessGroupNCCL.cpp:607] [Rank 38] late",
         "[E1122 10:00:00.5 ProcessGroupNCCL.cpp:607] [Rank 38] late",
         {"local_rank": 6, "rank": None, "at": datetime(2026, 11, 22, 10, 0, 0, 500000, UTC)}),
        ("[1,12]<stdout>:gpu-07:12:13 [0] NCCL INFO up", "gpu-07:12:13 [0] NCCL INFO up",
         {"rank": 12}),
        ("(Trainer pid=4009, ip=10.0.3.5) hello [repeated 3x across cluster]", "hello",
         {"pid": 4009}),
        ("[2026-02-27T21:35:28.705869Z] fa88a9df [rank=1] || out", "out",
         {"rank": 1, "at": datetime(2026, 2, 27, 21, 35, 28, 705869, UTC)}),
        ("bench-nodes.gpu-07.nolog [stderr] [rank14]: text", "text",
         {"node": "gpu-07", "rank": 14}),
        ("[RANK 1] 2026-05-19 10:10:29,701 [ERROR] bad", "[ERROR] bad",
         {"rank": 1, "at": datetime(2026, 5, 19, 10, 10, 29, 701000, UTC)}),
        ("[2026-02-24 14:09:34 TP14] Scheduler hit", "Scheduler hit",
         {"rank": None, "at": datetime(2026, 2, 24, 14, 9, 34, tzinfo=UTC)}),
        ("[08/22 14:35:16 d2.x]: text", "text", {"at": datetime(2026, 8, 22, 14, 35, 16, 0, UTC)}),
        ("[titan] 2026-05-19 10:10:29,701 - root - INFO - step", "root - INFO - step",
         {"at": datetime(2026, 5, 19, 10, 10, 29, 701000, UTC)}),
        ("[80746] [rank0]: abc", "abc", {"rank": 0}),
        ("  | 2026-08-23T22:22:51.873Z | [rank4]:[E ProcessGroupNCCL.cpp:1537] x",
         "[E ProcessGroupNCCL.cpp:1537] x",
         {"rank": 4, "at": datetime(2026, 8, 23, 22, 22, 51, 873000, UTC)}),
        ("18:11:06.680 [rank4]: late", "late",
         {"rank": 4, "at": datetime(2026, 11, 30, 18, 11, 6, 680000, UTC)}),
        ("2025-11-09 15:39:31.043 +08:00 [2025-11-09 07:39:30] gpu:1:2 NCCL", "gpu:1:2 NCCL",
         {"at": datetime(2025, 11, 9, 7, 39, 31, 43000, UTC)}),
        ("W0616 13:41:10.909000 4182 torch/distributed/run.py:766] said", "said",
         {"pid": 4182, "at": datetime(2026, 6, 16, 13, 41, 10, 909000, UTC)}),
        ("│ /home/u/train.py:12 in main              │", "/home/u/train.py:12 in main", {}),
        ("\x1b[36m(W pid=7)\x1b[0m [36mtext^[[0m", "text", {"pid": 7}),
        ("\x1b[E socket.cpp:957] refused", "[E socket.cpp:957] refused", {}),
        ("to\0rn by NUL   ", "torn by NUL", {}),
    ],
)  # fmt: skip
def test_a_prefix_is_taken_off_and_read(raw: str, text: str, told: dict[str, object]) -> None:
    line = one(raw)
    assert line.text == text
    assert line.raw == raw
    assert {key: getattr(line, key) for key in told} == told


def test_c10d_fuses_month_and_day_without_a_leading_zero() -> None:
    days = [one(f"[E{d} 01:02:03.4 X.cpp:1] x").at for d in ("616", "1122", "108")]
    assert [(d.month, d.day) for d in days if d] == [(6, 16), (11, 22), (1, 8)]


def test_a_stamp_without_a_year_gets_the_year_nearest_before_the_look() -> None:
    turn = Origin(taken_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert one("[E1231 23:00:00.0 X.cpp:1] x", turn).at == datetime(2025, 12, 31, 23, tzinfo=UTC)
    assert one("[E102 00:00:00.0 X.cpp:1] x", turn).at == datetime(2026, 1, 2, tzinfo=UTC)


def test_a_stamp_without_a_year_stays_untimed_where_nothing_tells_the_year() -> None:
    assert one("[E1231 23:00:00.0 X.cpp:1] x", Origin()).at is None


def test_a_stamp_without_a_zone_is_read_in_the_nodes_zone() -> None:
    east = Origin(utc_offset_s=7200)
    assert one("2026-05-19 10:00:00,000 x", east).at == datetime(2026, 5, 19, 8, tzinfo=UTC)


def test_a_progress_bar_becomes_lines_and_a_glued_record_its_own() -> None:
    text = "10%|#|\r20%|##| 2/9 [00:43<00:00, 1.2s/it]Traceback (most recent call last):\r\nnext"
    assert [line.text for line in lines(text, TAKEN)] == [
        "10%|#|", "20%|##| 2/9 [00:43<00:00, 1.2s/it]", "Traceback (most recent call last):", "",
        "next",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("glued", "parts"),
    [
        ("samples=2.5e+7][E ProcessGroupNCCL.cpp:475] x",
         ["samples=2.5e+7]", "[E ProcessGroupNCCL.cpp:475] x"]),
        ("1.54sWARNING:torch.x: y", ["1.54s", "WARNING:torch.x: y"]),
        ("half a li[rank1]: whole", ["half a li", "whole"]),
    ],
)  # fmt: skip
def test_a_record_written_over_another_lines_end_is_split_off(glued: str, parts: list[str]) -> None:
    assert [line.text for line in lines(glued, TAKEN)] == parts


def test_srun_labels_are_tasks_and_need_not_stand_on_every_line() -> None:
    got = list(lines("error here\n3: last\n 3: more\n10: other\n", TAKEN))
    assert [(x.task, x.text) for x in got] == [
        (None, "error here"), (3, "last"), (3, "more"), (10, "other"),
    ]  # fmt: skip


def test_a_number_and_a_colon_alone_are_no_label() -> None:
    got = list(lines("3: the third point\n" + "plain text here\n" * 20, TAKEN))
    assert got[0].task is None
    assert got[0].text == "3: the third point"


def test_pdsh_names_are_nodes_and_exceptions_are_not() -> None:
    got = list(lines("g002:   File x\ng002: ValueError: y\ng003: z\nE2Error: q\n", TAKEN))
    assert [(x.node, x.text) for x in got] == [
        ("g002", "  File x"), ("g002", "ValueError: y"), ("g003", "z"), (None, "E2Error: q"),
    ]  # fmt: skip


def test_a_long_line_is_cut_into_pieces() -> None:
    got = list(lines("x" * (2 * LONGEST + 5), TAKEN))
    assert [len(x.text) for x in got] == [LONGEST, LONGEST, 5]
    assert [x.order for x in got] == [0, 1, 2]


def test_orders_rise_by_one_through_the_log() -> None:
    got = list(lines("a\rb\nfoo[rank1]: c\n\nd", TAKEN))
    assert [x.order for x in got] == list(range(len(got)))


@given(st.text())
def test_any_text_gives_lines_and_no_exception(text: str) -> None:
    got = list(lines(text, TAKEN))
    assert [x.order for x in got] == list(range(len(got)))
