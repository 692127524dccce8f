"""What stands in for hardware and kernel on a node: GPUs, kernel log, clock, RAS port."""

import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from . import simulators
from .cluster import Lab, end, wait_for
from .sysfs import GPU_BUS


def gpus(lab: Lab, node: str, state: Mapping[str, str] | None = None, *more: str) -> None:
    """Sets the whole state of a node's GPUs: sim/nvidia-smi.c says which keys. None: healthy, idle.

    `more` are lines that may stand more than once: `process=0,4711,python,200000`.
    """
    lines = [*(f"{key}={value}" for key, value in (state or {}).items()), *more]
    aside = lab.path(node, "/run/node/gpus.new")
    aside.write_text("".join(f"{line}\n" for line in lines))
    aside.rename(lab.path(node, "/run/node/gpus"))


def gpu_off_the_bus(lab: Lab, node: str, gpu: int) -> None:
    """Xid 79 as it shows: the kernel's lines, and nvidia-smi that leaves the GPU out."""
    gpus(lab, node, {f"{gpu}.lost": "1"})
    bus = GPU_BUS[gpu]
    for text in (
        f"NVRM: Xid (PCI:0000:{bus}:00): 79, GPU has fallen off the bus.",
        f"NVRM: GPU 0000:{bus}:00.0: GPU has fallen off the bus.",
    ):
        kernel(lab, node, text)


def kernel(lab: Lab, node: str, text: str, ago: float = 0) -> None:
    """Adds a line to the node's kernel log, `ago` seconds before now; the order stays."""
    at = float(Path("/proc/uptime").read_text().split()[0]) - ago
    with lab.path(node, "/run/node/kmsg").open("a") as log:
        log.write(f"{at:.6f} {text}\n")


def clear_kernel(lab: Lab, node: str) -> None:
    """Back to the few lines of the boot."""
    simulators.boot_log(lab.path(node, "/run/node"))


def journal(lab: Lab, node: str, there: bool) -> None:
    """Whether the node keeps a journal; without it only dmesg has the kernel's lines."""
    mark = lab.path(node, "/run/node/no-journal")
    mark.unlink(missing_ok=True) if there else mark.touch()


def clock(lab: Lab, node: str, ahead: int) -> None:
    """How many seconds the node's clock runs ahead; 0 is right."""
    lab.path(node, "/run/node/clock").write_text(f"{ahead}\n")


@contextmanager
def traffic(lab: Lab, node: str) -> Generator[None]:
    """The data counters of every port of the node rise meanwhile, as under a job that moves."""
    null = subprocess.DEVNULL
    process = lab.popen(node, ["sh", "-c", _TRAFFIC], stdin=null, stdout=null, stderr=null)
    try:
        yield
    finally:
        end(process)


def ras(lab: Lab, node: str, report: str | None) -> None:
    """What NCCL's RAS port 28028 of a node answers to `status` from now on; None: nobody listens.

    The report is given back as it is, text or JSON.
    """
    place = lab.path(node, "/run/node/ras")
    listening = ["sh", "-c", "grep -q ':6D7C .* 0A ' /proc/net/tcp"]
    if report is None:
        place.unlink(missing_ok=True)
        wait_for(lambda: lab.exec(node, listening).returncode != 0, 10, "RAS goes on")
        return
    place.write_text(report)
    if lab.exec(node, listening).returncode:
        null = subprocess.DEVNULL
        server = ["/usr/bin/python3", "/run/lab/lib/ras.py", "/run/node/ras"]
        lab.popen(node, server, stdin=null, stdout=null, stderr=null).returncode = 0
        wait_for(lambda: lab.exec(node, listening).returncode == 0, 10, "RAS does not listen")


# numbers of one width, written over one another: no reader finds half a file
_TRAFFIC = """
n=1000000000000000
while :; do
    n=$((n + 1000000000))
    for place in /run/node/sys/class/infiniband/*/ports/1/counters; do
        echo $n 1<>"$place/port_xmit_data"
        echo $n 1<>"$place/port_rcv_data"
    done
    sleep 0.2
done
"""
