"""Dead storage under a home or a script: the connection ends in time and says what hangs."""

from collections.abc import Iterator

import pytest

from . import faults, storage
from .cluster import Lab

LIMITS = {"connect_s": 2, "banner_s": 2, "auth_s": 2}


@pytest.fixture
def dead_home(lab: Lab) -> Iterator[Lab]:
    storage.mount(lab)
    storage.home_on(lab, "alice")
    storage.hang(lab)
    yield lab
    storage.mend(lab)
    storage.home_back(lab, "alice")
    storage.unmount(lab)


def test_a_home_that_hangs_is_said_on_either_side(dead_home: Lab) -> None:
    """On the node it is a login without an end; here nothing in it is opened."""
    told = {"name": "far", "nodes": ["node01"], "transport": {"user": "alice", **LIMITS}}
    far = faults.asking(dead_home, [told])
    told = {"name": "near", "nodes": ["node01", "node02"], "transport": LIMITS, "deadline_s": 8}
    near = faults.asking(dead_home, [told], "alice")
    (answer,) = faults.told(far, 20)["far"]["answers"]
    assert answer["failure"] == "auth hangs", answer
    assert answer["elapsed_s"] < 6
    answers = faults.told(near, 20)["near"]["answers"]
    assert [answer["failure"] for answer in answers] == ["not run"] * 2, answers
    assert "--transport srun" in answers[0]["says"]


@pytest.mark.parametrize("kind", ["ssh", "openssh"])
def test_a_script_in_state_d_ends_at_the_deadline_with_what_had_come(lab: Lab, kind: str) -> None:
    path = storage.mount(lab, "node02")
    lab.sh("node02", f"echo some >{path}/alice/file")
    storage.hang(lab, "node02")
    script = f"echo begun; cat {path}/alice/file"
    told = {"name": "d", "nodes": ["node02"], "transport": {"kind": kind}, "script": script}
    try:
        found = faults.ask(lab, [{**told, "deadline_s": 2}])["d"]
    finally:
        storage.unmount(lab, "node02")
    (answer,) = found["answers"]
    assert (answer["failure"], found["first"]) == ("timeout", ["begun\n"])
    assert answer["elapsed_s"] < 4
