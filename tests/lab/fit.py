"""What the tests of preflight share: looks as JSON, and nodes that are broken for a while."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sluggish.preflight.leftover import FRESH_S

from . import cluster, sims, sysfs
from .cluster import Lab

PATIENT = ("SLUGGISH_PROBE_S=30", "SLUGGISH_SSH_CONNECT_S=15", "SLUGGISH_DEADLINE_S=80")
"""A machine that runs many tests at once is slow, and what is too slow is not checked."""
PROGRAM = "import time; time.sleep(600)"


def nodes(
    lab: Lab, *argv: str, where: str = "login", user: str | None = None, code: int = 0
) -> dict[str, Any]:
    """The JSON document's nodes by name."""
    done = lab.exec(
        where, ["env", *PATIENT, "sluggish", "preflight", *argv, "--json"], user, timeout=100
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {one["node"]: one for one in json.loads(done.stdout)["nodes"]}


def verdicts(found: dict[str, Any]) -> list[str]:
    return [found[node]["verdict"] for node in sorted(found)]


def said(found: dict[str, Any], node: str, state: str) -> str:
    return " | ".join(r["says"] for r in found[node]["remarks"] if r["state"] == state)


@contextmanager
def healed(lab: Lab) -> Iterator[None]:
    """Whatever the block breaks of GPUs, ports, links and the kernel log is whole behind it."""
    try:
        yield
    finally:
        for node in lab.nodes:
            lab.mend(node)
            sims.gpus(lab, node)
            sims.clear_kernel(lab, node)
            sysfs.port_up(lab, node, "mlx5_3")


@contextmanager
def leftover(lab: Lab, node: str) -> Iterator[int]:
    """A program of bob's that belongs to no job and is old enough to be judged; its pid there."""
    left = lab.popen(node, ["/opt/venv/bin/python", "-c", PROGRAM], "bob", stdin=subprocess.DEVNULL)
    try:
        aged = (
            f"ps -u bob -o pid=,etimes=,comm= | awk '$3 ~ /python/ && $2 >= {FRESH_S} {{print $1}}'"
        )
        seen: list[str] = []
        cluster.wait_for(lambda: seen.append(lab.sh(node, aged)) or seen[-1], 40, "bob's program")
        yield int(seen[-1].split()[0])
    finally:
        left.send_signal(signal.SIGTERM)
        cluster.end(left)


def hold(lab: Lab, node: str, pid: int) -> None:
    """That process holds memory of GPU 5."""
    sims.gpus(lab, node, {"5.memory.used": "90000"}, f"process=5,{pid},python,90000")
