"""Steps a rank: who leaves the epoch first, from every kind of file, and bad input in one line."""

import contextlib
import gzip
import importlib.util
import json
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.evidence.source import EvidenceError
from sluggish.preflight import npy
from sluggish.preflight.counts import Counted, Plan, even_when_dropped, judge
from sluggish.preflight.counts_report import render
from sluggish.preflight.dataset import count_files
from sluggish.preflight.sources import read_counts
from sluggish.report.terminal import Look

SEED = [30_860, 30_871, 30_852, 30_835, *[30_864] * 7, 30_888, *[30_866] * 4]
"""The seed story: 16 ranks, fewest blocks on rank 3, most on rank 11."""


def sluggish(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluggish", "preflight", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def csv_of(blocks: list[int], path: Path) -> Path:
    rows = "".join(f"{rank},{count}\n" for rank, count in enumerate(blocks))
    path.write_text("rank,blocks\n" + rows)
    return path


def judged(blocks: list[int], **plan: int):
    return judge(Counted(blocks=tuple(blocks), source="x"), Plan(**plan))


def test_the_seed_story_is_told_before_it_starts(tmp_path: Path) -> None:
    done = sluggish("--counts", csv_of(SEED, tmp_path / "b.csv"), "--batch-size", 8, "--drop-last")
    assert done.returncode == 40
    told = " ".join(done.stdout.split())
    assert (
        "rank 3 has 3,854 steps, rank 11 has 3,861: rank 3 leaves 7 steps early; this deadlocks "
        "at the epoch end" in told
    )
    assert "a spread of 0.17 %, which no other metric shows" in told


def test_the_page_shows_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/preflight.md").read_text()
    call = "$ sluggish preflight --counts blocks.csv --batch-size 8 --drop-last\n"
    shown = page.partition(call)[2].partition("\n```")[0]
    answer = judged(SEED, batch_size=8, drop_last=True)
    assert shown.startswith("NOT FIT")
    assert shown in render(answer, Look(width=100))


def test_without_drop_last_the_partial_batch_is_a_step() -> None:
    says = judged(SEED, batch_size=8).says()
    assert says.startswith("rank 3 has 3,855 steps, rank 11 has 3,861: rank 3 leaves 6 steps early")


def test_even_ranks_are_fit(tmp_path: Path) -> None:
    done = sluggish("--counts", csv_of([801, 804, 807], tmp_path / "b.csv"), "--batch-size", 8)
    assert done.returncode == 0
    assert "all 3 ranks have 101 steps" in done.stdout


def test_the_answer_as_json_holds_every_rank(tmp_path: Path) -> None:
    file = csv_of(SEED, tmp_path / "b.csv")
    done = sluggish("--counts", file, "--batch-size", 8, "--drop-last", "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["fit"], told["gap_steps"]) == (40, False, 7)
    assert told["ranks"][3] == {"rank": 3, "blocks": 30_835, "batches": 3_854, "steps": 3_854}


def test_unequal_batches_in_as_many_steps_are_not_even() -> None:
    answer = judged([80, 72], batch_size=8, grad_accum=4)
    assert answer.steps == (3, 3)
    assert not answer.even
    assert "rank 1 leaves 1 batch early" in answer.says()
    assert "no_sync" in answer.says()


def test_several_ranks_that_leave_first_are_folded() -> None:
    says = judged([16, 8, 8, 16], batch_size=8).says()
    assert says.startswith("ranks 1-2 have 1 step, ranks 0,3 have 2: ranks 1-2 leave 1 step early")


def test_drop_last_is_advised_where_it_is_enough() -> None:
    assert even_when_dropped(judged([80, 81], batch_size=8))
    assert not even_when_dropped(judged([80, 88], batch_size=8))


def test_a_rank_without_any_block_leaves_at_once() -> None:
    assert "rank 1 has 0 steps" in judged([8, 0], batch_size=8).says()


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=20),
    st.integers(1, 64),
    st.integers(1, 8),
    st.booleans(),
)
def test_even_means_that_nobody_waits(blocks: list[int], size: int, accum: int, drop: bool) -> None:
    answer = judged(blocks, batch_size=size, grad_accum=accum, drop_last=drop)
    assert not answer.even or answer.gap == 0
    assert answer.even == (len(set(answer.batches)) == 1)
    for width in (72, 100):
        screen = render(answer, Look(width=width))
        prose = screen.split("DO THIS", maxsplit=1)[0].splitlines()
        assert max(map(len, prose)) <= width
        assert "…" not in screen


WRITTEN = {
    "csv": "rank,blocks\n0,30\n1,31\n2,32\n",
    "csv with more columns": "host,rank,samples\na,2,32\nb,0,30\nc,1,31\n",
    "csv of another land": "rank;blocks\r\n0;30\r\n1;31\r\n2;32\r\n",
    "tabs and a mark": "\ufeffRank\tBlocks\n0\t30\n1\t31\n2\t32\n",
    "bare numbers": "0,30\n1,31\n2,32\n",
    "thousands": 'rank,blocks\n0,30\n1,"31"\n\n2,32.0\n',
    "json list": "[30, 31, 32]",
    "json map": '{"0": 30, "2": 32, "1": 31}',
    "json records": '[{"rank": 1, "blocks": 31}, {"rank": 0, "n": 30}, {"rank": 2, "rows": 32}]',
    "json lines": '{"rank": 0, "blocks": 30}\n{"rank": 1, "blocks": 31}\n{"rank": 2, "blocks": 32}',
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_counts_are_read_by_their_content(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "counts"
    file.write_text(WRITTEN[kind])
    assert read_counts(file) == (30, 31, 32)


BAD = {
    "rank,blocks\n0,30\n1,x\n": "row 3: blocks 'x' is no whole number from 0 on",
    "rank,blocks\n0,30\n0,31\n": "row 3: rank 0 stands in row 2 already",
    "rank,blocks\n0,30\n3,31\n": "ranks go up to 3, without 1-2",
    "rank,blocks\n0,-1\n": "row 2: blocks '-1' is no whole number from 0 on",
    "rank,blocks\n0,1.5\n": "row 2: blocks '1.5' is no whole number from 0 on",
    "rank,blocks\n0\n": "row 2: expected 2 columns, found 1",
    "rank,blocks\n": "no rank in it",
    " , \n,\n": "no rank in it",
    "1\n2,3\n": "row 1: expected rank,blocks, found '1'",
    "3,\n": "row 1: expected the columns rank and blocks",
    "who,what\n0,1\n": "row 1: expected the columns rank and blocks, found who, what",
    "Dear all\n": "row 1: expected rank,blocks, found 'Dear all'",
    "": "empty",
    "[30, true]": "entry 1: blocks True is no whole number from 0 on",
    "[30, [1]]": "entry 1: blocks [1] is no whole number from 0 on",
    "{": "not JSON: ",
    "[" * 100_000: "JSON nested too deep",
    '{"rank": 0, "blocks": 1}\n{"rank": 1, bl}\n': "line 2: not JSON: ",
    '{"rank": 0, "blocks": 1}\n{"rank": 1}\n': "line 2: expected the columns rank and blocks",
    "rank,blocks\n\x1b[2J,1\n": "row 2: rank ",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:20].encode("unicode_escape").decode())
def test_what_is_not_in_shape_is_one_line_with_its_place(text: str, tmp_path: Path) -> None:
    file = tmp_path / "counts"
    file.write_text(text)
    with pytest.raises(EvidenceError) as told:
        read_counts(file)
    assert str(told.value).startswith(f"{file}: {BAD[text]}")
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)


def one_line(file: Path) -> bool:
    with pytest.raises(EvidenceError) as told:
        read_counts(file)
    return "\n" not in str(told.value)


@given(st.binary(max_size=300))
def test_any_bytes_are_counts_or_one_line(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        counts: tuple[int, ...] = ()
        with contextlib.suppress(EvidenceError):
            counts = read_counts(Path(file.name))
        assert counts or one_line(Path(file.name))


@given(st.binary(max_size=200))
def test_any_npy_is_integers_or_a_value_error(rest: bytes) -> None:
    with contextlib.suppress(ValueError):
        npy.integers(npy.MAGIC + rest)
    with contextlib.suppress(ValueError):
        npy.length(npy.MAGIC + rest, 200)


@pytest.mark.parametrize("place", ["no such file", "not a file"])
def test_what_is_no_file_is_one_line_and_exit_2(place: str, tmp_path: Path) -> None:
    file = tmp_path / "x" if place == "no such file" else tmp_path
    done = sluggish("--counts", file, "--batch-size", 8)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"sluggish: {file}: {place}\n"


def npy_bytes(descr: object, shape: tuple[int, ...], data: bytes, fortran: bool = False) -> bytes:
    """As numpy.save writes it (NEP 1)."""
    head = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    return npy.MAGIC + b"\x01\x00" + len(head).to_bytes(2, "little") + head + data


def test_an_array_is_one_number_a_rank_or_rows_of_two(tmp_path: Path) -> None:
    file = tmp_path / "b.npy"
    file.write_bytes(npy_bytes("<i8", (3,), array("q", [30, 31, 32]).tobytes()))
    assert read_counts(file) == (30, 31, 32)
    file.write_bytes(npy_bytes("<i4", (2, 2), array("i", [1, 31, 0, 30]).tobytes()))
    assert read_counts(file) == (30, 31)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (npy_bytes("<f8", (1,), bytes(8)), "expected whole numbers, the array holds '<f8'"),
        (npy_bytes("|O", (1,), bytes(8)), "expected whole numbers, the array holds '|O'"),
        (npy_bytes("<i8", (2,), bytes(8)), "expected 2 values, the file ends elsewhere"),
        (npy_bytes("<i8", (1, 3), bytes(24)), "expected one number a rank or rows of rank and"),
        (npy.MAGIC + b"\x01\x00\xff\xff{", "the .npy header is cut short"),
    ],
)
def test_an_array_out_of_shape_is_one_line(data: bytes, says: str, tmp_path: Path) -> None:
    file = tmp_path / "b.npy"
    file.write_bytes(data)
    with pytest.raises(EvidenceError, match=rf"b\.npy: {says.replace('|', '.')}"):
        read_counts(file)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_arrow_and_parquet_hold_counts_and_rows(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    table = pa.table({"rank": [1, 0], "host": ["a", "b"], "blocks": [31, 30]})
    stream, feather, parquet = (tmp_path / f"rank_{n}" for n in range(3))
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_file(feather, table.schema) as writer:
        writer.write_table(table)
    pa.parquet.write_table(table, parquet)
    for file in (stream, feather, parquet):
        assert read_counts(file) == (30, 31)
    assert count_files(str(tmp_path / "rank_*")).blocks == (2, 2, 2)
    parquet.write_bytes(parquet.read_bytes()[:40])
    with pytest.raises(EvidenceError, match="not readable as Arrow or Parquet"):
        read_counts(parquet)
    odd = feather.read_bytes().replace(b"host", b"h\xffst")
    feather.write_bytes(odd)
    with pytest.raises(EvidenceError, match="not readable as Arrow or Parquet"):
        read_counts(feather)
    pa.parquet.write_table(pa.table({"a": [1]}), parquet)
    with pytest.raises(EvidenceError, match="expected the columns rank and blocks, found a"):
        read_counts(parquet)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
@pytest.mark.parametrize("kind", ["stream", "file", "parquet"])
def test_a_table_that_is_cut_short_anywhere_is_never_counted(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.ipc
    import pyarrow.parquet

    table = pa.table({"rank": list(range(9)), "blocks": [30] * 9})
    whole = tmp_path / "rank_0"
    if kind == "parquet":
        pa.parquet.write_table(table, whole, row_group_size=3)
    else:
        with {"stream": pa.ipc.new_stream, "file": pa.ipc.new_file}[kind](
            whole, table.schema
        ) as writer:
            for batch in table.to_batches(max_chunksize=3):
                writer.write_batch(batch)
    data, pattern = whole.read_bytes(), str(tmp_path / "rank_0")
    assert count_files(pattern).blocks == (9,)
    for length in range(8, len(data)):
        whole.write_bytes(data[:length])
        with pytest.raises(EvidenceError) as caught:
            count_files(pattern)
        assert str(caught.value).startswith(f"{whole}: ")
        assert "\n" not in str(caught.value)
        with pytest.raises(EvidenceError):
            read_counts(whole)


def test_without_pyarrow_a_table_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    file = tmp_path / "b.parquet"
    file.write_bytes(b"PAR1" + bytes(20))
    with pytest.raises(EvidenceError, match=r"need pyarrow, which is not installed here: pip"):
        read_counts(file)


def files(folder: Path, lines: dict[str, int]) -> None:
    for name, count in lines.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text('{"text": "a"}\n' * count)


@pytest.mark.parametrize(
    ("names", "how"),
    [
        (["rank_10.jsonl", "rank_9.jsonl"], None),
        (["rank_0.jsonl", "rank_1.jsonl"], "rank from the names (rank_N)"),
        (["rank0/a.jsonl", "rank1/a.jsonl", "rank1/b.jsonl"], "1 to 2 files a rank added up"),
        (["train-00001-of-00002.jsonl", "train-00000-of-00002.jsonl"], "N-of-M"),
        (["train-1-of-2", "train-2-of-2"], "N-of-M"),
        (["a-0-of-2", "b-0-of-2", "a-1-of-2", "b-1-of-2"], "by the order of the names"),
        (["s2_1.txt", "s2_0.txt"], "the last number"),
        (["s_0", "s_1", "s_3"], "one file a rank; no file has the number 2"),
        (["s_1", "s_2", "s_3"], "one file a rank"),
        (["part-2", "part-10"], "rank by the order of the names"),
    ],
)
def test_whose_file_it_is_is_told(names: list[str], how: str | None, tmp_path: Path) -> None:
    files(tmp_path, dict.fromkeys(names, 1))
    if how is None:
        with pytest.raises(EvidenceError, match="ranks go up to 10, without 0-8"):
            count_files(str(tmp_path / "**" / "*"))
        return
    counted = count_files(str(tmp_path / "**" / "*"))
    assert how in counted.how
    assert sum(counted.blocks) == len(names)


def test_a_file_of_several_that_is_missing_is_not_passed_over(tmp_path: Path) -> None:
    files(tmp_path, {f"t-{n:05}-of-00004.jsonl": 1 for n in (0, 1, 3)})
    with pytest.raises(EvidenceError, match="3 of 4 files are there, without 2"):
        count_files(str(tmp_path / "*"))


def test_files_are_counted_by_lines_that_hold_something(tmp_path: Path) -> None:
    (tmp_path / "rank_0.jsonl").write_text("a\n\n \nb")
    (tmp_path / "rank_1.jsonl").write_bytes(gzip.compress(b"a\nb\nc\n"))
    (tmp_path / "rank_2.npy").write_bytes(npy_bytes("<u2", (5, 9), bytes(90)))
    done = sluggish("--dataset", tmp_path / "rank_*", "--batch-size", 1)
    assert done.returncode == 40
    assert "rank 0 has 2 steps, rank 2 has 5" in done.stdout
    assert "COUNTED   array lengths counted, lines counted; rank from the names" in done.stdout


@given(st.lists(st.sampled_from([b"", b"a", b"  ", b"ab" * 40]), max_size=30))
def test_lines_are_counted_alike_in_pieces_of_any_size(lines: list[bytes]) -> None:
    from sluggish.preflight import dataset

    text = b"\n".join(lines)
    pieces = iter([text[at : at + 7] for at in range(0, len(text), 7)])

    class File:
        def read(self, size: int, /) -> bytes:
            return next(pieces, b"")

    assert dataset._lines(Path("x"), File()) == sum(bool(line.strip()) for line in lines)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x28\xb5\x2f\xfd123", "packed with zstd"),
        (b"ab\0c\n", "not a text of lines: it holds zero bytes"),
        (gzip.compress(b"a\n" * 999, mtime=0)[:-9], "cannot be read to its end"),
        (gzip.compress(b"a\n" * 999, mtime=0)[:5], "cannot be read to its end"),
        (gzip.compress(b"a\n", mtime=0) + b"trailing", "cannot be read to its end"),
        (npy_bytes("<i4", (5, 9), bytes(179)), "cut short: 180 bytes of values are promised, 179"),
        (npy_bytes("<i4", (5, 9), bytes(181)), "1 bytes more than its header says"),
        (npy_bytes("<U10", (5,), bytes(199)), "cut short: 200 bytes"),
        (npy_bytes("|O", (5,), bytes(99)), "an array of '|O': its length cannot be proved"),
        (npy_bytes("<i4", (1 << 40,), b""), "cut short"),
        (npy_bytes("<i4", (), bytes(4)), "no axis"),
        (npy_bytes("<i4", (5,), b"")[:40], "header is cut short"),
    ],
)
def test_a_file_that_cannot_be_counted_is_never_zero(
    data: bytes, says: str, tmp_path: Path
) -> None:
    (tmp_path / "rank_0").write_bytes(data)
    with pytest.raises(EvidenceError, match=says):
        count_files(str(tmp_path / "rank_0"))


@pytest.mark.parametrize(
    ("descr", "each"),
    [("<i8", 8), ("|b1", 1), (">c16", 16), ("<U3", 12), ("|S5", 5), ("<M8[ns]", 8),
     ([("a", "<i8"), ("b", "<f4", (3,))], 20), ([("a", [("x", "|u1")]), ("", "|V3")], 4)],
)  # fmt: skip
def test_an_array_of_any_kind_is_counted_along_its_first_axis(
    descr: object, each: int, tmp_path: Path
) -> None:
    (tmp_path / "rank_0.npy").write_bytes(npy_bytes(descr, (7, 2), bytes(14 * each)))
    assert count_files(str(tmp_path / "*")).blocks == (7,)


def test_an_empty_file_is_a_rank_with_nothing(tmp_path: Path) -> None:
    (tmp_path / "rank_0").write_text("a\n")
    (tmp_path / "rank_1").touch()
    assert count_files(str(tmp_path / "rank_*")).blocks == (1, 0)


def test_a_pattern_that_names_no_file_says_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rank_0").mkdir()
    for pattern, says in (("*", "no file there; only folders"), ("x*", r"x\*: no file there\Z")):
        with pytest.raises(EvidenceError, match=says):
            count_files(str(tmp_path / pattern))
    (tmp_path / "rank_0" / "a").write_text("a\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert count_files("~/*/*").blocks == (1,)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--counts", "x"),
        ("--counts", "x", "--dataset", "y", "--batch-size", "8"),
        ("--counts", "x", "--batch-size", "0"),
        ("--counts", "x", "--batch-size", "1" + "0" * 30),
        ("--counts", "x", "--batch-size", "8", "--hardware-only"),
        ("--counts", "x", "--batch-size", "8", "--transport", "ssh"),
        ("--script", "x", "--batch-size", "8"),
        ("--script", "x", "--hardware-only"),
        ("--nodes", "a", "--drop-last"),
        ("--local", "--grad-accum", "2"),
        ("--local", "--transport", "ssh"),
        ("--nodes", ""),
        ("--nodes", "a b"),
        ("--nodes", "-oProxyCommand=x"),
        ("--nodes", "a[1-"),
    ],
)
def test_a_mistake_in_the_call_is_exit_2_and_nothing_is_done(args: tuple[str, ...]) -> None:
    done = sluggish(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_agree_on_steps_is_there_without_anything_heavy() -> None:
    code = "import sys; from sluggish.preflight import agree_on_steps; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "numpy", "yaml", "typer", "msgspec"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank,blocks\n0,30,835\n1,30,888\n", "row 2: expected 2 columns, found 3"),
        ("0,30,835\n1,30,888\n", "row 1: expected rank,blocks, found 3 columns"),
        ('{"0": 5, "0": 9, "1": 9}', "key '0' stands twice"),
        ('{"rank": 0, "blocks": 5}\n{"rank": 1, "blocks": 5, "rank": 2}', "line 2: key 'rank'"),
        ("[" + "9" * 5000 + "]", "entry 0: blocks"),
        ("\n \n", "empty"),
    ],
)
def test_a_number_that_two_people_would_read_otherwise_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(EvidenceError, match=says):
        read_counts(tmp_path / "c")


def test_line_ends_of_any_system_and_empty_cells_at_the_end_are_read(tmp_path: Path) -> None:
    for text in ("rank,blocks\r0,5\r1,6\r", "rank,blocks\r\n0,5\r\n1,6", "0,5,\n1,6,\n"):
        (tmp_path / "c").write_bytes(text.encode())
        assert read_counts(tmp_path / "c") == (5, 6)


def test_a_header_of_an_array_that_cannot_be_a_dictionary_is_one_line(tmp_path: Path) -> None:
    told = b"{[]: 1}"
    array_file = tmp_path / "a.npy"
    array_file.write_bytes(b"\x93NUMPY\x01\x00" + len(told).to_bytes(2, "little") + told)
    for ask in (lambda: read_counts(array_file), lambda: count_files(str(array_file))):
        with pytest.raises(EvidenceError, match="header is no dictionary"):
            ask()


def test_a_rank_whose_file_is_a_link_to_nowhere_is_not_left_out(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"rank_{rank}.jsonl").write_text("{}\n")
    (tmp_path / "rank_3.jsonl").symlink_to("nowhere")
    (tmp_path / "rank_4").mkdir()
    with pytest.raises(EvidenceError, match=r"rank_3\.jsonl: no such file"):
        count_files(str(tmp_path / "rank_*"))


def test_one_rank_is_no_plural() -> None:
    answer = judge(Counted(blocks=(5,), source="x"), Plan(batch_size=1))
    assert "  1 rank  1 block a batch" in render(answer, Look(width=100))


def test_an_epoch_without_a_step_is_not_fit(tmp_path: Path) -> None:
    (tmp_path / "rank_0").touch()
    done = sluggish("--dataset", tmp_path / "rank_*", "--batch-size", 8)
    assert done.returncode == 40
    assert "NOT FIT   the only rank has 0 steps: nothing is trained" in done.stdout
    assert not judged([5, 5], batch_size=8, drop_last=True).fit
    assert judged([5, 5], batch_size=8).fit
    assert "cut all to" not in render(judged([0, 5], batch_size=8), Look(width=100))
    assert judged([0, 0], batch_size=8).says().startswith("all 2 ranks have 0 steps: nothing is")
    assert judged([8, 8], batch_size=8).says() == "all 2 ranks have 1 step"
