"""Real training jobs in the lab (train.py) and looks at them: by ssh as root and owner, by srun."""

import json
import re
import subprocess
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cluster, sims
from .cluster import Lab

A_NODE = 2
"""Ranks on each of the two nodes."""
QUIET_S = 2.5
"""Longer than train.py's watchdog: the dumps are there."""
LIMIT_S = 60
LOOK_LIMIT_S = 120
"""On a machine that does much else; a look takes about 7 s."""
WAYS: dict[str, tuple[str | None, list[str]]] = {
    "root": (None, ["--transport", "ssh"]),
    "owner": ("alice", ["--transport", "ssh"]),
    "srun": ("alice", ["--transport", "srun"]),
}
"""The looks at one job: who looks, and how."""

_SUBMIT = """
mkdir -p "$4" && cd "$4" && rm -f store && \
    sbatch --parsable -J "$1" -N2 -w "$3" --ntasks-per-node=2 --gres=gpu:2 -o "$4/job.out" --wrap "
export GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 TORCH_FR_DUMP_TEMP_FILE=/tmp/fr_\\${SLURM_JOB_ID}_
srun /opt/venv/bin/python -u /opt/sluggish/tests/lab/train.py $1 $2 $4"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A running job of alice: two nodes, four ranks, ranks 0 and 1 on the first."""

    lab: Lab
    id: str
    case: str
    culprit: int
    nodes: tuple[str, str]
    tmp: str = "/tmp"
    """Where the /tmp of its ranks lies on their node; `{node}` and `{id}` stand for them."""

    def node(self, rank: int) -> str:
        return self.nodes[rank // A_NODE]

    def mark(self, rank: int, what: str) -> Path:
        """What a rank of this job looks for in its node's /tmp."""
        return self.lab.path(self.node(rank), f"{self._tmp(rank)}/{what}.{self.id}")

    def _tmp(self, rank: int) -> str:
        return self.tmp.format(node=self.node(rank), id=self.id)

    def beat(self, rank: int) -> tuple[int, int]:
        """A rank's process on its node and its finished steps."""
        place = self.lab.path(self.node(rank), f"{self._tmp(rank)}/beat.{self.id}.{rank}")
        try:
            pid, steps = place.read_text().split()
        except (FileNotFoundError, ValueError):
            return 0, 0
        return int(pid), int(steps)

    def steps(self) -> tuple[int, ...]:
        return tuple(self.beat(rank)[1] for rank in range(2 * A_NODE))

    def fault(self, *ranks: int) -> None:
        for rank in ranks or (self.culprit,):
            self.mark(rank, "fault").touch()


@contextmanager
def running(
    lab: Lab, case: str, culprit: int, nodes: tuple[str, str], folder: str = ""
) -> Generator[Job]:
    """A job that trains; ended with the block."""
    folder = folder or f"/home/alice/{case}"
    submit = ["sh", "-c", _SUBMIT, "submit", case, str(culprit), ",".join(nodes), folder]
    done = lab.exec("login", submit, "alice", check=True)
    job = Job(lab=lab, id=done.stdout.strip(), case=case, culprit=culprit, nodes=nodes)
    try:
        cluster.wait_for(lambda: min(job.steps()) >= 5, LIMIT_S, f"{case} does not train")
        yield job
    finally:
        lab.exec("ctl", ["scancel", "-f", job.id])
        for node in nodes:
            sims.gpus(lab, node, {})
        gone = ["squeue", "-h", "-j", job.id]
        cluster.wait_for(lambda: not lab.exec("ctl", gone).stdout, LIMIT_S, f"{case} does not end")


def wait_quiet(job: Job) -> None:
    """Until no rank has made a step for QUIET_S."""
    deadline = time.monotonic() + LIMIT_S
    seen, since = job.steps(), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        time.sleep(0.1)
        if (now := job.steps()) != seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() < deadline, f"{job.case} does not hang"


def wait_on(job: Job) -> None:
    """Until every rank has made a step more: the fault was the only thing that held them."""
    seen = job.steps()
    cluster.wait_for(
        lambda: all(b > a for a, b in zip(seen, job.steps(), strict=True)),
        LIMIT_S,
        f"{job.case} does not run on once it is mended",
    )


def pace(job: Job) -> float:
    """Seconds a step, over three of them."""
    first = job.steps()[0]
    cluster.wait_for(lambda: job.steps()[0] > first, LIMIT_S, f"{job.case} does not move")
    began, seen = time.monotonic(), job.steps()[0]
    cluster.wait_for(lambda: job.steps()[0] >= seen + 3, LIMIT_S, f"{job.case} does not move")
    return (time.monotonic() - began) / (job.steps()[0] - seen)


@contextmanager
def over_port(job: Job, rank: int, hca: str) -> Generator[None]:
    """Meanwhile a rank's traffic needs this port of its node."""
    state = f"/sys/class/infiniband/{hca}/ports/1/state"
    link = ["/opt/venv/bin/python", "/opt/sluggish/tests/lab/link.py", str(job.beat(rank)[0])]
    process = job.lab.popen(job.node(rank), [*link, state], stdin=subprocess.DEVNULL)
    try:
        yield
        assert process.poll() is None, "link.py has ended"
    finally:
        cluster.end(process)


def gpus_wait(job: Job, *idle: int, **more: str) -> None:
    """The GPUs as NCCL leaves them in a hang: waiting ranks' at 100 % and low power, others' at 0.

    `more` are further keys of the culprit's node.
    """
    for number, node in enumerate(job.nodes):
        state = dict(more) if node == job.node(job.culprit) else {}
        processes: list[str] = []
        for local in range(A_NODE):
            rank = number * A_NODE + local
            if rank not in idle:
                state |= {f"{local}.utilization.gpu": "100", f"{local}.power.draw": "195.00"}
            pid = job.beat(rank)[0]
            if job.lab.exec(node, ["test", "-d", f"/proc/{pid}"]).returncode:
                continue  # with the process its memory is freed
            state |= {f"{local}.memory.used": "180000"}
            processes.append(f"process={local},{pid},python,179000")
        sims.gpus(job.lab, node, state, *processes)


# -- looks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What `sluggish diagnose --json` said."""

    code: int
    document: dict[str, Any]
    notes: str
    seconds: float

    @property
    def verdict(self) -> str:
        said = self.document["verdict"]
        return f"{said['cause']}/{said['subtype']}"

    @property
    def places(self) -> list[tuple[str | None, int | None]]:
        """Node and rank of each culprit."""
        return [(c["node"], c["rank"]) for c in self.document["verdict"]["culprits"]]

    @property
    def gaps(self) -> str:
        return json.dumps(self.document["verdict"]["not_checked"])

    @property
    def drains(self) -> list[str]:
        """The nodes that a printed line would take out of service."""
        return re.findall(r"scontrol update NodeName=(\S+)", json.dumps(self.document))


def sluggish(
    lab: Lab, argv: Sequence[str], user: str | None, where: str = "login"
) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return lab.popen(where, ["sluggish", *argv], user, stdin=pipe, stdout=pipe, stderr=pipe)


def told(process: subprocess.Popen[bytes], began: float, seconds: float = 60) -> Told:
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException:
        cluster.end(process)
        raise
    took = time.monotonic() - began
    assert out, err.decode()
    return Told(code=process.returncode, document=json.loads(out), notes=err.decode(), seconds=took)


def looks(job: Job, *ways: str) -> dict[str, Told]:
    """The same look by several ways, side by side; all are waited for."""
    began = time.monotonic()
    argv = ["diagnose", "--job", job.id, "--window", "3", "--json"]
    at_work = {way: sluggish(job.lab, [*argv, *WAYS[way][1]], WAYS[way][0]) for way in ways or WAYS}
    try:
        return {way: told(process, began, LOOK_LIMIT_S) for way, process in at_work.items()}
    finally:
        for process in at_work.values():
            if process.poll() is None:  # another one has failed
                cluster.end(process)
