"""`sluggish explain TOPIC`: a rule id, an Xid, an SXid, or a pasted line of the kernel or NCCL."""

from __future__ import annotations

import inspect
import sys
import textwrap
from typing import TYPE_CHECKING

from sluggish.causes import EXIT_USAGE
from sluggish.cli.screen import look_of
from sluggish.text import safe

if TYPE_CHECKING:
    from sluggish.report.terminal import Look

COLUMN = 10
"""Width of the word at the left, as on the screen of a diagnosis."""


def run(topic: str) -> int:
    """Print what is known of it; exit 2 where nothing is."""
    lines = _rule(topic) or _code(topic)
    if not lines:
        print(
            f"sluggish: nothing known of {safe(topic, 80)}: give a rule id such as GPU-XID, "
            "an Xid such as 79, an SXid such as S12028, or a kernel line",
            file=sys.stderr,
        )
        return EXIT_USAGE
    for line in lines:
        print("\n".join(_broken(safe(line, 2_000), look_of(sys.stdout))))
    return 0


def _broken(line: str, look: Look) -> list[str]:
    """A line as the terminal has room for it, below its word at the left; a pipe gets it whole."""
    if not sys.stdout.isatty():
        return [line]
    indent = " " * COLUMN if line[:COLUMN].endswith("  ") else ""
    return textwrap.wrap(
        line, look.width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    ) or [""]


def _rule(topic: str) -> list[str] | None:
    from sluggish.catalog.rule_pages import rule_page
    from sluggish.rules import RULES
    from sluggish.verdict.tree import TREE

    rule = next((rule for rule in RULES if rule.id == topic.strip().upper()), None)
    if rule is None:
        return None
    page = rule_page(rule.id)
    text = inspect.cleandoc(rule.observe.__doc__ or "").splitlines()
    sees = page.get("sees", ())
    told = () if sees and sees[0].startswith(" ".join(text).rstrip(".")) else text
    lines = [f"{rule.id}  ({rule.family})", *told, *sees]
    for title, key in (("What to do", "do"), ("When it is wrong", "wrong")):
        if key in page:
            lines += ["", title, *page[key]]
    lines += ["", f"reads     {', '.join(kind.__name__ for kind in rule.needs + rule.wants)}"]
    listens = next((question for question in TREE if rule.id in question.listens), None)
    if listens:
        subtype = listens.listens[rule.id]
        leaf = f"{listens.cause}" + (f" ({subtype})" if subtype else "")
        lines.append(f"heard by  {listens.asks} -> {leaf}")
    return [*lines, f"page      docs/rules/{rule.id}.md"]


def _code(topic: str) -> list[str] | None:
    from sluggish.catalog.explain import explain_xid
    from sluggish.cli.explain_line import explain_line

    return explain_xid(topic) or explain_line(topic)
