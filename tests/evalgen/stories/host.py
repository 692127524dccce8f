"""Stories of processes, memory, storage and configuration.

Kernel lines of mm/oom_kill.c, fs/nfs and kernel/hung_task.c; texts of PyTorch, NCCL and Slurm.
"""

from __future__ import annotations

from ..clock import epoch, slurm
from ..flight_recorder import Group
from ..program import Op, all_gather, barrier, compute, fsdp, run, stop, sync
from ..render import joblog
from ..world import MountPoint, Node, Rank, World, build
from .common import (
    GPU,
    LOADER_STACK,
    Expected,
    comms_of,
    culprit,
    everybody,
    loader_workers,
    main_stacks,
    moving,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip
from .hardware import train

_NEVER = ["gpu_fault", "ib_fault", "node_down", "progressing"]
_NFS_STACK = (
    "[<0>] rpc_wait_bit_killable+0x1a/0x90 [sunrpc]\n[<0>] nfs4_proc_getattr+0x8c/0x120 [nfsv4]\n"
    "[<0>] __nfs_revalidate_inode+0xd1/0x2f0 [nfs]\n[<0>] nfs_file_read+0x6d/0xa0 [nfs]"
)


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {"seed": 2, "model": "H100", "age_s": 6 * 3600, "timeout_s": 3600,
                               "step_at_stall": 11350, "job_name": "train"}  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def _leaves(world: World, rank: Rank, why: str, *, ago: float, entries: int = 128) -> float:
    """FSDP; one rank's CPU goes elsewhere after its last whole step, the others go on and wait."""
    g = everybody(world)
    comms_of(world, [g])
    warm = 14
    usual = [op for _ in range(warm + 4) for op in fsdp(g)]
    odd = [op for _ in range(warm) for op in fsdp(g)] + [stop(why)]
    stall(
        world, {r.rank: odd if r is rank else usual for r in world.ranks}, (g,), ago=ago,
        warm_s=warm * world.step_s, **ring(entries),
    )  # fmt: skip
    assert world.stalled_at is not None
    return world.stalled_at


def loader_nfs() -> tuple[World, Expected]:
    world = _world(
        "loader_nfs", nodes=["cn07", "cn08"], job_id="66120",
        taken_at=epoch("2026-10-13T01:25:00Z"), env={"NCCL_DEBUG": "INFO"}, log_style="logging",
    )  # fmt: skip
    rank = world.ranks[5]
    for n in world.nodes:
        n.mounts.append(MountPoint(path="/datasets", fstype="nfs4", source="10.9.0.7:/datasets",
                                   options="ro,relatime,vers=4.2,hard,proto=tcp"))  # fmt: skip
    node = rank.node
    node.mounts[-1].answers = False
    rank.stack = list(LOADER_STACK)
    t = _leaves(world, rank, "data loader", ago=560, entries=64)
    for r in world.ranks[8:]:
        loader_workers(r)
    for r in world.ranks[:8]:
        loader_workers(r, state="D", wchan="rpc_wait_bit_killable", stack=_NFS_STACK)
    world.kernel(node, t - 9.1, "nfs: server 10.9.0.7 not responding, still trying")
    for k, r in enumerate(world.ranks[4:7]):
        world.kernel(node, t + 114 + k * 0.01, f"INFO: task pt_data_worker:{r.pid + 400} blocked "
                     "for more than 122 seconds.")  # fmt: skip
        who = f"pid:{r.pid + 400} tgid:{r.pid + 400} ppid:{r.pid}"
        line = f"task:pt_data_worker  state:D stack:0     {who}    flags:0x00000004"
        world.kernel(node, t + 114.001 + k * 0.01, line)
    tell_start(world)
    return world, Expected(
        cause="data_stall", subtype="storage", culprits=[culprit(rank)], drains=[],
        also=[("data_stall", "loader_wait")],
        told="The NFS mount /datasets stops answering on the first node. All its loader workers "
        "block in it; rank 5's queue runs dry first, so it never reaches the next all_gather.",
        must_not=[*_NEVER, "rank_desync"],
    )  # fmt: skip


def ost_lost() -> tuple[World, Expected]:
    """Form of the imports: public captures of Lustre 2.12; the fault: Lustre manual, recovery."""
    world = _world(
        "ost_lost", nodes=["cn11", "cn12"], job_id="66177",
        taken_at=epoch("2026-10-20T04:40:00Z"), env={"NCCL_DEBUG": "WARN"}, log_style="logging",
    )  # fmt: skip
    rank = world.ranks[5]
    for n in world.nodes:
        n.mounts[-1].lost = {"OST0002": ("DISCONN", 6 if n is rank.node else 0)}
        for sample in ("rank_procs", "sockets"):  # hidden processes (hidepid): nobody sees a D
            world.missing[n.name, sample] = "denied"
    world.without |= {"stacks"}
    _leaves(world, rank, "data loader", ago=700, entries=64)
    tell_start(world)
    return world, Expected(
        cause="data_stall", subtype="storage", culprits=[culprit(rank)], drains=[],
        told="One of four OSTs of /lustre is away: the mount answers stat on both nodes, the shard "
        "that rank 5 reads next lies on the lost one.",
        must_not=[*_NEVER],
    )  # fmt: skip


def rank0_checkpoint() -> tuple[World, Expected]:
    world = _world(
        "rank0_checkpoint", model="B200", nodes=["wk-1", "wk-2"], job_id="7005",
        taken_at=epoch("2026-09-02T14:00:30Z"), step_at_stall=12000, env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 14
    usual = [op for _ in range(warm) for op in fsdp(g)] + [barrier(g), sync()]
    odd = [op for _ in range(warm) for op in fsdp(g)] + [stop("torch.save")]
    stall(world, {r.rank: usual if r.rank else odd for r in world.ranks}, (g,), ago=74,
          warm_s=warm * world.step_s, **ring())  # fmt: skip
    zero = world.ranks[0]
    zero.state, zero.wchan, zero.cpu_cores = "R", "0", 0.97
    zero.write_rate, zero.open_file = 1_900_000_000, "/lustre/alice/ckpt/step_12000/model.pt.tmp"
    zero.stack = [
        ("_save", "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", 1242),
        ("save", "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", 967),
        ("write", "/opt/train/checkpoint.py", 71), ("save_epoch", "/opt/train/checkpoint.py", 90),
        ("train_epoch", "/opt/train/train.py", 301), ("main", "/opt/train/train.py", 402),
        ("<module>", "/opt/train/train.py", 431),
    ]  # fmt: skip
    tell_start(world, nccl=False)
    assert world.stalled_at is not None
    for back, word in ((14400, "4000"), (9600, "8000")):
        t = world.stalled_at - back
        joblog.info(world, t, f"saving checkpoint /lustre/alice/ckpt/step_{word}")
        joblog.info(world, t + 131, f"saved checkpoint /lustre/alice/ckpt/step_{word} in 131.2 s")
    joblog.info(world, world.stalled_at + 0.2, "saving checkpoint /lustre/alice/ckpt/step_12000")
    return world, Expected(
        cause="progressing", subtype="checkpoint", phase="checkpoint",
        told="Rank 0 writes a checkpoint at 1.9 GB/s for 74 s, the other 15 wait in the barrier: "
        "the picture of a hang, and healthy (earlier ones took 131 s).",
    )  # fmt: skip


def _oom_lines(world: World, node: Node, t: float, rank: Rank, *, memcg: bool) -> None:
    pid, name = rank.pid, "pt_main_thread"
    job = f"/system.slice/slurmstepd.scope/job_{world.job_id}"
    task = f"{job}/step_0/user/task_{rank.local}"
    world.kernel(node, t, f"{name} invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), "
                 "order=0, oom_score_adj=0")  # fmt: skip
    if memcg:
        kind, what = "MEMCG", f"oom_memcg={job}"
    else:
        kind, what = "NONE", "global_oom"
    words = f"constraint=CONSTRAINT_{kind},nodemask=(null),cpuset=step_0,mems_allowed=0-1,{what}"
    world.kernel(node, t + 0.002, f"oom-kill:{words},task_memcg={task},task={name},pid={pid},"
                 "uid=5001")  # fmt: skip
    head = "Memory cgroup out of memory" if memcg else "Out of memory"
    world.kernel(node, t + 0.003, f"{head}: Killed process {pid} ({name}) total-vm:241203344kB, "
                 f"anon-rss:{int(rank.rss_gib * 1048576)}kB, file-rss:412344kB, shmem-rss:8012kB, "
                 "UID:5001 pgtables:231044kB oom_score_adj:0")  # fmt: skip
    world.kernel(node, t + 0.9, f"oom_reaper: reaped process {pid} ({name}), now anon-rss:0kB, "
                 "file-rss:0kB, shmem-rss:8012kB")  # fmt: skip


def cgroup_oom() -> tuple[World, Expected]:
    world = _world(
        "cgroup_oom", model="H200", nodes=["gpu-61", "gpu-62"], job_id="90417",
        taken_at=epoch("2026-11-06T22:48:00Z"), env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    t = train(world, ago=388, dead=(9,), entries=64)
    rank = world.ranks[9]
    rank.rss_gib = 611.0
    node = rank.node
    node.cgroup_limit_gib, node.cgroup_gib, node.oom_kills = 900.0, (291.0, 291.0), 1
    _oom_lines(world, node, t, rank, memcg=True)
    tell_start(world)
    world.say(t + 1.2, f"srun: error: {node.name}: task 9: Out Of Memory")
    return world, Expected(
        cause="memory", subtype="cgroup_oom", culprits=[culprit(rank)], drains=[],
        told="Rank 9 grows past the memory limit of the job's cgroup and is killed by the kernel; "
        "srun runs without --kill-on-bad-exit, 15 ranks wait.",
        must_not=[*_NEVER, "rank_desync", "data_stall"],
    )  # fmt: skip


def host_oom() -> tuple[World, Expected]:
    world = _world(
        "host_oom", nodes=["m-a1", "m-a2"], job_id="3377", taken_at=epoch("2026-05-27T06:10:00Z"),
        step_at_stall=5100,
    )  # fmt: skip
    t = train(world, ago=299, dead=(2,))
    rank = world.ranks[2]
    rank.rss_gib = 1490.0
    node = rank.node
    node.log_form = "dmesg-T"
    _oom_lines(world, node, t, rank, memcg=False)
    tell_start(world, nccl=False)
    joblog.srun_exit(world, t + 0.8, rank, 137)
    return world, Expected(
        cause="memory", subtype="host_oom", culprits=[culprit(rank, GPU)], drains=[],
        told="Rank 2 leaks host memory until the node has none; the kernel kills it.",
        must_not=[*_NEVER, "rank_desync"],
    )  # fmt: skip


def cuda_oom() -> tuple[World, Expected]:
    world = _world(
        "cuda_oom", nodes=["vol-11", "vol-12"], job_id="61001",
        taken_at=epoch("2026-10-01T19:20:00Z"),
        step_at_stall=830, age_s=2400, zone_s=3600,
    )  # fmt: skip
    t = train(world, ago=356, dead=(14,))
    rank = world.ranks[14]
    tell_start(world, nccl=False)
    joblog.traceback(world, t, rank, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 288, "train_epoch", "train_step(batch)"),
        ("/opt/train/model.py", 96, "forward", "h = self.up(x) * self.gate(x)"),
    ], "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.91 GiB. GPU 6 has a total "
       "capacity of 79.11 GiB of which 1.02 GiB is free. Process "
       f"{rank.pid} has 78.08 GiB memory in use. Of the allocated memory 74.20 GiB is allocated by "
       "PyTorch, and 2.75 GiB is reserved by PyTorch but unallocated.")  # fmt: skip
    joblog.srun_exit(world, t + 2.8, rank, 1)
    return world, Expected(
        cause="memory", subtype="cuda_oom", culprits=[culprit(rank, GPU)], drains=[],
        told="A long sample on rank 14 does not fit into GPU memory; the rank dies, 15 wait.",
        also=[("app_crash", "exception")], must_not=[*_NEVER, "rank_desync"],
    )  # fmt: skip


def python_exception() -> tuple[World, Expected]:
    world = _world(
        "python_exception", nodes=["ml-04", "ml-05"], job_id="120555", timeout_s=600,
        taken_at=epoch("2026-11-20T17:09:00Z"), step_at_stall=4420, env={"NCCL_DEBUG": "INFO"},
        state="FAILED", reason="NonZeroExitCode", exit_code="1:0", launch="srun-l",
    )  # fmt: skip
    t = train(world, ago=905, dead=(5,))
    rank = world.ranks[5]
    tell_start(world)
    joblog.traceback(world, t, rank, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 279, "train_epoch", "for batch in loader:"),
        ("/opt/train/data.py", 164, "collate", "mask[i, : len(ids)] = True"),
    ], "IndexError: index 8192 is out of bounds for dimension 1 with size 8192")  # fmt: skip
    joblog.srun_exit(world, t + 1.1, rank, 1)
    records = [x for r in world.ranks if (x := joblog.watchdog(world, r)) is not None]
    end = max(records) + 61
    for r in world.ranks:
        if r is not rank:
            joblog.abort(world, end + 0.02 * r.rank, r)
            joblog.srun_exit(world, end + 1 + 0.03 * r.rank, r, 134)
    world.ended = end + 6
    for r in world.ranks:
        r.alive, r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = False, "idle", None, 4
    return world, Expected(
        cause="app_crash", subtype="exception", culprits=[culprit(rank)], drains=[],
        told="Rank 5's collate function raises; the process ends with 1, srun goes on. Ten "
        "minutes later the watchdogs of the 15 others fire and take the job down.",
        must_not=[*_NEVER, "rank_desync", "data_stall"],
    )  # fmt: skip


def dead_rank_segfault() -> tuple[World, Expected]:
    world = _world(
        "dead_rank_segfault", nodes=["z1", "z2"], job_id="818", step_at_stall=990, age_s=3100,
        taken_at=epoch("2026-08-25T05:00:00Z"),
    )  # fmt: skip
    t = train(world, ago=420, dead=(9,))
    rank = world.ranks[9]
    tell_start(world, nccl=False)
    world.kernel(rank.node, t, f"pt_main_thread[{rank.pid}]: segfault at 58 ip 00007f21c8a4b1e2 sp "
                 "00007ffd0b1c2f40 error 4 in libcudart.so.13[7f21c8a00000+9c000] likely on CPU 17 "
                 "(core 17, socket 0)")  # fmt: skip
    world.say(t + 1, f"srun: error: {rank.node.name}: task 9: Segmentation fault (core dumped)")
    return world, Expected(
        cause="app_crash", subtype="signal", culprits=[culprit(rank, GPU)], drains=[],
        told="Rank 9 dies of a segmentation fault, 15 wait for it; kernel and srun have recorded "
        "its end.",
        must_not=[*_NEVER, "rank_desync"],
    )  # fmt: skip


def unprepared() -> tuple[World, Expected]:
    world = _world(
        "unprepared", model="B300", nodes=["lab-b300-1", "lab-b300-2"], job_id="34", nccl="2.21.5",
        torch="2.4.0", taken_at=epoch("2026-10-18T00:31:00Z"), log_style="tqdm", step_at_stall=640,
        age_s=3000, ras=False,
    )  # fmt: skip
    rank = world.ranks[3]
    _leaves(world, rank, "elsewhere", ago=610)
    world.without |= {"flight_recorder", "stacks"}
    world.env.clear()
    tell_start(world, nccl=False, every=5)
    return world, Expected(
        cause="unknown", subtype="hang",
        also=[("unknown", "unobserved"), ("unknown", "no_evidence"), ("straggler", "late_rank"),
              ("rank_desync", "missing_rank"), ("data_stall", "loader_wait")],
        told="Nobody prepared for this: NCCL_DEBUG unset, no recorder (old torch), no RAS (old "
        "NCCL), no py-spy. 15 GPUs spin, GPU 3's process sleeps in a futex.",
        must_not=_NEVER, extra={"hint_rank": 3},
    )  # fmt: skip


def hca_set() -> tuple[World, Expected]:
    world = _world(
        "hca_set", model="B300", nodes=["b3-01", "b3-02", "b3-03"], job_id="2428", age_s=1500,
        taken_at=epoch("2026-11-26T14:55:00Z"), step_at_stall=0, nccl="2.27.7",
        env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    node = world.nodes[2]
    extra = node.ports[-1]
    extra.layer, extra.lid, extra.sm_lid, extra.hca_type = "InfiniBand", 71, 1, "MT4123"
    for r in world.ranks:
        if r.node is node:
            r.hcas = [p.hca for p in node.ports]
    g = everybody(world)
    comms_of(world, [g], before=0)
    ops = [barrier(g), sync(), compute(0.2), all_gather(g, 4_194_304), sync()]
    t = world.taken_at - 1380
    run(world, {r.rank: ops for r in world.ranks}, (g,), starts_at=t, buffer_size=2000,
        broken={r.rank: t + 0.1 for r in world.ranks})  # fmt: skip
    world.stalled_at = t + 0.3
    main_stacks(world)
    joblog.start(world)
    joblog.nccl_init(world, world.comms)
    joblog.info(world, t, "model ready, starting epoch 0")
    return world, Expected(
        cause="config", subtype="hca_mismatch", drains=[], phase="first step",
        culprits=[whole(node)],
        told="NCCL_IB_HCA is not set and the third node has a ninth active IB port (storage): "
        "8, 8 and 9 HCAs. The first large all_gather never ends; all 24 GPUs spin as in a desync.",
        also=[("config", "hca_gid")],
        must_not=["gpu_fault", "ib_fault", "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def memlock() -> tuple[World, Expected]:
    world = _world(
        "memlock", nodes=["q1", "q2"], job_id="1204", age_s=130, state="FAILED",
        taken_at=epoch("2026-07-08T10:04:00Z"), reason="NonZeroExitCode", exit_code="1:0",
        env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    node = world.nodes[1]
    node.memlock = "8388608"
    g = everybody(world)
    comms_of(world, [g])
    joblog.start(world)
    joblog.nccl_init(world, [])
    t = world.job_started + 40
    for r in world.ranks[8:]:
        joblog.warn(world, t + r.local * 0.01, r, "misc/ibvwrap.cc:262", "Call to ibv_reg_mr_iova2 "
                    "failed with error Cannot allocate memory")  # fmt: skip
        joblog.traceback(world, t + 0.4 + r.local * 0.01, r, [
            ("/opt/train/train.py", 431, "<module>", "main()"),
            ("/opt/train/train.py", 377, "main", "dist.barrier()"),
        ], "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/"
           "c10d/ProcessGroupNCCL.cpp:3690, unhandled system error (run with NCCL_DEBUG=INFO for "
           f"details), NCCL version {world.nccl}")  # fmt: skip
        joblog.srun_exit(world, t + 2 + r.local * 0.01, r, 1)
    joblog.cancelled(world, t + 3)
    all_gone(world, t + 6)
    return world, Expected(
        cause="config", subtype="limits", drains=[],
        culprits=[whole(node)],
        told="On the second node locked memory is limited to 8 MiB: NCCL cannot register buffers.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "memory", "progressing"],
    )  # fmt: skip


def all_gone(world: World, ended: float) -> None:
    """The job is over: no process, no dump, idle GPUs."""
    world.ended = ended
    for r in world.ranks:
        r.alive, r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = False, "idle", None, 4
        r.recorder = None
    world.comms = []


def shm_full() -> tuple[World, Expected]:
    world = _world(
        "shm_full", nodes=["dk1", "dk2"], job_id="640", age_s=110, state="FAILED",
        taken_at=epoch("2026-04-16T16:20:00Z"), reason="NonZeroExitCode", exit_code="1:0",
        env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    for n in world.nodes:
        n.shm_gib, n.shm_used_gib = 0.0625, 0.0625
    comms_of(world, [everybody(world)])
    joblog.start(world)
    t = world.job_started + 40
    for r in world.ranks[:6]:
        joblog.warn(world, t + r.local * 0.01, r, "misc/shmutils.cc:81",
                    "Error: failed to extend /dev/shm/nccl-Xk3p9a to 33030532 bytes, error: "
                    "No space left on device (28)")  # fmt: skip
    joblog.traceback(world, t + 0.5, world.ranks[0], [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 377, "main", "dist.barrier()"),
    ], "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/"
       "ProcessGroupNCCL.cpp:3690, unhandled system error (run with NCCL_DEBUG=INFO for details), "
       f"NCCL version {world.nccl}")  # fmt: skip
    joblog.srun_exit(world, t + 2, world.ranks[0], 1)
    joblog.cancelled(world, t + 3)
    all_gone(world, t + 6)
    return world, Expected(
        cause="config", subtype="limits", drains=[], culprits=[],
        told="/dev/shm has 64 MiB (a container started without a larger one): NCCL cannot extend "
        "its segments.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "memory", "progressing"],
    )  # fmt: skip


def evaluation() -> tuple[World, Expected]:
    world = _world(
        "evaluation", nodes=["e-1", "e-2"], job_id="4512", taken_at=epoch("2026-06-29T12:12:00Z"),
        step_at_stall=6000,
    )  # fmt: skip

    def batches(g: Group) -> list[Op]:
        one = [op for _ in range(6) for op in (all_gather(g, 4_194_304), compute(0.03))]
        return [*one, sync()] * 8

    moving(world, batches)
    for r in world.ranks:
        r.gpu.activity, r.gpu.power_w = "work", 331.0 + 9 * r.local
    joblog.start(world)
    t = world.taken_at - 190
    joblog.progress(world, t - 3)
    joblog.info(world, t, "evaluating on validation split: 2048 batches")
    for k in range(7):
        joblog.info(world, t + 22 * (k + 1), f"eval batch {(k + 1) * 240}/2048")
    return world, Expected(
        cause="progressing", subtype="evaluation", phase="evaluation",
        also=[("progressing", "steady")],
        told="The job evaluates: no training step for three minutes, GPUs busy at lower power, "
        "the log moves.",
    )  # fmt: skip


def completed() -> tuple[World, Expected]:
    world = _world(
        "completed", nodes=["n5", "n6"], job_id="999", state="COMPLETED", step_at_stall=9600,
        taken_at=epoch("2026-03-03T03:03:03Z"),
    )  # fmt: skip
    joblog.start(world)
    t = world.taken_at - 900
    joblog.progress(world, t - 20)
    joblog.info(world, t - 10, "saved checkpoint /lustre/alice/ckpt/final in 44.1 s")
    joblog.info(world, t - 4, "training finished")
    all_gone(world, t)
    return world, Expected(
        cause="not_running", subtype="completed", told="The job ended well a quarter of an hour "
        "ago.", must_not=["gpu_fault", "ib_fault", "app_crash", "rank_desync"],
    )  # fmt: skip


def pending() -> tuple[World, Expected]:
    world = _world(
        "pending", nodes=["n7", "n8"], job_id="1000", state="PENDING", reason="Resources",
        taken_at=epoch("2026-03-04T08:00:00Z"), age_s=0,
    )  # fmt: skip
    all_gone(world, 0.0)
    world.ended = None
    world.without |= {"rank_procs", "slurm_node"}
    for n in world.nodes:
        n.kernel_lines = [(t, s) for t, s in n.kernel_lines if "ens41f0np0" not in s]
    world.nodes_wanted = len(world.nodes)
    world.nodes, world.ranks = [], []
    return world, Expected(
        cause="not_running", subtype="pending", told="The job waits for resources.",
        must_not=["gpu_fault", "ib_fault", "app_crash", "rank_desync"],
    )  # fmt: skip


def node_failed() -> tuple[World, Expected]:
    world = _world(
        "node_failed", nodes=["nf-3", "nf-4"], job_id="70001", state="NODE_FAIL", reason="NodeDown",
        taken_at=epoch("2026-02-11T11:45:00Z"), exit_code="0:0", step_at_stall=7777,
    )  # fmt: skip
    t = world.taken_at - 960
    joblog.start(world)
    joblog.progress(world, t - 300)
    node = world.nodes[1]
    node.error, node.slurm_state = "unreachable", "DOWN+NOT_RESPONDING"
    node.slurm_reason = f"Not responding [slurm@{slurm(t)}]"
    world.say(
        t + 0.1,
        f"slurmstepd: error: *** JOB {world.job_id} ON {world.nodes[0].name} CANCELLED AT "
        f"{slurm(t)} DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
    )
    all_gone(world, t)
    return world, Expected(
        cause="node_down", subtype="node_fail", drains=[],
        culprits=[whole(node)],
        told="The second node stopped answering slurmctld, which ended the job as NODE_FAIL.",
        also=[("node_down", "not_responding")],
        must_not=["gpu_fault", "ib_fault", "app_crash", "rank_desync"],
    )  # fmt: skip


def comm_wedged() -> tuple[World, Expected]:
    """Everybody has posted, nobody finishes, and nothing else is wrong to see."""
    world = _world(
        "comm_wedged", nodes=["w1", "w2"], job_id="5353", taken_at=epoch("2026-09-09T09:39:00Z"),
        step_at_stall=8181, timeout_s=3600,
    )  # fmt: skip
    train(world, ago=720, broken=(4,))
    tell_start(world, nccl=False)
    return world, Expected(
        cause="unknown", subtype="all_joined", culprits=[], drains=[],
        told="A fault inside the communication library: all 16 are in the same operation.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "data_stall", "progressing"],
    )  # fmt: skip


def host_memory_fault() -> tuple[World, Expected]:
    """A processor's memory fails under one rank, which never comes out of the kernel."""
    world = _world(
        "host_memory_fault", nodes=["mc-1", "mc-2"], job_id="8087", step_at_stall=6060,
        taken_at=epoch("2026-05-05T05:20:00Z"),
    )  # fmt: skip
    rank = world.ranks[9]
    rank.stack = [("forward", "/opt/train/model.py", 88), *LOADER_STACK[-3:]]
    t = _leaves(world, rank, "forward", ago=500)
    rank.state, rank.cpu_cores = "R", 1.0
    node = rank.node
    world.kernel(node, t - 4, "{2}[Hardware Error]: Hardware error from APEI Generic Hardware "
                 "Error Source: 0\n{2}[Hardware Error]: event severity: fatal")  # fmt: skip
    world.kernel(node, t - 3.9, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_"
                 "DIMM#0 (channel:1 slot:0 page:0x1a2b3c offset:0x40 grain:32)")  # fmt: skip
    for k in (1, 2, 3):
        world.kernel(node, t + 26 * k, f"watchdog: BUG: soft lockup - CPU#31 stuck for {26 * k}s! "
                     f"[pt_main_thread:{rank.pid}]")  # fmt: skip
    tell_start(world, nccl=False)
    return world, Expected(
        cause="node_down", subtype="host_fault", drains=[], culprits=[whole(node)],
        told="Memory of the second node's first processor fails; rank 9 never comes out of the "
        "kernel, the other 15 wait for it.",
        must_not=["gpu_fault", "ib_fault", "progressing", "data_stall"],
    )  # fmt: skip


_CLIENT = "/opt/venv/lib/python3.11/site-packages"


def object_store() -> tuple[World, Expected]:
    """One rank asks the object store for its next shard and gets no answer."""
    world = _world(
        "object_store", nodes=["os-1", "os-2"], job_id="9191", step_at_stall=2210,
        taken_at=epoch("2026-06-15T16:02:00Z"),
    )  # fmt: skip
    rank = world.ranks[11]
    rank.stack = [
        ("read", "/usr/lib/python3.11/ssl.py", 1167),
        ("recv_into", "/usr/lib/python3.11/ssl.py", 1311),
        ("readinto", "/usr/lib/python3.11/socket.py", 706),
        ("_read_status", "/usr/lib/python3.11/http/client.py", 280),
        ("getresponse", f"{_CLIENT}/urllib3/connection.py", 507),
        ("get_object", f"{_CLIENT}/botocore/client.py", 569),
        ("next_shard", "/opt/train/shards.py", 44), *LOADER_STACK[-3:],
    ]  # fmt: skip
    _leaves(world, rank, "object store", ago=640)
    rank.state, rank.wchan, rank.cpu_cores = "S", "wait_woken", 0.0
    rank.asks = ("203.0.113.40", 443, 611.0)
    tell_start(world, nccl=False)
    return world, Expected(
        cause="data_stall", subtype="network_wait", drains=[], culprits=[culprit(rank)],
        told="Rank 11 asked the object store for its next shard 640 s ago; the answer does not "
        "come, the other 15 wait in the next all_gather.",
        must_not=[*_NEVER, "rank_desync"],
    )  # fmt: skip


STORIES = (
    host_memory_fault, object_store,
    loader_nfs, ost_lost, rank0_checkpoint, cgroup_oom, host_oom, cuda_oom, python_exception,
    dead_rank_segfault, unprepared, hca_set, memlock, shm_full, evaluation, completed, pending,
    node_failed, comm_wedged,
)  # fmt: skip
