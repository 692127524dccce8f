"""Whole incidents: from a bundle, its archive and mailed files to the verdict of a specialist."""

import json
from pathlib import Path
from typing import Any

import pytest
from evalgen.stories import STORIES
from jsonschema import Draft202012Validator
from storyroom import Story, blame, look, misses, story

from sluggish.causes import EXIT_CODES, SUBTYPES, Level
from sluggish.report import json as report_json
from sluggish.rules import RULES
from sluggish.verdict.model import Diagnosis
from sluggish.verdict.tree import TREE

SCHEMA = Draft202012Validator(
    json.loads((Path(__file__).parent.parent / "docs/diagnosis.schema.json").read_text())
)
LEVELS = (None, Level.LOW, Level.MEDIUM, Level.HIGH)
UNTOLD = {("unknown", "no_evidence")}
"""Subtypes without a story of their own."""
UNKNOWN_LOGS = {"import_storm", "stale_lock"}
"""Stories whose log holds no word by which a job's log is known."""


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return story(request.param, tmp_path_factory)


def answer(diagnosis: Diagnosis) -> tuple[Any, ...]:
    """What must be the same in whatever form the evidence comes."""
    verdict = diagnosis.verdict
    places = sorted(tuple(place.items()) for place in map(_plain, blame(diagnosis)))
    return verdict.cause, verdict.subtype, places, sorted(verdict.drain_nodes)


def _plain(place: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in place.items()}


@pytest.mark.parametrize("made", STORIES, indirect=True)
def test_a_story_is_told_alike_from_bundle_archive_and_mailed_files(made: Story) -> None:
    found = {form: look(made.path(form)) for form in _forms(made.name)}
    first = found["directory"]
    _as_expected(made, first)
    for form, other in found.items():
        assert answer(other) == answer(first), form
        assert _level(other) <= _level(first) or not other.loose, form
        if _level(other) < _level(first):
            assert other.verdict.confidence.why_not_higher, form
        document = json.loads(report_json.render(other))
        SCHEMA.validate(document)
        _drains_only(document, made.expected["drains"])
        assert _not_read(other) <= ({"slurm.out"} if made.name in UNKNOWN_LOGS else set()), form


def _forms(name: str) -> tuple[str, ...]:
    """A bundle, its archive, and one of the two ways to mail it, by turns."""
    turn = list(STORIES).index(name) % 2
    return "directory", "archive", ("flat", "folders")[turn]


def _as_expected(made: Story, found: Diagnosis) -> None:
    want, verdict = made.expected, found.verdict
    right = [(want["cause"], want["subtype"]), *map(tuple, want["also"])]
    assert (verdict.cause, verdict.subtype) in right
    assert not misses(blame(found), want["culprits"])
    assert sorted(verdict.drain_nodes) == sorted(want["drains"])
    if verdict.cause == want["cause"]:
        assert EXIT_CODES[verdict.cause] == want["exit_code"]
    for told in want["culprits"]:
        for key in ("seq", "operation"):
            if told.get(key) is not None:
                here = next(c for c in verdict.culprits if c.rank == told["rank"])
                assert told[key] == getattr(here, key) or told[key] in (here.operation or "")
    if want["phase"]:
        assert found.summary.phase == want["phase"]
    assert not {out.cause for out in verdict.ruled_out} & {want["cause"]}


def _level(found: Diagnosis) -> int:
    return LEVELS.index(found.verdict.confidence.level)


def _not_read(found: Diagnosis) -> set[str]:
    """Names of files that nobody recognised, copies of others aside."""
    return {u.path.rsplit("/", 1)[-1] for u in found.unread if "the same content" not in u.why}


def _drains_only(document: dict[str, Any], allowed: list[str]) -> None:
    commands = [c for remedy in document["remedies"] for c in remedy["commands"]]
    named = {c.split("NodeName=")[1].split()[0] for c in commands if "State=DRAIN" in c}
    assert named == set(allowed)


@pytest.fixture
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What is expected of every story."""
    return [story(name, tmp_path_factory).expected for name in STORIES]


def test_every_leaf_and_subtype_has_a_story_that_expects_it(told: list[dict[str, Any]]) -> None:
    allowed = {(cause.value, subtype) for cause, known in SUBTYPES.items() for subtype in known}
    expected = {(one["cause"], one["subtype"]) for one in told}
    assert expected | {tuple(pair) for one in told for pair in one["also"]} <= allowed
    assert allowed - expected == UNTOLD
    # a leaf counts where nothing else would do as well
    sure = {one["cause"] for one in told if {pair[0] for pair in one["also"]} <= {one["cause"]}}
    assert {question.cause.value for question in TREE} <= sure


def test_every_rule_that_the_tree_listens_to_exists() -> None:
    assert not {r for q in TREE for r in q.listens} - {rule.id for rule in RULES}
