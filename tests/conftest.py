"""For all tests. With `scripts/test --all` a skipped one fails the run: it says so, ends with 1."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _umask_stays() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """What changes the umask of this process shuts files of other tests to their users."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    after = os.umask(before)
    assert after == before, f"the umask is {after:o} now, it was {before:o}"


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not os.environ.get("SLUGGISH_TEST_ALL") or hasattr(session.config, "workerinput"):
        return
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for report in skipped:
            reporter.write_line(f"SKIPPED, so not green: {report.nodeid}")
