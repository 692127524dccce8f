"""Which way to the nodes, and why in one line."""

import os
import shlex
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sluggish.hostlist import fold
from sluggish.reach.errors import DEAD_HOME
from sluggish.reach.local import local
from sluggish.reach.model import Answer, Transport
from sluggish.reach.openssh import DEFAULT, OpenSshTransport
from sluggish.reach.srun import NoWay, srun
from sluggish.reach.ssh import SshTransport

NAMES = ("auto", "ssh", "openssh", "srun", "local")
TRIED = 3
"""Nodes whose SSH is tried before another way is taken: one of them may be the dead one."""
TRY_S = 8.0
BETTER_BY_OPENSSH = ("host key", "auth denied", "not run")
"""Certificates, host-based login, ProxyCommand and the like: OpenSSH itself may get through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A transport, and why it is this one."""

    transport: Transport
    why: str


def choose(
    name: str,
    nodes: Sequence[str],
    *,
    job: str | None,
    uid: int | None,
    running: bool,
    ssh: Callable[[], SshTransport] = SshTransport,
    command: Sequence[str] = DEFAULT,
    parts: Mapping[str, int] | None = None,
) -> Way | NoWay:
    """The transport of this name; `auto` takes SSH where it answers, else srun if it may.

    Host keys are nobody's to wave through: with OpenSSH the person's own ssh_config decides.
    """
    if name == "ssh":
        return Way(transport=ssh(), why="as told")
    if name == "openssh":
        return Way(
            transport=OpenSshTransport(template=command), why=f"as told: {shlex.join(command)}"
        )
    here = _here()
    only = len(nodes) == 1 and nodes[0].split(".")[0] in here
    if name == "local":
        if only:
            return Way(transport=local(), why="as told")
        asked = f"what is asked for is {fold(nodes)}" if nodes else "no node is known"
        return NoWay(why=f"it asks this machine ({here[0]}) alone, and {asked}")
    if name == "srun":
        step = srun(job or "", uid, parts)
        return step if isinstance(step, NoWay) else Way(transport=step, why="as told")
    if only:
        return Way(transport=local(), why="this is the job's only node")
    answers = _try(ssh(), nodes[:TRIED])
    good = [answer.node for answer in answers if answer.failure is None]
    if good:
        return Way(transport=ssh(), why=f"{good[0]} answers")
    tried = [answer for answer in answers if answer.says != DEAD_HOME]
    if any(answer.failure in BETTER_BY_OPENSSH for answer in tried):
        others = _try(OpenSshTransport(template=command), nodes[:TRIED])
        good = [answer.node for answer in others if answer.failure is None]
        if good:
            why = f"{good[0]} answers to it, and to our own ssh not: {answers[0].says}"
            return Way(transport=OpenSshTransport(template=command), why=why[:200])
    first = next(iter(answers), None)
    heard = f"{first.node}: {first.failure}" if first else "no node to try"
    step = srun(job or "", uid, parts) if running else NoWay(why="the job is not running")
    if isinstance(step, NoWay):
        return Way(transport=ssh(), why=f"{heard}; srun is no way: {step.why}")
    return Way(transport=step, why=f"ssh does not get through ({heard})")


def _here() -> tuple[str, ...]:
    """This machine's own name, and the one that slurmd gave it where it started us."""
    names = (socket.gethostname(), os.environ.get("SLURMD_NODENAME", ""))
    return tuple(name.split(".")[0] for name in names if name)


def _try(transport: Transport, nodes: Sequence[str]) -> list[Answer]:
    """A shell on a few nodes at once; done as soon as one has answered."""
    answers: list[Answer] = []
    news = threading.Event()

    def one(node: str) -> None:
        answer = transport.run(node, b":\n", TRY_S, lambda _: None, lambda: None)
        answers.append(answer)
        if answer.failure is None or len(answers) == len(nodes):
            news.set()

    for node in nodes:
        threading.Thread(target=one, args=(node,), daemon=True).start()
    news.wait(TRY_S if nodes else 0)
    transport.close()
    return list(answers)
