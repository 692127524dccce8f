"""From the command to the verdict on a live job, window 0, with 5 % of the nodes dead.

    scripts/lab install
    sudo .venv/bin/python scripts/bench/live.py [-r 11] [--all]

Real: the program, SSH, sshd with its shells, and at 16 nodes Slurm. The nodes answer with what the
script printed on one of them before, for in the lab all nodes' work would fall on this machine's
cores (0.5 CPU s a node) where a real node has its own; `--all` adds 16 nodes that run the script.
At 256 connections the names are aliases of 16 nodes and 13 of a black hole, and Slurm's answers
are canned: the lab's Slurm has no 256 nodes. Prints wall and CPU seconds of the program and its
children: median, 95th percentile, maximum. Goals on two idle cores: p95 at most 5 s and 20 s.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from lab import cluster

from sluggish.probes import PROBES
from sluggish.reach.model import Ask
from sluggish.reach.script import build

NODES = 17
DEAD = "node17"
MANY, SILENT = 256, 13
PLACE = "/run/lab/bench"
GOAL_S = {16: 5.0, MANY: 20.0}
JOB = (
    "JobId=4711 JobName=llm UserId=alice(5001) GroupId=alice(5001) MCS_label=N/A JobState=RUNNING "
    "Reason=None Requeue=1 Restarts=0 BatchFlag=1 ExitCode=0:0 RunTime=01:00:00 "
    "TimeLimit=2-00:00:00 StartTime={start} EndTime=Unknown Partition=gpu NodeList={nodes} "
    "BatchHost=n000 NumNodes={count} NumCPUs=16 NumTasks=2048 Command=(null) WorkDir=/home/alice "
    "StdErr=/home/alice/x.out StdIn=/dev/null StdOut=/home/alice/x.out TresPerNode=gres/gpu:8"
)
NODE = (
    "NodeName=n{:03d} Arch=x86_64 CoresPerSocket=16 Gres=gpu:b300:8 RealMemory=64000 FreeMem=20000 "
    "State=MIXED BootTime=2026-01-01T00:00:00 SlurmdStartTime=2026-01-01T00:00:00"
)
MARK = "0" * 32
REPLAY = f"""#!/bin/sh
[ "$*" = -s ] || exec /bin/sh "$@"
read -r word
eval "$word"
while read -r line; do case $line in BOUNDARY=*) break ;; esac; done
cat >/dev/null
exec sed "s/{MARK}/${{line#BOUNDARY=}}/" {PLACE}/answer
"""
"""In place of `sh -s`: says the word that it is greeted with, then the answer of another look."""
HEADER = "JOBID|JOBID|UID|USER|STATE|NODELIST"


def canned(lab: cluster.Lab) -> None:
    """`scontrol` and `squeue` of a cluster of 256 nodes, and their names for ssh."""
    place = lab.path("ctl", PLACE)
    (place / "bin").mkdir(parents=True)
    nodes = f"n[000-{MANY - 1:03d}]"
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() - 3600))
    (place / "job").write_text(JOB.format(start=start, nodes=nodes, count=MANY) + "\n")
    (place / "node").write_text("".join(NODE.format(i) + "\n" for i in range(MANY)))
    (place / "queue").write_text(f"{HEADER}\n4711|4711|5001|alice|RUNNING|{nodes}\n")
    scontrol = (
        f'#!/bin/sh\ncase "$*" in *job*) cat {PLACE}/job ;; *node*) cat {PLACE}/node ;; esac\n'
    )
    for name, text in (("scontrol", scontrol), ("squeue", f"#!/bin/sh\ncat {PLACE}/queue\n")):
        (place / "bin" / name).write_text(text)
        (place / "bin" / name).chmod(0o755)
    dead = {round(i * MANY / SILENT) for i in range(SILENT)}
    hosts = (
        f"Host n{i:03d}\n  HostName {DEAD if i in dead else f'node{i % 16 + 1:02d}'}\n"
        for i in range(MANY)
    )
    lab.path("ctl", "/root/.ssh/config").write_text("".join(hosts))


def record(lab: cluster.Lab, job: str) -> None:
    """What the script says on a node of the job, for all of them to repeat."""
    ask = Ask(job=job, uid=5001, user="alice", window_s=0.0)
    pipe = subprocess.PIPE
    process = lab.popen("node01", ["sh", "-s"], None, stdin=pipe, stdout=pipe, stderr=pipe)
    told = process.communicate(build(ask, MARK, PROBES))[0]
    lab.path("ctl", f"{PLACE}/answer").write_bytes(told)


def replayed(lab: cluster.Lab, on: bool) -> None:
    for node in lab.nodes[:16]:
        shell = lab.path(node, "/usr/local/bin/sh")
        shell.write_text(REPLAY if on else '#!/bin/sh\nexec /bin/sh "$@"\n')
        shell.chmod(0o755)


def look(lab: cluster.Lab, job: str, path: str = "") -> tuple[float, float]:
    """Wall and CPU seconds of one look; ends the program where there is no verdict."""
    argv = ["env", "SLUGGISH_STATE=/tmp/bench-state", f"PATH={path}{os.defpath}:/usr/local/bin"]
    argv += ["PYTHONPATH=/opt/sluggish", f"PYTHONPYCACHEPREFIX={PLACE}/pyc"]
    argv += ["/opt/venv/bin/python", "-m", "sluggish"]  # compiled once, as when installed
    argv += ["diagnose", "--job", job, "--window", "0"]
    pipe = subprocess.PIPE
    began = time.monotonic()
    process = lab.popen("login", argv, None, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    assert process.stdout
    assert process.stderr
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if b"VERDICT" not in out:
        sys.exit(f"no verdict: {process.stderr.read().decode()[-2000:]}")
    return wall, used.ru_utime + used.ru_stime


def report(count: int, times: list[tuple[float, float]]) -> None:
    """One line: the times of one size beside its goal."""
    walls = sorted(wall for wall, _ in times)
    late = walls[min(len(walls) - 1, round(0.95 * len(walls)))]
    cpu = statistics.median(used for _, used in times)
    goal = GOAL_S[count]
    print(
        f"{count:5} {statistics.median(walls):7.2f} {late:7.2f} {walls[-1]:7.2f} {cpu:7.2f}"
        f"   goal {goal:.0f} {'ok' if late <= goal else 'MISSED'}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-r", type=int, default=11, help="looks of each size")
    parser.add_argument("--all", action="store_true", help="also with scripts that really run")
    told = parser.parse_args()
    rounds = told.r
    lab = cluster.up(NODES)
    try:
        wrap = f"cd; sbatch --parsable -N16 -x {DEAD} --wrap 'srun sleep 3600'"
        job = lab.sh("login", wrap, "alice").strip()
        asked = ["squeue", "-h", "-t", "R", "-s", "-j", job]
        cluster.wait_for(lambda: f"{job}.0" in lab.exec("login", asked).stdout, 60, "no step runs")
        canned(lab)
        record(lab, job)
        lab.cut(DEAD)
        replayed(lab, True)
        print("nodes  median     p95     max   cpu s", flush=True)
        report(MANY, [look(lab, "4711", f"{PLACE}/bin:") for _ in range(rounds)])
        lab.cut("node16")
        report(16, [look(lab, job) for _ in range(rounds)])
        if told.all:
            replayed(lab, False)
            print("the nodes' work on the same cores:")
            report(16, [look(lab, job) for _ in range(rounds)])
    finally:
        lab.down()


if __name__ == "__main__":
    main()
