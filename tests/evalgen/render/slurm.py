"""scontrol and sacct, as Slurm 23.11 prints them (forms measured on a real slurmctld).

Asked with TZ=UTC: their times carry no zone.
"""

from __future__ import annotations

import re

from ..clock import duration, slurm
from ..world import Node, World


def fold(names: list[str]) -> str:
    """`gpu-[07-08]`: the way Slurm writes node lists."""
    parts: dict[tuple[str, int], list[int]] = {}
    for name in names:
        m = re.fullmatch(r"(.*?)(\d+)", name)
        if not m:
            parts.setdefault((name, 0), [])
            continue
        parts.setdefault((m[1], len(m[2])), []).append(int(m[2]))
    out = []
    for (stem, width), numbers in parts.items():
        if not numbers:
            out.append(stem)
            continue
        if len(numbers) == 1:
            out.append(f"{stem}{numbers[0]:0{width}d}")
            continue
        out.append(f"{stem}[{_ranges(sorted(numbers), width)}]")
    return ",".join(out)


def _ranges(numbers: list[int], width: int) -> str:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in runs)


def job(world: World) -> str:
    """`scontrol -o show job J`."""
    zone = 0
    n = len(world.nodes) or world.nodes_wanted
    tasks = len(world.ranks) or n * 8
    pending = world.state == "PENDING"
    end = world.ended or world.job_started + 2 * 86400
    ran = 0.0 if pending else (world.ended or world.taken_at) - world.job_started
    nodes = "" if pending else fold([x.name for x in world.nodes])
    gres = world.model.product.split()[1].lower()
    home = f"/home/{world.user}"
    batch = "" if pending else f"BatchHost={world.nodes[0].name} "
    start = "Unknown" if pending else slurm(world.job_started, zone)
    return (
        f"JobId={world.job_id} JobName={world.job_name} UserId={world.user}(5001) "
        "GroupId=research(5000) MCS_label=N/A Priority=4294901758 Nice=0 Account=research "
        f"QOS=normal JobState={world.state} Reason={world.reason} Dependency=(null) Requeue=1 "
        f"Restarts={world.restarts} BatchFlag=1 Reboot=0 ExitCode={world.exit_code} "
        f"RunTime={duration(ran)} TimeLimit={_limit(world)} TimeMin=N/A "
        f"SubmitTime={slurm(world.job_started - 640, zone)} "
        f"EligibleTime={slurm(world.job_started - 640, zone)} "
        f"AccrueTime={slurm(world.job_started - 640, zone)} StartTime={start} "
        f"EndTime={'Unknown' if pending else slurm(end, zone)} Deadline=N/A SuspendTime=None "
        f"SecsPreSuspend=0 LastSchedEval={slurm(world.job_started, zone)} Scheduler=Main "
        "Partition=gpu AllocNode:Sid=login01:28713 ReqNodeList=(null) ExcNodeList=(null) "
        f"NodeList={nodes} {batch}"
        f"NumNodes={n} NumCPUs={n * 128} NumTasks={tasks} CPUs/Task=16 "
        f"ReqB:S:C:T=0:0:*:* ReqTRES=cpu={n * 128},node={n},billing={n * 128},gres/gpu={tasks} "
        "Socks/Node=* NtasksPerN:B:S:C=8:0:*:* CoreSpec=* MinCPUsNode=128 MinMemoryNode=0 "
        "MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=NO Contiguous=0 "
        f"Licenses=(null) Network=(null) Command={home}/train.sbatch WorkDir={home} "
        f"StdErr={home}/logs/{world.job_name}-{world.job_id}.log StdIn=/dev/null "
        f"StdOut={home}/logs/{world.job_name}-{world.job_id}.log Power= "
        f"TresPerNode=gres/gpu:{gres}:{tasks // n}\n"
    )


def _limit(world: World) -> str:
    return world.time_limit


def topology(world: World) -> str:
    """`scontrol show topology` of the tree plugin, which knows one leaf a node."""
    below: dict[str, list[str]] = {}
    for node in world.nodes:
        below.setdefault(node.ports[0].leaf.partition("-")[0], []).append(node.name)
    out = ""
    for name, names in below.items():
        out += f"SwitchName={name} Level=0 LinkSpeed=1 Nodes={fold(names)}\n"
    names = fold([n.name for n in world.nodes])
    return out + f"SwitchName=spine Level=1 LinkSpeed=1 Nodes={names} Switches={fold([*below])}\n"


def nodes(world: World) -> str:
    """`scontrol -o show node LIST`."""
    return "".join(_node(world, n) for n in world.nodes) + "".join(world.node_lines)


def _node(world: World, n: Node) -> str:
    zone = 0
    gres = world.model.product.split()[1].lower()
    count = len(n.gpus)
    busy = world.state == "RUNNING"
    since = n.slurmd_at or n.boot_at + 95
    reason = f" Reason={n.slurm_reason}" if n.slurm_reason else ""
    alloc = f"cpu=128,gres/gpu={count}" if busy else ""
    state = n.slurm_state if busy or n.slurm_state != "ALLOCATED" else "IDLE"
    load = 11.2 + (n.number * 7 % 5) * 0.31
    return (
        f"NodeName={n.name} Arch={world.arch} CoresPerSocket=64 CPUAlloc={128 if busy else 0} "
        f"CPUEfctv=128 CPUTot=128 CPULoad={load:.2f} AvailableFeatures=(null) "
        f"ActiveFeatures=(null) Gres=gpu:{gres}:{count} NodeAddr={n.addr} NodeHostName={n.name} "
        f"Version=23.11.10 OS=Linux {n.kernel} #44-Ubuntu SMP PREEMPT_DYNAMIC "
        f"RealMemory={n.memory_gib * 1024 - 6000} AllocMem=0 "
        f"FreeMem={int(n.available_gib[1] * 1024)} Sockets=2 Boards=1 State={state} "
        "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu "
        f"BootTime={slurm(n.boot_at, zone)} SlurmdStartTime={slurm(since, zone)} "
        f"LastBusyTime={slurm(world.job_started, zone)} ResumeAfterTime=None "
        f"CfgTRES=cpu=128,mem={n.memory_gib * 1024 - 6000}M,billing=128,gres/gpu={count} "
        f"AllocTRES={alloc} CurrentWatts=0 AveWatts=0{reason}\n"
    )


def squeue(world: World) -> str:
    """`squeue -w LIST -o '%i|%A|%U|%u|%T|%N'`: nobody else is on the job's nodes."""
    header = "JOBID|JOBID|UID|USER|STATE|NODELIST\n"
    if world.state != "RUNNING":
        return header
    held = fold([n.name for n in world.nodes])
    return f"{header}{world.job_id}|{world.job_id}|5001|{world.user}|RUNNING|{held}\n"


SACCT = "JobID|JobIDRaw|State|NodeList|Start|End|ExitCode|Reason"


def sacct(world: World) -> str:
    zone = 0
    nodelist = fold([n.name for n in world.nodes])
    start = slurm(world.job_started, zone)
    end = slurm(world.ended, zone) if world.ended else "Unknown"
    j, state = world.job_id, world.state
    if state == "PENDING":
        row = f"{j}|{j}|PENDING|None assigned|Unknown|Unknown|0:0|{world.reason}"
        return "\n".join([SACCT, row, ""])
    step, code = state, world.exit_code
    if state in ("TIMEOUT", "NODE_FAIL"):  # the steps are cancelled
        step, code = "CANCELLED", "0:15"
    extern = state if state == "RUNNING" else "COMPLETED"
    rows = world.sacct_rows or [
        f"{j}|{j}|{state}|{nodelist}|{start}|{end}|{world.exit_code}|None",
        f"{j}.batch|{j}.batch|{step}|{world.nodes[0].name}|{start}|{end}|{code}|",
        f"{j}.extern|{j}.extern|{extern}|{nodelist}|{start}|{end}|0:0|",
        f"{j}.0|{j}.0|{step}|{nodelist}|{start}|{end}|{code}|",
    ]
    return "\n".join([SACCT, *rows, ""])
