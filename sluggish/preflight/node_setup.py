"""A probe of preflight alone: how a node is set up, and which processes belong to no job.

Plain user, tens of milliseconds; root sees no more. `scontrol listpids` asks the node's own slurmd
and not slurmctld; where it does not answer, the cgroups of jobs tell. Traps: `ulimit -l` is that of
this session, which pam_limits and slurmd may set differently; a container brings its own NCCL, so
the libraries here are the node's, not the job's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sluggish.facts.origin import Origin
from sluggish.facts.sections import sections

ID = "node_setup"
COMMAND = r"""
limit=
command -v timeout >/dev/null 2>&1 && limit='timeout 3'
echo '==> ulimit -l <=='; ulimit -l
for f in /sys/module/nvidia/version /sys/module/mlx5_core/version /etc/nccl.conf \
    /sys/kernel/mm/transparent_hugepage/enabled /proc/sys/kernel/numa_balancing \
    /proc/sys/vm/nr_hugepages /etc/os-release; do
  echo "==> $f <=="; [ -r "$f" ] && cat "$f"
done
echo '==> modules <=='
for m in nvidia_peermem nvidia_uvm gdrdrv ib_uverbs rdma_cm; do
  [ -d "/sys/module/$m" ] && echo "$m"
done
echo '==> libnccl <=='
for f in /usr/lib/*/libnccl.so.*.* /usr/lib64/libnccl.so.*.* /usr/local/lib/libnccl.so.*.* \
    /usr/local/cuda/lib64/libnccl.so.*.*; do
  [ -e "$f" ] && echo "$f"
done
echo '==> environment <=='
env | grep -E '^(NCCL|TORCH|GLOO|UCX|FI|CUDA)_[A-Z0-9_]+='
echo '==> scontrol listpids <=='
$limit scontrol listpids 2>&1
echo "listpids ended with $?"
echo '==> cgroups <=='
grep -s 'job_[0-9]' /proc/[0-9]*/cgroup
echo '==> ps <=='
ps -eo pid=,uid=,etimes=,comm=
:
"""
BINARY = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSetting:
    """One setting of a node that its peers should have too."""

    node: str | None
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProcesses:
    """Which processes of a node are Slurm's."""

    node: str | None
    jobs: tuple[tuple[int, str], ...]
    """(pid, job id)."""
    sure: bool
    """True: slurmd answered, so that an older process that is not here is no job's."""
    ages: tuple[tuple[int, int], ...]
    """(pid, seconds since its start) of every process that may be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProcess:
    """A process of a plain user that bears the name of a training program."""

    node: str | None
    pid: int
    uid: int
    seconds: int
    """Since it was started."""
    name: str


FACTS: tuple[type, ...] = (NodeSetting, JobProcesses, UserProcess)
OWN = ("CUDA_VISIBLE_DEVICES=",)
"""Variables that rightly differ from node to node."""
MOST_VARIABLES = 200
FIRST_USER = 1_000
"""Below are the system's own accounts (useradd's UID_MIN)."""
TRAINING = re.compile(r"python|pt_main|pt_data|torchrun|deepspeed|accelerate")
# /proc/4711/cgroup:0::/system.slice/slurmstepd.scope/job_48213/step_0/user/task_0
_CGROUP = re.compile(r"/proc/(\d{1,10})/cgroup:\S{0,400}?/job_(\d{1,10})(?:/|\Z)", re.ASCII)
# PID      JOBID    STEPID   LOCALID GLOBALID
# 4711     48213    0        0       0
_LISTED = re.compile(r"[ \t]*(\d{1,10})[ \t]+(\d{1,10})(?:_\d+)?[ \t]", re.ASCII)
_NO_STEPS = re.compile(r"no (?:job )?steps exist|No job steps", re.IGNORECASE)
# 4711  5001   86400 python3
_PS = re.compile(r"[ \t]*(\d{1,10})[ \t]+(\d{1,10})[ \t]+(\d{1,12})[ \t]+(\S{1,64})", re.ASCII)
_SINGLE = {
    "ulimit -l": "limit of locked memory (KiB)",
    "/sys/module/nvidia/version": "nvidia driver",
    "/sys/module/mlx5_core/version": "mlx5 driver",
    "/sys/kernel/mm/transparent_hugepage/enabled": "transparent huge pages",
    "/proc/sys/kernel/numa_balancing": "NUMA balancing",
    "/proc/sys/vm/nr_hugepages": "reserved huge pages",
}


def sniff(head: bytes) -> bool:
    """Never: nobody mails this, it is asked for and judged at once."""
    return False


def parse(text: str, origin: Origin) -> Iterator[NodeSetting | JobProcesses | UserProcess]:
    """Settings, jobs' processes, and training programs whoever owns them."""
    found = dict(sections(text))
    if "ulimit -l" not in found or "ps" not in found:
        raise ValueError("expected the sections ulimit -l to ps")
    for name, value in _settings(found):
        yield NodeSetting(node=origin.node, name=name, value=value)
    jobs, sure = _jobs(found)
    rows = [match for match in map(_PS.match, found["ps"].splitlines()) if match]
    ages = tuple((int(match[1]), int(match[3])) for match in rows)
    yield JobProcesses(node=origin.node, jobs=jobs, sure=sure, ages=ages)
    for match in rows:
        if int(match[2]) >= FIRST_USER and TRAINING.match(match[4]):
            yield UserProcess(
                node=origin.node,
                pid=int(match[1]),
                uid=int(match[2]),
                seconds=int(match[3]),
                name=match[4],
            )


def _settings(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    for section, name in _SINGLE.items():
        value = found.get(section, "").strip()
        yield name, value[:200] or "none"
    modules = found.get("modules", "").split()
    yield "kernel modules", " ".join(sorted(modules)) or "none"
    libraries = {path.rpartition("/")[2] for path in found.get("libnccl", "").split()}
    yield "NCCL library", " ".join(sorted(libraries)) or "none"
    lines = [line.strip() for line in found.get("/etc/nccl.conf", "").splitlines()]
    yield "/etc/nccl.conf", " ".join(line for line in lines if line and line[0] != "#") or "none"
    release = re.search(r'^PRETTY_NAME="?([^"\n]{1,80})', found.get("/etc/os-release", ""), re.M)
    yield "system", release[1] if release else "unknown"
    for line in found.get("environment", "").splitlines()[:MOST_VARIABLES]:
        if not line.startswith(OWN):
            variable, _, value = line.partition("=")
            yield f"${variable}", value[:400]


def _jobs(found: dict[str, str]) -> tuple[tuple[tuple[int, str], ...], bool]:
    told = found.get("scontrol listpids", "")
    ended = re.search(r"^listpids ended with (\d+)$", told, re.M)
    sure = bool(ended and ended[1] == "0") or bool(_NO_STEPS.search(told))
    jobs = {int(m[1]): m[2] for m in map(_LISTED.match, told.splitlines()) if m}
    jobs |= {int(m[1]): m[2] for m in _CGROUP.finditer(found.get("cgroups", ""))}
    return tuple(sorted(jobs.items())), sure
