# ruff: noqa: E501 (log lines are as long as they are)
"""Watchdog, desync, fingerprint, barrier and Gloo lines in the forms of many versions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts.collective import (
    DumpPath,
    Fingerprint,
    LaggingRanks,
    QueuePosition,
    WatchdogTimeout,
)
from sluggish.facts.log import LogSign, NcclInit, Version
from sluggish.facts.origin import Origin
from sluggish.loglines import nccl_init, watchdog
from sluggish.loglines.prefix import lines


def read(text: str) -> list:
    return list(watchdog.parse(lines(text, Origin())))


def timeouts(text: str) -> list[WatchdogTimeout]:
    return [f for f in read(text) if isinstance(f, WatchdogTimeout)]


TIMEOUTS = {
    "1.10, no number": (
        "[E ProcessGroupNCCL.cpp:566] [Rank 5] Watchdog caught collective operation timeout: "
        "WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1808499 milliseconds before "
        "timing out.",
        (None, 5, None, None, "all_reduce", None, 1800000, 1808499),
    ),
    "1.13": (
        "[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4695, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1802212 "
        "milliseconds before timing out.",
        (None, 1, None, 4695, "broadcast", None, 1800000, 1802212),
    ),
    "tensor shape": (
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, "
        "OpType=ALLGATHER, TensorShape=[4], Timeout(ms)=1000) ran for 1001 milliseconds before "
        "timing out.",
        (None, 1, None, 8, "all_gather (list)", None, 1000, 1001),
    ),
    "2.3, group number": (
        "[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=77, OpType=_REDUCE_SCATTER_BASE, NumelIn=64, NumelOut=8, "
        "Timeout(ms)=600000) ran for 600029 milliseconds before timing out.",
        (2, 0, "1", 77, "reduce_scatter", 64, 600000, 600029),
    ),
    "2.4, words of the group": (
        "[rank3]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [PG 0 (default_pg) Rank 3] "
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=24, OpType=ALLTOALL_BASE, "
        "NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.",
        (3, 3, "default_pg", 24, "all_to_all", 8, 600000, 600001),
    ),
    "2.5 on, sub-group": (
        "[rank218]:[E1129 02:07:08.408271257 ProcessGroupNCCL.cpp:629] [PG ID 6 PG GUID "
        "623(PIPELINE_MODEL_PARALLEL_GROUP) Rank 13] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=COALESCED, NumelIn=18446744073709551615, "
        "NumelOut=18446744073709551615, Timeout(ms)=600000) ran for 636397 milliseconds before "
        "timing out.",
        (218, 13, "PIPELINE_MODEL_PARALLEL_GROUP", 1, "coalesced", None, 600000, 636397),
    ),
    "double prefix": (
        "[rank0]:[rank0]:[E128 02:07:08.4 ProcessGroupNCCL.cpp:629] [PG ID 0 PG GUID 0(default_pg) "
        "Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=SEND, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=5000) ran for 5001 milliseconds before timing out.",
        (0, 0, "default_pg", 9, "send", 1, 5000, 5001),
    ),
    "blocking wait": (
        "[rank1]:[E616 13:41:10.9 ProcessGroupNCCL.cpp:628] [Rank 1] Work WorkNCCL(SeqNum=21, "
        "OpType=_ALLGATHER_BASE, NumelIn=26, NumelOut=52, Timeout(ms)=1800000) timed out in "
        "blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).",
        (1, 1, None, 21, "all_gather", 26, 1800000, None),
    ),
}


@pytest.mark.parametrize(("text", "want"), TIMEOUTS.values(), ids=TIMEOUTS.keys())
def test_the_timeout_of_each_version_is_read(text, want):
    (one,) = timeouts(text)
    got = (one.rank, one.group_rank, one.group, one.seq, one.op, one.numel_in)
    assert (*got, one.timeout_ms, one.ran_ms) == want


WRAPPED = """\
[E ProcessGroupNCCL.cpp:915] [Rank 1] NCCL watchdog thread terminated with
exception: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(
SeqNum=7787, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000
) ran for 1800413 milliseconds before timing out.
  what():  [Rank 1] NCCL watchdog thread terminated with exception: [Rank 1
] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7787, OpT
ype=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800413
"""


def test_a_record_wrapped_inside_words_and_printed_twice_is_told_once():
    (one,) = timeouts(WRAPPED)
    assert (one.group_rank, one.seq, one.op, one.ran_ms) == (1, 7787, "all_reduce", 1800413)


def test_a_number_split_by_the_terminal_is_whole_again():
    text = (
        "[rank2]:[E513 13:25:57.7 ProcessGroupNCCL.cpp:616] [Rank 2] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=53, OpType=BROADCAST, NumelIn=5164000, NumelOut=5\n"
        "164000, Timeout(ms)=1800000) ran for 1800042 milliseconds before timing out.         \n"
    )
    (one,) = timeouts(text)
    assert (one.rank, one.numel_out) == (2, 5164000)


def test_another_writer_inside_the_record_does_not_hide_it():
    text = (
        "[rank1]:[E616 13:41:10.9 ProcessGroupNCCL.cpp:565] [Rank 1] Watchdog caught collective "
        "operatFutureWarning: x is deprecated tion timeout: WorkNCCL(SeqNum=21, OpTypeFuture`"
        "Warning=_ALLGATHER_BASE, NumelIn=26, NumelOut=52, Timeout(ms)=18) ran for 19 milliseconds "
        "before timing out."
    )
    (one,) = timeouts(text)
    assert (one.rank, one.seq, one.op, one.numel_in) == (1, 21, "all_gather", 26)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "[rank12]:[E909 09:55:29.3 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 12] "
            "Exception (either an error or timeout) detected by watchdog at work: 20, last "
            "enqueued NCCL work: 22, last completed NCCL work: 19.",
            (12, "default_pg", 22, 19),
        ),
        (
            "[rank3]:[E909 09:55:29.3 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) "
            "Rank 3]  failure detected by watchdog at work sequence id: 1 PG status: last enqueued "
            "work: 1, last completed work: -1",
            (3, "default_pg", 1, -1),
        ),
        (
            "[rank3]:[E909 09:55:29.3 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) "
            "Rank 3]  failure detected by watchdog at work sequence id: 20 PG status: last enqueued "
            "work: 21, last started work: 19 (_ALLGATHER_BASE), last completed work: 18",
            (3, "default_pg", 21, 18),
        ),
    ],
)
def test_positions_of_the_queue_are_read(text, want):
    (one,) = [f for f in read(text) if isinstance(f, QueuePosition)]
    assert (one.rank, one.group, one.last_enqueued, one.last_completed) == want


def test_the_desync_report_names_its_laggards():
    text = """\
[rank0]:[E3 ProcessGroupNCCL.cpp:1] Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #315
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [1, 2] joined but didn't finish collective #5 (count from 1)
\t     [7] finished collective #182, but didn't join collective #183 (count from 1)
\t - To our best knowledge, ranks [3] are the lagging ranks that caused this timeout. They never joined any collectives
"""
    found = {f.kind: (f.ranks, f.seq) for f in read(text) if isinstance(f, LaggingRanks)}
    assert found == {
        "not_finished": ((1, 2), 5),
        "not_joined": ((7,), 183),
        "never_joined": ((3,), None),
    }


DETAIL = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank {a} is running collective: "
    "CollectiveFingerPrint({seq}OpType={x}, TensorShape=[{s}], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt))), but "
    "Rank {b} is running collective: CollectiveFingerPrint({seq}OpType={y}, TensorShape=[{t}], "
    "TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float (default))).Collectives "
    "differ in the following aspects: {aspects}"
)


@pytest.mark.parametrize("seq", ["SequenceNumber=1, ", "SequenceNumber=1", ""])
def test_fingerprints_are_read_in_their_broken_spacing(seq):
    text = DETAIL.format(
        a=0, b=1, x="ALLGATHER", y="ALLREDUCE", s=4, t=4, seq=seq, aspects="\t Op type: ALLGATHERvs"
    )
    (one,) = [f for f in read(text) if isinstance(f, Fingerprint)]
    assert (one.rank, one.op) == (0, "all_gather (list) [4]")
    assert (one.other_rank, one.other_op) == (1, "all_reduce [4]")
    assert one.seq == (1 if seq else None)


def test_a_monitored_barrier_names_who_did_not_come():
    text = "[Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 4000 ms"
    (one,) = read(text)
    assert (one.kind, one.ranks, one.reporter) == ("monitored_barrier", (2, 3), 0)
    assert read("Rank 1 successfully reached monitoredBarrier, but received errors") == []


@pytest.mark.parametrize(
    ("text", "path", "written"),
    [
        ("ProcessGroupNCCL dumping nccl trace to /tmp/nccl_trace_rank_3", "/tmp/nccl_trace_rank_3", False),
        ("Finished writing Flight Recorder debug info to /s/9/rank_3", "/s/9/rank_3", True),
        ("Finished writing NCCLPG debug info to /s/9/rank_3", "/s/9/rank_3", True),
    ],
)  # fmt: skip
def test_the_path_of_the_dump_is_read(text, path, written):
    (one,) = read(f"[rank3]:[I321 02:07:08.4 FlightRecorder.cpp:40] {text}")
    assert one == DumpPath(node=None, rank=3, path=path, written=written, at=one.at, line=one.line)


def test_gloo_and_monitor_lines_are_signs_and_nothing_more():
    text = """\
[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:8592.
[rank1]:[F1 ProcessGroupNCCL.cpp:1] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress
Connection closed by peer of something else
"""
    assert [f.kind for f in read(text) if isinstance(f, LogSign)] == [
        "peer_closed",
        "watchdog_stuck",
    ]


@given(st.text(max_size=400))
@settings(max_examples=150)
def test_arbitrary_text_never_raises(text):
    for lead in ("", "WorkNCCL(", "CollectiveFingerPrint(", "last enqueued work: ", "lagging ["):
        for _ in read(lead + text):
            pass
        list(nccl_init.parse(lines(" nranks " + text, Origin())))


INITS = {
    "2.8": (
        "gpu-01:42:43 [0] NCCL INFO comm 0x7f8 rank 0 nranks 8 cudaDev 0 busId 1b000 - Init COMPLETE",
        ("gpu-01", 0, 8, 42, 0, None, "0000:1b:00.0", True),
    ),
    "2.19": (
        "gpu-01:42:43 [3] NCCL INFO comm 0x55d rank 3 nranks 16 cudaDev 3 nvmlDev 7 busId 5d000 "
        "commId 0x9a - Init COMPLETE",
        ("gpu-01", 3, 16, 42, 3, 7, "0000:5d:00.0", True),
    ),
    "2.21, start only": (
        "3: gpu-01:42:43 [3] NCCL INFO ncclCommInitRank comm 0x55d rank 3 nranks 16 cudaDev 3 "
        "nvmlDev 7 busId 5d000 commId 0x9a - Init START",
        ("gpu-01", 3, 16, 42, 3, 7, "0000:5d:00.0", False),
    ),
    "2.30": (
        "gpu-01:42:43 [3] NCCL INFO ncclCommInitRankConfig comm 0x55d [Rank 3] rank 3 nranks 16 "
        "cudaDev 3 nvmlDev 3 busId 10000001b000 commId 0x9a - Init START",
        ("gpu-01", 3, 16, 42, 3, 3, None, False),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "want"), INITS.values(), ids=INITS.keys())
def test_init_lines_tell_where_a_rank_lives(text, want):
    (one,) = [f for f in nccl_init.parse(lines(text, Origin())) if isinstance(f, NcclInit)]
    got = (one.node, one.rank, one.world_size, one.pid, one.cuda_device, one.nvml_device)
    assert (*got, one.pci, one.complete) == want


def test_the_version_line_has_no_prefix():
    (one,) = nccl_init.parse(lines("NCCL version 2.27.7+cuda12.9", Origin()))
    assert isinstance(one, Version)
    assert one.version == "2.27.7"
