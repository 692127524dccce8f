"""How long many nodes take to answer: our SSH beside clush and pdsh, on real sshds in the lab.

    scripts/lab install
    sudo .venv/bin/python scripts/bench/fanout.py [-n 16,64,256] [-f 32] [-r 3] [--lasts 2] [--node]

All three send the same script to the same sshds, which allow one key exchange alone, with the same
fan-out. A name is an alias of one of 16 nodes. Rounds are interleaved; times are medians, the
program's own start included; memory is the highest sum of PSS over its processes, taken in a round
of its own. `first` is the first complete answer. The network's round trip is nothing here.
`--node` takes the real script of a look, all probes, window 0; ours then holds no more sessions
than the peers, for here every node works on this machine's cores.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from lab import cluster

from sluggish.probes import PROBES
from sluggish.reach.model import Ask
from sluggish.reach.script import build

NODES = 16
ONE_KEX = "KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org\n"
PLACE = "/run/lab/bench"
LOOK = """\
cat /proc/loadavg /proc/meminfo /proc/net/dev; uname -a; ls /proc | wc -l
ps -eo pid,stat,wchan,args; df -P / 2>&1; uptime; id
"""
END = "the-end-of"
EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    wall_s: float
    cpu_s: float
    first_s: float
    pss_mb: float


def config(count: int) -> str:
    """An ssh_config in which n000 ... are names of the lab's nodes in turn."""
    hosts = (f"Host n{i:03d}\n  HostName node{i % NODES + 1:02d}\n" for i in range(count))
    return "".join(hosts) + "Host *\n  StrictHostKeyChecking yes\n  ConnectTimeout 10\n"


def commands(count: int, fan_out: int, sessions: str) -> dict[str, list[str]]:
    """Each peer's command on the login node."""
    names = [f"n{i:03d}" for i in range(count)]
    python = ["env", "PYTHONPATH=/opt/sluggish", f"PYTHONPYCACHEPREFIX={PLACE}/pyc"]
    python += ["/opt/venv/bin/python"]  # compiled once, as an installed program is
    client = "/opt/sluggish/scripts/bench/fanout_client.py"
    script = f"sh {PLACE}/look"
    return {
        "sluggish": [*python, client, str(fan_out), sessions, f"{PLACE}/look", *names],
        "clush": ["clush", "-f", str(fan_out), "-w", ",".join(names), script],
        "pdsh": ["pdsh", "-R", "ssh", "-f", str(fan_out), "-w", ",".join(names), script],
    }


def one(lab: cluster.Lab, argv: list[str], count: int, weigh: bool) -> Took:
    """One run; ends the program where a node's answer is missing."""
    pipe = subprocess.PIPE
    began = time.monotonic()
    process = lab.popen("login", argv, None, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    assert process.stdout
    assert process.stderr
    most = [0.0]
    if weigh:
        threading.Thread(target=_weigh, args=(process.pid, most), daemon=True).start()
    errors: list[bytes] = []
    stderr = process.stderr
    reader = threading.Thread(target=lambda: errors.append(stderr.read()), daemon=True)
    reader.start()
    first, ends = 0.0, 0
    for line in process.stdout:
        if f": {END} node".encode() in line:
            ends += 1
            first = first or time.monotonic() - began
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    wall = time.monotonic() - began
    reader.join()
    if ends != count:
        sys.exit(f"{argv[0]}: {ends} of {count} answers\n{errors[0].decode()[:2000]}")
    return Took(wall_s=wall, cpu_s=used.ru_utime + used.ru_stime, first_s=first, pss_mb=most[0])


def _weigh(pid: int, most: list[float]) -> None:
    """The highest sum of PSS over a process and all below it, until it ends."""
    while Path(f"/proc/{pid}/smaps_rollup").exists():
        total, todo = 0, [pid]
        while todo:
            here = todo.pop()
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{here}/task").iterdir():
                    todo += map(int, (task / "children").read_text().split())
                for line in Path(f"/proc/{here}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        most[0] = max(most[0], total / 1024)
        time.sleep(EVERY_S)


def compare(lab: cluster.Lab, count: int, fan_out: int, sessions: str, rounds: int) -> None:
    """Prints one line a peer, each with its ratio to ours."""
    lab.path("ctl", "/root/.ssh/config").write_text(config(count))
    peers = commands(count, fan_out, sessions)
    times: dict[str, list[Took]] = {name: [] for name in peers}
    for _ in range(rounds):
        for name, argv in peers.items():
            times[name].append(one(lab, argv, count, weigh=False))
    ours = statistics.median(took.wall_s for took in times["sluggish"])
    for name, argv in peers.items():
        walls = [took.wall_s for took in times[name]]
        wall = statistics.median(walls)
        cpu = statistics.median(took.cpu_s for took in times[name])
        first = statistics.median(took.first_s for took in times[name])
        pss = one(lab, argv, count, weigh=True).pss_mb
        print(
            f"{count:5} {name:9} {wall:7.2f} ({min(walls):.2f}-{max(walls):.2f}) {first:7.2f}"
            f" {cpu:7.2f} {pss:7.0f} {wall / ours:7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-n", default="16,64,256", help="numbers of connections")
    parser.add_argument("-f", type=int, default=32, help="fan-out")
    parser.add_argument("-r", type=int, default=3, help="rounds")
    parser.add_argument("--node", action="store_true", help="the real script of a look")
    parser.add_argument("--lasts", type=float, default=0, help="seconds that the script waits")
    told = parser.parse_args()
    lab = cluster.up(NODES, sshd_config=ONE_KEX, hcas=0)
    try:
        lab.path("ctl", PLACE).mkdir()
        ask = Ask(uid=5001, user="alice", window_s=0.0)
        what = build(ask, "0" * 32, PROBES).decode() if told.node else LOOK
        look = f"{what}sleep {told.lasts}\necho {END} $(hostname)\n"
        lab.path("ctl", f"{PLACE}/look").write_text(look)
        print("nodes peer       wall s (range)    first s   cpu s  PSS MB  / ours")
        for count in map(int, told.n.split(",")):
            compare(lab, count, told.f, "few" if told.node else "many", told.r)
    finally:
        lab.down()


if __name__ == "__main__":
    main()
