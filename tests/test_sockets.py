"""Connections: the probe's data cases, junk, a real `ss`, and DATA-NETWORK that weighs them."""

import os
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sluggish.facts.collective import Wait, WaitRoot
from sluggish.facts.derived import Look
from sluggish.facts.fabric import NcclAddress
from sluggish.facts.host import RankProcess, Stack, StackFrame
from sluggish.facts.net import Socket
from sluggish.facts.origin import Origin
from sluggish.facts.store import Facts
from sluggish.findings import Finding, Role, Strength, ask
from sluggish.probes import PROBES, sockets
from sluggish.rules.data.network import data_network

CASES = sorted((Path(__file__).parent / "probes" / "sockets").glob("*.yaml"))
T0 = datetime(2026, 11, 24, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_recorded_case_gives_its_facts(path: Path) -> None:
    wanted = yaml.safe_load(path.read_text(encoding="utf-8"))
    text = path.with_suffix(".txt").read_text(encoding="utf-8")
    claimed = {probe.ID for probe in PROBES if not probe.BINARY and probe.sniff(text.encode())}
    assert claimed <= ({"sockets"} if wanted.get("sniff", True) else set())
    assert sockets.sniff(text.encode()) is wanted.get("sniff", True)
    found: list[Socket] = []
    problem = ""
    try:
        found += sockets.parse(text, Origin(**wanted.get("origin", {})))
    except ValueError as why:
        problem = str(why)
    assert wanted.get("error", "") in problem
    assert bool(problem) is ("error" in wanted)
    for fact, expected in zip(found, wanted.get("facts", []), strict=True):
        assert type(fact).__name__ == expected.pop("type")
        got = {k: list(v) if isinstance(v := getattr(fact, k), tuple) else v for k in expected}
        assert got == expected


@given(st.text(alphabet='tcpudESTAB-SYN 0123456789.:[]()%"=,\n\tusersfdlat', max_size=400))
def test_no_text_makes_the_parser_crash(text: str) -> None:
    with suppress(ValueError):
        list(sockets.parse("tcp   ESTAB 0 0 1.2.3.4:5 6.7.8.9:443 " + text, Origin()))
    sockets.sniff(text.encode())


@pytest.mark.lab
@pytest.mark.skipif(shutil.which("ss") is None, reason="iproute2 is not installed")
def test_a_real_ss_is_read_and_names_this_process_and_its_waiting_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asks = socket.create_connection(server.getsockname())
        answers, _ = server.accept()
        with asks, answers:
            answers.sendall(b"hello")
            asks.recv(5)
            asks.sendall(b"a question")
            done = subprocess.run(
                sockets.COMMAND, shell=True, capture_output=True, text=True, timeout=60, check=True
            )
    found = [s for s in sockets.parse(done.stdout, Origin()) if os.getpid() in s.pids]
    assert found, done.stdout[:2000]
    assert {s.received_bytes for s in found} >= {5, 10}


# DATA-NETWORK

LOOK = Look(at=T0, nodes=("a", "b"), world_size=4, job_started_at=T0 - timedelta(hours=2),
            loose=False)  # fmt: skip


def rank(number: int, pid: int, node: str = "a", **more: Any) -> RankProcess:
    return RankProcess(node=node, pid=pid, name="python", rank=number, state="S", **more)


def link(pid: int = 7, node: str = "a", **more: Any) -> Socket:
    plain: dict[str, Any] = {
        "node": node, "at": T0, "protocol": "tcp", "state": "ESTAB", "local": "10.2.0.7",
        "local_port": 51777, "peer": "203.0.113.40", "peer_port": 443, "pids": (pid,),
        "process": "python", "last_sent_s": 600.0, "last_received_s": 600.1,
    }  # fmt: skip
    return Socket(**{**plain, **more})


def stack(pid: int = 7, node: str = "a", file: str = "urllib3/connection.py") -> Stack:
    frames = (StackFrame(function="recv_into", file="ssl.py", line=1),
              StackFrame(function="readinto", file="socket.py", line=2),
              StackFrame(function="getresponse", file=file, line=3))  # fmt: skip
    return Stack(node=node, pid=pid, rank=None, thread="MainThread", main=True, active=False,
                 frames=frames)  # fmt: skip


def waits_for(*ranks: int) -> Wait:
    roots = tuple(WaitRoot(rank=number) for number in ranks)
    return Wait(state="host_stuck", roots=roots, observed=4, world_size=4)


def run(*items: Any) -> list[Finding]:
    store = Facts()
    for item in (LOOK, rank(0, 7), rank(1, 8), rank(2, 7, "b"), rank(3, 8, "b"), *items):
        store.add(item)
        store.seen[type(item)].add(getattr(item, "node", None))
    return list(ask(data_network, store))


def test_an_unanswered_request_of_the_rank_that_is_waited_for_is_strong() -> None:
    (found,) = run(link(), waits_for(0))
    assert (found.role, found.strength, found.subtype) == (
        Role.ROOT, Strength.STRONG, "network_wait",
    )  # fmt: skip
    assert found.says == "rank 0: 203.0.113.40:443 (HTTPS) has not answered for 600 s"
    assert [(s.rank, s.node, s.pid) for s in found.spots] == [(0, "a", 7)]


def test_a_connection_and_the_main_thread_in_it_are_strong_the_thread_alone_is_weak() -> None:
    assert run(link(), stack())[0].strength is Strength.STRONG
    (found,) = run(stack())
    assert (found.role, found.strength) == (Role.ROOT, Strength.WEAK)
    waits = replace(stack(), frames=(StackFrame(function="recv", file="multiprocessing/a.py"),))
    assert run(waits) == []


def test_a_connection_alone_is_context_and_another_rank_s_is_not_blamed() -> None:
    assert [f.role for f in run(link())] == [Role.CONTEXT]
    assert [f.role for f in run(link(), waits_for(1))] == [Role.CONTEXT]


def test_a_loader_worker_s_request_counts_for_its_rank() -> None:
    worker = RankProcess(node="a", pid=71, ppid=7, name="pt_data_worker", state="S")
    (found,) = run(worker, link(71), waits_for(0))
    assert (found.strength, found.spots[0].rank, found.spots[0].pid) == (Strength.STRONG, 0, 71)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"state": "SYN-SENT"}, "does not take the connection"),
        ({"unsent_bytes": 99, "backoff": 9}, "does not acknowledge what was sent, 9 tries"),
        ({"protocol": "udp", "peer_port": 53, "last_sent_s": None}, "asks 203.0.113.40:53 (DNS)"),
    ],
)
def test_each_way_of_waiting_is_told(more: dict[str, Any], words: str) -> None:
    (found,) = run(link(**more), waits_for(0))
    assert words in found.says


@pytest.mark.parametrize(
    "more",
    [
        {"last_sent_s": 600.0, "last_received_s": 599.9},  # answered: kept for later
        {"last_sent_s": 29.0, "last_received_s": 29.5},  # not long
        {"peer_port": 29500},  # the rendezvous' store
        {"peer": "10.2.0.6"},  # a node of the job
        {"peer": "127.0.0.1"},
        {"unread_bytes": 10},  # it came, and the program has not read it
        {"unsent_bytes": 99, "backoff": 1, "last_received_s": 1.0},
        {"state": "CLOSE-WAIT"},
        {"pids": (99,)},  # nobody's of the job
    ],
)
def test_connections_that_rest_or_are_the_job_s_own_are_silent(more: dict[str, Any]) -> None:
    inside = NcclAddress(node="b", pid=1, rank=2, interface="ib0", address="10.2.0.6")
    found = run(link(**more), inside, waits_for(0))
    assert [f for f in found if f.role is not Role.ALL_CLEAR] == []


def test_all_clear_is_said_of_the_nodes_that_were_seen() -> None:
    (found,) = run(link(last_received_s=1.0))
    assert (found.role, found.says) == (
        Role.ALL_CLEAR, "no process waits for a service on 1 node",
    )  # fmt: skip


def test_the_same_on_two_nodes_is_shared() -> None:
    (found,) = run(link(), link(node="b"), waits_for(0, 2))
    assert (found.shared, found.node) == (True, None)
