"""Processes that cannot die: on a frozen ext4 a `touch` is in D state, whatever signal it gets."""

from collections.abc import Iterator

import pytest

from . import faults
from .cluster import Lab, wait_for

FREEZE = """
truncate -s 30M /run/frozen.img && mkfs.ext4 -q /run/frozen.img && mkdir -p /run/frozen
mount -n -o loop /run/frozen.img /run/frozen && sync -f /run/frozen && fsfreeze -f /run/frozen
"""
THAW = "fsfreeze -u /run/frozen"
CLEAR = "umount /run/frozen && rm /run/frozen.img"
STAYS = "echo begun; touch /run/frozen/x & sleep 0.3; ps -o stat= -p $!"
NEVER = "echo begun; touch /run/frozen/y"
WAYS = {
    "ssh": {"kind": "ssh"},
    "openssh": {"kind": "openssh"},
}


@pytest.fixture(scope="module")
def told(lab: Lab) -> Iterator[dict[str, dict]]:
    if lab.exec("node02", ["sh", "-c", FREEZE]).returncode:
        pytest.skip("no loop device here: nothing to freeze")
    rounds = [
        {"name": f"{way} {what}", "nodes": ["node02"], "transport": transport, "script": script,
         "deadline_s": 4}
        for way, transport in WAYS.items()
        for what, script in (("stays", STAYS), ("never", NEVER))
    ]  # fmt: skip
    try:
        yield faults.ask(lab, rounds)
    finally:
        lab.sh("node02", THAW)
        clear = ["sh", "-c", CLEAR]
        wait_for(lambda: lab.exec("node02", clear).returncode == 0, 10, "it stays mounted")


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_whole_though_a_child_in_d_state_stays(told: dict, way: str) -> None:
    found = told[f"{way} stays"]
    assert found["first"][0].startswith("begun\nD")
    assert found["answers"][0]["failure"] is None
    assert found["wall_s"] < 6


@pytest.mark.parametrize("way", WAYS)
def test_a_script_in_d_state_ends_at_the_deadline(told: dict, way: str) -> None:
    found = told[f"{way} never"]
    assert (found["first"], found["answers"][0]["failure"]) == (["begun\n"], "timeout")
    assert found["wall_s"] < 6
