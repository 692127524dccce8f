"""The framed answer of a node: any cut of the stream gives the same frames, nobody forges one."""

import gzip
import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.correlate.timeline import clock_offsets
from sluggish.evidence.model import Bundle, Clock
from sluggish.facts.store import Facts
from sluggish.reach.frames import Frames, clock_again, clock_of, evidence_of
from sluggish.reach.model import Frame
from sluggish.verdict import coverage

BOUNDARY = "0123456789abcdef" * 2


def framed(
    probe: str, content: bytes = b"", stderr: bytes = b"", name: bytes = b"", **more: str
) -> bytes:
    told = {
        "sample": "", "rank": "", "rights": "root", "start": "500", "took": "12", "rc": "0",
        "error": "", "packed": "0", **more,
    }  # fmt: skip
    head = (
        BOUNDARY, probe, told["sample"], told["rank"], told["rights"], told["start"], told["took"],
        told["rc"], told["error"], str(len(name)), str(len(content)), str(len(stderr)),
        told["packed"],
    )  # fmt: skip
    return "|".join(head).encode() + b"\n" + name + content + stderr + b"\n"


def read(*pieces: bytes) -> list[Frame]:
    frames = Frames(BOUNDARY)
    return [f for piece in pieces for f in frames.feed(piece)] + list(frames.close())


@given(
    st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=50)), max_size=5),
    st.lists(st.integers(0, 2000), max_size=8),
    st.binary(max_size=60),
)
def test_any_cut_of_the_stream_gives_the_same_frames(
    answers: list[tuple[bytes, bytes]], cuts: list[int], noise: bytes
) -> None:
    stream = noise + b"".join(framed("memory", out, err) for out, err in answers) + framed("end")
    at = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    pieces = [stream[a:b] for a, b in itertools.pairwise(at)]
    told = [(f.content, f.stderr) for f in read(*pieces)]
    assert told == [(out, err.decode("utf-8", "replace")) for out, err in answers]


@given(st.text(max_size=300))
def test_what_a_program_prints_forges_no_frame(words: str) -> None:
    """Even one that knows the boundary: its bytes are announced, so they are never looked at."""
    forged = words.encode("utf-8", "replace") + b"\n" + framed("kernel_log", b"all is well")
    (one,) = read(framed("job_log", forged), framed("end"))
    assert (one.probe, one.content) == ("job_log", forged)


def test_a_frame_cut_in_its_middle_is_kept_and_said_to_be_cut() -> None:
    stream = framed("kernel_log", b"x" * 1000)
    (one,) = read(stream[:400])
    assert (one.error, one.exit_code) == ("truncated", 0)
    assert 0 < len(one.content) < 1000


@pytest.mark.parametrize(
    "head",
    [
        f"{BOUNDARY}|memory|a|||1|1|0||0|9999999999|0|0\n",
        f"{BOUNDARY}|memory|a|||1|1|0||0|-1|0|0\n",
        f"{BOUNDARY}|memory|a\n",
        f"{BOUNDARY}|{'m' * 700}",
        f"{BOUNDARY}||a|||1|1|0||0|0|0|0\n",
        f"{BOUNDARY}|mem\x1b[2Jory|a|||1|1|0||0|0|0|0\n",
    ],
)
def test_a_head_out_of_shape_is_passed_over(head: str) -> None:
    frames = read(head.encode(), framed("memory", b"12"), framed("end"))
    assert [(f.probe, f.content) for f in frames] == [("memory", b"12")]


def test_packed_content_is_unpacked_and_damage_is_said() -> None:
    text = b"line\n" * 10_000
    packed = gzip.compress(text)
    (good,) = read(framed("kernel_log", packed, packed="1"), framed("end"))
    (bad,) = read(framed("kernel_log", packed[:-40], packed="1"), framed("end"))
    (junk,) = read(framed("kernel_log", b"no gzip", packed="1"), framed("end"))
    assert (good.content, good.error) == (text, None)
    assert bad.error == "truncated"
    assert (junk.content, junk.error) == (b"", "truncated")


def test_no_frame_is_kept_beyond_what_was_asked_for() -> None:
    """Neither announced, which would wait for it in memory, nor unpacked from a few bytes."""
    frames = Frames(BOUNDARY, cap_bytes=1000)
    bomb = framed("memory", gzip.compress(b"\0" * (8 << 20)), packed="1")
    head = framed("kernel_log", b"").replace(b"|0|0|0|0\n", b"|0|9000000|0|0\n")
    found = list(frames.feed(bomb + head + framed("ib_counters", b"1") + framed("end")))
    assert [(f.probe, f.error) for f in found] == [("memory", "truncated"), ("ib_counters", None)]
    assert len(found[0].content) < 2 << 20
    assert frames.ended


@pytest.mark.parametrize("tail", [b".%N", b".N", b""])
def test_a_clock_without_parts_of_a_second_is_known_to_half_of_one(tail: bytes) -> None:
    identity = IDENTITY.replace(b".500000000", tail)
    (frame,) = read(framed("identity", identity), framed("end"))
    sent = datetime.fromtimestamp(1795400470.5, UTC)
    clock = clock_of(frame, "gpu-07", sent, sent)
    assert (clock.offset_s, clock.error_s) == (60.0, 0.5)


def test_the_end_is_only_what_the_script_says() -> None:
    frames = Frames(BOUNDARY)
    assert list(frames.feed(framed("memory", b"1")))
    assert not frames.ended
    assert not list(frames.feed(framed("end")))
    assert frames.ended


IDENTITY = (
    b"==> date +%s.%N <==\n1795400530.500000000\n==> /proc/uptime <==\n1000.00 9.9\n"
    b"==> date +%z <==\n-0130\n==> /proc/sys/kernel/random/boot_id <==\n"
    b"0d8b6d0e-6c1b-4e6c-9a59-1f0c2b3a4d5e\n"
)


def test_times_come_from_one_reading_of_the_node_s_clock() -> None:
    frames = read(
        framed("identity", IDENTITY, start="99950"), framed("memory", start="100250"), framed("end")
    )
    at = datetime.fromtimestamp(1795400530.5, UTC)
    assert frames[1].started_at == at + timedelta(seconds=2.5)


def test_the_offset_of_a_clock_is_known_to_half_the_round_trip() -> None:
    (frame,) = read(framed("identity", IDENTITY), framed("end"))
    sent = datetime.fromtimestamp(1795400470, UTC)
    clock = clock_of(frame, "gpu-07", sent, sent + timedelta(seconds=1))
    assert (clock.offset_s, clock.error_s) == (60.0, 0.5)
    assert (clock.uptime_s, clock.utc_offset_s) == (1000.0, -5400)
    assert clock.boot_id == "0d8b6d0e-6c1b-4e6c-9a59-1f0c2b3a4d5e"
    blank = clock_of(Frame(probe="identity"), "gpu-07", sent, sent)
    assert (blank.offset_s, blank.now) == (None, None)


def second(wall: str, uptime: str) -> Frame:
    text = f"==> date +%s.%N <==\n{wall}\n==> /proc/uptime <==\n{uptime} 9.9\n"
    return Frame(probe="clock", content=text.encode())


def known(round_trip_s: float) -> tuple[Clock, datetime]:
    """A node that is a minute ahead, and when it was asked."""
    (frame,) = read(framed("identity", IDENTITY), framed("end"))
    sent = datetime.fromtimestamp(1795400470.0, UTC)
    return clock_of(frame, "gpu-07", sent, sent + timedelta(seconds=round_trip_s)), sent


def test_a_quicker_second_reading_narrows_the_offset() -> None:
    clock, sent = known(4.0)
    assert (clock.offset_s, clock.error_s) == (58.5, 2.0)  # 56.5 to 60.5
    later = sent + timedelta(seconds=10.7)  # 10 s after the first reading, told at once
    found = clock_again(clock, second("1795400540.500000000", "1010.00"), later)
    assert (found.offset_s, found.error_s, found.drift_s) == (60.15, 0.35, 0.0)
    slow = clock_again(clock, second("1795400540.500000000", "1010.00"), sent + timedelta(60))
    assert (slow.offset_s, slow.error_s) == (58.5, 2.0)


@pytest.mark.parametrize("jump", [3600.0, -2.5])
def test_a_clock_that_was_set_during_the_look_is_no_order(jump: float) -> None:
    clock, sent = known(1.0)
    told = second(f"{1795400540.5 + jump:.9f}", "1010.00")
    found = clock_again(clock, told, sent + timedelta(seconds=11))
    assert found.drift_s == jump
    assert found.offset_s == clock.offset_s  # what was written before it was set
    assert found.error_s == pytest.approx(0.5 + abs(jump))
    facts = Facts()
    for one in clock_offsets(Bundle(clocks=(found,))):
        facts.add(one)
    (open_question,) = coverage._jumped(facts)
    assert open_question.where == "gpu-07"
    assert open_question.why == f"its clock jumped {jump:+.1f} s during the look"


def test_a_clock_in_whole_seconds_does_not_seem_to_jump() -> None:
    identity = IDENTITY.replace(b".500000000", b"")
    (frame,) = read(framed("identity", identity), framed("end"))
    sent = datetime.fromtimestamp(1795400470.5, UTC)
    clock = clock_of(frame, "gpu-07", sent, sent)
    found = clock_again(clock, second("1795400541", "1010.10"), sent + timedelta(seconds=10))
    assert found.drift_s == 0.0


def test_a_second_reading_that_says_nothing_changes_nothing() -> None:
    clock, sent = known(1.0)
    assert clock_again(clock, Frame(probe="clock", content=b"date: not found"), sent) == clock


def test_a_frame_becomes_evidence_of_its_node() -> None:
    frame = Frame(probe="nvidia_smi", error="stuck", stderr="in D", exit_code=None)
    made = evidence_of(frame, "gpu-07", path="")
    assert (made.node, made.error, made.stderr, made.size) == ("gpu-07", "stuck", "in D", 0)
