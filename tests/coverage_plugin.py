"""Writes down which tests passed and which rules spoke in them: `scripts/coverage` reads it.

Loaded by `pytest -p coverage_plugin` with SLUGGISH_COVERAGE=FILE. With SLUGGISH_WITHOUT=RULE that
rule says nothing: a test that passes all the same does not cover it.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_now: list[str] = []
_spoke: dict[str, set[str]] = defaultdict(set)
_passed: set[str] = set()


def pytest_configure(config: pytest.Config) -> None:
    from sluggish.rules import RULES

    mute = os.environ.get("SLUGGISH_WITHOUT")
    for rule in RULES:
        object.__setattr__(rule, "observe", _heard(rule.id, rule.observe, rule.id == mute))


def _heard(rule_id: str, observe: Any, mute: bool) -> Any:
    def say(view: Any) -> Iterator[Any]:
        for finding in () if mute else observe(view):
            if _now:
                _spoke[_now[-1]].add(rule_id)
            yield finding

    say.__doc__ = observe.__doc__
    return say


def pytest_runtest_logstart(nodeid: str) -> None:
    _now[:] = [nodeid]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    told = {test: sorted(_spoke.get(test, ())) for test in sorted(_passed)}
    Path(os.environ["SLUGGISH_COVERAGE"]).write_text(json.dumps(told), encoding="utf-8")
