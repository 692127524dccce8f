"""The fan-out: few handshakes at a time, sessions without number, one end, no node's fault of ours.

Nodes are real shells on this machine; only how they connect is played.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluggish.reach.collect import Limits, Look, ask_round
from sluggish.reach.fanout import ask_all
from sluggish.reach.greeting import Greeting
from sluggish.reach.local import local
from sluggish.reach.model import Answer, Ask, Frame, Progress
from sluggish.reach.openssh import OpenSshTransport
from sluggish.reach.srun import srun
from sluggish.reach.ssh import SshTransport


class Lines:
    """A parser whose frames are lines; `end` is the last."""

    def __init__(self) -> None:
        self.ended = False
        self.noise = b""
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self.ended = self.ended or line == b"end"
            yield Frame(probe=line.decode("latin-1"))

    def close(self) -> tuple[Frame, ...]:
        return ()


class Slow:
    """Connects in `hands_s`, then the session lasts `session_s`."""

    name = "slow"
    at_once: int | None = None

    def __init__(self, hands_s: float, session_s: float) -> None:
        self._hands_s, self._session_s = hands_s, session_s
        self._lock = threading.Lock()
        self.hands = self.most_hands = self.sessions = self.most_sessions = 0
        self.begun: list[float] = []
        self.closed = False

    def run(
        self, node: str, script: bytes, deadline_s: float, sink: Callable[[bytes], None],
        on_connect: Callable[[], None],
    ) -> Answer:  # fmt: skip
        with self._lock:
            self.begun.append(time.monotonic())
            self.hands += 1
            self.most_hands = max(self.most_hands, self.hands)
        time.sleep(self._hands_s)
        with self._lock:
            self.hands -= 1
            self.sessions += 1
            self.most_sessions = max(self.most_sessions, self.sessions)
        on_connect()
        time.sleep(self._session_s)
        sink(b"end\n")
        with self._lock:
            self.sessions -= 1
        return Answer(node=node)

    def close(self) -> None:
        self.closed = True


def ask(nodes: list[str], transport, *, on_event=lambda _: None, script=b"", **more):
    limits = {"deadline_s": 5.0, "overall_s": 20.0, **more}
    return ask_all(nodes, lambda _: script, transport, frames=Lines, on_event=on_event, **limits)


def test_handshakes_are_limited_and_open_sessions_are_not() -> None:
    transport = Slow(0.02, 1.0)
    began = time.monotonic()
    answers = ask([f"n{i}" for i in range(40)], transport, workers=8)
    assert [answer.failure for answer in answers] == [None] * 40
    assert transport.most_hands <= 8
    assert transport.most_sessions > 20
    assert time.monotonic() - began < 3  # waves of 8 would be 5 s


def test_connections_begin_no_faster_than_their_rate() -> None:
    transport = Slow(0.0, 0.0)
    ask([f"n{i}" for i in range(11)], transport, rate=20)
    assert transport.begun[-1] - transport.begun[0] >= 0.45


def test_who_is_late_is_not_waited_for_and_who_was_never_asked_is_said_so() -> None:
    answers = ask(["a", "b", "c"], Slow(0.0, 9.0), workers=1, overall_s=0.4)
    assert [(a.failure, "before its answer" in a.says) for a in answers] == [("timeout", True)] * 3
    answers = ask(["a", "b"], Slow(9.0, 0.0), workers=1, overall_s=0.3)
    assert [a.failure for a in answers] == ["timeout", "not run"]


def test_an_error_of_ours_ends_the_round_and_accuses_no_node() -> None:
    def full(event: Progress) -> None:
        if event.kind == "frame":
            raise OSError(28, "No space left on device")

    transport = Slow(0.0, 0.0)
    with pytest.raises(OSError, match="No space left"):
        ask(["a", "b"], transport, on_event=full)
    assert transport.closed


def test_events_come_as_the_answer_comes() -> None:
    seen: list[tuple[float, str]] = []

    def note(event: Progress) -> None:
        seen.append((time.monotonic(), event.frame.probe if event.frame else event.kind))

    ask(["here"], local(), script=b"echo one; sleep 0.5; echo end\n", on_event=note)
    assert [what for _, what in seen] == ["connected", "one", "end", "done"]
    assert seen[2][0] - seen[1][0] > 0.3


def test_a_script_that_stops_before_its_end_has_died() -> None:
    (answer,) = ask(["here"], local(), script=b"echo one; echo why >&2; exit 0\n")
    assert (answer.failure, "why" in answer.says) == ("died", True)


def test_a_name_that_is_none_reaches_no_command_line() -> None:
    transport = OpenSshTransport(template=("echo", "{node}"))
    (answer,) = ask(["-oProxyCommand=x"], transport)
    assert answer.failure == "not run"


def test_a_courier_that_is_not_there_or_echoes_is_no_shell() -> None:
    assert ask(["a"], OpenSshTransport(template=("no-such-courier",)))[0].failure == "not run"
    assert ask(["a"], OpenSshTransport(template=("cat",)), script=b"end\n")[0].failure == "no shell"
    assert ask(["a"], OpenSshTransport(template=("false",)))[0].failure == "no shell"


def test_what_a_courier_leaves_behind_is_not_waited_for() -> None:
    """As a master connection of OpenSSH does: it stays in the background and keeps stderr."""
    template = ("sh", "-c", "(setsid sleep 5 >/dev/null 2>&2 &) ; exec sh -s")
    began = time.monotonic()
    (answer,) = ask(["a"], OpenSshTransport(template=template), script=b"echo end\n")
    assert answer.failure is None
    assert time.monotonic() - began < 3


def test_the_deadline_ends_the_courier_with_what_it_started() -> None:
    transport = local()
    script = b"echo $$; sleep 30\n"
    pids: list[str] = []

    def note(event: Progress) -> None:
        if event.frame:
            pids.append(event.frame.probe)

    (answer,) = ask(["here"], transport, script=script, deadline_s=0.5, on_event=note)
    assert (answer.failure, answer.connect_s is not None) == ("timeout", True)
    with pytest.raises(FileNotFoundError), open(f"/proc/{pids[0]}/stat"):
        pass


def test_noise_before_the_shell_is_kept_beside_the_answer() -> None:
    template = ("sh", "-c", "echo motd of the day; exec sh -s")
    events: list[Progress] = []
    (answer,) = ask(
        ["a"], OpenSshTransport(template=template), script=b"echo end\n", on_event=events.append
    )
    assert answer.stderr == "motd of the day\n"
    assert [e.frame.probe for e in events if e.frame] == ["end"]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_greeting_is_found_however_it_is_cut(size: int) -> None:
    greeting = Greeting()
    word = greeting.before(b"").decode().split()[1].replace("''", "")
    data = f"noise\n{word}\nanswer\n".encode()
    pieces = [data[i : i + size] for i in range(0, len(data), size)]
    assert b"".join(greeting.feed(piece) for piece in pieces) == b"answer\n"
    assert (greeting.noise, greeting.heard) == (b"noise\n", True)


def test_a_fault_of_our_own_parser_is_no_broken_connection() -> None:
    class Broken(Lines):
        def feed(self, data: bytes) -> Iterator[Frame]:
            raise ValueError("a bug of ours")

    class Forgiving(Slow):
        """As a transport does that takes every exception for the network's."""

        def run(self, node, script, deadline_s, sink, on_connect) -> Answer:
            try:
                sink(b"data")
            except Exception:
                return Answer(node=node, failure="died")
            return Answer(node=node)

    limits = {"deadline_s": 5.0, "overall_s": 20.0, "on_event": lambda _: None}
    (answer,) = ask_all(["a"], lambda _: b"", Forgiving(0, 0), frames=Broken, **limits)
    assert (answer.failure, "a bug of ours" in answer.says) == ("not run", True)


def ways() -> list[Any]:
    step = srun("7", os.geteuid())
    assert isinstance(step, OpenSshTransport)
    return [(step, 16), (SshTransport(), 32)]


@pytest.mark.parametrize(("way", "most"), ways(), ids=["srun", "ssh"])
def test_slurm_is_asked_for_sixteen_steps_at_a_time(tmp_path: Path, way: Any, most: int) -> None:
    transport = Slow(0.3, 0.0)
    transport.at_once = way.at_once
    nodes = tuple(f"n{i}" for i in range(40))
    look = Look(folder=tmp_path, nodes=nodes, job=None)
    ask_round(look, nodes, lambda _: Ask(), transport, (), Limits(), None)
    assert transport.most_hands == most
