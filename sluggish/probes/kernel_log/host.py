"""Kernel lines about the host: OOM kills, hung tasks, crashes, lockups, machine checks, boot.

Sources: Linux `mm/oom_kill.c` (3.10 to 6.x), `kernel/hung_task.c`, `kernel/watchdog.c`,
`kernel/rcu/tree_stall.h`, `arch/x86/mm/fault.c`, `arch/x86/kernel/traps.c`, `mm/memory-failure.c`,
`arch/arm64/kernel/traps.c`, `drivers/edac`.
"""

import re

from sluggish.facts.host import HungTask, KernelTrouble, Machine, OomKill, Segfault
from sluggish.probes.kernel_log.context import Record
from sluggish.text import safe

OOM_NEEDLES = (
    "oom-kill:", "Killed process", "Kill process", "oom_reaper: reaped",
    " killed as a result of limit",
)  # fmt: skip
NEEDLES = (
    *OOM_NEEDLES, "blocked for more than", ": segfault at", "traps: ", "Kernel panic", "Oops",
    "BUG: ", "kernel BUG at", "Unable to handle kernel", "general protection fault",
    "soft lockup", "hard LOCKUP", "detected stall", "self-detected stall", "[Hardware Error]",
    "EDAC ", "Machine check", "Machine Check Exception", "hardware memory corruption",
    "Uncorrected hardware memory", "SError Interrupt", "Internal error: ",
    "temperature above threshold", "Linux version ",
    "Booting Linux on physical", "DMI: ",
)  # fmt: skip

# oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=c,mems_allowed=0-1,
#   oom_memcg=/slurm/uid_1/job_7/step_0,task_memcg=/slurm/.../task_0,task=python,pid=12,uid=1
# (>= 5.0)
_OOM_SUMMARY = re.compile(r"oom-kill:constraint=(?P<constraint>CONSTRAINT_\w{1,24})", re.ASCII)
_OOM_FIELD = re.compile(r"(?P<key>oom_memcg|task_memcg|task|pid)=(?P<value>[^,]{1,512})")
# Memory cgroup out of memory: Killed process 12 (python) total-vm:9kB, anon-rss:8kB, file-rss:...
#   (>= 5.0)
# Out of memory: Killed process 12 (python) total-vm:...
# Killed process 12 (python) total-vm:9kB, anon-rss:8kB, file-rss:0kB            (3.10 - 4.20)
# Killed process 12 (python), UID 1000, total-vm:...                             (RHEL 7)
# Out of memory: Killed process 12, UID 48, (httpd).                             (2.6)
_OOM_KILLED = re.compile(
    r"Killed process (?P<pid>[0-9]{1,10}),?(?: UID:? [0-9]{1,10},)? \((?P<name>[^()]{1,64})\)",
    re.ASCII,
)
# Out of memory: Kill process 456 (python) score 50 or sacrifice child
# (< 5.0; a child may die)
_OOM_CHOSEN = re.compile(
    r"Kill process (?P<pid>[0-9]{1,10}) \((?P<name>[^"
    r"()]{1,64})\) score [0-9]{1,6} or sacrifice child"
)
_RSS = re.compile(r"(?P<kind>anon|file|shmem)-rss:(?P<kb>[0-9]{1,15})kB", re.ASCII)
# oom_reaper: reaped process 12 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
_REAPED = re.compile(r"oom_reaper: reaped process (?P<pid>[0-9]{1,10}) \((?P<name>[^()]{1,64})\)")
# Task in /slurm/uid_1/job_7/step_0/task_0 killed as a result of limit of /slurm/uid_1/job_7
# (< 4.19)
_TASK_IN = re.compile(
    r"Task in (?P<task>\S{1,512}) killed as a result of limit of (?P<limit>\S{1,512})"
)
# v1 /slurm/uid_U/job_J/step_S/task_T; v2 /system.slice/slurmstepd.scope/job_J/step_S/user/task_T
_JOB = re.compile(r"/job_(?P<job>[0-9]{1,12})(?:/|$)", re.ASCII)

# INFO: task kworker/u256:1:812 blocked for more than 120 seconds.
_HUNG = re.compile(
    r"INFO: task (?P<name>.{1,64}):(?P<pid>[0-9]{1,10}) blocked for more than "
    r"(?P<s>[0-9]{1,8}) seconds",
    re.ASCII,
)
# ` __schedule+0x2d0/0x890`   ` ? nfs_wait_bit+0x1/0x2 [nfs]`
# ` [<ffffffff8a1>] schedule+0x29/0x70`
_FRAME = re.compile(
    r"\s*(?:\[<[0-9a-f]{1,16}>\] )?(?P<sure>\? )?"
    r"(?P<function>[\w.]{1,120})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}(?: \["
    r"(?P<module>[\w-]{1,60})[^\]]{0,40}\])?\s*$",
    re.ASCII,
)
# pt_main_thread[2536]: segfault at 7f79 ip 00007f sp 00007f error 4 in libnccl.so.2[7f7c+d3d3000]
# traps: python[123] general protection fault ip:7f sp:7f error:0 in libtorch.so[7f+1000]
_SEGFAULT = re.compile(
    r"(?:traps: )?(?P<name>\S.{0,40}?)\[(?P<pid>[0-9]{1,10})\]:? "
    r"(?:segfault at|general protection fault|trap [\w ]{1,40}) .{0,200}?"
    r"(?:\bin (?P<library>[^\s\[]{1,120})\[|$)",
    re.ASCII,
)
# watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [python:123]
_TROUBLE = (
    ("panic", re.compile(r"Kernel panic - not syncing")),
    ("soft_lockup", re.compile(r"BUG: soft lockup")),
    ("other", re.compile(r"hard LOCKUP")),
    ("rcu_stall", re.compile(r"rcu.{0,40}(?:self-detected stall|detected stalls?)", re.I)),
    ("oops", re.compile(
        r"BUG: (?:unable to handle|kernel NULL)|\bOops(?::| -)|kernel BUG at"
        r"|Unable to handle kernel"
        r"|^general protection fault|^Internal error: "
    )),
    # EDAC MC0: 1 UE memory read error ...   {1}[Hardware Error]: event severity: fatal
    # Memory failure: 0x8d8: Sending SIGBUS to python:26 due to hardware memory corruption
    # SError Interrupt on CPU12, code 0xbe000411 -- SError              (arm64, as Grace)
    ("mce", re.compile(
        r"EDAC .{0,60}\b(?:[1-9][0-9]{0,5} UE\b|UE row )"
        r"|\[Hardware Error\].{0,80}\b(?:fatal|[Uu]ncorrect|panic)"
        r"|[Mm]achine [Cc]heck(?: Exception|: Processor context corrupt)"
        r"|(?:Killing|Sending SIGBUS to) .{1,80} due to hardware memory corruption"
        r"|Uncorrected hardware memory error|^SError Interrupt on CPU"
    )),
    ("thermal", re.compile(r"(?:Core|Package) temperature above threshold")),
    ("boot", re.compile(r"^(?:Linux version |Booting Linux on physical)")),
    ("other", re.compile(r"[Mm]achine check events logged")),
)  # fmt: skip
# DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0 10/16/2017     (linux drivers/firmware/dmi_scan.c)
_DMI = re.compile(r"DMI: (?P<words>\S[^,]{0,160}), BIOS ")
MAX_STACK = 32
STACK_LINES = 48


def read(record: Record) -> OomKill | HungTask | Segfault | KernelTrouble | Machine | None:
    """The fact of one host line, or None."""
    if found := _DMI.match(record.text):
        return Machine(node=record.node, words=safe(found["words"], 160), source="kernel")
    return _oom(record) or _hung(record) or _segfault(record) or _trouble(record)


def _oom(record: Record) -> OomKill | None:
    text = record.text
    if found := _OOM_SUMMARY.search(text):
        return _oom_summary(record, found["constraint"])
    if found := _TASK_IN.search(text):
        return _oom_fact(record, None, None, cgroup=True, path=found["task"])
    if found := _OOM_KILLED.search(text) or _OOM_CHOSEN.search(text):
        cgroup = True if "emory cgroup" in text else False if "Out of memory" in text else None
        rss = sum(int(r["kb"]) for r in _RSS.finditer(text)) * 1024
        return _oom_fact(record, int(found["pid"]), found["name"], cgroup=cgroup, rss=rss or None)
    if found := _REAPED.search(text):
        return _oom_fact(record, int(found["pid"]), found["name"], cgroup=None)
    return None


def _oom_summary(record: Record, constraint: str) -> OomKill:
    fields = {f["key"]: f["value"] for f in _OOM_FIELD.finditer(record.text)}
    pid = fields.get("pid", "")
    return _oom_fact(
        record,
        int(pid) if pid.isascii() and pid.isdigit() and len(pid) < 11 else None,
        fields.get("task"),
        cgroup=constraint == "CONSTRAINT_MEMCG",
        path=fields.get("task_memcg") or fields.get("oom_memcg"),
    )


def _oom_fact(
    record: Record, pid: int | None, name: str | None, *,
    cgroup: bool | None, path: str | None = None, rss: int | None = None,
) -> OomKill:  # fmt: skip
    job = _JOB.search(path) if path else None
    return OomKill(
        node=record.node, at=record.at, pid=pid, process=safe(name or "", 64) or None,
        cgroup=cgroup, cgroup_path=path,
        job_id=job["job"] if job else None, rss_bytes=rss, line=record.line,
    )  # fmt: skip


def _hung(record: Record) -> HungTask | None:
    found = _HUNG.search(record.text)
    if not found:
        return None
    return HungTask(
        node=record.node, at=record.at, process=safe(found["name"], 64), pid=int(found["pid"]),
        seconds=int(found["s"]), stack=_stack(record), line=record.line,
    )  # fmt: skip


def _stack(record: Record) -> tuple[str, ...]:
    """Functions of the call trace after the line, innermost first, guesses (`?`) left out."""
    frames: list[str] = []
    for text in record.following(STACK_LINES):
        if "blocked for more than" in text or "</TASK>" in text or len(frames) >= MAX_STACK:
            break
        found = _FRAME.match(text)
        if found is None:
            if frames:
                break
            continue
        if not found["sure"]:
            module = f" [{found['module']}]" if found["module"] else ""
            frames.append(found["function"] + module)
    return tuple(frames)


def _segfault(record: Record) -> Segfault | None:
    found = _SEGFAULT.match(record.text)
    if not found:
        return None
    return Segfault(
        node=record.node, at=record.at, process=safe(found["name"], 64), pid=int(found["pid"]),
        library=found["library"], line=record.line,
    )  # fmt: skip


def _trouble(record: Record) -> KernelTrouble | None:
    for kind, pattern in _TROUBLE:
        if pattern.search(record.text):
            return KernelTrouble(node=record.node, at=record.at, kind=kind, line=record.line)
    return None
