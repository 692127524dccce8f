"""The tree, the rules and the page that is drawn from the tree stay together."""

from pathlib import Path

from sluggish.causes import Cause
from sluggish.probes import PROBES
from sluggish.rules import RULES
from sluggish.verdict.tree import TREE, page

DOCS = Path(__file__).parent.parent / "docs"
HEARD = [rule for question in TREE for rule in question.listens]


def test_every_rule_is_listened_to_by_exactly_one_question():
    assert sorted(HEARD) == sorted({rule.id for rule in RULES})


def test_rule_ids_are_unique():
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))


def test_every_cause_is_a_leaf():
    assert {question.cause for question in TREE} == set(Cause)


def test_a_question_relies_on_probes_that_exist():
    known = {probe.ID for probe in PROBES}
    for question in TREE:
        wanted = {probe for one_of in question.must for probe in one_of} | set(question.also)
        assert wanted <= known, question.id


def test_the_page_of_the_tree_is_drawn_from_the_literal():
    assert (DOCS / "decision-tree.md").read_text() == page(), "run scripts/regenerate"
