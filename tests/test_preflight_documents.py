"""The JSON documents of `sluggish preflight` keep to the schema in the docs."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from sluggish.preflight import counts_report, nodes_report, script_report
from sluggish.preflight.counts import Counted, Plan, judge
from sluggish.preflight.documents import AnyDocument
from sluggish.preflight.fitness import Fitness
from sluggish.preflight.nodes_report import Checked
from sluggish.preflight.remark import FAIL, UNCHECKED, WARN, Remark
from sluggish.preflight.shell import read_script
from sluggish.report import schema

PAGE = (Path(__file__).parents[1] / "docs/preflight.schema.json").read_text()
CHECKER = Draft202012Validator(json.loads(PAGE))


def validated(document: str) -> dict[str, Any]:
    told = json.loads(document)
    CHECKER.validate(told)
    return told


def test_the_schema_in_the_docs_is_the_one_of_the_code_closed_and_complete() -> None:
    of_code = schema.described("sluggish preflight", AnyDocument)
    assert schema.page(of_code) == PAGE, "run scripts/regenerate"
    Draft202012Validator.check_schema(of_code)
    assert {each["$ref"].split("/")[-1] for each in of_code["anyOf"]} == {
        "CountsDocument", "ScriptDocument", "NodesDocument",
    }  # fmt: skip
    for each in of_code["$defs"].values():
        assert each["additionalProperties"] is False
        assert each["required"] == sorted(each["properties"])


@pytest.mark.parametrize("blocks", [(8, 16), (8, 8), (0,), (10**15 - 1, 1)])
def test_the_document_of_the_counts(blocks: tuple[int, ...]) -> None:
    counted = Counted(blocks=blocks, source="x\udc80\x1b[2J", how="lines counted")
    told = validated(counts_report.document(judge(counted, Plan(batch_size=8))))
    assert told["check"] == "counts"
    assert told["source"] == "x\\udc80"
    assert [rank["blocks"] for rank in told["ranks"]] == list(blocks)


@pytest.mark.parametrize("text", ["srun a\n", "srun --kill-on-bad-exit=1 a\n", 'x="\x1b[2J', "."])
def test_the_document_of_a_script(text: str) -> None:
    told = validated(script_report.document(read_script(text), "a.sbatch\udc80"))
    assert (told["check"], told["source"]) == ("script", "a.sbatch\\udc80")
    assert told["fit"] == (told["exit_code"] == 0)


def node(name: str, *remarks: tuple[str, bool], silent: bool = False) -> Fitness:
    made = [
        Remark(node=name, area="a", state=state, says="x\x1b[2J", hardware=hardware)
        for state, hardware in remarks
    ]
    return Fitness(node=name, remarks=tuple(made), silent=silent)


@pytest.mark.parametrize(
    ("found", "hardware_only", "fit", "code"),
    [
        ((node("a"), node("b", (WARN, False))), False, True, 0),
        ((node("a"), node("b", (FAIL, False))), False, False, 40),
        ((node("a"), node("b", (FAIL, False))), True, False, 0),
        ((node("a"), node("b", (FAIL, True))), True, False, 40),
        ((node("a"), node("b", (UNCHECKED, False), silent=True)), False, True, 0),
        ((node("a", (UNCHECKED, False), silent=True),), False, None, 30),
        ((node("a", (UNCHECKED, False), silent=True),), True, None, 30),
    ],
)
def test_the_document_of_the_nodes(
    found: tuple[Fitness, ...], hardware_only: bool, fit: bool | None, code: int
) -> None:
    """Nodes of which nothing was seen are not fit, nor unfit."""
    checked = Checked(found=found, took_s=1, hardware_only=hardware_only)
    told = validated(nodes_report.document(checked))
    assert (told["check"], told["fit"], told["exit_code"]) == ("nodes", fit, code)
    assert [one["node"] for one in told["nodes"]] == [one.node for one in found]


def test_a_document_with_another_key_or_word_is_not_valid() -> None:
    told = json.loads(nodes_report.document(Checked(found=(node("a"),), took_s=1)))
    assert CHECKER.is_valid(told)
    for odd in ({"more": 1}, {"check": "other"}, {"exit_code": 1}, {"fit": "yes"}):
        assert not CHECKER.is_valid(told | odd)
    told["nodes"][0]["verdict"] = "fine"
    assert not CHECKER.is_valid(told)
