"""`sluggish explain`: rules with what to do, codes, pasted lines; what is not known is exit 2."""

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from sluggish.catalog import data, rule_pages
from sluggish.cli.explain import run
from sluggish.cli.explain_line import explain_line
from sluggish.probes import kernel_log
from sluggish.rules import RULES

ROOT = Path(__file__).parents[1]
LINES = yaml.safe_load((Path(__file__).parent / "explain.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", LINES["known"], ids=lambda case: case["name"])
def test_a_topic_is_explained(case: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(case["topic"]) == 0
    out = capsys.readouterr().out
    for words in case["says"]:
        assert words in out


@pytest.mark.parametrize("topic", LINES["unknown"])
def test_what_is_not_known_is_exit_2_and_says_what_to_give(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(topic) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "give a rule id" in told.err


def test_a_line_with_its_call_trace_names_where_the_task_stands() -> None:
    text = (
        "INFO: task pt_main_thread:812 blocked for more than 122 seconds.\n"
        "task:pt_main_thread  state:D stack:0 pid:812\nCall Trace:\n <TASK>\n"
        " rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]\n __wait_on_bit+0x34/0x90\n"
    )
    told = explain_line(text)
    assert told is not None
    assert "stands in rpc_wait_bit_killable [sunrpc] < __wait_on_bit" in told


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_tells_what_it_means_and_what_to_do(
    rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(rule.lower()) == 0
    out = capsys.readouterr().out
    assert "\nWhat to do\n" in out
    page = rule_pages.rule_page(rule)
    assert page["sees"][0] in out
    assert page["do"][0] in out


def test_the_short_pages_are_those_of_the_docs() -> None:
    written = rule_pages.written(ROOT / "docs" / "rules")
    packaged = ROOT / "sluggish" / "catalog" / "rule_pages.yaml"
    assert packaged.read_text(encoding="utf-8") == written, "run scripts/regenerate"


def test_every_kind_of_kernel_line_has_its_words_and_names_rules_that_exist() -> None:
    table = data.read("kernel_lines.yaml")
    told = {kind.__name__ for kind in kernel_log.FACTS} - {
        "Xid", "SXid", "KernelSpan", "Machine",
    }  # fmt: skip
    assert set(table) == told
    ids = {rule.id for rule in RULES} | {"none"}
    for kinds in table.values():
        for entry in kinds.values():
            assert set(entry) == {"means", "do", "rule"}
            assert {rule.strip() for rule in entry["rule"].split(",")} <= ids
    for kind in kernel_log.FACTS:  # a fact without a kind has one entry for all
        if kind.__name__ in told and not {"kind", "severity"} & {f.name for f in fields(kind)}:
            assert set(table[kind.__name__]) == {"any"}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_no_line_of_a_rule_is_told_twice(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(rule)
    told = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(told) == len(set(told))


def test_a_terminal_gets_whole_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    run("SYNC-OP")
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "\nheard by  Do ranks" in out
    assert "\n          -> rank_desync (collective_mismatch)\n" in out
