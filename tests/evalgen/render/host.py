"""What a node says of itself: clock, processes, memory, mounts. Sections as `tail -v` heads them.

Files of proc(5); cgroup v2 paths of Slurm's slurmstepd.scope.
"""

from __future__ import annotations

from ..clock import at
from ..world import MountPoint, Node, Rank, World

GIB = 1 << 30


def _section(name: str, text: str) -> str:
    return f"==> {name} <==\n{text}\n"


def identity(world: World, node: Node) -> str:
    now = world.taken_at - 20 + node.offset_s
    sign = "-" if node.zone_s < 0 else "+"
    zone = f"{sign}{abs(node.zone_s) // 3600:02d}{abs(node.zone_s) % 3600 // 60:02d}"
    m = world.arch
    usual = f"BOOT_IMAGE=/vmlinuz-{node.kernel} root=UUID=6ac0"
    parts = {
        "hostname": node.name,
        "uname -a": f"Linux {node.name} {node.kernel} #44-Ubuntu SMP PREEMPT_DYNAMIC {m} "
        f"{m} {m} GNU/Linux",
        "date +%s.%N": f"{now:.6f}000",
        "date +%z": zone,
        "/proc/uptime": f"{now - node.offset_s - node.boot_at:.2f} 17203341.20",
        "/proc/sys/kernel/random/boot_id": node.boot_id,
        "/proc/cmdline": f"{usual} ro {node.cmdline or 'iommu=pt'}",
    }
    return "\n".join(_section(k, v) for k, v in parts.items())


def memory(world: World, node: Node, sample: str) -> str:
    k = 0 if sample == "a" else 1
    total = node.memory_gib * GIB
    free = int(node.available_gib[k] * GIB)
    meminfo = (
        f"MemTotal:       {total // 1024} kB\nMemFree:        {int(free * 0.4) // 1024} kB\n"
        f"MemAvailable:   {free // 1024} kB\nBuffers:           21404 kB\n"
        f"Cached:         {int(free * 0.55) // 1024} kB\n"
        f"Shmem:          {int(node.shm_used_gib * GIB) // 1024} kB\n"
        "SwapTotal:             0 kB\nSwapFree:              0 kB"
    )
    p = node.pressure
    full = f"avg10={p * 0.8:.2f} avg60={p * 0.7:.2f} avg300={p * 0.3:.2f} total={int(p * 9e6)}"
    some = f"avg10={p:.2f} avg60={p * 0.9:.2f} avg300={p * 0.4:.2f} total={int(p * 1.1e7)}"
    calm = "avg10=0.00 avg60=0.02 avg300=0.00 total=81234"
    c = node.cpu_pressure
    cpu = f"avg10={c:.2f} avg60={c * 0.97:.2f} avg300={c * 0.9:.2f} total={int(c * 4e7)}"
    current = int(node.cgroup_gib[k] * GIB)
    limit = "max" if node.cgroup_limit_gib is None else str(int(node.cgroup_limit_gib * GIB))
    peak = max(int(max(node.cgroup_gib) * GIB), current)
    cg = f"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_{world.job_id}"
    parts = {
        "/proc/meminfo": meminfo,
        "/proc/pressure/memory": f"some {some}\nfull {full}",
        "/proc/pressure/io": f"some {calm}\nfull {calm}",
        "/proc/pressure/cpu": f"some {cpu}\nfull {calm}",
        f"{cg}/memory.current": str(current),
        f"{cg}/memory.max": limit,
        f"{cg}/memory.peak": str(peak),
        f"{cg}/memory.events": "low 0\nhigh 0\n"
        f"max {node.oom_kills * 412}\noom {node.oom_kills}\noom_kill {node.oom_kills}\n"
        "oom_group_kill 0",
    }
    return "\n".join(_section(n, t) for n, t in parts.items())


def mounts(world: World, node: Node) -> str:
    table = [f"{m.source} {m.path} {m.fstype} {m.options} 0 0" for m in node.mounts]
    shm = int(node.shm_gib * GIB)
    table.insert(1, f"tmpfs /dev/shm tmpfs rw,nosuid,nodev,size={shm // 1024}k 0 0")
    table.insert(0, "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0")
    table.insert(1, "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0")
    used = int(node.shm_used_gib * GIB)
    df = ["Filesystem 1024-blocks Used Available Capacity Mounted on",
          "/dev/nvme0n1p2 921290388 218340112 656077540 25% /",
          f"tmpfs {shm // 1024} {used // 1024} {(shm - used) // 1024} "
          f"{used * 100 // shm}% /dev/shm",
          "/dev/md0 14998441984 2203331200 12795110784 15% /local"]  # fmt: skip
    out = _section("/proc/self/mounts", "\n".join(table)) + "\n"
    out += _section("df", "\n".join(df))
    for m in node.mounts:
        if m.fstype in ("nfs4", "nfs", "lustre", "beegfs", "gpfs"):
            said = "answered in 0.003" if m.answers else "no answer in 5.0"
            out += "\n" + _section(f"stat {m.path}", said)
        if m.fstype == "lustre":
            out += _imports(m)
    return out


def _imports(m: MountPoint) -> str:
    """Form: Lustre 2.12, `lctl get_param osc.*.import`, as public captures print it."""
    fs = m.source.rpartition("/")[2]
    out = ""
    for kind, name in (("mdc", "MDT0000"), *(("osc", f"OST{n:04x}") for n in range(4))):
        state, waiting = m.lost.get(name, ("FULL", 0))
        own = f"{fs}-{name}-{kind}-ffff8a5c31f4c000"
        flags = "replayable, pingable, connect_tried"
        out += "\n" + _section(f"/sys/kernel/debug/lustre/{kind}/{own}/import", (
            f"import:\n    name: {own}\n    target: {fs}-{name}_UUID\n    state: {state}\n"
            "    connect_flags: [ write_grant, server_lock, version, request_portal ]\n"
            "    connect_data:\n       flags: 0xa0425af2e3440478\n       instance: 1\n"
            f"    import_flags: [ {flags} ]\n    connection:\n"
            "       failover_nids: [ 10.9.8.11@o2ib, 10.9.8.12@o2ib ]\n"
            "       current_connection: 10.9.8.11@o2ib\n       connection_attempts: 3\n"
            "       generation: 1\n       in-progress_invalidations: 0\n       idle: 12 sec\n"
            f"    rpcs:\n       inflight: {waiting}\n       unregistering: 0\n"
            "       timeouts: 0\n       avg_waittime: 655 usec"
        ))  # fmt: skip
    return out


def sockets(world: World, node: Node) -> str:
    """`ss -tuinop`: each rank has the store's connection; rank 0's metrics connection rests."""
    out = ["Netid State Recv-Q Send-Q Local Address:Port  Peer Address:Port Process"]
    first = world.nodes[0].addr
    for rank in world.ranks:
        if rank.node is not node or not rank.alive:
            continue
        who = f'users:(("python",pid={rank.pid},fd=77))'
        port = 40_000 + rank.rank % 20_000
        ages = f"lastsnd:{3_600_000 + rank.rank} lastrcv:{3_600_001 + rank.rank}"
        out += _tcp(f"{node.addr}:{port}", f"{first}:29500", who, ages)
        if rank.rank == 0:  # what was asked was answered: the answer came last
            out += _tcp(f"{node.addr}:51234", "198.51.100.20:443", who,
                        "lastsnd:61000 lastrcv:60940 bytes_received:5120")  # fmt: skip
        if rank.asks:
            address, service, age = rank.asks
            ms = int(age * 1000)
            out += _tcp(f"{node.addr}:51777", f"{address}:{service}", who,
                        f"lastsnd:{ms} lastrcv:{ms + 41} bytes_received:4210")  # fmt: skip
    return "\n".join(out) + "\n"


def _tcp(local: str, peer: str, who: str, ages: str) -> list[str]:
    info = "\t cubic wscale:7,7 rto:204 rtt:0.4/0.2 mss:1448 pmtu:1500 cwnd:10"
    return [f"tcp   ESTAB 0      0      {local} {peer} {who}", f"{info} {ages}"]


def rank_procs(world: World, node: Node, sample: str) -> str:
    """The job's processes on a node, one set of /proc files each."""
    out = []
    for rank in world.ranks:
        if rank.node is node and rank.alive:
            out.append(_process(world, rank, sample))
            out += [_worker(world, rank, w, sample) for w in rank.workers]
    out += [_stranger(world, node, who, sample) for who in node.strangers]
    return "".join([*out, _section("processes", str(len(out)))])


def _ticks(world: World, node: Node, t: float) -> int:
    """Clock ticks since boot, as field 22 of stat."""
    return int((t - node.boot_at) * 100)


def _stat(pid: int, name: str, state: str, ppid: int, cpu_s: float, threads: int, start: int,
          rss_pages: int) -> str:  # fmt: skip
    user, system = int(cpu_s * 80), int(cpu_s * 20)
    return (
        f"{pid} ({name}) {state} {ppid} {pid} {ppid} 0 -1 4194304 812345 0 12 0 {user} {system} "
        f"0 0 20 0 {threads} 0 {start} 98123456512 {rss_pages} 18446744073709551615 1 1 0 0 0 0 0 "
        "16781312 17402 0 0 0 17 12 0 0 0 0 0 0 0 0 0 0 0 0 0"
    )


def _when(world: World, sample: str) -> float:
    """Seconds between the start of the window and the sample."""
    return world.window_s + 3.0 if sample == "b" else 0.0


def environ(world: World, rank: Rank) -> dict[str, str]:
    """The allow-listed environment of a rank."""
    return {
        "SLURM_JOB_ID": world.job_id,
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank.rank),
        "SLURM_LOCALID": str(rank.local),
        "SLURM_NODEID": str(rank.node.number),
        "SLURM_NNODES": str(len(world.nodes)),
        "SLURM_NTASKS": str(len(world.ranks)),
        "SLURMD_NODENAME": rank.node.name,
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local),
        "WORLD_SIZE": str(len(world.ranks)),
        "MASTER_ADDR": world.nodes[0].name,
        "MASTER_PORT": "29500",
        **world.env,
        **rank.node.env,
    }


def _process(world: World, rank: Rank, sample: str) -> str:
    node, pid = rank.node, rank.pid
    age = world.taken_at - world.job_started
    more = _when(world, sample)
    cpu = age * 0.9 + rank.cpu_cores * more
    start = _ticks(world, node, world.job_started + 4)
    pages = int((rank.rss_gib + rank.rss_growth * more) * GIB / 4096)
    read = int(age * 80_000 + rank.read_rate * more)
    write = int(age * 9_000 + rank.write_rate * more)
    env = "\n".join(f"{k}={v}" for k, v in environ(world, rank).items())
    cgroup = f"/system.slice/slurmstepd.scope/job_{world.job_id}/step_0/user/task_{rank.local}"
    limits = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max stack size            8388608              unlimited            bytes     \n"
        f"Max locked memory         {node.memlock:<20} {node.memlock:<20} bytes     \n"
        "Max open files            131072               131072               files     "
    )
    files = {
        "stat": _stat(pid, "pt_main_thread", rank.state, pid - 40, cpu, 214, start, pages),
        "status": f"Name:\tpt_main_thread\nState:\t{_state(rank.state)}\nTgid:\t{pid}\n"
        f"Pid:\t{pid}\nPPid:\t{pid - 40}\nVmRSS:\t{pages * 4} kB\nThreads:\t214",
        "wchan": rank.wchan,
        "io": f"rchar: {read}\nwchar: {write}\nsyscr: {read // 4096}\nsyscw: {write // 512}\n"
        f"read_bytes: {read // 9}\nwrite_bytes: {write // 2}\ncancelled_write_bytes: 0",
        "cmdline": "/opt/venv/bin/python -u /opt/train/train.py --config configs/run.yaml",
        "environ": env,
        "limits": limits,
        "cgroup": f"0::{cgroup}",
    }
    out = "".join(_section(f"/proc/{pid}/{n}", t) for n, t in files.items())
    for off, wchan in rank.blocked:
        tid = pid + off
        stat = _stat(tid, "pt_data_pin", "D", pid - 40, 4.2, 214, start + 90, pages)
        out += _section(f"/proc/{pid}/task/{tid}/stat", stat)
        out += _section(f"/proc/{pid}/task/{tid}/wchan", wchan)
    if rank.open_file:
        link = "lrwx------ 1 alice research 64 Nov 24 03:00"
        fds = (f"{link} 3 -> /dev/nvidiactl", f"{link} 97 -> {rank.open_file}")
        out += _section(f"/proc/{pid}/fd", "\n".join(fds))
    return out


def _worker(world: World, rank: Rank, w: dict[str, object], sample: str) -> str:
    """A data-loader worker: a child of the rank."""
    pid = rank.pid + int(str(w["off"]))
    state, wchan = str(w.get("state", "S")), str(w.get("wchan", "do_poll.constprop.0"))
    age = world.taken_at - world.job_started
    cpu = age * 0.05 + float(str(w.get("cores", 0.0))) * _when(world, sample)
    start = _ticks(world, rank.node, world.job_started + 61)
    files = {
        "stat": _stat(pid, "pt_data_worker", state, rank.pid, cpu, 3, start, 410_000),
        "status": f"Name:\tpt_data_worker\nState:\t{_state(state)}\nTgid:\t{pid}\nPid:\t{pid}\n"
        f"PPid:\t{rank.pid}\nVmRSS:\t1640000 kB\nThreads:\t3",
        "wchan": wchan,
        "io": f"rchar: {int(age * 21000)}\nwchar: 812\nsyscr: 91\nsyscw: 12\nread_bytes: 0\n"
        "write_bytes: 0\ncancelled_write_bytes: 0",
        "cmdline": "/opt/venv/bin/python -u /opt/train/train.py --config configs/run.yaml",
        "environ": "",
        "cgroup": f"0::/system.slice/slurmstepd.scope/job_{world.job_id}/step_0/user/"
        f"task_{rank.local}",
    }
    out = "".join(_section(f"/proc/{pid}/{n}", t) for n, t in files.items())
    if w.get("stack"):
        out += _section(f"/proc/{pid}/stack", str(w["stack"]))
    return out


def _stranger(world: World, node: Node, who: tuple[int, str, float], sample: str) -> str:
    """A process of the node that the job did not start."""
    pid, name, cores = who
    cpu = 91_000.0 + cores * _when(world, sample)
    files = {
        "stat": _stat(pid, name, "R", 1, cpu, 96, _ticks(world, node, world.taken_at - 9000), 9000),
        "status": f"Name:\t{name}\nState:\tR (running)\nTgid:\t{pid}\nPid:\t{pid}\nPPid:\t1\n"
        "VmRSS:\t36000 kB\nThreads:\t96",
        "wchan": "0",
        "io": "rchar: 91\nwchar: 12\nsyscr: 9\nsyscw: 1\nread_bytes: 0\nwrite_bytes: 0\n"
        "cancelled_write_bytes: 0",
        "cmdline": f"/usr/bin/{name} --all",
        "environ": "",
        "cgroup": f"0::/system.slice/{name}.service",
    }
    return "".join(_section(f"/proc/{pid}/{n}", t) for n, t in files.items())


def _state(letter: str) -> str:
    words = {"R": "running", "S": "sleeping", "D": "disk sleep", "Z": "zombie", "T": "stopped"}
    return f"{letter} ({words[letter]})"


def stack(world: World, rank: Rank) -> str:
    """`py-spy dump --pid PID`."""
    frames = rank.stack or [("sleep", "/opt/train/train.py", 1)]
    word = "active" if rank.state == "R" else "idle"
    lines = [
        f"Process {rank.pid}: /opt/venv/bin/python -u /opt/train/train.py --config "
        "configs/run.yaml",
        "Python v3.11.9 (/opt/venv/bin/python3.11)",
        "",
        f'Thread {rank.pid} ({word}): "MainThread"',
    ]
    lines += [f"    {name} ({file.removeprefix(_SITE)}:{line})" for name, file, line in frames]
    lines += [f'Thread {rank.pid + 31} (idle): "Thread-1 (_read_thread)"',
              "    _recv_msg (torch/_inductor/compile_worker/subproc_pool.py:57)",
              "    _read_thread (torch/_inductor/compile_worker/subproc_pool.py:191)",
              "    run (threading.py:982)",
              "    _bootstrap_inner (threading.py:1045)",
              "    _bootstrap (threading.py:1002)"]  # fmt: skip
    return "\n".join(lines) + "\n"


_SITE = "/opt/venv/lib/python3.11/site-packages/"


def stamp(t: float) -> str:
    return f"{at(t):%H:%M:%S}"
