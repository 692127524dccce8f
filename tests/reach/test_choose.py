"""Which way to the nodes, where no machine but this one is needed to tell."""

import socket

import pytest

from sluggish.reach.choose import choose
from sluggish.reach.srun import NoWay

HERE = socket.gethostname().split(".")[0]


def local(*nodes: str) -> str:
    way = choose("local", nodes, job="1", uid=None, running=True)
    return way.why


def test_local_asks_the_machine_that_is_the_only_node():
    assert local(HERE) == local(f"{HERE}.cluster") == "as told"


@pytest.mark.parametrize("nodes", [(HERE, "gpu-02"), ("gpu-01", "gpu-02"), ("gpu-01",)])
def test_this_machine_never_answers_in_the_name_of_another(
    nodes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    way = choose("local", nodes, job="1", uid=None, running=True)
    assert isinstance(way, NoWay)
    assert way.why.startswith(f"it asks this machine ({HERE}) alone, and what is asked for is ")


def test_slurmd_may_know_this_machine_by_another_name(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-01")
    assert local("gpu-01") == "as told"


def test_no_node_is_no_machine_to_ask():
    assert local() == f"it asks this machine ({HERE}) alone, and no node is known"
