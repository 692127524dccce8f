"""The command line: light to start, one line for a mistake, the exit code carries the class."""

import subprocess
import sys
from pathlib import Path

import pytest

from sluggish import __version__
from sluggish.cli.demo import stories
from sluggish.report.terminal import Look


def sluggish(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluggish", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, sluggish.cli; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    heavy = {"yaml", "msgspec", "hyperscan", "sluggish.rules", "sluggish.probes", "json"}
    assert "typer" in loaded
    assert heavy & loaded <= {"json"}
    options = {"sluggish.cli", "sluggish.cli.guards", "sluggish.cli.options"}
    assert {name for name in loaded if name.startswith("sluggish.")} == options


def test_the_version_is_printed() -> None:
    assert sluggish("--version").stdout == f"sluggish {__version__}\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["diagnose", "/does/not/exist"], "sluggish: /does/not/exist: no such file or folder"),
        (["demo", "no\x1b[2Jsuch"], "sluggish: no story named no such; there are: "),
        (["explain", "NO-RULE"], "sluggish: nothing known of NO-RULE: give a rule id"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(args: list[str], says: str) -> None:
    done = sluggish(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.replace("nosuch", "no such").startswith(says)
    assert done.stderr.count("\n") == 1


def test_the_usage_of_a_mistake_names_the_command() -> None:
    done = sluggish("preflight")  # run as a module, as scripts/run does
    assert done.returncode == 2
    assert done.stderr.startswith("Usage: sluggish preflight ")


def test_what_cannot_be_recognised_is_listed_and_is_exit_30(tmp_path: Path) -> None:
    (tmp_path / "letter\x1b[2J.txt").write_text("Dear all\n")
    done = sluggish("diagnose", str(tmp_path))
    assert done.returncode == 30
    assert done.stderr.splitlines()[0] == ("sluggish: nothing here could be recognised as evidence")
    assert "no probe knows this content" in done.stderr
    assert "\x1b" not in done.stderr


def test_an_xid_is_explained() -> None:
    done = sluggish("explain", "79")
    assert done.returncode == 0
    assert done.stdout.startswith("Xid 79")


def test_a_rule_is_explained_with_the_question_that_hears_it() -> None:
    done = sluggish("explain", "gpu-xid")
    assert done.returncode == 0
    assert done.stdout.startswith("GPU-XID")
    assert "docs/rules/GPU-XID.md" in done.stdout


def test_the_seed_story_leads_the_packaged_stories() -> None:
    assert stories()[0].startswith("seed")
    assert len(stories()) >= 6


@pytest.mark.parametrize("name", ["", "first"])
def test_the_demo_diagnoses_the_seed_story(name: str) -> None:
    done = sluggish("demo", *([stories()[0]] if name else []))
    assert done.returncode == 12
    assert "RANK DESYNC" in done.stdout.splitlines()[2]
    assert "DRAIN" not in done.stdout


def test_the_json_is_one_document(tmp_path: Path) -> None:
    import json

    done = sluggish("demo", "--json")
    document = json.loads(done.stdout)
    assert (document["schema"], document["verdict"]["cause"]) == (1, "rank_desync")


def test_glyphs_are_dropped_where_the_terminal_has_none() -> None:
    import io

    from sluggish.cli.screen import look_of

    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="ascii")) == Look(unicode=False)
    assert look_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) == Look(unicode=True)
