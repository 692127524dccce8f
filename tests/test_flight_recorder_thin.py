"""A dump with its finished middle left out gives the very facts of the whole dump."""

import pickle
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from evalgen.flight_recorder import Call, Group, Recorder, frame, pickled
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts.origin import Origin
from sluggish.probes import flight_recorder
from sluggish.probes.flight_recorder import thin
from sluggish.probes.flight_recorder.entries import ARRIVALS_KEPT, NEWEST, read_dump
from sluggish.probes.flight_recorder.unpickle import load

T0 = 1_795_995_484_952_418_610
ORIGIN = Origin(
    node="gpu-01", rank=1, path="nccl_trace_rank_1", taken_at=datetime(2026, 11, 30, 3, tzinfo=UTC)
)


def torch_pickled(told: Any) -> bytes:
    """As torch's own pickler writes it: strings memoised by value, containers not at all."""
    memo: dict[str, int] = {}
    out = bytearray(b"\x80\x02")

    def number(n: int) -> bytes:
        if 0 <= n < 256:
            return b"K%c" % n
        if 0 <= n < 65_536:
            return b"M" + struct.pack("<H", n)
        if -(2**31) <= n < 2**31:
            return b"J" + struct.pack("<i", n)
        return b"\x8a\x08" + struct.pack("<q", n)

    def text(word: str) -> bytes:
        index = memo.get(word)
        if index is not None:
            return b"h%c" % index if index < 256 else b"j" + struct.pack("<I", index)
        index = memo[word] = len(memo)
        raw = word.encode()
        put = b"q%c" % index if index < 256 else b"r" + struct.pack("<I", index)
        return b"X" + struct.pack("<I", len(raw)) + raw + put

    def push(value: Any) -> None:
        match value:
            case None:
                out.extend(b"N")
            case bool():
                out.extend(b"\x88" if value else b"\x89")
            case int():
                out.extend(number(value))
            case float():
                out.extend(b"G" + struct.pack(">d", value))
            case str():
                out.extend(text(value))
            case tuple():
                for one in value:
                    push(one)
                out.extend({2: b"\x86"}[len(value)])
            case list():
                out.extend(b"](")
                for one in value:
                    push(one)
                out.extend(b"e")
            case dict():
                out.extend(b"}(")
                for key, one in value.items():
                    push(key)
                    push(one)
                out.extend(b"u")
            case _:
                raise TypeError(type(value))

    push(told)
    end = len(memo)
    return bytes(out) + (b"q%c." % end if end < 256 else b"r" + struct.pack("<I", end) + b".")


WRITERS = (pickled, torch_pickled)
GROUPS = (
    Group(name="0", desc="default_pg", ranks=(0, 1, 2, 3)),
    Group(name="1", desc="mesh_tp", ranks=(0, 1)),
    Group(name="2", desc="mesh_dp", ranks=(1, 3)),
)
SITES = [
    [frame(f"f{k}", f"/usr/lib/python3.12/site-packages/torch/m{k}.py", k + s) for k in range(4)]
    + [frame("step", f"/home/u/train_{s}.py", 10 + s)]
    for s in range(5)
]


def history(
    steps: list[tuple[int, int, int]], *, hung: int, backend: str, timing: bool, first: int,
    version: str = "2.10",
) -> Recorder:  # fmt: skip
    """A rank's calls: (kind, group, site) each, the last `hung` of them unfinished."""
    rec = Recorder(
        rank=1, groups=GROUPS, backend=backend, timing=timing, first_record=first,
        buffer_size=len(steps) * 4, version=version,
    )  # fmt: skip
    at = T0
    for i, (kind, which, site) in enumerate(steps):
        group, at = GROUPS[which], at + 31_000_000
        call: Call
        if kind == 3 and backend != "gloo":
            call = rec.p2p(group, "send", next(r for r in group.ranks if r != 1), [64], at_ns=at)
        elif kind == 4 and backend != "gloo":
            call = rec.coalesced(group, "_all_gather_base", [([[8]], [[16]])] * 2, at_ns=at)
        else:
            op = ("all_reduce", "_all_gather_base", "broadcast")[kind % 3]
            call = rec.collective(group, op, [[8, site]], [[16]], at_ns=at, frames=SITES[site])
        if i < len(steps) - hung and kind != 5:
            rec.complete(call, at_ns=at + 9_000_000)
    return rec


usual = st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 4))
odd = st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 4))


def whole(content: bytes) -> Any:
    return read_dump(load(content), ORIGIN, 1)


@settings(max_examples=60, deadline=None)
@given(
    early=st.lists(odd, max_size=6),
    middle=st.lists(usual | odd, min_size=1, max_size=5),
    times=st.integers(1, 60),
    late=st.lists(odd, max_size=12),
    hung=st.integers(0, 3),
    backend=st.sampled_from(("nccl", "gloo")),
    timing=st.booleans(),
    first=st.sampled_from((0, 250, 65_500, 81_234)),
    active=st.booleans(),
    writer=st.sampled_from(WRITERS),
)
def test_the_facts_are_those_of_the_whole_dump(
    early: Any, middle: Any, times: int, late: Any, hung: int, backend: str, timing: bool,
    first: int, active: bool, writer: Any,
) -> None:  # fmt: skip
    steps = [*early, *middle * times, *late]
    rec = history(steps, hung=hung, backend=backend, timing=timing, first=first)
    content = writer(rec.dump(only_active=active))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thin, "WORTH_BYTES", 0)
        assert list(flight_recorder.parse(content, ORIGIN)) == whole(content)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_the_finished_middle_is_left_out(writer: Any, backend: str) -> None:
    steps = [(i % 2, 0 if i % 7 else 1, i % 5) for i in range(2_000)]
    rec = history(steps, hung=1, backend=backend, timing=False, first=81_234)
    content = writer(rec.dump())
    fewer, left_out = thin.thinned(content, NEWEST, ARRIVALS_KEPT)
    assert left_out > 1_800
    assert len(load(fewer)["entries"]) == 2_000 - left_out
    assert read_dump(load(fewer), ORIGIN, 1, left_out) == whole(content)
    assert list(flight_recorder.parse(content, ORIGIN)) == whole(content)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", [3, 700, 1_995])
def test_what_never_finished_is_found_wherever_it_stands(writer: Any, place: int) -> None:
    steps = [(i % 2, 0, i % 5) for i in range(2_000)]
    steps[place] = (5, 1, 2)
    rec = history(steps, hung=0, backend="nccl", timing=True, first=0)
    facts = list(flight_recorder.parse(writer(rec.dump()), ORIGIN))
    assert [c.order for head in facts[1:] for c in head.pending] == [place]
    assert facts == whole(writer(rec.dump()))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("version", ["2.7", "2.10"])
def test_what_closes_a_batch_stays_with_its_inner_operations(writer: Any, version: str) -> None:
    """Inner operations stay "scheduled" for ever: without the closing one they seem to hang."""
    steps = [(4 if i % 40 == 7 else i % 2, 0 if i % 7 else 1, i % 5) for i in range(2_000)]
    rec = history(steps, hung=0, backend="nccl", timing=False, first=70_000, version=version)
    content = writer(rec.dump())
    if writer is torch_pickled:  # Python's writes the name out each time: too many, read whole
        assert thin.thinned(content, NEWEST, ARRIVALS_KEPT)[1] > 1_500
    facts = list(flight_recorder.parse(content, ORIGIN))
    assert [head.pending for head in facts[1:]] == [()] * len(facts[1:])
    assert facts == whole(content)


def test_ids_with_a_hole_are_read_whole() -> None:
    rec = history([(0, 0, 1)] * 2_000, hung=1, backend="nccl", timing=False, first=5)
    dump = rec.dump()
    del dump["entries"][500:510]
    content = torch_pickled(dump)
    fewer, left_out = thin.thinned(content, NEWEST, ARRIVALS_KEPT)
    with pytest.raises(ValueError, match="without a hole"):
        read_dump(load(fewer), ORIGIN, 1, left_out)
    assert list(flight_recorder.parse(content, ORIGIN)) == whole(content)


class _Bomb:
    def __reduce__(self) -> Any:
        return (print, ("boom",))


def test_code_in_the_middle_is_refused_though_nobody_needs_that_entry() -> None:
    rec = history([(0, 0, 1)] * 2_000, hung=1, backend="nccl", timing=False, first=5)
    dump = rec.dump()
    dump["entries"][900]["frames"] = _Bomb()
    with pytest.raises(ValueError, match="refused: the dump wants to run"):
        list(flight_recorder.parse(pickle.dumps(dump, protocol=2), ORIGIN))


def test_a_cut_dump_is_still_an_error() -> None:
    rec = history([(0, 0, 1)] * 2_000, hung=1, backend="nccl", timing=False, first=5)
    content = torch_pickled(rec.dump())
    for end in (len(content) // 2, len(content) - 1, len(content) - 40):
        with pytest.raises(ValueError, match="whole pickle"):
            list(flight_recorder.parse(content[:end], ORIGIN))
