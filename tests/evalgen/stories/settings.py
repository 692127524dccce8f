"""Stories of wrong settings and wrong versions: nothing is broken, and it does not run."""

from __future__ import annotations

from ..clock import epoch
from ..program import Op, all_gather, barrier, compute, fsdp, run, stop, sync
from ..render import joblog
from ..world import World, build
from .common import (
    Expected,
    comms_of,
    everybody,
    main_stacks,
    ring,
    stall,
    tell_start,
    whole,
)  # fmt: skip
from .host import all_gone

_SOUND = ["gpu_fault", "ib_fault", "node_down", "progressing"]
_MAIN = ("/opt/train/train.py", 431, "<module>", "main()")


def _world(name: str, **fields: object) -> World:
    base: dict[str, object] = {"seed": 2, "model": "H100", "job_name": "start", "timeout_s": 600,
                               "step_at_stall": 0, "env": {"NCCL_DEBUG": "INFO"}}  # fmt: skip
    return build(name, **(base | fields))  # type: ignore[arg-type]


def _dies_at_start(world: World, t: float, error: str, ranks: range) -> None:
    """The first collective raises on these ranks, Slurm ends the step."""
    for r in ranks:
        joblog.traceback(world, t + 0.02 * r, world.ranks[r], [
            _MAIN, ("/opt/train/train.py", 377, "main", "dist.barrier()"),
        ], "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/"
           f"c10d/ProcessGroupNCCL.cpp:3690, {error}, NCCL version {world.nccl}")  # fmt: skip
        joblog.srun_exit(world, t + 1.5 + 0.02 * r, world.ranks[r], 1)
    joblog.cancelled(world, t + 4)
    all_gone(world, t + 7)


def p2p_acs() -> tuple[World, Expected]:
    world = _world(
        "p2p_acs", nodes=["kvm-1", "kvm-2"], job_id="404", age_s=140, state="FAILED",
        taken_at=epoch("2026-01-15T13:40:00Z"), reason="NonZeroExitCode", exit_code="1:0",
    )  # fmt: skip
    for n in world.nodes:
        n.cmdline = "intel_iommu=on console=ttyS0"
    comms_of(world, [everybody(world)])
    joblog.start(world)
    joblog.nccl_init(world)
    t = world.job_started + 24
    for r in world.ranks:
        other = (r.local + 1) % 8
        joblog.warn(
            world, t + 0.01 * r.rank, r, "graph/paths.cc:421",
            f"P2P is disabled between NVLINK connected GPUs {r.local} and {other}. This should not "
            "be the case given their connectivity, and is probably due to a hardware issue. If you "
            "still want to proceed, you can set NCCL_IGNORE_DISABLED_P2P=1.",
        )  # fmt: skip
    _dies_at_start(world, t + 0.4, "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                   range(16))  # fmt: skip
    return world, Expected(
        cause="config", subtype="p2p_acs",
        told="Virtual machines with the IOMMU on and ACS in the bridges: no GPU may write to "
        "another's memory, NCCL refuses to start.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def nvls_refused() -> tuple[World, Expected]:
    """Form: NVIDIA/nccl issue 1488; the cause: issues 976, 1338, 1488."""
    world = _world(
        "nvls_refused", nodes=["nv-1", "nv-2", "nv-3"], job_id="977", age_s=130, state="FAILED",
        taken_at=epoch("2026-02-11T07:05:00Z"), reason="NonZeroExitCode", exit_code="1:0",
    )  # fmt: skip
    odd = world.nodes[1]
    comms_of(world, [everybody(world)])
    joblog.start(world)
    joblog.nccl_init(world)
    t = world.job_started + 26
    mine = [r for r in world.ranks if r.node is odd]
    for r in mine:
        joblog.warn(world, t + 0.01 * r.local, r, "transport/nvls.cc:244",
                    "Cuda failure 1 'invalid argument'")  # fmt: skip
    _dies_at_start(world, t + 0.4, "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                   range(mine[0].rank, mine[-1].rank + 1))  # fmt: skip
    return world, Expected(
        cause="config", subtype="fabric_manager", culprits=[whole(odd)], drains=[],
        told="On the second node Fabric Manager was restarted under running GPUs: NCCL cannot bind "
        "multicast memory there. A reset of all its GPUs, or a reboot, takes it away.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def library_bug() -> tuple[World, Expected]:
    world = _world(
        "library_bug", model="B200", nodes=["gb-01", "gb-02", "gb-03", "gb-04"], gpus=4,
        job_id="70551", taken_at=epoch("2026-02-03T21:12:00Z"), age_s=9 * 3600, timeout_s=7200,
        step_at_stall=17020, nccl="2.28.9", arch="aarch64", env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    for n in world.nodes:
        n.kernel_lines = [(t, s.replace("x86_64-linux-gnu", "aarch64-linux-gnu")
                           .replace("x86_64", "aarch64")) for t, s in n.kernel_lines]  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    t = world.taken_at - 1500
    ops = [op for _ in range(22) for op in fsdp(g)]
    stall(world, {r.rank: ops for r in world.ranks}, (g,), ago=1500, warm_s=14 * world.step_s,
          broken=dict.fromkeys(range(16), t), **ring())  # fmt: skip
    tell_start(world, nccl=False)
    joblog.nccl_init(world)
    return world, Expected(
        cause="config", subtype="library_bug", also=[("unknown", "all_joined")],
        told="NCCL 2.28.9 on Arm leaks a proxy-operation slot now and then; after nine hours one "
        "proxy thread spins and no transfer moves. All 16 posted, GPUs spin, nothing is broken.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def timeout_short() -> tuple[World, Expected]:
    world = _world(
        "timeout_short", nodes=["fn-3", "fn-4"], job_id="12012", age_s=3 * 3600, state="FAILED",
        taken_at=epoch("2026-03-30T17:00:00Z"), reason="NonZeroExitCode", exit_code="1:0",
        step_at_stall=4000, timeout_s=600,
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g])
    warm = 14
    steps = [op for _ in range(warm) for op in fsdp(g)]
    usual, odd = [*steps, barrier(g), sync()], [*steps, stop("evaluates alone")]
    stall(world, {r.rank: usual if r.rank else odd for r in world.ranks}, (g,), ago=1100,
          warm_s=warm * world.step_s, **ring())  # fmt: skip
    tell_start(world)
    t = world.stalled_at
    assert t is not None
    joblog.info(world, t + 0.2, "running evaluation on rank 0: 3000 batches")
    for k in range(1, 31):
        done = k * 67
        bar = (f"\rEvaluating:  {done * 100 // 3000:2d}%|{'█' * (done // 300):<10}| {done}/3000 "
               f"[{k * 20 // 60:02d}:{k * 20 % 60:02d}<14:40,  3.34it/s]")  # fmt: skip
        world.say(t + k * 20, bar)
    records = [x for r in world.ranks[1:] if (x := joblog.watchdog(world, r)) is not None]
    end = max(records) + 8
    for r in world.ranks[1:]:
        joblog.abort(world, end + 0.02 * r.rank, r)
        joblog.srun_exit(world, end + 1 + 0.03 * r.rank, r, 134)
    joblog.cancelled(world, end + 3)
    world.ended = end + 6
    for r in world.ranks:
        r.alive, r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = False, "idle", None, 4
    return world, Expected(
        cause="config", subtype="timeout_short", also=[("rank_desync", "missing_rank")],
        told="Rank 0 alone evaluates for a quarter of an hour while the others wait in a barrier "
        "whose timeout is ten minutes: it works as told, the limit is too short for it.",
        must_not=[*_SOUND, "data_stall", "app_crash"],
    )  # fmt: skip


def hca_gid() -> tuple[World, Expected]:
    world = _world(
        "hca_gid", nodes=["roce-a1", "roce-a2", "roce-a3"], job_id="3003", age_s=210,
        state="FAILED", taken_at=epoch("2026-04-04T04:24:00Z"), reason="NonZeroExitCode",
        exit_code="1:0", env={"NCCL_DEBUG": "INFO", "NCCL_IB_GID_INDEX": "3"},
    )  # fmt: skip
    for n in world.nodes:
        for p in n.ports:
            p.layer, p.lid, p.sm_lid = "Ethernet", 0, 0
    comms_of(world, [everybody(world)])
    joblog.start(world)
    joblog.nccl_init(world)
    world.log = [(t, s.replace(":1/IB", ":1/RoCE")) for t, s in world.log]
    t = world.job_started + 33
    for k, r in enumerate(world.ranks[::3]):
        peer = world.nodes[(r.node.number + 1) % 3]
        joblog.warn(
            world, t + 0.1 * k, r, "misc/ibvwrap.cc:262",
            "Call to ibv_modify_qp failed with 110 Connection timed out, on dev "
            f"mlx5_{r.local}:1, curr state INIT, next state RTR, local GID index 3, local GID "
            f"::ffff:{r.node.addr}, remote GID ::ffff:{peer.addr}",
        )  # fmt: skip
    _dies_at_start(world, t + 2, "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                   range(24))  # fmt: skip
    return world, Expected(
        cause="config", subtype="hca_gid",
        told="RoCE; NCCL_IB_GID_INDEX=3 names a GID of a VLAN that the switches do not route: no "
        "queue pair of any node comes up, from the first connection on.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def roce_gid_odd() -> tuple[World, Expected]:
    world = _world(
        "roce_gid_odd", nodes=["roce-b1", "roce-b2", "roce-b3", "roce-b4"], job_id="3011",
        age_s=230, state="FAILED", taken_at=epoch("2026-04-06T14:10:00Z"),
        reason="NonZeroExitCode", exit_code="1:0",
        env={"NCCL_DEBUG": "INFO", "NCCL_IB_GID_INDEX": "3"},
    )  # fmt: skip
    odd = world.nodes[1]
    for n in world.nodes:
        for k, p in enumerate(n.ports):
            p.layer, p.lid, p.sm_lid = "Ethernet", 0, 0
            if n is not odd:
                address = f"0000:0000:0000:0000:0000:ffff:0a{k:02x}:{n.number + 1:04x}"
                p.gids = [(2, address, "IB/RoCE v1"), (3, address, "RoCE v2")]
    world.fabric = "RoCE"
    comms_of(world, [everybody(world)])
    joblog.start(world)
    joblog.nccl_init(world)
    t = world.job_started + 33
    for k, r in enumerate(world.ranks[:24:3]):
        at_odd = r.node is odd
        joblog.warn(
            world, t + 0.1 * k, r, "misc/ibvwrap.cc:262",
            "Call to ibv_modify_qp failed with 22 Invalid argument, on dev "
            f"mlx5_{r.local}:1, curr state INIT, next state RTR, local GID index 3, local GID "
            f"{'::' if at_odd else '::ffff:' + r.node.addr}, remote GID "
            f"{'::ffff:' + world.nodes[2].addr if at_odd else '::'}",
        )  # fmt: skip
    _dies_at_start(world, t + 2, "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                   range(32))  # fmt: skip
    return world, Expected(
        cause="config", subtype="hca_gid", culprits=[whole(odd)],
        told="RoCE; the second node got no IPv4 address on its rails, so its GID tables have "
        "nothing at index 3, which the job asks for. Every port is Active at full rate.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def imex_broken() -> tuple[World, Expected]:
    world = _world(
        "imex_broken", model="GB200", gpus=4, nodes=["gb-r7-01", "gb-r7-02", "gb-r7-03"],
        job_id="3090", age_s=190, state="FAILED", taken_at=epoch("2026-06-21T09:31:00Z"),
        reason="NonZeroExitCode", exit_code="1:0", arch="aarch64", nccl="2.29.7",
        env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    for n in world.nodes:
        n.rack, n.imex_channels = True, 0
    comms_of(world, [everybody(world)])
    joblog.start(world)
    t = world.job_started + 24
    world.say(t - 1, joblog.lead(world, 0) + f"NCCL version {world.nccl}+cuda{world.cuda}")
    for k, r in enumerate(world.ranks):
        joblog.warn(
            world, t + 0.02 * k, r, "mnnvl.cc:72",
            "MNNVL (cliqueSize 12) is available but not working on this system. Check the IMEX "
            "channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to "
            "ignore this issue.",
        )  # fmt: skip
    _dies_at_start(world, t + 1, "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                   range(12))  # fmt: skip
    return world, Expected(
        cause="gpu_fault", subtype="nvlink",
        told="Trays of a GB200 rack, four GPUs each; the prolog made no IMEX channel for the job, "
        "so NCCL cannot share memory over the NVLink domain. No GPU is at fault: no drain.",
        must_not=["ib_fault", "node_down", "progressing", "rank_desync", "data_stall"],
    )  # fmt: skip


def socket_fallback() -> tuple[World, Expected]:
    world = _world(
        "socket_fallback", model="B300", nodes=["ct-1", "ct-2", "ct-3"], job_id="2121", age_s=1300,
        taken_at=epoch("2026-05-11T11:50:00Z"), timeout_s=3600,
    )  # fmt: skip
    node = world.nodes[1]
    g = everybody(world)
    comms_of(world, [g], before=0)
    ops: list[Op] = [barrier(g), sync(), compute(0.2), all_gather(g, 4_194_304), sync()]
    t = world.taken_at - 1200
    run(world, {r.rank: ops for r in world.ranks}, (g,), starts_at=t, buffer_size=2000,
        broken=dict.fromkeys(range(24), t))  # fmt: skip
    world.stalled_at = t + 0.1
    main_stacks(world)
    joblog.start(world)
    joblog.nccl_init(world, world.comms)
    out = []
    for when, line in world.log:
        if line.startswith(node.name + ":"):
            line = line.replace("Using network IB", "Using network Socket")
            head = line.split("NET/IB : Using")[0]
            if "NET/IB : Using" in line:
                out.append((when, f"{head}NET/IB : No device found.\n"))
                line = f"{head}NET/Socket : Using [0]ens41f0np0:{node.addr}<0>\n"
            line = line.replace("via NET/IB/", "via NET/Socket/").replace("/GDRDMA", "")
        out.append((when, line))
    world.log = out
    joblog.info(world, t, "model ready, starting epoch 0")
    return world, Expected(
        cause="config", subtype="hca_mismatch", also=[("config", "interface")],
        culprits=[whole(node)], phase="first step",
        told="The container of the second node was started without /dev/infiniband: NCCL finds no "
        "HCA there and takes sockets, the other nodes take InfiniBand. The first collective over "
        "nodes never ends.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def nccl_env_odd() -> tuple[World, Expected]:
    """Form of the lines: NVIDIA/nccl src/misc/param.cc; the fault: NVIDIA/nccl issues 626, 1136."""
    world = _world(
        "nccl_env_odd", model="H100", nodes=["me-1", "me-2", "me-3", "me-4"], job_id="5150",
        age_s=1500, taken_at=epoch("2026-09-14T10:05:00Z"), timeout_s=3600,
    )  # fmt: skip
    node = world.nodes[2]
    node.env = {"NCCL_PROTO": "Simple", "NCCL_HOSTID": "rack-7"}
    g = everybody(world)
    comms_of(world, [g], before=0)
    ops: list[Op] = [barrier(g), sync(), compute(0.2), all_gather(g, 4_194_304), sync()]
    t = world.taken_at - 1400
    run(world, {r.rank: ops for r in world.ranks}, (g,), starts_at=t, buffer_size=2000,
        broken=dict.fromkeys(range(32), t))  # fmt: skip
    world.stalled_at = t + 0.1
    main_stacks(world)
    joblog.start(world)
    joblog.nccl_init(world, world.comms)
    joblog.info(world, t, "model ready, starting epoch 0")
    return world, Expected(
        cause="config", subtype="environment", culprits=[whole(node)], phase="first step",
        told="An old benchmark left NCCL_PROTO=Simple in a profile of the third node: its ranks "
        "plan another protocol than the others, the first collective over nodes never ends.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


def first_step_compile() -> tuple[World, Expected]:
    world = _world(
        "first_step_compile", nodes=["tc-1", "tc-2"], job_id="808", age_s=430,
        taken_at=epoch("2026-06-17T08:07:30Z"), timeout_s=1800,
    )  # fmt: skip
    g = everybody(world)
    comms_of(world, [g], before=0)
    run(world, {r.rank: [barrier(g), sync(), stop("compiles")] for r in world.ranks}, (g,),
        starts_at=world.job_started + 60, buffer_size=2000)  # fmt: skip
    for r in world.ranks:
        r.state, r.wchan, r.cpu_cores = "R", "0", 6.5
        r.stack = [
            ("compile_fx", "/opt/venv/lib/python3.11/site-packages/torch/_inductor/compile_fx.py",
             1422),
            ("_compile", "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py",
             1031),
            ("train_step", "/opt/train/train.py", 233), ("main", "/opt/train/train.py", 402),
            ("<module>", "/opt/train/train.py", 431),
        ]  # fmt: skip
    tell_start(world)
    joblog.info(world, world.job_started + 70, "compiling the model with torch.compile")
    for k in range(11):
        joblog.info(
            world, world.job_started + 100 + 27 * k, f"torch._inductor: compiling graph {k}"
        )
    return world, Expected(
        cause="progressing", subtype="start_up", phase="first step",
        told="Seven minutes old; every rank compiles its model before the first step, the CPUs are "
        "busy, the GPUs are not, the log moves.",
    )  # fmt: skip


def duplicate_gpu() -> tuple[World, Expected]:
    world = _world(
        "duplicate_gpu", nodes=["dg-1", "dg-2"], job_id="66", age_s=120, state="FAILED",
        taken_at=epoch("2026-07-27T07:27:00Z"), reason="NonZeroExitCode", exit_code="1:0",
        env={"NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    comms_of(world, [everybody(world)])
    joblog.start(world)
    t = world.job_started + 24
    bus = world.ranks[0].gpu.pci[5:].replace(":", "").replace(".", "").lstrip("0")
    for r in range(8):
        other = 1 if r == 0 else 0
        joblog.warn(world, t + 0.01 * r, world.ranks[r], "init.cc:1055", "Duplicate GPU detected : "
                    f"rank {r} and rank {other} both on CUDA device {bus}")  # fmt: skip
    _dies_at_start(world, t + 0.4, "invalid usage (run with NCCL_DEBUG=WARN for details)",
                   range(8))  # fmt: skip
    return world, Expected(
        cause="config", subtype="launch",
        told="The launch script never calls set_device: all eight ranks of a node open GPU 0.",
        must_not=[*_SOUND, "rank_desync", "data_stall"],
    )  # fmt: skip


STORIES = (
    duplicate_gpu, p2p_acs, nvls_refused, library_bug, timeout_short, hca_gid, roce_gid_odd,
    imex_broken, socket_fallback, nccl_env_odd, first_step_compile,
)  # fmt: skip
