"""Labs for the tests of this directory: each test process of a run has its own."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from . import cluster, packages


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("lab")


@pytest.fixture(scope="session")
def machine() -> None:
    """Skips, saying why, where no lab can run."""
    try:
        packages.check()
        cluster.sweep()
        if not (packages.venv() / ".done").exists():
            raise packages.CannotRun(f"no Python for the lab in {packages.CACHE}")
    except packages.CannotRun as error:
        pytest.skip(f"no lab here: {error} (scripts/lab install; root)")


@pytest.fixture(scope="session")
def torch_in_lab(machine: None) -> None:
    """For tests whose jobs are real PyTorch ranks: /opt/venv/bin/python has torch."""
    if not packages.has_torch():
        pytest.skip("no PyTorch in the lab's Python (scripts/lab install --torch)")


@pytest.fixture(scope="session")
def lab(machine: None) -> Iterator[cluster.Lab]:
    """Four nodes, no accounting. A test that breaks something mends it."""
    yield from _lab()


@pytest.fixture(scope="session")
def lab_acct(machine: None) -> Iterator[cluster.Lab]:
    """Four nodes with slurmdbd: `sacct` answers."""
    yield from _lab(accounting=True)


@pytest.fixture(scope="module", autouse=True)
def _nodes_are_free(request: pytest.FixtureRequest) -> None:  # pyright: ignore[reportUnusedFunction]
    """Each file begins with free nodes, whatever the one before it left in the shared lab."""
    own = [i for i in request.session.items if getattr(i, "module", None) is request.module]
    for name in ("lab", "lab_acct"):
        if any(name in getattr(item, "fixturenames", ()) for item in own):
            found: cluster.Lab = request.getfixturevalue(name)
            found.exec("ctl", ["sh", "-c", "squeue -h -o %A | sort -u | xargs -r scancel -f"])
            with suppress(cluster.LabError):  # a test that needs them free says so itself
                found.wait_until_free(30)


def _lab(accounting: bool = False) -> Iterator[cluster.Lab]:
    found = cluster.up(4, accounting)
    yield found
    found.down()
