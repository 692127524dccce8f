"""A few lines, as somebody mails them: what is said of them, and that nothing more is.

Every line here is made up in the shape that the program prints. Each case gives the loose files,
the causes that a specialist would accept, and where it matters the place or a word of the answer.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from sluggish.causes import Cause, Level
from sluggish.diagnose import diagnose
from sluggish.evidence.open import load
from sluggish.findings import Role
from sluggish.probes import PROBES
from sluggish.verdict.model import Diagnosis


@dataclass(frozen=True)
class Case:
    """One mail: the text of each file, and what must come of it."""

    files: dict[str, str]
    causes: tuple[Cause, ...]
    place: object = None
    """A rank, node, GPU address or HCA that the verdict must accuse."""
    says: str = ""
    """Words that stand in a finding."""
    unread: bool = False


def log(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"job.log": text}, causes, place, says)


def kernel(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"dmesg.txt": text}, causes, place, says)


def file(text: str, *causes: Cause, says: str = "", place: object = None) -> Case:
    return Case({"mailed.txt": text}, causes, place, says)


GPU, IB, DESYNC, DATA, MEMORY = (
    Cause.GPU_FAULT, Cause.IB_FAULT, Cause.RANK_DESYNC, Cause.DATA_STALL, Cause.MEMORY,
)  # fmt: skip
CRASH, CONFIG, DOWN, ENDED, UNKNOWN = (
    Cause.APP_CRASH, Cause.CONFIG, Cause.NODE_DOWN, Cause.NOT_RUNNING, Cause.UNKNOWN,
)  # fmt: skip

KERNEL: dict[str, Case] = {
    "a stamp whose fraction was cut": kernel(
        "[2044.61] NVRM: Xid (PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, "
        "GPU has fallen off the bus.",
        GPU, place="0000:2a:00.0",
    ),
    "an address that was left out": kernel(
        "kernel: NVRM: Xid (PCI:...): 79, pid=4242, name=python, GPU has fallen off the bus.",
        GPU, says="Xid 79",
    ),
    "an address that was masked": kernel(
        "NVRM: Xid (PCI:xxxx:xx:00): 95, pid=4242, name=python, Uncontained: LTC TAG (0x2,0x0). "
        "RST: Yes, D-RST: No",
        GPU, says="Xid 95",
    ),
    "an oom-kill without its stamp": kernel(
        "Out of memory: Killed process 9914 (pt_data_worker) total-vm:8123122kB, "
        "anon-rss:3123122kB, file-rss:0kB, shmem-rss:8kB, UID:1000 pgtables:99kB oom_score_adj:0",
        MEMORY,
    ),
    "an oom-kill in a pod": kernel(
        "[Mon Mar  9 10:00:00 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),"
        "cpuset=aa,mems_allowed=0,oom_memcg=/kubepods.slice/pod1,task_memcg=/kubepods.slice/"
        "pod1/aa,task=python3,pid=123,uid=0\n"
        "[Mon Mar  9 10:00:00 2026] Memory cgroup out of memory: Killed process 123 (python3) "
        "total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        MEMORY,
    ),
    "an oom-kill of a service": kernel(
        "[Mon Mar  9 10:00:00 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),"
        "cpuset=/,mems_allowed=0,oom_memcg=/system.slice/agent.service,task_memcg=/system.slice/"
        "agent.service,task=python3,pid=123,uid=0\n"
        "[Mon Mar  9 10:00:00 2026] Memory cgroup out of memory: Killed process 123 (python3) "
        "total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB",
        UNKNOWN, says="not a process of the job",
    ),
    "a fatal error on a GPU's bus": kernel(
        "[ 7711.100010] nvidia 0000:41:00.0: AER: PCIe Bus Error: severity=Uncorrected (Fatal), "
        "type=Inaccessible, (Unregistered Agent ID)",
        GPU, place="0000:41:00.0", says="fatal PCIe error",
    ),
    "a corrected error on a GPU's bus": kernel(
        "[ 7711.100010] nvidia 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical "
        "Layer, (Receiver ID)",
        UNKNOWN,
    ),
    "a video engine's exception": kernel(
        "[ 411.101010] NVRM: Xid (PCI:0000:1b:00): 68, pid=9211, name=ffmpeg, NVDEC0 exception",
        UNKNOWN, CRASH, says="Xid 68",
    ),
    "a hung nvidia-smi": kernel(
        "INFO: task nvidia-smi:7171 blocked for more than 120 seconds.\n"
        "task:nvidia-smi      state:D stack:    0 pid: 7171 ppid:  7001 flags:0x00000004\n"
        "Call Trace:\n os_acquire_rwlock_write+0x35/0x50 [nvidia]",
        GPU, UNKNOWN, says="nvidia-smi",
    ),
    "a firmware error of an HCA": kernel(
        "[ 911.61] mlx5_core 0000:5a:00.0: mlx5_health_try_recover: handling bad device here\n"
        "[ 911.62] mlx5_core 0000:5a:00.0: print_health_info:423:(pid 0): Health issue observed, "
        "firmware internal error, severity(3) ERROR:",
        IB,
    ),
}  # fmt: skip

ELASTIC = """\
[2026-03-08 10:01:02,345] torch.distributed.elastic.multiprocessing.api: [ERROR] failed \
(exitcode: 1) local_rank: 2 (pid: 4417) of binary: /opt/env/bin/python
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-03-08_10:01:02
  host      : gpu-05
  rank      : 10 (local_rank: 2)
  exitcode  : 1 (pid: 4417)
  error_file: <N/A>"""

ENDS: dict[str, Case] = {
    "torchrun's report with no exception in it": log(ELASTIC, CRASH, place=10),
    "SIGKILL that nobody explains": log(
        "E0308 10:01:02.345678 2211 torch/distributed/elastic/multiprocessing/api.py:869] failed "
        "(exitcode: -9) local_rank: 5 (pid: 2266) of binary: /usr/bin/python3",
        MEMORY, says="kernel log only",
    ),
    "a loader worker killed by SIGKILL": log(
        "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed.", MEMORY,
    ),
    "a loader worker with full shared memory": log(
        "RuntimeError: DataLoader worker (pid 812) is killed by signal: Bus error. It is possible "
        "that dataloader's workers are out of shared memory. Please try to raise your shared "
        "memory limit.",
        CONFIG, says="/dev/shm",
    ),
    "a loader worker that crashed": log(
        "ERROR: Unexpected segmentation fault encountered in worker.\n"
        "RuntimeError: DataLoader worker (pid(s) 7712) exited unexpectedly",
        CRASH, says="segmentation fault",
    ),
    "a batch that came too late": log("RuntimeError: DataLoader timed out after 90 seconds", DATA),
    "a loader that raised from its queue": log(
        "Traceback (most recent call last):\n"
        '  File "/e/torch/utils/data/dataloader.py", line 1132, in _try_get_data\n'
        "    raise Empty\n_queue.Empty\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "train.py", line 5, in <module>\n'
        "    for b in loader:\n"
        "RuntimeError: DataLoader worker (pid(s) 1111) exited unexpectedly",
        DATA,
    ),
    "a call that was not answered in time": log(
        "TimeoutError: RPC call to execute_model timed out.", UNKNOWN,
    ),
    "a store that some never came to": log(
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 3, "
        "for key: store_based_barrier_key:1 (world_size=16, worker_count=12, timeout=0:30:00)",
        DESYNC, says="12 of 16",
    ),
    "DeepSpeed's launcher": log(
        "[2026-03-08 10:11:12,123] [ERROR] [launch.py:322:sigkill_handler] ['python', 'train.py'] "
        "exits with return code = -9",
        MEMORY,
    ),
    "a stale file handle": log(
        "[rank4]: OSError: [Errno 116] Stale file handle: '/data/part-0012.arrow'", DATA, place=4,
    ),
    "an exception alone, of a user's module": log(
        "my_code.errors.ShapeError: expected 3 columns, found 2", CRASH, says="ShapeError",
    ),
    "Slurm's time limit": log(
        "slurmstepd: error: *** JOB 4711 ON gpu-05 CANCELLED AT 2026-03-08T10:00:00 "
        "DUE TO TIME LIMIT ***",
        UNKNOWN, ENDED, says="at its time limit",
    ),
    "timeouts without a collective's record": log(
        "[E ProcessGroupNCCL.cpp:490] Some NCCL operations have failed or timed out. Due to the "
        "asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
        "corrupted/incomplete data.",
        UNKNOWN, says="its record, WorkNCCL(...), is not in what was given",
    ),
}  # fmt: skip

CUDA: dict[str, Case] = {
    "an illegal access that only the watchdog printed": log(
        "[rank3]:[E308 10:10:10.101010101 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 3] "
        "Process group watchdog thread terminated with exception: CUDA error: an illegal memory "
        "access was encountered",
        CRASH, place=3,
    ),
    "a fabric that is not up": log(
        "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet "
        "initialized",
        UNKNOWN, says="the kernel log decides",
    ),
    "an error that may be the link's or the program's": log(
        "RuntimeError: CUDA error: Invalid access of peer GPU memory over nvlink or a hardware "
        "error",
        UNKNOWN, says="the kernel log decides",
    ),
    "a library that failed inside": log(
        "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", UNKNOWN,
        says="the kernel log decides",
    ),
    "a driver that is too old": log(
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).", CONFIG,
        says="older than",
    ),
    "a lost GPU that the container runtime met": log(
        "nvidia-container-cli: detection error: nvml error: gpu is lost: unknown", GPU,
    ),
    "a container runtime with another driver": log(
        "nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: "
        "unknown",
        CONFIG, says="differ",
    ),
}  # fmt: skip

START: dict[str, Case] = {
    "a rendezvous behind a firewall": log(
        "[W socket.cpp:663] [c10d] The client socket has failed to connect to [gpu-01]:29500 "
        "(errno: 113 - No route to host).\n"
        "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to "
        "connect to (gpu-01, 29500).",
        CONFIG, says="cannot be reached",
    ),
    "a rendezvous that nobody answers": log(
        "[E socket.cpp:957] [c10d] The client socket has timed out after 60s while trying to "
        "connect to (gpu-01, 29500).",
        DESYNC, UNKNOWN,
    ),
    "a name that is not known": log(
        "[W socket.cpp:697] [c10d] The IPv4 network addresses of (gpu-01, 29500) cannot be "
        "retrieved (gai error: -2 - Name or service not known).",
        CONFIG, says="not known",
    ),
    "the same of IPv6, where all may be well": log(
        "[W socket.cpp:697] [c10d] The IPv6 network addresses of (gpu-01, 29500) cannot be "
        "retrieved (gai error: -2 - Name or service not known).",
        UNKNOWN,
    ),
    "a port that is taken": log(
        "RuntimeError: The server socket has failed to listen on any local network address. The "
        "server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        CONFIG, says="is taken",
    ),
    "a docker bridge": log(
        "gpu-01:4101:4201 [0] include/socket.h:409 NCCL WARN Connect to 172.17.0.1<43211> failed "
        ": Connection refused",
        CONFIG, says="bridge",
    ),
    "a firewall that drops": log(
        "gpu-01:4101:4201 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: connect to "
        "10.3.0.9<40961> returned 110(Connection timed out)",
        CONFIG, says="not reachable",
    ),
    "ranks that count differently": log(
        "gpu-09:771:801 [0] bootstrap.cc:180 NCCL WARN Bootstrap Root : mismatch in rank count "
        "from procs 16 : 8",
        CONFIG, says="how many",
    ),
    "a container that did not start": log(
        "slurmstepd: error: pyxis: container start failed with error code: 1\n"
        "srun: error: gpu-05: task 3: Exited with exit code 1",
        CONFIG, CRASH, says="container",
    ),
    "too many files": log(
        "RuntimeError: Too many open files. Communication with the workers is no longer possible.",
        CONFIG, says="ulimit -n",
    ),
    "a registration that failed without a reason": log(
        "gpu-09:771:801 [0] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_reg_mr failed", CONFIG,
    ),
    "sockets on one node, HCAs on the other": log(
        "gpu-09:771:801 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB ib0:10.0.0.1<0>\n"
        "gpu-10:771:801 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>",
        CONFIG, place="gpu-10",
    ),
}  # fmt: skip

FABRIC: dict[str, Case] = {
    "status 12 of a host that is not named": log(
        ":4654:5666 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer "
        "10.3.0.61<39430> with error 12, opcode 129, len 0, vendor err 129 (Recv)",
        IB, says="no answer from 10.3.0.61",
    ),
    "a retry count of UCX": log(
        "[1789000000.123456] [gpu-09:8812 :0] ib_mlx5_log.c:177  UCX  ERROR Transport retry count "
        "exceeded on mlx5_0:1/IB (synd 0x15 vend 0x81 hw_synd 0/0)",
        IB, UNKNOWN,
    ),
    "a port that differs between three readings of rdma link": file(
        "link mlx5_4/1 state DOWN physical_state POLLING netdev ens4np0\n"
        "link mlx5_4/1 state DOWN physical_state LINK_UP netdev ens4np0\n"
        "link mlx5_4/1 state ACTIVE physical_state LINK_UP netdev ens4np0",
        IB, place="mlx5_4", says="it flaps",
    ),
    "disabled ports": file(
        "Infiniband device 'mlx5_7' port 1 status:\n\tstate:\t\t 1: DOWN\n"
        "\tphys state:\t 3: Disabled\n\trate:\t\t 10 Gb/sec (4X SDR)\n"
        "\tlink_layer:\t InfiniBand",
        UNKNOWN, says="Disabled, ignored",
    ),
}  # fmt: skip

SETTINGS: dict[str, Case] = {
    "the one line of lspci that matters": file(
        "\t\tACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- "
        "DirectTrans-",
        CONFIG, says="ACS",
    ),
}  # fmt: skip

SMI: dict[str, Case] = {
    "a row of the table with errors": file(
        "|   3  NVIDIA A100-SXM4-80GB          Off | 00000000:4D:00.0 Off |                ERR! |\n"
        "|ERR!  ERR! ERR!             ERR! / ERR!  |     0MiB / 81920MiB |    ERR!      Default |",
        GPU, UNKNOWN, place="0000:4d:00.0",
    ),
    "remapped rows as CSV prints them": file(
        "gpu_uuid, remapped_rows.correctable, remapped_rows.uncorrectable, remapped_rows.pending, "
        "remapped_rows.failure\n"
        "GPU-11111111-2222-3333-4444-555555555556, 0, 8, 0, 1",
        GPU, says="row remapping failed",
    ),
}  # fmt: skip

STACKS: dict[str, Case] = {
    "a loader's queue, by py-spy": file(
        'Thread (idle): "MainThread"\n    wait (threading.py:359)\n    get (queue.py:180)\n'
        "    _try_get_data (torch/utils/data/dataloader.py:1310)\n"
        "    _next_data (torch/utils/data/dataloader.py:1524)\n"
        "    __next__ (torch/utils/data/dataloader.py:741)",
        DATA,
    ),
    "a barrier, by py-spy": file(
        "Process 77: python train.py\nPython v3.11.4 (/usr/bin/python3.11)\n\n"
        'Thread 77 (active): "MainThread"\n'
        "    barrier (torch/distributed/distributed_c10d.py:3703)\n"
        "    save (train.py:140)\n    <module> (train.py:230)",
        UNKNOWN, says="waits in a collective, called at train.py:140",
    ),
    "rows of ps aux with dead children": file(
        "bob         58 51.7  0.0      0     0 ?        Z    14:27  26:20 [python] <defun\n"
        "bob         60 52.0  2.4 91147008 1604628 ?    Sl   14:27  26:31 python -m train",
        DATA, says="zombies",
    ),
    "a proxy without a slot, by gdb": file(
        'Thread 1 (Thread 0x7f8a3c1ff740 (LWP 4411) "python"):\n'
        "#0  0x00007f8a12345678 in ncclLocalOpAppend () from /usr/lib/libnccl.so.2\n"
        "#1  0x00007f8a12345699 in SaveProxy () from /usr/lib/libnccl.so.2",
        CONFIG, says="2.29.3",
    ),
    "a kernel stack in NFS": file(
        "[<0>] rpc_wait_bit_killable+0x24/0xb0 [sunrpc]\n"
        "[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n[<0>] vfs_read+0x9d/0x150",
        DATA,
    ),
}  # fmt: skip


def timed_out(rank: int, seq: int, op: str, size: int) -> str:
    return (
        f"[rank{rank}]:[E308 11:02:03.123456789 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, "
        f"NumelOut={size}, Timeout(ms)=600000) ran for 600011 milliseconds before timing out."
    )


RAS = """\
NCCL version 2.26.2 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

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

Warnings
========

#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllReduce operation counts
  14 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.0.2.24
  Rank 13 -- GPU 5 managed by process 323033 on node 10.0.2.24
"""

COLLECTIVES: dict[str, Case] = {
    "two ranks at one number in two operations": log(
        timed_out(0, 77, "ALLREDUCE", 1024) + "\n" + timed_out(1, 77, "BROADCAST", 1024),
        DESYNC, says="neither side is blamed",
    ),
    "ranks at other numbers of groups that are not named": log(
        "\n".join(timed_out(r, 500, "BROADCAST", 99) for r in (1, 2)) + "\n"
        + timed_out(0, 502, "_ALLGATHER_BASE", 513),
        UNKNOWN, DESYNC, says="all_gather [513] #502 (rank 0)",
    ),
    "a rank that waits and a rank whose queue is empty, posted by a person": log(
        "[Rank N] Watchdog caught collective operation timeout:\n"
        "  WorkNCCL(SeqNum=..., OpType=_ALLGATHER_BASE, NumelIn=17, NumelOut=68,\n"
        "           Timeout(ms)=600000) ran for 600000+ ms before timing out.\n"
        "[Rank 2] Last enqueued NCCL work: 936, last completed 936",
        DESYNC, place=2,
    ),
    "a barrier that one rank did not reach": log(
        "RuntimeError: Rank 5 failed to pass monitoredBarrier in 1800000 ms", DESYNC, place=5,
    ),
    "a watchdog that is stuck itself": log(
        "[rank4]:[E308 18:11:06.375750231 ProcessGroupNCCL.cpp:1870] [PG ID 12 PG GUID 99 Rank 4] "
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
        "monitoring enqueued collectives.",
        UNKNOWN, says="the watchdog thread itself does not move on rank 4",
    ),
    "the part of RAS that tells the trouble": file(
        RAS[RAS.index("#0-0"):], UNKNOWN, says="2 at #641 (ranks 12-13)",
    ),
    "one answer of RAS": file(RAS, UNKNOWN, says="2 at #641 (ranks 12-13); the lowest count"),
}  # fmt: skip

CASES = {**COLLECTIVES, **KERNEL, **ENDS, **CUDA, **START, **FABRIC, **SETTINGS, **SMI, **STACKS}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_fragment_is_read_as_a_specialist_reads_it(case: Case, tmp_path: Path) -> None:
    found = look(case, tmp_path)
    verdict = found.verdict
    assert verdict.cause in case.causes, verdict.says
    assert verdict.confidence.level is not Level.HIGH, "one fragment proves nothing alone"
    assert not verdict.drain_nodes
    if case.place is not None and verdict.cause is not UNKNOWN:
        places = [(c.rank, c.node, c.gpu_pci, c.hca) for c in verdict.culprits]
        assert any(case.place in place for place in places), places
    told = [f for f in found.findings if f.role is not Role.ALL_CLEAR]
    assert any(case.says in f.says or case.says in f.quote for f in told) or not case.says
    assert bool(found.unread) is case.unread, found.unread
    if verdict.cause is UNKNOWN:
        assert verdict.next_probe


def look(case: Case, folder: Path) -> Diagnosis:
    for name, text in case.files.items():
        (folder / name).write_text(text + "\n")
    return diagnose(load([str(folder)], PROBES))
