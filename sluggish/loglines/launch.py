"""Who ended, and who says so: torchrun, srun, slurmstepd, the shell, MPI launchers, Ray."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timezone

from sluggish.facts.log import LogSign, ProcessExit, SlurmMessage
from sluggish.loglines.line import Line
from sluggish.loglines.stamps import ISO, from_iso

NEEDLES: tuple[bytes, ...] = (
    b"(exitcode: ", b"exitcode  :", b"closing signal SIG", b"death signal", b"srun: ",
    b"slurmstepd: ", b"slurm_script: line", b"exited on signal", b"Process name: [[",
    b"Exit code: ", b"BAD TERMINATION", b"RUNNING AT ", b"EXIT CODE: ", b"KILLED BY SIGNAL",
    b"Worker exit type: ", b"exits with return code = ", b"Fatal Python error: ", b"] Signal: ",
    b"terminated with signal SIG", b"terminated with exit code", b"running low on memory",
)  # fmt: skip

MOST_TASKS = 20_000
SIGNALS = {
    "Killed": 9, "SIGKILL": 9, "Segmentation fault": 11, "SIGSEGV": 11, "Aborted": 6,
    "SIGABRT": 6, "Terminated": 15, "SIGTERM": 15, "Bus error": 7, "SIGBUS": 7,
    "Floating point exception": 8, "SIGFPE": 8, "Illegal instruction": 4, "SIGILL": 4,
    "Hangup": 1, "SIGHUP": 1, "Interrupt": 2, "SIGINT": 2, "User defined signal 1": 10,
    "User defined signal 2": 12,
}  # fmt: skip

# failed (exitcode: -9) local_rank: 0 (pid: 178) of binary: /opt/env/bin/python
# forms: torch/distributed/elastic/multiprocessing/api.py, 1.12 (ERROR:name:) to 2.9 (glog prefix)
_ELASTIC = re.compile(
    r"failed \(exitcode: (?P<code>-?\d{1,5})\) local_rank: (?P<local>\d{1,5}) "
    r"\(pid: (?P<pid>\d{1,9})\)"
)
# report of ChildFailedError, torch/distributed/elastic/multiprocessing/errors/__init__.py:
#   time      : 2024-05-07_15:51:09
#   host      : gpu-07
#   rank      : 3 (local_rank: 3)
#   exitcode  : -9 (pid: 178)
_FIELD = re.compile(r"\s{0,12}(?P<key>time|host|rank|exitcode)\s{1,12}: (?P<value>.{1,200})")
_RANK_VALUE = re.compile(r"(?P<rank>\d{1,6}) \(local_rank: (?P<local>\d{1,5})\)")
_CODE_VALUE = re.compile(r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)")
# Sending process 4182 closing signal SIGTERM    Received 15 death signal, shutting down workers
_CLOSING = re.compile(
    r"Sending process (?P<pid>\d{1,9}) closing signal SIG\w+"
    r"|Received (?:Signals\.)?\w{1,12} death signal"
)
# srun: error: gpu-07: task 3: Exited with exit code 1
# srun: error: gpu-[07-08]: tasks 3,5-7: Out Of Memory
_SRUN_TASK = re.compile(
    r"srun: (?:error: )?(?P<node>[\w.\[\],-]{1,400}): tasks? (?P<tasks>[\d,-]{1,4000}): "
    r"(?P<how>.{1,100})"
)
_EXIT_WORDS = re.compile(r"Exited with exit code (?P<code>\d{1,5})")
# srun: error: Node failure on gpu-07
_NODE_FAILURE = re.compile(r"Node failure on (?P<node>[\w.-]{1,253})")
# srun: error: Task launch for StepId=48213.0 failed on node gpu-07: Prolog failed
_LAUNCH = re.compile(
    r"Task launch for (?:StepId=)?(?P<job>\d{1,12})\S{0,20}"
    r" failed on node (?P<node>[\w.-]{1,253}): "
)
# slurmstepd: error: *** STEP 48213.0 ON gpu-07 CANCELLED AT 2026-11-24T03:22:10 DUE TO TIME
#   LIMIT ***
_CANCELLED = re.compile(
    rf"\*\*\* (?:JOB|STEP) (?P<job>\d{{1,12}})(?:[._+]\S{{0,40}})? (?:STEPD TERMINATED )?"
    rf"ON (?P<node>\S{{1,253}}) (?:CANCELLED )?AT {ISO}(?P<why>[^*]{{0,200}})"
)
# slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup.      (20.x)
# slurmstepd: error: Detected 1 oom_kill event in StepId=191.0. Some of the step tasks ... (23.x)
# slurmstepd: error: Exceeded step memory limit at some point.                      (17.x)
_OOM = re.compile(
    r"Detected \d{1,9} oom[-_]kill event|Exceeded (?:step|job) memory limit|exceeded memory limit"
)
_JOB_ID = re.compile(r"(?:StepId=|JobId=|[Ss]tep |[Jj]ob )(?P<job>\d{1,12})")
# /var/spool/slurmd/job00191/slurm_script: line 28:  8156 Killed     python3 train.py
_SHELL = re.compile(
    r"\S{1,300}: line \d{1,7}: +(?P<pid>\d{1,9}) (?P<how>[A-Z][A-Za-z ]{2,24}?)"
    r"(?: \(core dumped\)|  +|\Z)"
)
# mpirun noticed that process rank 3 with PID 4182 on node gpu-07 exited on signal 9 (Killed).
_MPI = re.compile(
    r"noticed that process rank (?P<rank>\d{1,6}) with PID (?P<pid>\d{1,9}) "
    r"on node (?P<node>\S{1,253}) exited on signal (?P<signal>\d{1,3})"
)
# = RANK 3 PID 4182 RUNNING AT gpu-07      =   EXIT CODE: 9      =   KILLED BY SIGNAL: 9 (Killed)
_MPICH_WHO = re.compile(
    r"=\s{1,8}(?:RANK (?P<rank>\d{1,6}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?P<node>\S{1,253})"
)
_MPICH_HOW = re.compile(r"=\s{1,8}(?:EXIT CODE|EXIT STATUS|KILLED BY SIGNAL): (?P<code>\d{1,5})")
#   Process name: [[1234,1],3]        Exit code:    1      (Open MPI's help text)
_OMPI_WHO = re.compile(r"\s{0,8}Process name: \[\[\d{1,9},\d{1,9}\],(?P<rank>\d{1,6})\]")
_OMPI_HOW = re.compile(r"\s{0,8}Exit code:\s{1,12}(?P<code>\d{1,5})")
# [gpu-07:04182] Signal: Segmentation fault (11)
_OMPI_SIGNAL = re.compile(
    r"\[(?P<node>[\w.-]{1,253}):(?P<pid>\d{1,9})\] Signal: [\w ]{1,40} \((?P<signal>\d{1,3})\)"
)
# ... Worker PID: 4009 Worker exit type: SYSTEM_ERROR Worker exit detail: ...   (Ray)
_RAY = re.compile(r"Worker PID: (?P<pid>\d{1,9}) Worker exit type: (?P<how>\w{1,40})")
# process 1 terminated with signal SIGKILL    process 1 terminated with exit code 1   (spawn)
_SPAWN = re.compile(
    r"process (?P<local>\d{1,5}) terminated with "
    r"(?:signal (?P<signal>SIG\w{2,8})|exit code (?P<code>\d{1,5}))"
)
# [INFO] [launch.py:321:sigkill_handler] ['python', ...] exits with return code = -9  (DeepSpeed)
_DEEPSPEED = re.compile(r"exits with return code = (?P<code>-?\d{1,5})")
# Fatal Python error: Segmentation fault
_FATAL = re.compile(r"Fatal Python error: (?P<how>[A-Z][A-Za-z ]{2,30})")
_ANY = re.compile("|".join(re.escape(needle.decode()) for needle in NEEDLES))


@dataclass(slots=True)
class _Report:
    """A record that is written over several lines: what its lines told so far."""

    rank: int | None = None
    local: int | None = None
    node: str | None = None
    pid: int | None = None
    at: datetime | None = None


def parse(
    lines: Iterable[Line], zone: timezone = UTC
) -> Iterator[ProcessExit | SlurmMessage | LogSign]:
    """Ends of processes and Slurm's words. `zone` is that of stamps without one."""
    report = _Report()
    for line in lines:
        text = line.text
        if (field := _FIELD.match(text)) and (found := _report(field, report, line, zone)):
            yield found
        if not _ANY.search(text):
            continue
        if "slurmstepd: " in text or "srun: " in text:
            yield from _slurm(line, zone)
        else:
            yield from _others(line, report)


def _exit(line: Line, source: str, code: int | None = None, signal: int | None = None, *,
          rank: int | None = None, local: int | None = None, task: int | None = None,
          pid: int | None = None, node: str | None = None, at: datetime | None = None,
          oom: bool = False) -> ProcessExit:  # fmt: skip
    if signal is None and code is not None:
        if code < 0:
            signal = -code
        elif 128 < code < 128 + 65:
            signal = code - 128
    return ProcessExit(
        node=node or line.node, rank=line.rank if rank is None else rank, at=at or line.at,
        pid=pid, local_rank=line.local_rank if local is None else local, exit_code=code,
        signal=signal, source=source, oom=oom, order=line.order, line=line.raw, task=task,
    )  # fmt: skip


def _report(
    field: re.Match[str], report: _Report, line: Line, zone: timezone
) -> ProcessExit | None:
    """Gather the lines of torchrun's failure report; its exitcode line completes one failure."""
    key, value = field["key"], field["value"].strip()
    if key == "time":
        stamp = re.match(ISO, value.replace("_", " "))
        report.at = from_iso(stamp, zone) if stamp else None
    elif key == "host":
        report.node = value
    elif key == "rank" and (found := _RANK_VALUE.match(value)):
        report.rank, report.local = int(found["rank"]), int(found["local"])
    elif key == "exitcode" and (found := _CODE_VALUE.match(value)):
        made = _exit(
            line, "torchrun", int(found["code"]), rank=report.rank, local=report.local,
            node=report.node, at=report.at, pid=int(found["pid"]),
        )  # fmt: skip
        report.rank = report.local = report.node = report.at = None
        return made
    return None


def _slurm(line: Line, zone: timezone) -> Iterator[ProcessExit | SlurmMessage]:
    text = line.text
    if found := _SRUN_TASK.search(text):
        yield from _srun_tasks(line, found)
    elif found := _CANCELLED.search(text):
        at = from_iso(found, zone)
        yield _message(line, _why(found["why"]), node=found["node"], job=found["job"], at=at)
    elif _OOM.search(text):
        yield _message(line, "oom", job=_job(text))
    elif found := _NODE_FAILURE.search(text):
        yield _message(line, "node_failure", node=found["node"], job=_job(text))
    elif found := _LAUNCH.search(text):
        yield _message(line, "launch_failed", node=found["node"], job=found["job"])
    elif "Job step aborted" in text or "Force Terminated" in text or "srun: Terminating" in text:
        yield _message(line, "step_aborted", job=_job(text))
    elif "error" in text or "fatal" in text:
        yield _message(line, "other", job=_job(text))


def _message(line: Line, kind: str, *, node: str | None = None, job: str | None = None,
             at: datetime | None = None) -> SlurmMessage:  # fmt: skip
    return SlurmMessage(
        node=node or line.node, at=at or line.at, kind=kind, job_id=job, rank=line.rank,
        order=line.order, line=line.raw,
    )  # fmt: skip


def _job(text: str) -> str | None:
    found = _JOB_ID.search(text)
    return found["job"] if found else None


def _why(words: str) -> str:
    for word, kind in (
        ("TIME LIMIT", "time_limit"), ("NODE FAILURE", "node_failure"), ("PREEMPT", "preempted"),
        ("REQUEUE", "requeued"), ("NOT ENDING", "unkillable"),
    ):  # fmt: skip
        if word in words:
            return kind
    return "cancelled"


def _srun_tasks(line: Line, found: re.Match[str]) -> Iterator[ProcessExit]:
    how = found["how"].strip()
    oom = how.startswith("Out Of Memory")
    code = _EXIT_WORDS.match(how)
    signal = 9 if oom else signal_of(how)
    node = found["node"] if "[" not in found["node"] else None
    for task in _numbers(found["tasks"]):
        yield _exit(
            line, "srun", int(code["code"]) if code else None, signal, task=task, node=node, oom=oom
        )  # fmt: skip


def _numbers(text: str) -> Iterator[int]:
    given = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or len(first) > 9 or len(last) > 9:
            continue
        for number in range(int(first), int(last if last.isdigit() else first) + 1):
            if given >= MOST_TASKS:
                return
            given += 1
            yield number


def signal_of(words: str) -> int | None:
    """The signal's number from the words of a shell, srun or Python."""
    return next((number for name, number in SIGNALS.items() if words.startswith(name)), None)


def _others(line: Line, report: _Report) -> Iterator[ProcessExit | LogSign]:
    text = line.text
    if found := _ELASTIC.search(text):
        yield _exit(
            line, "torchrun", int(found["code"]), local=int(found["local"]), pid=int(found["pid"])
        )
    elif _CLOSING.search(text):
        yield LogSign(
            node=line.node, rank=line.rank, at=line.at, kind="closing_signal", order=line.order,
            line=line.raw,
        )  # fmt: skip
    elif (
        ": line " in text and (found := _SHELL.search(text)) and (signal := signal_of(found["how"]))
    ):
        yield _exit(line, "shell", None, signal, pid=int(found["pid"]))
    elif found := _MPI.search(text):
        yield _exit(
            line, "mpirun", None, int(found["signal"]), rank=int(found["rank"]),
            pid=int(found["pid"]), node=found["node"],
        )  # fmt: skip
    elif found := _MPICH_WHO.search(text):
        report.rank = int(found["rank"]) if found["rank"] else None
        report.pid, report.node = int(found["pid"]), found["node"]
    elif found := _OMPI_WHO.search(text):
        report.rank = int(found["rank"])
    elif found := _MPICH_HOW.search(text) or _OMPI_HOW.match(text):
        yield from _second_line(line, report, int(found["code"]), by_signal="SIGNAL" in text)
    else:
        yield from _rare(line)


def _second_line(
    line: Line, report: _Report, code: int, *, by_signal: bool
) -> Iterator[ProcessExit]:
    if report.rank is None and report.pid is None:
        return
    yield _exit(
        line, "mpirun", None if by_signal else code, code if by_signal else None,
        rank=report.rank, pid=report.pid, node=report.node,
    )  # fmt: skip
    report.rank = report.pid = report.node = None


def _rare(line: Line) -> Iterator[ProcessExit]:
    text = line.text
    if found := _OMPI_SIGNAL.search(text):
        yield _exit(line, "mpirun", None, int(found["signal"]), pid=int(found["pid"]),
                    node=found["node"])  # fmt: skip
    elif found := _RAY.search(text):
        yield _exit(line, "ray", pid=int(found["pid"]))
    elif found := _SPAWN.search(text):
        code = int(found["code"]) if found["code"] else None
        signal = signal_of(found["signal"]) if found["signal"] else None
        yield _exit(line, "spawn", code, signal, local=int(found["local"]))
    elif found := _DEEPSPEED.search(text):
        yield _exit(line, "deepspeed", int(found["code"]))
    elif found := _FATAL.search(text):
        yield _exit(line, "faulthandler", None, signal_of(found["how"]), pid=line.pid)
    elif "due to the node running low on memory" in text:
        yield _exit(line, "ray", None, 9, pid=line.pid, oom=True)
