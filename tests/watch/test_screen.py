"""The live screen on terminals that are too small, and what a pause leaves."""

import io
import os
import pty
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from sluggish.cli.watch_screen import Screen
from sluggish.watch.screen import Row, fitting, row
from sluggish.watch.shape import Track
from sluggish.watch.state import Job, Node, Rules

RULES = Rules()


def a_row(job: str, calm: bool = True) -> Row:
    return Row(job=job, nodes="2/2", shape="8 moving", since="-", life="log", alert="-", calm=calm)


def test_what_has_no_room_is_counted_and_what_is_to_look_at_comes_first() -> None:
    rows = [a_row(f"{n}", calm=n != 17) for n in range(20)]
    shown, says = fitting(rows, 5)
    assert [one.job for one in shown] == ["17", "0", "1", "2", "3"]
    assert says == "15 more jobs, all calm"
    shown, says = fitting([a_row(f"{n}", calm=False) for n in range(3)], -4)
    assert (len(shown), says) == (1, "2 more jobs, 2 of them to look at")
    assert fitting(rows[:2], 5) == (rows[:2], "")


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, width: int, height: int) -> Iterator[list[bytes]]:
    """Stdout is a terminal of this size; what was written to it, whole after the block."""
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other side is closed
            while data := os.read(ours, 1 << 16):
                seen.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(theirs, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        for name, value in (("TERM", "xterm"), ("COLUMNS", f"{width}"), ("LINES", f"{height}")):
            monkeypatch.setenv(name, value)
        yield seen
    reader.join()
    os.close(ours)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 50), (20, 4)])
def test_the_newest_event_is_on_the_screen_however_small_it_is(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    with terminal(monkeypatch, *size) as seen:
        shown = Screen(wanted=True)
        shown.rows([a_row(f"{n}") for n in range(20)], 0.0)
        for number in range(12):
            shown.say(f"12:00:00Z  job {number}: quiet: nothing moves on any of its GPUs any more")
        shown.pause()
    text = b"".join(seen).decode()
    assert "job 11" in text
    assert ("3 more jobs, all calm" in text) == (size == (80, 24))


def test_a_row_holds_what_is_known_and_dashes_for_what_is_not() -> None:
    found = row(Job(job="7"), 2, 100.0, RULES)
    assert (found.nodes, found.shape, found.since, found.alert) == ("0/2", "-", "-", "-")
    assert not found.calm
    tracks = {n: Track(shape="spin" if n else "parked") for n in range(4)}
    node = Node(at=100.0, tracks=tracks)
    job = Job(job="7", nodes={"a": node}, quiet_since=0.0, noticed=True, dips=(200.0,))
    found = row(job, 1, 124.0, RULES)
    assert (found.nodes, found.shape, found.since) == ("1/1", "3 spin, 1 parked", "2 min")
    assert found.alert == "in 6 min"
    assert row(job, 1, 900.0, RULES).alert == "held back"


def test_what_a_report_printed_is_not_wiped_by_the_next_table(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    screen = Screen(True)
    for number in range(5):
        screen.say(f"event {number}")
    screen.pause()
    print("VERDICT\nNOT CHECKED\nexit 20")
    before = len(terminal.getvalue())
    screen.resume()
    screen.say("event 6")
    screen.pause()
    after = terminal.getvalue()[before:]
    up = after.find("\x1b[1A")
    assert "event 6" in after
    assert up == -1 or up > after.index("event 6")
