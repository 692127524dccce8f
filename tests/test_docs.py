"""No page is missing: every probe, every rule, the generated pages, links that lead somewhere."""

import re
from pathlib import Path

import pytest

from sluggish.catalog import data, gpu_models, xid
from sluggish.causes import EXIT_CODES, SUBTYPES, Cause, Family
from sluggish.probes import PROBES
from sluggish.rules import RULES
from sluggish.verdict import tree

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HEADINGS = ("What it sees", "Why it matters", "Looks like", "What to do", "When it is wrong")
PAGES = ("how-it-flows", "bundle-format", "decision-tree", "verdicts", "adding", "glossary",
         "decisions")  # fmt: skip


def test_every_probe_has_a_page_and_every_page_a_probe() -> None:
    assert {p.stem for p in (DOCS / "probes").glob("*.md")} == {probe.ID for probe in PROBES}


def test_every_rule_has_a_page_and_every_page_a_rule() -> None:
    assert {p.stem for p in (DOCS / "rules").glob("*.md")} == {rule.id for rule in RULES}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_a_rule_page_has_the_fixed_headings(rule: str) -> None:
    text = (DOCS / "rules" / f"{rule}.md").read_text()
    found = [line.lstrip("#").strip() for line in text.splitlines() if line.startswith("##")]
    assert tuple(found) == HEADINGS


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_house_exists(name: str) -> None:
    assert len((DOCS / f"{name}.md").read_text()) > 500


def test_the_decision_tree_is_drawn_from_the_literal() -> None:
    assert (DOCS / "decision-tree.md").read_text() == tree.page()


def test_the_verdicts_page_lists_every_cause_subtype_family_and_exit_code() -> None:
    text = (DOCS / "verdicts.md").read_text()
    for cause in Cause:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{cause}`"))
        assert row.split("|")[2].strip() == str(EXIT_CODES[cause])
        assert re.findall(r"`(\w+)`", row.split("|")[3]) == list(SUBTYPES[cause])
    for family in Family:
        assert f"`{family}`" in text


def test_links_in_the_docs_lead_to_files() -> None:
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_bundle_format_names_every_probe() -> None:
    text = (DOCS / "bundle-format.md").read_text()
    assert [probe.ID for probe in PROBES if f"`{probe.ID}`" not in text] == []


def _covered() -> dict[str, list[str]]:
    """Table of docs/coverage.md -> its entries."""
    text = (DOCS / "coverage.md").read_text().partition("## The catalogue")[2]
    rows = re.findall(r"^\| ([\w ,.]+) \| (\d+) \| (.*) \|$", text, re.MULTILINE)
    found = {name: entries.split(", ") for name, _, entries in rows}
    assert {name: len(entries) for name, entries in found.items()} == {
        name: int(count) for name, count, _ in rows
    }
    return found


def test_the_coverage_page_lists_every_rule_and_its_question() -> None:
    """Written by `scripts/coverage` from a run: here only that nothing is missing from it."""
    text = (DOCS / "coverage.md").read_text()
    listed = re.findall(r"^\| \[([A-Z0-9-]+)\]\([^)]*\) \| (\w+) \|", text, re.MULTILINE)
    question = {rule: q.id for q in tree.TREE for rule in q.listens}
    assert dict(listed) == question, "run scripts/coverage"
    assert len(listed) == len(RULES)
    assert "**uncovered**" not in text


def test_the_coverage_page_lists_every_entry_of_the_catalogue() -> None:
    bits = {f"{word}.{bit}" for word, classes in xid._xid_file()["xid74"]["bits"].items()
            for found in classes.values() for bit in found}  # fmt: skip
    adapter = data.read("mlx5.yaml")
    wanted = {
        "Xid": {str(code) for code in xid._xids()},
        "SXid": {str(code) for code in xid._sxids()},
        "Xid 74, word.bit": bits,
        "recovery action": {str(row["number"]) for row in xid._xid_file()["recovery_action"]},
        "GPU model": {model.name for model in gpu_models.models()},
        "completion status": {str(code) for code in adapter["completion_status"]},
        "vendor code": {str(code) for code in adapter["vendor_error"]},
        "NCCL bug": {bug["id"] for bug in data.read("nccl.yaml")["bugs"]},
    }
    assert {name: set(found) for name, found in _covered().items()} == wanted, (
        "run scripts/coverage"
    )


def test_the_screen_of_the_readme_is_real_output():
    from sluggish.cli.demo import SEED, bundle_of
    from sluggish.diagnose import diagnose
    from sluggish.report import terminal

    screen = terminal.render(diagnose(bundle_of(SEED))).rstrip()
    assert f"$ scripts/run demo\n{screen}\n```" in (ROOT / "README.md").read_text(), (
        "run scripts/regenerate"
    )
