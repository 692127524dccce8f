"""RAS answers and stacks: the formats, and public captures of them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sluggish.facts.collective import GroupHead, RasCounts, RasRank, RasReport
from sluggish.facts.host import Stack, StackFrame
from sluggish.facts.origin import Origin
from sluggish.probes import flight_recorder, nccl_ras, stacks

CAPTURES = Path(__file__).parent / "captures"
A = Origin(sample="a")


def ras(text: str) -> list:
    return list(nccl_ras.parse(text, A))


def capture(name: str) -> str:
    text = (CAPTURES / name).read_text()
    assert nccl_ras.sniff(text.encode()) == name.startswith("nccl_ras")
    return text


def of(kind: type, facts: list) -> list:
    return [f for f in facts if isinstance(f, kind)]


def test_public_ras_json_is_read():
    facts = ras(capture("nccl_ras/docs-json-2.29.1.json"))
    (report,) = of(RasReport, facts)
    assert (report.version, report.communicators, report.processes) == ("2.29.1", 1, 2)
    assert report.unresponsive == (("172.16.64.245", 1524345),)
    first, gone = of(RasRank, facts)
    assert (first.comm, first.size, first.pid, first.state) == (
        "ae94423cfbb2ef4a", 2, 1524344, "running",
    )  # fmt: skip
    assert first.counts == (
        ("AllGather", 0), ("AllReduce", 0), ("Broadcast", 0), ("Reduce", 0), ("ReduceScatter", 0),
    )  # fmt: skip
    assert (gone.rank, gone.state, gone.counts) == (1, "unresponsive", ())


def test_a_public_mismatch_is_read_with_its_late_ranks():
    facts = ras(capture("nccl_ras/docs-mismatch.txt"))
    (report,) = of(RasReport, facts)
    assert (report.complete, report.processes, report.communicators) == (True, 32, 1)
    (counts,) = of(RasCounts, facts)
    assert (counts.comm, counts.size, counts.op) == ("27a079b828ff1a75", 32, "")
    assert counts.rows == ((6649, 6, (0, 2, 3, 4, 5, 7)), (6650, 26, ()))


def test_a_public_incomplete_answer_tells_who_did_not_respond():
    facts = ras(capture("nccl_ras/docs-incomplete.txt"))
    (report,) = of(RasReport, facts)
    assert report.unresponsive == (("172.16.64.213", 3487984),)
    assert (report.timeouts, report.dead) == (2, ())
    assert [(r.rank, r.state) for r in of(RasRank, facts)] == [(21, "missing")]


PER_OPERATION = """\
NCCL version 2.27.7 compiled with CUDA 12.9

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         8        16        16   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (0a3b) MISMATCH
  Communicator ranks have different ReduceScatter operation counts
  15 ranks have launched up to operation 500
  Rank 3 has launched up to operation 499 -- GPU 3 managed by process 77 on node 10.0.0.1

  Communicator ranks have different AllReduce operation counts
  15 ranks have not launched any operations
  Rank 3 has launched up to operation 1 -- GPU 3 (NVML 5) managed by process 77 on node 10.0.0.1

"""


def test_counts_of_each_operation_are_told_apart():
    facts = ras(PER_OPERATION)
    assert [(c.op, c.rows) for c in of(RasCounts, facts)] == [
        ("ReduceScatter", ((499, 1, (3,)), (500, 15, ()))),
        ("AllReduce", ((0, 15, ()), (1, 1, (3,)))),
    ]
    assert of(RasRank, facts)[1].nvml_device == 5
    assert of(RasReport, facts)[0].version == "2.27.7"


def test_a_text_that_is_cut_short_is_not_complete():
    for end in (600, 760, 900):
        (report,) = of(RasReport, ras(PER_OPERATION[:end]))
        assert report.complete is False


def test_the_missing_comma_of_2_28_9_is_put_in():
    good = capture("nccl_ras/docs-json-2.29.1.json")
    row = '{"rank": 1, "host": "h", "pid": 5, "status": {"unresponsive": true}}'
    start = good.index('"missing_ranks": [') + len('"missing_ranks": [')
    bad = good[:start] + row.replace("1,", "2,", 1) + "\n        " + good[start:]
    assert [r.rank for r in of(RasRank, ras(bad))] == [0, 2, 1]


def test_json_that_is_cut_short_says_so():
    with pytest.raises(ValueError, match="cut short or malformed"):
        ras(capture("nccl_ras/docs-json-2.29.1.json")[:500])


def test_the_words_of_the_protocol_are_no_part_of_the_answer():
    assert of(RasReport, ras("SERVER PROTOCOL 2\nOK\n" + PER_OPERATION))[0].complete
    with pytest.raises(ValueError, match="RAS answered"):
        ras("ERROR: Unknown command\n")


@pytest.mark.parametrize("text", ["", "junk", "{}", "[1]", '{"communicators": 3}', "Job"])
def test_other_text_is_not_ras(text):
    with pytest.raises(ValueError, match="expected"):
        ras(text)


@given(st.text(max_size=300))
@settings(max_examples=100)
def test_arbitrary_text_gives_facts_or_a_value_error(text):
    for lead in (
        "",
        "Job summary\n===\n",
        PER_OPERATION[:820],
        '{"communicators": [',
        "Thread 1 (",
    ):
        for probe in (nccl_ras, stacks):
            try:
                list(probe.parse(lead + text, A))
            except ValueError:
                continue


PYSPY = """\
Process 73: /usr/bin/python3.11 train.py --steps 9
Python v3.11.8 (/usr/bin/python3.11)

Thread 73 (idle): "MainThread"
    select (selectors.py:415)
    wait (multiprocessing/connection.py:947)
    <module> (<string>:1)
"""


def test_a_dump_of_py_spy_is_read():
    assert stacks.sniff(PYSPY.encode())
    (one,) = stacks.parse(PYSPY, Origin(rank=2))
    assert (one.pid, one.rank, one.thread, one.main) == (73, 2, "MainThread", True)
    assert one.frames[0] == StackFrame(function="select", file="selectors.py", line=415)
    assert one.frames[-1] == StackFrame(function="<module>", file="<string>", line=1)


FAULT = """\
Current thread 0x00007f32b77fe6c0 (most recent call first):
  File "/opt/train/train.py", line 145 in dumper
  File "/usr/lib/python3.11/threading.py", line 982 in run

Thread 0x00007f32dce70b80 (most recent call first):
  File "/v/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/opt/train/train.py", line 56 in <lambda>
  File "<string>", line 1 in <module>
"""


def test_faulthandler_prints_the_main_thread_last():
    other, main = stacks.parse(FAULT, Origin(rank=1))
    assert (other.main, main.main, main.active, main.source) == (False, True, None, "faulthandler")
    assert main.frames[1] == StackFrame(function="<lambda>", file="/opt/train/train.py", line=56)


NATIVE = """\
Process 99: python train.py
Python v3.12.3 (/usr/bin/python3.12)

Thread 99 (idle): "MainThread"
    pthread_cond_wait (libc.so.6)
    std::condition_variable::wait (libstdc++.so.6.0.33)
    0x7caaa50b1a9b (?)
    all_gather_into_tensor (torch/distributed/distributed_c10d.py:4193)
Thread 100 (active+gil): "pin_memory"
    run (threading.py:1010)
Process 101: python worker.py

Thread 101 (idle): "MainThread"
    poll (selectors.py:1)
"""


def test_several_processes_and_native_frames_are_read():
    found = list(stacks.parse(NATIVE, Origin()))
    assert [(s.pid, s.thread, s.active) for s in found] == [
        (99, "MainThread", False), (99, "pin_memory", True), (101, "MainThread", False),
    ]  # fmt: skip
    assert [f.function for f in found[0].frames][:2] == [
        "pthread_cond_wait", "std::condition_variable::wait",
    ]  # fmt: skip
    assert found[0].frames[0] == StackFrame(function="pthread_cond_wait", file="libc.so.6")


SHORTENED = """\
Thread (idle): "MainThread"
  wait (threading.py:324)
  get (queue.py:180)
Thread (idle): "Thread-2 (_pin_memory_loop)"
  select (selectors.py:415)
"""
GDB = """\
Thread 2 (Thread 0x7f8a1bfff640 (LWP 5120) "cuda-EvtHandlr"):
#0  0x00007f8a9cf1a0bf in poll () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x00007f8a77b2c51f in ?? () from /lib/x86_64-linux-gnu/libcuda.so.1

Thread 1 (Thread 0x7f8a9d2ff740 (LWP 5117) "python"):
#0  0x00007f8a5c345678 in ncclProxyPost (pool=0x55d0, nextOps=3) at proxy.cc:411
#1  c10d::Work::wait(std::chrono::duration<long>) () from /v/torch/lib/libtorch_cpu.so
"""
KERNEL = """\
[<0>] rpc_wait_bit_killable+0x24/0xb0 [sunrpc]
[<0>] nfs4_call_sync_sequence+0x62/0xa0 [nfsv4]
[<ffffffff81a00107>] entry_SYSCALL_64_after_hwframe+0x61/0xc6
"""


def test_a_dump_without_its_head_and_numbers_is_read():
    assert stacks.sniff(SHORTENED.encode())
    main, other = stacks.parse(SHORTENED, Origin())
    assert (main.main, main.pid, [f.function for f in main.frames]) == (True, None, ["wait", "get"])
    assert (other.main, other.thread) == (False, "Thread-2 (_pin_memory_loop)")


def test_a_backtrace_of_gdb_is_read_and_thread_1_is_the_process():
    assert stacks.sniff(GDB.encode())
    other, main = stacks.parse(GDB, Origin())
    assert (main.main, main.pid, main.thread, main.source) == (True, 5117, "python", "gdb")
    assert main.frames[0] == StackFrame(function="ncclProxyPost", file="proxy.cc", line=411)
    assert main.frames[1].function == "c10d::Work::wait"
    assert (other.main, other.pid, other.frames[0].function) == (False, None, "poll")
    (bare,) = stacks.parse("\n".join(GDB.splitlines()[1:3]), Origin())
    assert (bare.main, len(bare.frames)) == (True, 2)


def test_a_kernel_stack_is_read_with_its_modules():
    assert stacks.sniff(KERNEL.encode())
    (stack,) = stacks.parse(KERNEL, Origin())
    assert (stack.source, stack.main) == ("kernel", True)
    assert stack.frames[0] == StackFrame(function="rpc_wait_bit_killable", file="sunrpc")
    assert len(stack.frames) == 3


def test_a_job_log_that_quotes_a_backtrace_is_no_stack():
    quoted = "starting\n" * 9 + GDB
    assert not stacks.sniff(quoted.encode())


def test_text_without_a_thread_is_no_stack():
    with pytest.raises(ValueError, match="expected stacks"):
        list(stacks.parse("Traceback (most recent call last):\n", A))
    assert not stacks.sniff(b"Thread 1 (idle) was mentioned")
    assert isinstance(next(stacks.parse(FAULT, A)), Stack)


def test_a_public_dump_of_the_recorder_is_read():
    content = (CAPTURES / "flight_recorder/tutorial-2.5.json").read_bytes()
    assert flight_recorder.sniff(content)
    record, head = flight_recorder.parse(content, Origin(rank=0))
    assert isinstance(head, GroupHead)
    assert (record.version, head.group.ranks) == ("2.5", (0, 1))
    assert (head.last_enqueued, head.last_completed, head.pending) == (2, 2, ())
    assert head.arrivals == (1, 1724779239936775119, 1724779239975811724)


def test_a_public_faulthandler_report_is_read():
    text = (CAPTURES / "stacks/cpython_faulthandler.txt").read_text()
    assert stacks.sniff(text.encode())
    (found,) = stacks.parse(text, Origin())
    assert [frame.function for frame in found.frames] == ["string_at", "<module>"]
    assert (found.frames[0].line, found.main, found.source) == (486, True, "faulthandler")
