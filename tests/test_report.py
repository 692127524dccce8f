"""The screen and the JSON say the same, whatever the evidence tries to make them say."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from sluggish.causes import SUBTYPES, Cause, Family, Level, Phase
from sluggish.evidence.model import Unread
from sluggish.findings import Finding, Role, Strength
from sluggish.job import Job
from sluggish.report import json as report_json
from sluggish.report.schema import page, schema
from sluggish.report.terminal import Look, render
from sluggish.verdict.model import (
    Answer,
    Confidence,
    Culprit,
    Diagnosis,
    NotChecked,
    Remedy,
    RuledOut,
    Since,
    Summary,
    Verdict,
)

DOCS = Path(__file__).parents[1] / "docs"
NOW = datetime(2026, 11, 24, 3, 22, 10, tzinfo=UTC)
SINCE = NOW - timedelta(minutes=12)
VERDICT = Verdict(
    cause=Cause.RANK_DESYNC,
    subtype="collective_mismatch",
    confidence=Confidence(level=Level.MEDIUM, why_not_higher="one family of evidence"),
    culprits=(
        Culprit(rank=3, node="gpu-07", pid=912233, gpu_index=3, operation="all_reduce [1]",
                seq=101, group="world", doing="barrier", source_line="train.py:900"),
    ),
    victims=(*range(3), *range(4, 16)),
    onset=Since(earliest=SINCE, latest=SINCE, source="oldest pending collective"),
    path=(
        Answer(question="gpu", text="Did a GPU fail?", answer="no", blind=("gpu-08",)),
        Answer(question="mismatch", text="Do ranks differ?", answer="yes", rules=("SYNC-OP",)),
    ),
    ruled_out=(
        RuledOut(cause=Cause.IB_FAULT, why="16/16 Active", coverage="switches not checked"),
    ),
    contradicts=("IB-FLAP on gpu-08: one flap",),
    not_checked=(NotChecked(what="stacks", where="gpu-07", why="not asked"),
                 NotChecked(what="stacks", where="gpu-08", why="not asked")),
    next_probe="py-spy dump of rank 3",
    cost_gpu_hours=3.3,
    families=(Family.COLLECTIVE,),
)  # fmt: skip
FINDING = Finding(
    node=None, subject="rank 3", role=Role.ROOT, strength=Strength.STRONG, at=SINCE,
    says="seq 101: rank 3 all_reduce, 15 ranks reduce_scatter", quote="raw line", rule="SYNC-OP",
    source="flight recorder", family=Family.COLLECTIVE,
)  # fmt: skip
REMAP = Finding(
    node="gpu-07", subject="gpu 1", role=Role.HOUSEKEEPING, strength=Strength.WEAK,
    says="row remap pending", rule="GPU-REMAP", source="nvidia-smi",
)  # fmt: skip
DIAGNOSIS = Diagnosis(
    job=Job(id="48390", name="fsdp-70b", user="alice", state="RUNNING"),
    taken_at=NOW,
    summary=Summary(
        nodes=("gpu-07", "gpu-08"), gpus_per_node=8, gpu_model="NVIDIA B300 SXM6", world_size=16,
        phase=Phase.CHECKPOINT, elapsed_s=22_500.0,
    ),
    findings=(FINDING, REMAP),
    verdict=VERDICT,
    remedies=(Remedy(order=1, title="end the job", commands=("scancel 48390",), effect="ends it",
                     disruptive=True),),
    bundle="0322Z.tar.gz",
    unread=(Unread(path="photo.jpg", why="binary, of no known kind"),),
    evidence_count=60,
    tool_version="0.1.0",
)  # fmt: skip


def validated(diagnosis: Diagnosis) -> dict[str, Any]:
    document = json.loads(report_json.render(diagnosis))
    Draft202012Validator(schema(), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(
        document
    )
    return document


def test_the_schema_in_the_docs_is_the_one_of_the_code() -> None:
    assert (DOCS / "diagnosis.schema.json").read_text() == page()


def test_every_object_of_the_schema_is_closed_and_requires_every_key() -> None:
    Draft202012Validator.check_schema(schema())
    objects = [d for d in schema()["$defs"].values() if d.get("type") == "object"]
    assert len(objects) >= 14
    for each in objects:
        assert each["additionalProperties"] is False
        assert sorted(each["required"]) == sorted(each["properties"])


def test_the_enums_of_the_schema_are_the_closed_lists() -> None:
    defs = schema()["$defs"]
    assert sorted(defs["Cause"]["enum"]) == sorted(Cause)
    assert sorted(defs["Family"]["enum"]) == sorted(Family)
    assert sorted(defs["Role"]["enum"]) == sorted(Role)
    text = json.dumps(defs["VerdictDoc"]["properties"]["subtype"])
    assert all(f'"{name}"' in text for names in SUBTYPES.values() for name in names)


def test_the_document_has_the_keys_of_the_format() -> None:
    document = validated(DIAGNOSIS)
    assert list(document) == [
        "schema", "tool_version", "job", "verdict", "findings", "remedies", "bundle",
    ]  # fmt: skip
    verdict = document["verdict"]
    assert (verdict["cause"], verdict["subtype"]) == ("rank_desync", "collective_mismatch")
    assert verdict["confidence"] == {"level": "medium", "why_not_higher": "one family of evidence"}
    assert verdict["culprits"][0]["gpu"] == {"index": 3, "uuid": None, "pci": None}
    assert verdict["onset"]["latest"] == "2026-11-24T03:10:10Z"
    assert document["findings"][0]["quote"] == "raw line"
    assert document["remedies"][0]["needs"] == "job owner"


def test_an_empty_diagnosis_is_valid_too() -> None:
    nothing = Diagnosis(job=None, taken_at=None, verdict=Verdict(cause=Cause.UNKNOWN))
    document = validated(nothing)
    assert document["job"]["id"] is None
    assert "UNKNOWN" in render(nothing)


def test_the_schema_refuses_a_cause_of_no_list() -> None:
    document = validated(DIAGNOSIS)
    document["verdict"]["cause"] = "cosmic_rays"
    assert not Draft202012Validator(schema()).is_valid(document)


@pytest.mark.parametrize("name", ["fsdp-70b", "n" * 400, None])
def test_the_verdict_stands_in_the_first_three_lines(name: str | None) -> None:
    job = Job(id="48390", name=name, user="alice", state="RUNNING")
    lines = render(replace(DIAGNOSIS, job=job)).splitlines()
    assert lines[2].startswith("VERDICT   RANK DESYNC")
    if name == "fsdp-70b":
        assert lines[0] == (
            "sluggish 0.1.0  job 48390 fsdp-70b (alice)  2 nodes x 8 B300  running 6h15m  "
            "looked 03:22:10Z"
        )


def test_the_blocks_stand_in_their_order() -> None:
    text = render(DIAGNOSIS)
    heads = [line for line in text.splitlines() if re.match("[A-Z]{2,}", line)]
    order = [re.split("  | \\(", head)[0] for head in heads]
    assert order == [
        "VERDICT", "CULPRIT", "SINCE", "AGAINST", "NEXT", "EVIDENCE", "HOUSEKEEPING", "RULED OUT",
        "DO THIS, IN ORDER", "NOT CHECKED",
    ]  # fmt: skip


def test_confidence_says_its_families_and_why_it_is_not_higher() -> None:
    text = render(DIAGNOSIS)
    assert "confidence MEDIUM (1 independent: collective)" in text
    assert "not higher: one family of evidence" in text


def test_a_verdict_of_loose_files_is_marked_preliminary() -> None:
    loose = replace(DIAGNOSIS, verdict=replace(VERDICT, preliminary=True))
    assert "preliminary: loose files" in render(loose)


def test_nodes_that_lack_the_same_are_folded() -> None:
    assert " ? gpu-[07-08] stacks (not asked)" in render(DIAGNOSIS)


def test_nothing_ruled_out_and_nothing_unchecked_are_said() -> None:
    bare = replace(VERDICT, ruled_out=(), not_checked=())
    text = render(replace(DIAGNOSIS, verdict=bare, unread=()))
    assert "RULED OUT\n · nothing" in text
    assert "NOT CHECKED\n · nothing" in text


def test_a_file_that_was_not_read_is_listed() -> None:
    assert " ? photo.jpg: binary, of no known kind" in render(DIAGNOSIS)


def test_a_pending_remap_is_housekeeping_and_no_evidence() -> None:
    text = render(DIAGNOSIS)
    evidence = text[text.index("EVIDENCE") : text.index("HOUSEKEEPING")]
    assert "GPU-REMAP" not in evidence
    assert " ! GPU-REMAP" in text


def test_a_port_reads_as_a_link_with_two_ends() -> None:
    port = replace(VERDICT, cause=Cause.IB_FAULT, subtype="port_down",
                   culprits=(Culprit(node="gpu-07", hca="mlx5_5"),))  # fmt: skip
    text = render(replace(DIAGNOSIS, verdict=port))
    assert "link gpu-07 mlx5_5 ↔ switch" in text.splitlines()[2]


def test_twenty_nodes_of_a_shared_fault_are_one_line() -> None:
    nodes = [f"gpu-{n:02d}" for n in range(3, 23)]
    port = replace(VERDICT, cause=Cause.IB_FAULT, subtype="port_down", shared=True,
                   culprits=tuple(Culprit(node=n, hca="mlx5_0") for n in nodes))  # fmt: skip
    text = render(replace(DIAGNOSIS, verdict=port))
    assert "20 places, one shared cause: gpu-[03-22]  mlx5_0" in text
    assert "no drain: the cause is shared" in text


def test_the_path_is_printed_on_demand() -> None:
    assert "PATH THROUGH THE TREE" not in render(DIAGNOSIS)
    text = render(DIAGNOSIS, explain=True)
    assert " ✓ gpu         Did a GPU fail? no; blind on gpu-08" in text
    assert " ✗ mismatch    Do ranks differ? yes [SYNC-OP]" in text


def test_ascii_is_plain_and_colour_only_adds_to_the_words() -> None:
    plain = render(DIAGNOSIS, Look(unicode=False))
    assert plain.isascii()
    assert " x SYNC-OP" in plain
    coloured = render(DIAGNOSIS, Look(colour=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(DIAGNOSIS)


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_and_subtype_has_a_screen_and_a_document(cause: Cause) -> None:
    for subtype in (*SUBTYPES[cause], None):
        one = replace(DIAGNOSIS, verdict=replace(VERDICT, cause=cause, subtype=subtype))
        assert validated(one)["verdict"]["subtype"] == subtype
        assert max(map(len, render(one).splitlines())) <= 100


ATTACK = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [
            "\x1b]0;owned\x07",
            "\x1b[2J\x1b[H",
            "x\nRULED OUT\n ✓ GPU all fine",
            "\u202egnp.exe",
            "a\rVERDICT   PROGRESSING",
            "\u2028VERDICT",
            "n" * 3000,
        ]
    ),
)


@settings(max_examples=60)
@given(a=ATTACK, b=ATTACK)
def test_no_text_of_evidence_controls_the_terminal_or_forges_a_block(a: str, b: str) -> None:
    evil = replace(
        DIAGNOSIS,
        job=Job(id=a, name=b, user=a, state=b),
        findings=(replace(FINDING, says=a, node=b, subject=b, quote=a, source=b),
                  replace(REMAP, says=b, node=a)),
        verdict=replace(
            VERDICT,
            culprits=(Culprit(node=a, hca=b, operation=a, doing=b, source_line=a, group=b),),
            ruled_out=(RuledOut(cause=Cause.MEMORY, why=a, coverage=b),),
            contradicts=(a,),
            not_checked=(NotChecked(what=a, where=b, why=a),),
            next_probe=b,
        ),
        unread=(Unread(path=a, why=b),),
        bundle=a,
    )  # fmt: skip
    text = render(evil, explain=True)
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text
    )
    assert max(map(len, text.split("\n"))) <= 100
    heads = [line.split(" (")[0].rstrip() for line in text.split("\n")]
    assert heads.count("RULED OUT") == 1
    assert sum(head.startswith("VERDICT") for head in heads) == 1
    document = validated(evil)
    assert not re.search(r"[\x00-\x1f\u202a-\u202e]", document["findings"][0]["says"])


def test_a_node_that_said_nothing_is_one_line_and_hides_no_other_gap() -> None:
    silent = [
        NotChecked(what=f"probe {n}", where="gpu-08", why="unreachable: no answer")
        for n in range(9)
    ]
    other = NotChecked(what="kernel log", where="gpu-07", why="denied")
    verdict = replace(VERDICT, not_checked=(*silent, other))
    text = render(replace(DIAGNOSIS, verdict=verdict, unread=()))
    told = text.partition("NOT CHECKED\n")[2]
    assert "probe 0, probe 1, probe 2 and 6 more (unreachable: no answer)" in " ".join(told.split())
    assert "gpu-07 kernel log (denied)" in told


def test_a_narrow_title_keeps_when_it_was_looked_at() -> None:
    live = replace(DIAGNOSIS, summary=replace(DIAGNOSIS.summary, took_s=13.0))
    long = replace(live, job=Job(id="48390", name="fsdp-70b-pretrain-0001", user="alice"))
    began = NOW - timedelta(minutes=99)
    over = replace(long.job or Job(id=""), state="COMPLETING", started_at=began, ended_at=NOW)
    for diagnosis in (live, long, replace(long, job=over)):
        title = render(diagnosis, Look(width=80)).splitlines()[0]
        assert len(title) <= 80
        assert title.startswith("sluggish ")
        assert "job 48390" in title
        assert title.endswith("looked 03:22:10Z")


def test_a_job_that_has_ended_is_as_old_as_it_ran() -> None:
    began = NOW - timedelta(hours=3)
    job = replace(
        DIAGNOSIS.job or Job(id="48390"), state="FAILED", started_at=began,
        ended_at=began + timedelta(seconds=12),
    )  # fmt: skip
    assert "  failed after 12 s  " in render(replace(DIAGNOSIS, job=job)).splitlines()[0]
    # Slurm's EndTime of a running job lies ahead: its time limit
    later = replace(job, state="RUNNING", ended_at=NOW + timedelta(days=6))
    assert "  running 6h15m  " in render(replace(DIAGNOSIS, job=later)).splitlines()[0]
