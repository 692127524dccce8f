"""The flight-recorder probe: formats, defects, hostile input."""

import gc
import json
import os
import pickle
import pickletools
from contextlib import suppress

import pytest
from evalgen.flight_recorder import Group, Recorder, as_json, frame, pickled
from fr_scenes import fsdp, pipeline, tp_dp
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts.collective import GroupHead, RankRecord
from sluggish.facts.origin import Origin
from sluggish.probes import flight_recorder
from sluggish.probes.flight_recorder.compact import fold, unfold, write_compact

T = 1_795_995_400_000_000_000
AT = Origin(rank=3, node="gpu-01", path="ranks/nccl_trace_rank_3")


def parse(content: bytes, origin: Origin = AT) -> list[RankRecord | GroupHead]:
    return list(flight_recorder.parse(content, origin))


def heads(facts) -> list[GroupHead]:
    return [f for f in facts if isinstance(f, GroupHead)]


def small(**how) -> Recorder:
    """Two groups, one finished and one pending operation."""
    world = Group(name="0", desc="default_pg", ranks=(0, 1, 2, 3))
    pair = Group(name="1", desc="undefined", ranks=(2, 3))
    recorder = Recorder(rank=3, groups=(world, pair), **how)
    call = recorder.collective(world, "_all_gather_base", [[8]], [[32]], at_ns=T)
    recorder.complete(call, at_ns=T + 9_000_000)
    stack = [
        frame("all_reduce", "/usr/lib/python3/dist-packages/torch/distributed/c10d.py", 2696),
        frame("save", "/home/u/train.py", 118),
    ]
    recorder.collective(pair, "all_reduce", [[2, 3]], [[2, 3]], at_ns=T + 10**9, frames=stack)
    return recorder


def test_a_dump_tells_groups_positions_and_what_is_pending():
    record, world, pair = parse(pickled(small().dump()))
    assert isinstance(record, RankRecord)
    assert (record.rank, record.node, record.version) == (3, "gpu-01", "2.10")
    assert (record.backend, record.library, record.entries) == ("nccl", "2.27.7", 2)
    assert (record.wrapped, record.timing, record.only_active) == (False, False, False)
    assert (world.group.name, world.group.desc, world.group.ranks) == (
        "0",
        "default_pg",
        (0, 1, 2, 3),
    )
    assert (world.last_enqueued, world.last_completed, world.pending) == (1, 1, ())
    assert world.recent[0].op == "_all_gather_base"
    assert world.arrivals == (1, T, T + 9_000_000)
    assert (pair.group.desc, pair.last_enqueued, pair.last_completed) == ("", 1, -1)
    (op,) = pair.pending
    assert (op.seq, op.op, op.in_sizes, op.dtypes) == (1, "all_reduce", ((2, 3),), ("BFloat16",))
    assert (op.state, op.order, op.frame) == ("scheduled", 1, "/home/u/train.py:118 in save")


def test_json_tells_the_same_but_for_frames():
    one, other = parse(pickled(small().dump())), parse(as_json(small().dump()))
    assert [h.last_completed for h in heads(one)] == [h.last_completed for h in heads(other)]
    assert heads(other)[1].pending[0].frame is None
    assert heads(other)[0].arrivals == heads(one)[0].arrivals


def test_json_without_entries_is_a_rank_in_no_collective():
    (record,) = parse(b'{"version":"2.10","pg_config":{},"pg_status":{},"comm_lib_version":""}')
    assert (record.entries, record.backend) == (0, "")


def test_an_only_active_dump_keeps_the_positions():
    record, *rest = parse(pickled(small().dump(only_active=True)))
    assert (record.only_active, record.wrapped) == (False, True) or record.entries == 1
    by_name = {h.group.name: h for h in rest}
    assert (by_name["0"].last_enqueued, by_name["0"].last_completed) == (1, 1)
    assert len(by_name["1"].pending) == 1


def test_timing_says_started():
    recorder = small(timing=True)
    recorder.start(recorder.ring[-1], at_ns=T + 2 * 10**9)
    facts = parse(pickled(recorder.dump()))
    assert facts[0].timing is True
    assert heads(facts)[1].pending[0].state == "started"


def test_gloo_is_finished_when_retired_and_its_groups_come_from_the_entries():
    facts = parse(pickled(small(backend="gloo").dump()))
    world, pair = heads(facts)
    assert (world.group.name, world.group.ranks, world.pending) == ("0", (), ())
    assert (pair.group.name, pair.pending[0].op) == ("1", "all_reduce")


def test_inner_operations_of_a_finished_batch_are_not_pending():
    files = pipeline(4, None, batched=True).files()
    for rank, content in files.items():
        assert all(not h.pending for h in heads(parse(content, Origin(rank=rank))))


def test_inner_operations_of_an_open_batch_are_pending_with_their_peers():
    files = pipeline(8, 4, batched=True).files()
    facts = parse(files[5], Origin(rank=5))
    (pipe,) = [h for h in heads(facts) if h.pending]
    (op,) = pipe.pending
    assert (op.op, op.peer, op.nth) == ("recv 5<-4", 4, 6)
    assert dict(pipe.posted) == {"recv 5<-4": 6, "send 5->6": 5}


def test_coalesced_collectives_become_one_operation():
    world = Group(name="0", desc="default_pg", ranks=(0, 1))
    recorder = Recorder(rank=0, groups=(world,))
    sizes = [([[8]], [[16]]), ([[4]], [[8]])]
    recorder.complete(recorder.coalesced(world, "_all_gather_base", sizes, at_ns=T), at_ns=T + 9)
    recorder.coalesced(world, "_all_gather_base", sizes, at_ns=T + 99)
    (head,) = heads(parse(pickled(recorder.dump()), Origin(rank=0)))
    assert [(op.seq, op.op, op.in_sizes) for op in head.pending] == [
        (2, "_all_gather_base", ((8,), (4,)))
    ]


@pytest.mark.parametrize(("status", "pending"), [(True, [3]), (False, [1, 2, 3])])
def test_inner_operations_of_a_batch_that_an_only_active_dump_left_out_are_finished(
    status, pending
):
    """Their closing entry was completed; the group's position tells. Without it nothing does."""
    world = Group(name="0", desc="default_pg", ranks=(0, 1))
    recorder = Recorder(rank=0, groups=(world,))
    sizes = [([[8]], [[8]]), ([[4]], [[4]])]
    for n in (1, 2):
        call = recorder.coalesced(world, "all_reduce", sizes, at_ns=T + n)
        recorder.complete(call, at_ns=T + 9 + n)
    recorder.collective(world, "all_reduce", [[8]], [[8]], at_ns=T + 99)
    dump = recorder.dump(only_active=True)
    if not status:
        del dump["pg_status"]
    (head,) = heads(parse(pickled(dump), Origin(rank=0)))
    assert [op.seq for op in head.pending] == pending


def test_a_wrapped_ring_says_so_and_loses_the_count_of_sends():
    facts = parse(pipeline(8, 4, buffer_size=5).files()[5], Origin(rank=5))
    assert facts[0].wrapped is True
    assert [op.nth for h in heads(facts) for op in h.pending] == [None]


@pytest.mark.parametrize("reset", [True, False])
def test_a_recorder_that_was_reset_has_lost_the_count_of_sends(reset):
    """`reset` numbers the records from 0 again; the numbers of the operations go on."""
    dump = pickle.loads(pipeline(8, 4).files()[5])  # our own
    if reset:
        del dump["entries"][:4]
        for n, entry in enumerate(dump["entries"]):
            entry["record_id"] = n
    facts = parse(pickled(dump), Origin(rank=5))
    assert facts[0].wrapped is reset
    assert [op.nth for h in heads(facts) for op in h.pending] == [None if reset else 6]


def test_run_ahead_is_capped_and_the_oldest_are_kept():
    world = Group(name="0", desc="default_pg", ranks=(0, 1))
    recorder = Recorder(rank=0, groups=(world,))
    for i in range(500):
        recorder.collective(world, "all_reduce", [[8]], [[8]], at_ns=T + i)
    (head,) = heads(parse(pickled(recorder.dump()), Origin(rank=0)))
    assert (head.pending[0].seq, len(head.pending), head.last_enqueued) == (1, 32, 500)


def test_the_compact_form_gives_the_same_facts_back():
    for content in (pickled(small().dump()), tp_dp(4, 4, 6).files()[3]):
        facts = parse(content)
        compact = write_compact(facts)
        assert flight_recorder.sniff(compact)
        assert parse(compact) == facts


@pytest.mark.parametrize(
    ("real", "hostile", "says"),
    [
        (b'Z"', b'"', "zone"),
        (b'"0-3"', b'"0-16777214"', "ranks below"),
        (b'"0-3"', b'"' + b",".join([b"0-1000000"] * 99) + b'"', "ranks below"),
        (b'["0","default_pg","0-3"]', b",".join([b'["0","x","0-1000000"]'] * 9), "members"),
        (b'"rank":3', b'"rank":-5', "ranks below"),
        (b'"rank":3', b'"rank":9999999999999999', "ranks below"),
        (b"[[2,3]]", b"[[2,9223372036854775808]]", "64 dimensions"),
    ],
)
def test_a_hostile_compact_form_ends_in_one_line(real: bytes, hostile: bytes, says: str):
    whole = write_compact(parse(pickled(small().dump())))
    assert real in whole
    with pytest.raises(ValueError, match=says):
        parse(whole.replace(real, hostile))


def test_a_tensor_of_endless_size_is_refused():
    dump = small().dump()
    dump["entries"][-1]["input_sizes"] = [[10**30] * 100_000]
    with pytest.raises(ValueError, match="64 dimensions"):
        parse(pickle.dumps(dump, 2))


def test_ranges_of_ranks():
    assert fold((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert tuple(unfold("0-2,5,7-8")) == (0, 1, 2, 5, 7, 8)
    with pytest.raises(ValueError, match="ranges"):
        list(unfold("0-2;5"))


def test_a_group_is_one_object_over_all_files():
    files = fsdp(8).files()
    first, second = (heads(parse(files[r], Origin(rank=r)))[0].group for r in (1, 2))
    assert first is second


# -- what is refused, in one line ------------------------------------------------------------------


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/sluggish-was-here",)


def test_a_dump_that_wants_to_run_code_is_refused_and_runs_nothing(tmp_path):
    evil = {**small().dump(), "pg_config": Evil()}
    assert any(op.name == "REDUCE" for op, _, _ in pickletools.genops(pickle.dumps(evil)))
    for protocol in range(6):
        with pytest.raises(ValueError, match=r"^refused: the dump wants to run \w+\.system"):
            parse(pickle.dumps(evil, protocol))
    assert not os.path.exists("/tmp/sluggish-was-here")


HOSTILE = {
    "memo index of two thousand million": b"\x80\x02K\x01r\xff\xff\xff\x7f.",
    "persistent id": b"\x80\x02X\x01\x00\x00\x00aQ.",
    "extension code": b"\x80\x02\x82\x01.",
    "class by INST": b"\x80\x02(cos\nsystem\nios\nsystem\n.",
    "stack global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "deep nesting": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
    "bytearray of eight exabytes": b"\x80\x05\x96\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "no stop": b"\x80\x02]",
    "not a table": pickle.dumps("hello", 2),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_pickles_end_in_one_line(content):
    with pytest.raises(ValueError, match=r"refused|expected"):
        parse(content)
    assert gc.isenabled()


def test_a_truncated_dump_says_so():
    content = pickled(small().dump())
    with pytest.raises(ValueError, match="expected a whole pickle"):
        parse(content[: len(content) // 2])
    with pytest.raises(ValueError, match="expected whole JSON"):
        parse(as_json(small().dump())[:-9])


def test_an_empty_file_says_so():
    with pytest.raises(ValueError, match="the file is empty"):
        parse(b"")


def test_format_1_is_refused_by_its_name():
    old = small(version="1.0").dump()
    with pytest.raises(ValueError, match=r"format 1\.x"):
        parse(pickled(old))
    with pytest.raises(ValueError, match=r"format 1\.x"):
        parse(as_json(old))


def test_a_format_of_the_future_is_refused_by_its_number():
    with pytest.raises(ValueError, match=r"format 3\.0"):
        parse(pickled({**small().dump(), "version": "3.0"}))


def test_without_a_rank_the_file_name_is_blamed():
    with pytest.raises(ValueError, match="name does not end in one"):
        parse(pickled(small().dump()), Origin(path="dump.pkl"))


def test_entries_of_the_wrong_kind_say_what_was_expected():
    for entries in ([1, 2], [{}], {"a": 1}, [{"record_id": "x"}]):
        with pytest.raises(ValueError, match="expected"):
            parse(pickled({**small().dump(), "entries": entries}))


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_arbitrary_bytes_give_facts_or_a_value_error(content):
    for prefix in (b"", b"\x80\x02", b"{", b"["):
        try:
            parse(prefix + content)
        except ValueError:
            continue


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["entries", "pg_config", "pg_status", "ranks", "name", "0"]), inner
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=150)
def test_arbitrary_objects_give_facts_or_a_value_error(value):
    for dump in ({"version": "2.10", "entries": value}, {**small().dump(), "pg_config": value}):
        try:
            parse(pickle.dumps(dump, 2))
        except ValueError:
            continue


FIELDS = (
    "record_id", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "profiling_name",
    "time_created_ns", "input_sizes", "state", "retired", "is_p2p", "frames", "input_dtypes",
    "time_discovered_completed_ns",
)  # fmt: skip
ODD = (None, -1, 2**70, 1.5, float("nan"), "x", "nccl:send 1->2", [], [None], [["a"]], {}, [[-1]])


@given(st.sampled_from(FIELDS), st.sampled_from(ODD))
@settings(max_examples=170)
def test_an_odd_field_gives_facts_or_a_value_error(field, value):
    dump = small().dump()
    for entry in dump["entries"]:
        entry[field] = value
    with suppress(ValueError):
        parse(pickle.dumps(dump, 2))


def test_sniff_knows_dumps_by_content_only():
    assert flight_recorder.sniff(pickled(small().dump())[:65536])
    assert flight_recorder.sniff(as_json(small().dump())[:65536])
    assert not flight_recorder.sniff(pickle.dumps({"model": [1, 2, 3]}, 2))
    assert not flight_recorder.sniff(json.dumps({"communicators": []}).encode())
    assert not flight_recorder.sniff(b"")
    assert not flight_recorder.sniff(b"pg_config pg_status in a log line")


def test_only_plain_opcodes_are_in_a_real_dump():
    names = {op.name for op, _, _ in pickletools.genops(pickled(small().dump()))}
    assert not names & {"GLOBAL", "REDUCE", "BUILD", "INST", "OBJ", "NEWOBJ"}


def test_a_rank_that_is_not_in_the_dumps_groups_is_a_wrong_name():
    from fr_scenes import tp_dp

    content = tp_dp(2, 4).files()[5]
    assert list(flight_recorder.parse(content, Origin(rank=5, path="dump_5")))
    with pytest.raises(ValueError, match="says rank 6"):
        list(flight_recorder.parse(content, Origin(rank=6, path="dump_6")))
