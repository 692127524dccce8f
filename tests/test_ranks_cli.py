"""`sluggish ranks`: the collectives' answer alone, as screen, JSON and table."""

import csv
import io
import json
from pathlib import Path

import pytest
from fr_scenes import Job, fsdp, tp_dp
from jsonschema import Draft202012Validator

from sluggish.cli.ranks import run
from sluggish.evidence.open import load
from sluggish.evidence.source import EvidenceError
from sluggish.facts.store import Facts, Gap
from sluggish.probes import PROBES
from sluggish.ranks import gather, ranks_answer
from sluggish.report import schema
from sluggish.report.ranks import render


def dumps(folder: Path, files: dict[int, bytes]) -> str:
    folder.mkdir(exist_ok=True)
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


def test_the_documents_keep_to_the_schema_in_the_docs(tmp_path, capsys):
    page = (Path(__file__).parent.parent / "docs/ranks.schema.json").read_text()
    assert page == schema.page(schema.ranks_schema()), "run scripts/regenerate"
    for number, kind in enumerate(("operation", "missing", "dead")):
        folder = tmp_path / str(number)
        folder.mkdir()
        run([dumps(folder, fsdp(8, 2, kind).files())], as_json=True)
        Draft202012Validator(json.loads(page)).validate(json.loads(capsys.readouterr().out))


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


def later() -> Job:
    return fsdp(8, 3, "operation", late={0: 9_000_000_000})


def test_the_table_leaves_out_the_jobs_that_were_set_aside(tmp_path, capsys):
    dumps(tmp_path, fsdp(16, 12, "missing").files())
    dumps(tmp_path, later().files())
    run([str(tmp_path)], as_csv=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [(row["rank"], row["size"]) for row in rows] == [(str(r), "8") for r in range(8)]


def test_a_larger_job_that_was_set_aside_lends_no_unseen_ranks(tmp_path, capsys):
    dumps(tmp_path, fsdp(16, 12, "missing").files())
    dumps(tmp_path, later().files())
    run([str(tmp_path)], as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert (answer["world_size"], answer["observed"], answer["unobserved"]) == (8, 8, [])


def test_json_and_csv_exclude_each_other(tmp_path):
    with pytest.raises(EvidenceError, match="give --json or --csv"):
        run([dumps(tmp_path, fsdp(8).files())], as_json=True, as_csv=True)


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


def test_nothing_pending_is_no_all_clear_where_ranks_were_not_seen(tmp_path, capsys):
    files = fsdp(16).files()
    assert run([dumps(tmp_path / "all", files)]) == 0
    del files[9]
    assert run([dumps(tmp_path / "some", files)]) == 20
    assert "1 was not, so this is no all-clear" in capsys.readouterr().out


def test_a_dump_that_was_refused_is_told_with_its_reason(tmp_path, capsys):
    files = fsdp(16, 3, "operation").files()
    files[9] = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.pg_config pg_status entries"
    files[11] = files[11][:-30]
    assert run([dumps(tmp_path, files)], as_json=True) == 12
    answer = json.loads(capsys.readouterr().out)
    assert ([c["rank"] for c in answer["culprits"]], answer["unobserved"]) == ([3], [9, 11])
    refused, cut = (n for n in answer["notes"] if "nccl_trace" in n)
    assert "rank_11: not understood: expected a whole pickle" in refused + cut
    assert "rank_9: not understood: refused: the dump wants to run os.system" in refused + cut


def test_of_many_files_that_tell_nothing_the_cut_dump_of_an_unseen_rank_comes_first(
    tmp_path, capsys
):
    files = fsdp(16, 3, "operation").files()
    files[7] = files[7][:60]
    folder = dumps(tmp_path, files)
    for n in "abcdefgh":
        (tmp_path / f"a_note_{n}").write_text("nothing")
    assert run([folder], as_json=True) == 12
    notes = [n for n in json.loads(capsys.readouterr().out)["notes"] if "note" in n or "trace" in n]
    assert (len(notes), "nccl_trace_rank_7: " in notes[0]) == (4, True)


def test_what_was_not_asked_is_told_by_name_where_it_has_no_file():
    facts = Facts()
    facts.gaps.append(Gap(node="gpu-07", fact=None, probe="nccl_ras", why="not asked: why"))
    assert ranks_answer(facts).notes[-1] == "NCCL RAS: not asked: why"


def test_a_dump_that_is_empty_or_cut_in_its_head_is_told_too(tmp_path, capsys):
    files = fsdp(16, 3, "operation").files()
    files[2], files[7] = b"", files[7][:60]
    assert run([dumps(tmp_path, files)], as_json=True) == 12
    answer = json.loads(capsys.readouterr().out)
    assert ([c["rank"] for c in answer["culprits"]], answer["unobserved"]) == ([3], [2, 7])
    empty, cut = (note for note in answer["notes"] if "nccl_trace" in note)
    assert "rank_2: " in empty
    assert "rank_7: " in cut


def test_what_no_recorder_sees_is_said_every_time(tmp_path, capsys):
    run([dumps(tmp_path, fsdp(8).files())])
    assert "BLIND     dumps hold no operation inside a CUDA graph" in capsys.readouterr().out


def test_a_host_in_the_name_of_a_dump_is_its_node_and_the_last_number_its_rank(tmp_path, capsys):
    for rank, content in fsdp(16, 5, "operation").files().items():
        (tmp_path / f"nccl_trace_rank_gpu-{rank // 8:02}_{rank}").write_bytes(content)
    assert run([str(tmp_path)], as_json=True) == 12
    (culprit,) = json.loads(capsys.readouterr().out)["culprits"]
    assert (culprit["rank"], culprit["node"]) == (5, "gpu-00")


def test_the_role_of_the_group_stands_beside_its_name(tmp_path, capsys):
    run([dumps(tmp_path, tp_dp(2, 4, 6).files())])
    text = " ".join(capsys.readouterr().out.split())
    assert "in TENSOR_MODEL_PARALLEL_GROUP (tp) #" in text


def test_one_rank_is_one_rank_and_groups_of_one_name_are_told_apart(tmp_path, capsys):
    files = tp_dp(4, 4, 6).files()
    del files[9]
    run([dumps(tmp_path, files)])
    text = " ".join(capsys.readouterr().out.split())
    assert "NOT SEEN rank 9: no record" in text
    assert "NOTE 1 rank has no dump" in text
    assert "GROUP DATA_PARALLEL_GROUP (dp) of ranks 0,4,8,12: 3 of 4 ranks wait" in text
    assert "waited for in TENSOR_MODEL_PARALLEL_GROUP (tp) #7" in text
    assert "#-1" not in text


def test_what_most_waiters_sit_in_is_not_said_of_all(tmp_path, capsys):
    run([dumps(tmp_path, tp_dp(4, 4, 6).files())])
    assert "WAITING   15 ranks, 3 of them in all_reduce [1024]" in capsys.readouterr().out


def test_a_narrow_screen_breaks_its_lines(tmp_path):
    paths = [dumps(tmp_path, tp_dp(4, 4, 6).files())]
    answer = ranks_answer(gather(load(paths, PROBES), PROBES))
    assert max(map(len, render(answer, 72).splitlines())) <= 72
    assert max(map(len, render(answer).splitlines())) > 72


def test_who_comes_last_again_and_again_is_slow_and_nobody_is_to_blame(tmp_path, capsys):
    files = fsdp(16, late={7: 250_000_000}, timing=True).files()
    assert run([dumps(tmp_path, files)], as_json=True) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["state"], answer["culprits"]) == ("none", [])
    assert [c["rank"] for c in answer["slow"]] == [7]
    assert answer["slow"][0]["doing"].startswith("waits ")


def test_the_groups_of_a_job_that_was_set_aside_are_not_told(tmp_path, capsys):
    dumps(tmp_path, fsdp(16, 12, "missing").files())
    dumps(tmp_path, fsdp(8, 3, "operation").files())
    run([str(tmp_path)], as_json=True)
    answer = json.loads(capsys.readouterr().out)
    assert len(answer["groups"]) == 1
    assert any("2 jobs" in note for note in answer["notes"])
