"""The job's output: start, NCCL's init lines, training progress, watchdog, tracebacks, Slurm.

Forms: NCCL src/debug.cc and init.cc 2.27; ProcessGroupNCCL.cpp and its log prefix of PyTorch 2.9;
srun and slurmstepd of Slurm 23.11. These functions write into World.log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..clock import at, glog, logging, slurm
from ..flight_recorder import Call
from ..world import Node, Rank, World
from .collective import Comm
from .noise import noisy

OP_TYPES = {
    "all_reduce": "ALLREDUCE", "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE", "coalesced": "COALESCED",
    "broadcast": "BROADCAST", "all_reduce_barrier": "ALLREDUCE",
}  # fmt: skip


def text(world: World) -> str:
    lines = sorted(((t, k, s) for k, (t, s) in enumerate(world.log) if t <= world.taken_at - 30))
    return noisy("".join(s for _, _, s in lines), world.noise, world.name)


def lead(world: World, rank: Rank | int) -> str:
    """What the launcher puts in front of a rank's line."""
    number = rank if isinstance(rank, int) else rank.rank
    return f"{number}: " if world.launch == "srun-l" else ""


def start(world: World) -> None:
    """The first lines of the batch script and of Python."""
    t, zone = world.job_started, world.nodes[0].zone_s
    nodes = " ".join(n.name for n in world.nodes[:4]) + (" ..." if len(world.nodes) > 4 else "")
    world.say(t + 1, f"[{slurm(t + 1, zone)}] job {world.job_id} on {nodes}")
    world.say(t + 9, lead(world, 0) + f"{logging(t + 9, zone)} - train - INFO - world size "
              f"{len(world.ranks)}, {world.model.product}, torch {world.torch}")  # fmt: skip
    world.say(t + 9.4, lead(world, 0)
              + f"{logging(t + 9.4, zone)} - train - WARNING - tokenizers: process forked after "
              "parallelism was used, disabling parallelism")  # fmt: skip


def nccl_init(world: World, comms: Iterable[Comm] = (), *, ranks: set[int] | None = None) -> None:
    """NCCL_DEBUG=INFO: what every rank prints once, then a START and a COMPLETE a communicator."""
    t = world.job_started + 21
    world.say(t, lead(world, 0) + f"NCCL version {world.nccl}+cuda{world.cuda}")
    for rank in world.ranks:
        if ranks is not None and rank.rank not in ranks:
            continue
        say = _speaker(world, rank)
        for name, value in {**world.env, **rank.node.env}.items():
            if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"):
                say(t + 0.1, f"{name} set by environment to {value}", main=True)
        say(t + 0.1, f"Bootstrap: Using ens41f0np0:{rank.node.addr}<0>", main=True)
        say(t + 0.2, "cudaDriverVersion " + str(int(float(world.cuda) * 1000)), main=True)
        names = rank.hcas
        if names is None:
            names = [p.hca for p in rank.node.ports if p.rail is not None]
        if world.fabric == "EFA":
            say(t + 0.4, "NET/OFI Initializing aws-ofi-nccl 1.17.2")
            say(t + 0.5, "NET/OFI Selected provider is efa, fabric is efa-direct (found "
                f"{len(names)} nics)")  # fmt: skip
            say(t + 0.6, "Using network Libfabric")
            continue
        if world.fabric == "CXI":
            say(t + 0.5, f"NET/OFI Selected Provider is cxi (found {len(names)} nics)")
            say(t + 0.6, "Using network AWS Libfabric")
            continue
        using = " ".join(f"[{k}]{h}:1/{world.fabric}" for k, h in enumerate(names))
        say(t + 0.5, f"NET/IB : Using {using} [RO]; OOB ens41f0np0:{rank.node.addr}<0>")
        say(t + 0.6, "Using network IB")
    for k, comm in enumerate(comms):
        init_lines(world, comm, t + 1 + k * 4, ranks=ranks)


def init_lines(world: World, comm: Comm, t: float, *, ranks: set[int] | None = None) -> None:
    """Init START, some channels, Init COMPLETE of one communicator."""
    size = len(comm.group.ranks)
    for position, r in enumerate(comm.group.ranks):
        rank = world.ranks[r]
        if ranks is not None and r not in ranks:
            continue
        say = _speaker(world, rank)
        bus = rank.gpu.pci[5:].replace(":", "").replace(".", "").lstrip("0")
        pointer = 0x5500_0000_0000 + (comm.hash ^ (r * 0x9E3779B1)) % 0xFF_FFFF_FFF0
        tail = (
            f"comm 0x{pointer:x} rank {position} nranks {size} cudaDev {rank.local} "
            f"nvmlDev {rank.local} busId {bus} commId 0x{comm.hash:x}"
        )
        say(t + 0.01 * position, f"ncclCommInitRankConfig {tail} - Init START")
        if comm.initialising:
            continue
        nxt = (position + 1) % size
        other = world.ranks[comm.group.ranks[nxt]]
        if size > 1 and other.node is not rank.node:
            say(t + 1.6, f"Channel 00/0 : {position}[{rank.local}] -> {nxt}[{other.local}] "
                f"[send] via NET/{_net(world)}/{rank.local}/GDRDMA")  # fmt: skip
        say(t + 1.9, "Connected all rings, use ring PXN 0 GDR 1")
        say(t + 2.2 + 0.003 * position, f"ncclCommInitRankConfig {tail} - Init COMPLETE")


def _net(world: World) -> str:
    return {"EFA": "Libfabric", "CXI": "AWS Libfabric"}.get(world.fabric, "IB")


def _speaker(world: World, rank: Rank) -> Callable[..., None]:
    def say(t: float, words: str, *, main: bool = False) -> None:
        tid = rank.pid if main else rank.pid + 187
        head = f"{lead(world, rank)}{rank.node.name}:{rank.pid}:{tid} [{rank.local}]"
        world.say(t, f"{head} NCCL INFO {words}")

    return say


def warn(world: World, t: float, rank: Rank, where: str, words: str) -> None:
    """A WARN line: a blank line before it, a time stamp from NCCL 2.26 on."""
    stamp = ""
    if tuple(map(int, world.nccl.split("."))) >= (2, 26):
        stamp = f"[{at(t + rank.node.offset_s, rank.node.zone_s):%Y-%m-%d %H:%M:%S}] "
    world.say(t, f"\n{lead(world, rank)}{stamp}{rank.node.name}:{rank.pid}:{rank.pid + 311} "
              f"[{rank.local}] {where} NCCL WARN {words}")  # fmt: skip


def async_event(world: World, t: float, node: Node, words: str) -> None:
    """Every process of the node listens to every HCA: all eight print it, with device 0."""
    for k, rank in enumerate(r for r in world.ranks if r.node is node):
        zero = replace(rank, local=0)
        warn(world, t + 0.0003 * k, zero, "transport/net_ib.cc:179", f"NET/IB : {words}")


def ofi_error(world: World, t: float, rank: Rank, peer: Node) -> None:
    """EFA's provider lost a peer that answered before, as the plugin prints it.

    Words: ofiwg/libfabric prov/efa/src/efa_errno.h; form: aws/aws-ofi-nccl issue 346 and logs.
    """
    mine, theirs = (f"i-0{n.number + 7:016x}" for n in (rank.node, peer))
    head = f"{lead(world, rank)}{rank.node.name}:{rank.pid}:{rank.pid + 201} [{rank.local}] "
    world.say(t, head + "int cm_req_handle_error_entry(nccl_net_ofi_context_t*, fid_cq*, "
              "fi_cq_err_entry*, uint16_t):46 NCCL WARN NET/OFI Request 0x7f456c222f60 completed "
              "with error. RC: 103. Error: 4124 (Unresponsive receiver (connection previously "
              "established) My EFA addr: fi_addr_efa://[fe80::c55:2eff:fe44:db5]:0:142160333 My "
              f"host id: {mine} Peer EFA addr: fi_addr_efa://[fe80::454:14ff:fedd:d5b3]:0:8259577 "
              f"Peer host id: {theirs}). Completed length: 0, Request: {{ dev: {rank.local}, size: "
              "524288, state: PENDING, type: SEND }")  # fmt: skip


def completion_error(world: World, t: float, rank: Rank, peer: Node, hca: str, port: int) -> None:
    """Status 12, native InfiniBand, NCCL 2.22 to 2.28.3."""
    warn(
        world, t, rank, "transport/net_ib.cc:2244",
        f"NET/IB: Got completion from peer {peer.addr}<{port}> with status=12 opcode=0 len=0 "
        f"vendor err 129 (Recv) hca {hca}",
    )  # fmt: skip


def progress(world: World, until: float, *, every: int = 10, count: int = 40) -> None:
    """Training steps up to `until`; the last line's step is World.step_at_stall or just below."""
    zone = world.nodes[0].zone_s
    last = world.step_at_stall
    first = max(last - every * count, 0)
    for step in range(first - first % every, last + 1, every):
        t = until - (last - step) * world.step_s
        if t < world.job_started + 60:
            continue
        loss = 2.31 + 41.0 / (step + 60) + world.rng.uniform(-0.02, 0.02)
        world.say(t, lead(world, 0) + _step_line(world, t, step, loss, zone))


def _step_line(world: World, t: float, step: int, loss: float, zone: int) -> str:
    per = world.step_s * (1 + world.rng.uniform(-0.02, 0.02))
    if world.log_style == "megatron":
        return (
            f" [{at(t, zone):%Y-%m-%d %H:%M:%S}] iteration {step:8d}/{world.steps_total:8d} | "
            f"consumed samples: {step * 1024:12d} | elapsed time per iteration (ms): "
            f"{per * 1000:.1f} | learning rate: 1.500000E-04 | global batch size:  1024 | "
            f"lm loss: {loss:.6E} | number of skipped iterations:   0 |"
        )
    if world.log_style == "titan":
        return (
            f"[rank0]:[titan] {logging(t, zone)} - root - INFO - step: {step:5d}  loss: "
            f"{loss:8.4f}  memory: 141.22GiB(52.11%)  tps: 3,412  mfu: 42.10%"
        )
    if world.log_style == "tqdm":
        done = 100 * step // world.steps_total
        bar = "█" * (done // 10)
        return (
            f"\rEpoch 0: {done:3d}%|{bar:<10}| {step}/{world.steps_total} "
            f"[{at(t - world.job_started):%H:%M:%S}<{at(9000):%H:%M:%S}, {per:5.2f}s/it, "
            f"loss={loss:.3f}]"
        )
    return (
        f"{logging(t, zone)} - train - INFO - step {step}/{world.steps_total} | loss {loss:.4f} | "
        f"{per * 1000:.0f} ms/step | lr 1.2e-04 | grad norm {0.4 + world.rng.random() * 0.2:.2f}"
    )


def info(world: World, t: float, words: str, level: str = "INFO", rank: int = 0) -> None:
    """A line of the training program's logger."""
    zone = world.nodes[0].zone_s
    world.say(t, f"{lead(world, rank)}{logging(t, zone)} - train - {level} - {words}")


def c10d(world: World, t: float, rank: Rank, line: int, words: str, level: str = "E") -> None:
    """`[rank3]:[E1124 03:22:10.408271257 ProcessGroupNCCL.cpp:685] words`"""
    stamp = glog(t + rank.node.offset_s, level, rank.node.zone_s)
    world.say(t, f"{lead(world, rank)}[rank{rank.rank}]:[{stamp} ProcessGroupNCCL.cpp:{line}] "
              f"{words}")  # fmt: skip


def work(call: Call, timeout_s: int) -> str:
    """`WorkNCCL(SeqNum=..., OpType=..., NumelIn=..., NumelOut=..., Timeout(ms)=...)`"""
    numel = [_numel(call.entry[k]) for k in ("input_sizes", "output_sizes")]
    name = call.entry["profiling_name"].split(":")[1].split(" ")[0]
    op = OP_TYPES.get(name, name.upper())
    return (
        f"WorkNCCL(SeqNum={call.seq}, OpType={op}, NumelIn={numel[0]}, NumelOut={numel[1]}, "
        f"Timeout(ms)={timeout_s * 1000})"
    )


def _numel(sizes: list[list[int]]) -> int:
    total = 0
    for shape in sizes:
        n = 1
        for extent in shape:
            n *= extent
        total += n
    return total


def watchdog(world: World, rank: Rank) -> float | None:
    """A rank's oldest operation ran into its timeout: the record, the position, the dump, the end.

    Returns the time of the record, or None where nothing was pending long enough.
    """
    if not rank.pending or rank.recorder is None:
        return None
    call = rank.pending[0]
    since = call.entry["time_created_ns"] / 1e9 - rank.node.offset_s
    t = since + world.timeout_s + world.rng.uniform(0.01, 0.11)
    ran = int((t - since) * 1000)
    status = rank.recorder.status[call.group]
    guid = f"[PG ID {rank.recorder.groups.index(call.group)} PG GUID {call.group.name}"
    prefix = f"{guid}({call.group.desc}) Rank {call.group.ranks.index(rank.rank)}]"
    w = work(call, world.timeout_s)
    c10d(world, t, rank, 685, f"[Rank {rank.rank}] Watchdog caught collective operation timeout: "
         f"{w} ran for {ran} milliseconds before timing out.")  # fmt: skip
    c10d(world, t + 0.01, rank, 2254, f"{prefix}  failure detected by watchdog at work sequence "
         f"id: {call.seq} PG status: last enqueued work: {status[0]}, last completed work: "
         f"{status[2]}")  # fmt: skip
    c10d(world, t + 0.3, rank, 1846, f"{prefix} ProcessGroupNCCL preparing to dump debug info. "
         "Include stack trace: 1")  # fmt: skip
    c10d(world, t + 1.4, rank, 1870, f"{prefix} Finished writing Flight Recorder debug info to "
         f"/lustre/{world.user}/fr/nccl_trace_rank_{rank.rank}", "W")  # fmt: skip
    return t


def abort(world: World, t: float, rank: Rank) -> None:
    """The watchdog takes the process down."""
    call = rank.pending[0] if rank.pending else None
    c10d(world, t, rank, 743, f"[Rank {rank.rank}] Some NCCL operations have failed or timed out. "
         "Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on "
         "corrupted/incomplete data.")  # fmt: skip
    c10d(world, t + 0.01, rank, 757, f"[Rank {rank.rank}] To avoid data inconsistency, we are "
         "taking the entire process down.")  # fmt: skip
    if call is not None:
        c10d(world, t + 0.02, rank, 2057, f"[PG ID 0 PG GUID 0(default_pg) Rank {rank.rank}] "
             "Process group watchdog thread terminated with exception: [Rank "
             f"{rank.rank}] Watchdog caught collective operation timeout: "
             f"{work(call, world.timeout_s)} ran for {world.timeout_s * 1000 + 41} milliseconds "
             "before timing out.")  # fmt: skip


def traceback(
    world: World, t: float, rank: Rank, frames: list[tuple[str, int, str, str]], error: str
) -> None:
    """A Python traceback of one rank: frames outermost first (file, line, function, code)."""
    p = f"[rank{rank.rank}]: " if world.launch != "srun-l" else lead(world, rank)
    lines = ["Traceback (most recent call last):"]
    for file, line, function, code in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    for k, line in enumerate([*lines, error]):
        world.say(t + k * 0.0001, p + line)


def srun_exit(world: World, t: float, rank: Rank, code: int) -> None:
    words = "Exited with exit code" if code < 128 else "Killed"
    tail = f" {code}" if code < 128 else ""
    world.say(t, f"srun: error: {rank.node.name}: task {rank.rank}: {words}{tail}")


def cancelled(world: World, t: float, *, why: str = "") -> None:
    """Slurm ends the step."""
    node, zone = world.nodes[0], world.nodes[0].zone_s
    world.say(t, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
    world.say(t + 0.01, f"slurmstepd: error: *** STEP {world.job_id}.0 ON {node.name} CANCELLED AT "
              f"{slurm(t, zone)}{why} ***")  # fmt: skip
