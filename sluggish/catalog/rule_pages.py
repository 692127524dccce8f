"""The pages of the rules in short: what `sluggish explain GPU-XID` prints where docs are not there.

rule_pages.yaml is written by `scripts/regenerate` from docs/rules; do not edit it by hand.
"""

from pathlib import Path

import yaml

from sluggish.catalog import data

PARTS = {"What it sees": "sees", "What to do": "do", "When it is wrong": "wrong"}
"""Heading of a page -> key of the file."""


def rule_page(rule_id: str) -> dict[str, list[str]]:
    """`sees`, `do`, `wrong`: lines of text; empty for a rule that has no page."""
    pages: dict[str, dict[str, list[str]]] = data.read("rule_pages.yaml")
    return pages.get(rule_id, {})


def parts_of(page: str) -> dict[str, list[str]]:
    """The wanted parts of one page of docs/rules, without blank lines and fences."""
    found: dict[str, list[str]] = {}
    part: list[str] | None = None
    for line in page.splitlines():
        if line.startswith("## "):
            key = PARTS.get(line[3:].strip())
            part = found.setdefault(key, []) if key else None
        elif part is not None and line.strip() and not line.startswith(("```", "|--")):
            part.append(line.strip())
    return found


def written(folder: Path) -> str:
    """The text of rule_pages.yaml for the pages in a folder."""
    pages = {page.stem: parts_of(page.read_text("utf-8")) for page in sorted(folder.glob("*.md"))}
    head = "# Written by scripts/regenerate from docs/rules; do not edit by hand.\n"
    return head + yaml.safe_dump(pages, width=100, allow_unicode=True, sort_keys=True)
