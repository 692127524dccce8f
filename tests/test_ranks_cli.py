"""`sluggish ranks`: the collectives' answer alone, as screen, JSON and table."""

import csv
import io
import json
from pathlib import Path

import pytest
from fr_scenes import fsdp, tp_dp

from sluggish.cli.ranks import run


def dumps(folder: Path, files: dict[int, bytes]) -> str:
    for rank, content in files.items():
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    return str(folder)


def test_the_odd_rank_is_named_with_its_line(tmp_path, capsys):
    assert run([dumps(tmp_path, fsdp(16, 3, "operation").files())]) == 12
    text = capsys.readouterr().out
    assert text.startswith("STATE     mismatch: ")
    assert "CULPRIT   rank 3  another collective  all_reduce [1]" in text
    assert "SIDE      ranks 0-2,4-15: reduce_scatter [32768]" in text


def test_the_document_has_its_five_answers(tmp_path, capsys):
    assert run([dumps(tmp_path, fsdp(16, 7, "operation").files())], as_json=True) == 12
    answer = json.loads(capsys.readouterr().out)
    assert answer["state"] == "mismatch"
    assert [c["rank"] for c in answer["culprits"]] == [7]
    assert set(answer["culprits"][0]) == {
        "rank", "node", "pid", "gpu", "hca", "group", "seq", "operation", "doing", "source_line",
    }  # fmt: skip
    assert (answer["slow"], answer["unobserved"]) == ([], [])
    assert answer["groups"][0]["desc"] == "default_pg"


def test_a_missing_dump_is_not_seen_and_nobody_is_blamed(tmp_path, capsys):
    files = fsdp(16, 9, "dead").files()
    files.pop(9, None)
    assert run([dumps(tmp_path, files)], as_json=True) == 20
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["culprits"], answer["unobserved"]) == ("unobserved", [], [9])


def test_the_table_has_a_row_a_rank_and_group(tmp_path, capsys):
    assert run([dumps(tmp_path, tp_dp(2, 4, 6).files())], as_csv=True) == 12
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {(row["rank"], row["group"]) for row in rows} >= {("6", "0"), ("0", "0")}
    assert all(row["source"] == "flight recorder" for row in rows)


def test_files_that_tell_nothing_of_collectives_are_said_to(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("nothing here\n")
    assert run([str(tmp_path)]) == 30
    assert "no dump" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["operation", "missing", "size"])
def test_the_answer_is_the_same_for_json_dumps(tmp_path, capsys, kind):
    pickles, texts = tmp_path / "p", tmp_path / "j"
    pickles.mkdir()
    texts.mkdir()
    job = fsdp(8, 5, kind)
    answers = []
    for folder, files in ((pickles, job.files()), (texts, job.json_files())):
        run([dumps(folder, files)], as_json=True)
        document = json.loads(capsys.readouterr().out)
        for culprit in document["culprits"]:
            culprit["source_line"] = None  # JSON dumps have no frames
        answers.append((document["state"], document["culprits"], document["unobserved"]))
    assert answers[0] == answers[1]
