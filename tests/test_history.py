"""What records say together: a job counts once, a busy node is not blamed, a place is no fault."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from sluggish.history import document, table
from sluggish.history.model import Alert, Entry, Ledger, Named
from sluggish.history.summary import (
    LAST,
    context,
    convicted,
    failed,
    losses,
    offenders,
    record,
    records,
    runs,
)
from sluggish.report import schema

T0 = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)
START = T0 - timedelta(hours=14)


def look(number: int, job: str = "", **more: object) -> Entry:
    """A look at a job whose GPU on gpu-07 was at fault."""
    told: dict[str, object] = {
        "id": number,
        "job": job or str(1000 + number),
        "started": START,
        "at": T0 + timedelta(hours=number),
        "cause": "gpu_fault",
        "subtype": "ecc",
        "confidence": "high",
        "gpu_hours": 2.0,
        "nodes": "gpu-[07-08]",
        "culprits": (Named(node="gpu-07", gpu_index=3),),
    } | more
    return Entry(**told)  # type: ignore[arg-type]


def moving(number: int, job: str = "", **more: object) -> Entry:
    quiet: dict[str, object] = {"cause": "progressing", "subtype": "steady", "gpu_hours": None,
                                "culprits": ()}  # fmt: skip
    return look(number, job, **(quiet | more))


def crash(number: int, job: str = "", node: str = "gpu-07") -> Entry:
    return look(number, job, cause="app_crash", subtype="exception", culprits=(Named(node=node),))


def ledger(*entries: Entry, **parts: tuple[int, ...]) -> Ledger:
    of = {name.replace("_", "-"): ids for name, ids in parts.items()}
    return Ledger(entries=entries, parts=of)


def test_a_job_that_was_looked_at_five_times_failed_once() -> None:
    looks = [
        moving(1, "5"),
        look(2, "5", confidence="medium"),
        look(3, "5", gpu_hours=3.0),
        look(4, "5", cause="unknown", subtype="hang", confidence=None, culprits=()),
        moving(5, "5"),
    ]
    (run,) = runs(looks)
    assert (run.verdict.id, run.gpu_hours, run.looks) == (3, 3.0, (1, 2, 3, 4, 5))
    assert record("gpu-07", [run]).convicted == 1


def test_a_requeued_job_and_an_id_that_is_used_again_are_other_runs() -> None:
    again = START + timedelta(hours=5)
    found = runs([look(1, "5"), look(2, "5", started=again), look(3, "5", started=None)])
    assert [run.looks for run in found] == [(1,), (2, 3)]
    unknown_first = runs([look(1, "5", started=None), look(2, "5")])
    assert [(run.looks, run.started) for run in unknown_first] == [((1, 2), START)]


def test_the_order_is_that_of_writing_whatever_the_clock_did() -> None:
    back = T0 - timedelta(days=400)
    found = runs([look(1), look(2, at=back), look(3, at=back + timedelta(hours=1))])
    assert [run.looks for run in found] == [(1,), (2,), (3,)]


@pytest.mark.parametrize(
    "innocent",
    [
        crash(1),
        look(1, cause="rank_desync", subtype="collective_mismatch"),
        look(1, cause="data_stall", subtype="storage"),
        look(1, cause="config", subtype="limits"),
        look(1, cause="memory", subtype="host_oom"),
        look(1, cause="straggler", subtype="late_rank"),
        look(1, cause="ib_fault", subtype="shared_fabric"),
        look(1, confidence="low"),
        look(1, shared=True),
        look(1, culprits=(Named(rank=3),)),
        look(1, cause="a later version's", subtype="word"),
    ],
)
def test_the_place_of_a_culprit_is_not_a_fault_of_the_node(innocent: Entry) -> None:
    assert convicted(innocent) == frozenset()
    assert failed(innocent)
    assert context("gpu-07", [innocent], "9", START) is None


@pytest.mark.parametrize(
    ("cause", "subtype"),
    [
        ("progressing", "steady"),
        ("not_running", "completed"),
        ("not_running", "cancelled"),
        ("unknown", "no_evidence"),
    ],
)
def test_jobs_that_did_not_fail_are_no_failed_jobs(cause: str, subtype: str) -> None:
    assert not failed(look(1, cause=cause, subtype=subtype))
    assert failed(look(1, cause="not_running", subtype="failed"))
    assert failed(look(1, cause="unknown", subtype="hang"))


def test_the_count_stands_beside_the_number_of_jobs_and_looks_at_the_last_ten() -> None:
    entries = [look(n) for n in (1, 2)]  # long ago, out of the window
    entries += [crash(n, node="gpu-08") for n in range(3, 3 + LAST - 3)]
    entries += [look(n) for n in (30, 31, 32)]
    entries += [moving(n) for n in (40, 41)]
    (found,) = records(runs(entries), {"gpu-07": [e.id for e in entries]})
    assert (found.jobs, found.failed, found.window) == (14, 12, 10)
    assert (found.convicted, found.named) == (3, 0)
    assert found.verdicts == (("gpu_fault/ecc", 3),)
    assert found.last == entries[-3].at
    line = context("gpu-07", entries, "9", START)
    assert line == ("gpu-07: convicted in 3 of the last 10 failed jobs it was in (gpu_fault/ecc 3)")


def test_a_busy_node_is_not_blamed_by_frequency() -> None:
    busy = [look(n, culprits=(Named(node="busy"),)) for n in range(1, 5)]
    busy += [crash(n, node="other") for n in range(5, 101)]
    rare = [look(n, culprits=(Named(node="rare"),)) for n in range(201, 204)]
    parts = {"busy": [e.id for e in busy], "rare": [e.id for e in rare]}
    found = records(runs(busy + rare), parts)
    assert [(r.node, r.convicted, r.window, r.jobs) for r in found] == [
        ("rare", 3, 3, 3), ("busy", 0, 10, 100),
    ]  # fmt: skip
    assert [one.node for one in offenders(found)] == ["rare"]


def test_nine_of_ten_stand_before_two_of_two_and_one_is_no_repetition() -> None:
    often = [look(n, culprits=(Named(node="often"),)) for n in range(1, 10)] + [crash(10)]
    twice = [look(n, culprits=(Named(node="twice"),)) for n in (11, 12)]
    once = [look(13, culprits=(Named(node="once"),))]
    parts = {"often": range(1, 11), "twice": (11, 12), "once": (13,)}
    found = offenders(records(runs(often + twice + once), parts))
    assert [one.node for one in found] == ["often", "twice"]


def test_the_run_that_is_looked_at_now_is_not_its_own_record() -> None:
    assert context("gpu-07", [look(1, "5")], "5", START) is None
    assert context("gpu-07", [look(1, "5")], "5", None) is None
    earlier = look(1, "5", started=START - timedelta(days=1))
    assert "1 of 1 failed job it was in" in (context("gpu-07", [earlier], "5", START) or "")


def test_hours_are_summed_by_cause_once_a_run_and_what_is_not_known_is_said() -> None:
    entries = [look(1, "5", gpu_hours=1.0), look(2, "5", gpu_hours=4.0), look(3, gpu_hours=None),
               crash(4), moving(5)]  # fmt: skip
    told = [(x.cause, x.jobs, x.gpu_hours, x.unknown) for x in losses(runs(entries))]
    assert told == [("gpu_fault", 2, 4.0, 1), ("app_crash", 1, 2.0, 0)]


def test_csv_has_a_row_a_look_and_runs_nothing_in_a_spreadsheet() -> None:
    alert = Alert(job="7", at=T0, nodes="gpu-07", says="no step for 2 min")
    found = Ledger(
        entries=(look(1, name="=cmd()|x"), moving(2)), parts={"gpu-07": (1, 2)}, alerts=(alert,)
    )
    rows = list(csv.DictReader(io.StringIO(table.table(found))))
    assert [row["kind"] for row in rows] == ["look", "look", "alert"]
    assert rows[0]["name"] == "'=cmd()|x"
    assert (rows[0]["failed"], rows[0]["convicted"]) == ("yes", "gpu-07")
    assert rows[0]["culprits"] == "gpu-07 GPU 3"
    assert rows[0]["at"] == "2026-11-24T04:22:10Z"
    assert (rows[1]["failed"], rows[1]["gpu_hours"]) == ("no", "")
    assert rows[2]["says"] == "no step for 2 min"


def test_json_holds_the_records_and_every_look() -> None:
    found = ledger(look(1), look(2), moving(3), gpu_07=(1, 2, 3))
    told = json.loads(document.document(found, "/l.db", None, None))
    assert (told["jobs"], told["failed"], len(told["looks"])) == (3, 2, 3)
    (node,) = told["nodes"]
    assert (node["node"], node["convicted"], node["window"], node["jobs"]) == ("gpu-07", 2, 2, 3)
    assert node["verdicts"] == [["gpu_fault/ecc", 2]]
    assert told["looks"][0]["convicted"] == ["gpu-07"]
    assert told["losses"] == [{"cause": "gpu_fault", "jobs": 2, "gpu_hours": 4.0, "unknown": 0}]


def test_the_documents_keep_to_the_schema_in_the_docs() -> None:
    """Full, empty, of one node, and with everything that may be missing missing."""
    page = (Path(__file__).parents[1] / "docs/history.schema.json").read_text()
    of_code = schema.described("sluggish history", document.Document)
    assert page == schema.page(of_code), "run scripts/regenerate"
    Draft202012Validator.check_schema(of_code)
    for each in of_code["$defs"].values():
        assert each["additionalProperties"] is False
        assert each["required"] == sorted(each["properties"])
    checker = Draft202012Validator(
        json.loads(page), format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    alert = Alert(job="7", at=T0, nodes="gpu-07", says="no step for 2 min")
    full = Ledger(entries=(look(1), moving(2)), parts={"gpu-07": (1, 2)}, alerts=(alert,))
    bare = Entry(id=1, job="1", at=T0, cause="unknown", nodes="", culprits=(Named(),))
    for told in (full, Ledger(parts={}), Ledger(entries=(bare,), parts={}, notes=("a note",))):
        checker.validate(json.loads(document.document(told, "/l.db", None, None)))
    checker.validate(json.loads(document.document(full, "/l.db", T0, "gpu-07")))
    odd = json.loads(document.document(full, "/l.db", None, None)) | {"more": 1}
    assert not checker.is_valid(odd)


def test_the_screen_names_who_comes_back_and_stays_within_its_width() -> None:
    text = table.screen(ledger(look(1), look(2), crash(3), gpu_07=(1, 2, 3)), "/l.db")
    assert "  gpu-07  2 of 3 failed  in 3 jobs  last 2026-11-24 05:22Z  gpu_fault/ecc 2" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "CAME BACK" in text
    one = table.screen_of("gpu-07", ledger(look(1), look(2), crash(3), gpu_07=(1, 2, 3)))
    assert one.startswith(
        "gpu-07: convicted in 2 of 3 failed jobs it was in (context, never proof)"
    )
    assert [line.split("  ")[1] for line in one.splitlines()[4:]] == [
        "named", "AT FAULT", "AT FAULT",
    ]  # fmt: skip
