"""The window reader of big logs."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.evidence import needles as needles_module
from sluggish.evidence.logscan import GAP_MARK, excerpt
from sluggish.evidence.logsource import bytes_source, window_source
from sluggish.evidence.needles import plain_anchors, scan, shared_anchors

SMALL = {"whole": 10_000, "head": 2_000, "tail": 3_000, "budget": 60_000}
FILLER = b"step 17 loss 2.345 and nothing else of interest here\n"


@pytest.fixture(params=["hyperscan", "python"])
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(needles_module, "hyperscan", None)
    elif needles_module.hyperscan is None:
        pytest.skip("no hyperscan wheel here")
    return request.param


def test_a_small_log_is_taken_whole() -> None:
    got = excerpt(b"first\nlast\n", [b"x"])
    assert (got.text, got.whole, got.bytes_total, got.bytes_read) == ("first\nlast\n", True, 11, 11)


def test_head_tail_and_the_lines_around_a_match_are_kept_and_the_rest_is_marked(road: str) -> None:
    log = b"begin\n" + FILLER * 60_000 + b"NCCL WARN here\n" + FILLER * 60_000 + b"finish\n"
    got = excerpt(log, [b"NCCL WARN"], **SMALL)
    lines = got.text.splitlines()
    assert lines[0] == "begin"
    assert lines[-1] == "finish"
    assert "NCCL WARN here" in lines
    assert sum(line.startswith(GAP_MARK) for line in lines) == 2
    assert set(lines) - {line for line in lines if line.startswith(GAP_MARK)} == {
        "begin", "finish", "NCCL WARN here", FILLER.decode().strip(),
    }  # fmt: skip
    assert got.matched_lines == 1
    assert not got.whole
    assert not got.capped
    assert got.slow_road == (road == "python")
    left_out = sum(int(x.split()[1]) for x in lines if x.startswith(GAP_MARK))
    assert got.bytes_read + left_out == got.bytes_total == len(log)


def test_the_first_and_the_last_places_of_a_crowded_string_are_kept(road: str) -> None:
    log = b"".join(b"oops number %07d of many lines\n" % i for i in range(120_000))
    got = excerpt(log, [b"oops", b"never"], **(SMALL | {"head": 0, "tail": 0}), each=3)
    numbers = [int(x.split()[2]) for x in got.text.splitlines() if x.startswith("oops")]
    assert {0, 1, 2, 119_997, 119_998, 119_999} <= set(numbers)
    assert len(numbers) < 500
    assert got.capped


def test_a_string_across_the_edge_of_two_blocks_is_found_once(road: str) -> None:
    text = b"Watchdog caught"
    for shift in range(len(text) + 1):
        log = b"." * ((1 << 20) - shift) + text + b"." * 100
        tallies, total = scan(bytes_source(log), [text], 5)
        assert tallies[0].first == [(1 << 20) - shift + len(text)]
        assert total == len(log)


def test_one_endless_line_is_shown_around_its_matches(road: str) -> None:
    log = b"a" * 3_000_000 + b"WorkNCCL(" + b"\0" * 3_000_000
    got = excerpt(log, [b"WorkNCCL("], **SMALL)
    assert "aWorkNCCL(" in got.text
    assert len(got.text) < 20_000


def test_gzip_is_unpacked_and_a_damaged_end_keeps_what_came_before(road: str) -> None:
    log = b"begin\n" + FILLER * 60_000 + b"NCCL WARN here\n" + FILLER * 60_000 + b"finish\n"
    packed = gzip.compress(log)
    got = excerpt(packed, [b"NCCL WARN"], **SMALL)
    assert "NCCL WARN here" in got.text
    assert got.text.endswith("finish\n")
    assert got.bytes_total == len(log)
    cut = excerpt(packed[: len(packed) * 2 // 3], [b"NCCL WARN"], **SMALL)
    assert "NCCL WARN here" in cut.text
    assert "finish" not in cut.text


def test_a_bomb_of_zeros_ends_at_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluggish.evidence.logsource.MAX_UNPACKED", 5 << 20)
    got = excerpt(gzip.compress(b"\0" * (20 << 20)), [b"x"], **SMALL)
    assert got.bytes_total == 5 << 20


def test_a_file_a_window_and_bytes_give_the_same(tmp_path: Path) -> None:
    log = b"begin\n" + FILLER * 9_000 + b"NCCL WARN\n" + FILLER * 9_000
    path = tmp_path / "job.log"
    path.write_bytes(log)
    window = window_source(lambda at, length: log[at : at + length], len(log))
    expected = excerpt(log, [b"NCCL WARN"], **SMALL)
    assert excerpt(path, [b"NCCL WARN"], **SMALL) == expected
    assert excerpt(window, [b"NCCL WARN"], **SMALL) == expected


def test_anchors_cover_every_string_with_at_most_32() -> None:
    texts = [b"failure number %02d" % i for i in range(50)] + [b"Init COMPLETE", b"other thing"]
    anchors = shared_anchors(texts)
    assert len(anchors) <= 32
    assert {n for anchor in anchors for n, _ in anchor.needles} == set(range(52))
    for anchor in anchors:
        for number, behind in anchor.needles:
            assert texts[number][: len(texts[number]) - behind].endswith(anchor.text)


def test_shared_anchors_find_the_strings_and_not_their_neighbours(road: str) -> None:
    texts = [b"failure number %02d" % i for i in range(50)]
    log = FILLER * 30_000 + b"failure number 77\n" + b"failure number 13\n" + FILLER
    tallies, _ = scan(bytes_source(log), texts, 5)
    assert [i for i, tally in enumerate(tallies) if tally.first] == [13]
    assert tallies[13].first == [log.index(b"failure number 13") + 17]


def test_a_common_part_that_is_everywhere_gives_way_to_the_whole_strings(road: str) -> None:
    texts = [b"failure number %02d" % i for i in range(50)]
    log = b"failure number ..\n" * 200_000 + b"failure number 13\n"
    tallies, _ = scan(bytes_source(log), texts, 5)
    assert tallies[13].first == [len(log) - 1]


@given(st.lists(st.sampled_from([b"ab", b"b", b"\n", b"abab", b"x" * 50]), max_size=300))
def test_both_roads_find_what_a_plain_search_finds(parts: list[bytes]) -> None:
    log = b"".join(parts)
    texts = [b"abab", b"b\n"]
    tallies, _ = scan(bytes_source(log), texts, 10_000)
    for text, tally in zip(texts, tallies, strict=True):
        expected = [i + len(text) for i in range(len(log)) if log.startswith(text, i)]
        assert tally.first == expected


def test_plain_anchors_are_the_strings() -> None:
    assert [anchor.text for anchor in plain_anchors([b"a", b"b"])] == [b"a", b"b"]
