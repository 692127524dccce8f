"""Stories of jobs that never get to their first step."""

from __future__ import annotations

from ..clock import epoch, glog
from ..render import joblog
from ..render.collective import Comm
from ..world import Rank, World, build
from .common import GPU, Expected, culprit, everybody, whole

_NEVER = ["gpu_fault", "ib_fault", "rank_desync", "node_down"]
_IMPORT = [
    ("get_data", "<frozen importlib._bootstrap_external>", 1130),
    ("get_code", "<frozen importlib._bootstrap_external>", 1066),
    ("exec_module", "<frozen importlib._bootstrap_external>", 995),
    ("_load_unlocked", "<frozen importlib._bootstrap>", 690),
    ("<module>", "/home/alice/env/lib/python3.11/site-packages/torch/__init__.py", 2089),
    ("<module>", "/home/alice/train.py", 9),
]
_STORE = [
    ("_create_c10d_store", "torch/distributed/rendezvous.py", 189),
    ("_env_rendezvous_handler", "torch/distributed/rendezvous.py", 278),
    ("init_process_group", "torch/distributed/distributed_c10d.py", 1752),
    ("main", "/opt/train/train.py", 371), ("<module>", "/opt/train/train.py", 431),
]  # fmt: skip


def _young(name: str, nodes: list[str], **fields: object) -> World:
    base: dict[str, object] = {"seed": 2, "model": "H100", "job_name": "start", "step_at_stall": 0,
                               "timeout_s": 1800}  # fmt: skip
    world = build(name, nodes=nodes, **(base | fields))  # type: ignore[arg-type]
    for r in world.ranks:
        r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = "idle", None, 4
        r.state, r.wchan, r.cpu_cores, r.rss_gib = "S", "do_poll.constprop.0", 0.01, 0.9
        r.read_rate = r.write_rate = 0
    return world


def _hello(world: World, rank: Rank, t: float) -> None:
    joblog.info(world, t, f"rank {rank.rank}/{len(world.ranks)} local {rank.local} on "
                f"{rank.node.name}: init_process_group", rank=rank.rank)  # fmt: skip


def rendezvous_63_of_64() -> tuple[World, Expected]:
    world = _young(
        "rendezvous_63_of_64", [f"c{n:02d}" for n in range(40, 48)], job_id="210064",
        taken_at=epoch("2026-10-30T06:12:00Z"), age_s=2210, launch="srun-l",
    )  # fmt: skip
    late = world.ranks[41]
    late.alive = False
    joblog.start(world)
    t = world.job_started + 17
    for r in world.ranks:
        r.stack = list(_STORE)
        if r is not late:
            _hello(world, r, t + world.rng.uniform(0, 3))
    world.stack_ranks = (0,)
    zero = world.ranks[0]
    world.say(t + 1803, f"{joblog.lead(world, 0)}[W{glog(t + 1803)[1:]} TCPStore.cpp:354] [c10d] "
              "waiting for workers has timed out")  # fmt: skip
    joblog.traceback(world, t + 1803.2, zero, [
        ("/opt/train/train.py", 431, "<module>", "main()"),
        ("/opt/train/train.py", 371, "main", "dist.init_process_group(\"nccl\")"),
    ], "torch.distributed.DistStoreError: Timed out after 1801 seconds waiting for clients. 63/64 "
       "clients joined.")  # fmt: skip
    return world, Expected(
        cause="rank_desync", subtype="missing_rank", culprits=[culprit(late, GPU)], drains=[],
        also=[("config", "launch"), ("app_crash", "exit"), ("unknown", "start_up_hang")],
        told="Task 41 ended before it said a word (no process on its node, no record of its end); "
        "63 of 64 wait at the store.",
        must_not=["gpu_fault", "ib_fault", "progressing"], phase="start-up",
    )  # fmt: skip


def image_import() -> tuple[World, Expected]:
    world = _young(
        "image_import", [f"py{n}" for n in (1, 2, 3, 4)], job_id="8118", age_s=1260,
        taken_at=epoch("2026-11-02T13:21:00Z"),
    )  # fmt: skip
    slow = world.nodes[2]
    joblog.start(world)
    world.log = [line for line in world.log if " job " in line[1]]
    t = world.job_started + 2
    image = "docker image: nvcr.io/nvidia/pytorch:26.08-py3"
    for n in world.nodes:
        world.say(t + n.number * 0.1, f"pyxis: importing {image}")
        if n is not slow:
            world.say(t + 151 + n.number * 6, f"pyxis: imported {image}")
    for r in world.ranks:
        if r.node is slow:
            r.alive = False
        else:
            _hello(world, r, t + 180 + r.rank * 0.02)
            r.stack = list(_STORE)
    world.stack_ranks = (0,)
    world.kernel(slow, t + 420, "nvme nvme1: I/O 412 (I/O Cmd) QID 7 timeout, aborting")
    return world, Expected(
        cause="data_stall", subtype="image_import", drains=[],
        culprits=[whole(slow)],
        also=[("unknown", "start_up_hang"), ("progressing", "start_up")],
        told="Three nodes imported the container image in under three minutes, the third still "
        "imports after twenty: its eight ranks do not exist yet, the others wait for them.",
        must_not=_NEVER, phase="start-up",
    )  # fmt: skip


def import_storm() -> tuple[World, Expected]:
    world = _young(
        "import_storm", [f"st-{n:02d}" for n in range(1, 9)], job_id="5151", age_s=840,
        taken_at=epoch("2026-09-07T08:14:00Z"),
    )  # fmt: skip
    joblog.start(world)
    world.log = [line for line in world.log if " job " in line[1]]
    for r in world.ranks:
        r.state, r.wchan, r.cpu_cores, r.rss_gib = "D", "rpc_wait_bit_killable", 0.02, 0.3
        r.read_rate = 210_000
        r.stack = list(_IMPORT)
    world.stack_ranks = (0, 9, 33)
    for n in world.nodes:
        world.kernel(n, world.job_started + 300 + n.number, "nfs: server 10.9.0.5 not responding, "
                     "still trying")  # fmt: skip
        world.kernel(n, world.job_started + 309 + n.number, "nfs: server 10.9.0.5 OK")
    return world, Expected(
        cause="data_stall", subtype="import_storm", culprits=[], drains=[],
        also=[("data_stall", "storage"), ("progressing", "start_up"), ("unknown", "start_up_hang")],
        told="64 processes import Python from one NFS home at once; every one is blocked in the "
        "import for 13 minutes, the server now and then answers.",
        must_not=_NEVER, phase="start-up",
    )  # fmt: skip


def nccl_init_hang() -> tuple[World, Expected]:
    world = _young(
        "nccl_init_hang", ["ni-1", "ni-2", "ni-3"], job_id="3131", age_s=900,
        taken_at=epoch("2026-08-12T18:15:00Z"), env={"NCCL_DEBUG": "INFO"},
    )  # fmt: skip
    g = everybody(world)
    comm = Comm(group=g, hash=world.rng.getrandbits(64) | 1 << 60, status="INIT",
                initialising=frozenset(g.ranks))  # fmt: skip
    odd = world.nodes[2]
    joblog.start(world)
    joblog.nccl_init(world, [comm])
    address = "192.168.122.1"
    world.log = [
        (t, s.replace(f"ens41f0np0:{odd.addr}", f"virbr0:{address}")
         if s.startswith(odd.name + ":") else s)
        for t, s in world.log
    ]  # fmt: skip
    for r in world.ranks:
        r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = "context", r.pid, 1210
        r.state, r.wchan, r.cpu_cores, r.rss_gib = "R", "0", 1.0, 6.2
        r.stack = [
            ("barrier", "torch/distributed/distributed_c10d.py", 4884),
            ("main", "/opt/train/train.py", 377),
            ("<module>", "/opt/train/train.py", 431),
        ]
    world.stack_ranks = (0, 16)
    return world, Expected(
        cause="config", subtype="interface", drains=[], phase="start-up",
        culprits=[whole(odd)],
        also=[("unknown", "start_up_hang")],
        told="NCCL_SOCKET_IFNAME is not set; on the third node NCCL takes a libvirt bridge, whose "
        "address the others cannot reach: every rank is past Init START, none is COMPLETE.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "progressing"],
    )  # fmt: skip


def stale_lock() -> tuple[World, Expected]:
    """The job before was killed while it built an extension; its lock file is still there."""
    world = _young(
        "stale_lock", ["lk-1", "lk-2"], job_id="1551", age_s=2100,
        taken_at=epoch("2026-07-02T11:40:00Z"),
    )  # fmt: skip
    joblog.start(world)
    torch = "/opt/venv/lib/python3.11/site-packages/torch/utils"
    for r in world.ranks:
        r.state, r.wchan, r.cpu_cores, r.rss_gib = "S", "hrtimer_nanosleep", 0.0, 1.1
        r.read_rate = r.write_rate = 0
        r.stack = [
            ("wait", f"{torch}/file_baton.py", 44),
            ("_jit_compile", f"{torch}/cpp_extension.py", 1702),
            ("load", f"{torch}/cpp_extension.py", 1309),
            ("<module>", "/opt/train/ops.py", 9), ("main", "/opt/train/train.py", 371),
            ("<module>", "/opt/train/train.py", 431),
        ]  # fmt: skip
    world.stack_ranks = (0, 8)
    return world, Expected(
        cause="data_stall", subtype="stale_lock", culprits=[], drains=[],
        also=[("unknown", "start_up_hang")],
        told="A builder of the job before was killed and left its lock file in the home "
        "directory: all 16 ranks wait for it since 35 minutes, nobody builds.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "progressing", "node_down", "config"],
    )  # fmt: skip


def start_up_mute() -> tuple[World, Expected]:
    world = _young(
        "start_up_mute", ["sm-1", "sm-2"], job_id="1441", age_s=1560, ras=False,
        taken_at=epoch("2026-06-06T06:06:00Z"),
    )  # fmt: skip
    joblog.start(world)
    for r in world.ranks:
        _hello(world, r, world.job_started + 12 + r.rank * 0.02)
        r.gpu.activity, r.gpu.pid, r.gpu.memory_mib = "context", r.pid, 1210
        r.state, r.wchan, r.cpu_cores, r.rss_gib = "R", "0", 1.0, 6.2
    world.without |= {"stacks"}
    return world, Expected(
        cause="unknown", subtype="start_up_hang",
        told="Every rank has said hello 25 minutes ago and sits in its first communicator; "
        "NCCL_DEBUG is unset, NCCL is too old for RAS, nobody took stacks.",
        must_not=["gpu_fault", "ib_fault", "rank_desync", "progressing", "node_down"],
    )  # fmt: skip


STORIES = (
    rendezvous_63_of_64,
    image_import,
    import_storm,
    nccl_init_hang,
    start_up_mute,
    stale_lock,
)
