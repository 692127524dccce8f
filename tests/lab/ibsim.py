"""A simulated InfiniBand fabric: real opensm and the real tools, asked over no wire at all.

ibsim holds the fabric, a library stands in for /dev/infiniband/umad*. Everything talks over
abstract sockets of its own name. HCAs are called after node and card, as mlx5 describes itself.
"""

import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .cluster import wait_for

NODES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
HCAS = ("mlx5_0", "mlx5_1")
LEAF = "MF0;leaf1:MQM8700/U1"
_LIBRARY = "/usr/lib/*/umad2sim/libumad2sim.so"


class Fabric:
    """One leaf switch; port 1, 2, ... in the order of nodes and HCAs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._env = {
            **os.environ, "IBSIM_SOCKNAME": f"sluggish{os.getpid()}{folder.name}",
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "OSM_CACHE_DIR": str(folder),
            "OSM_TMP_DIR": str(folder),
        }  # fmt: skip
        (folder / "net").write_text(_net())
        self._sim = self._start(["ibsim", "-s", "net"], stdin=subprocess.PIPE)
        self._manager: subprocess.Popen[bytes] | None = None
        wait_for(lambda: "State: Initializing" in self.ask("ibstat"), 20, "no simulated fabric")

    def _start(self, argv: list[str], stdin: int, host: str = "") -> subprocess.Popen[bytes]:
        null = subprocess.DEVNULL
        environ = self._as(host) if host else self._env
        return subprocess.Popen(argv, cwd=self.folder, env=environ, stdin=stdin, stdout=null,
                                stderr=null)  # fmt: skip

    def _as(self, host: str) -> dict[str, str]:
        [library] = [str(path) for path in Path("/").glob(_LIBRARY.lstrip("/"))]
        return {**self._env, "SIM_HOST": host, "LD_PRELOAD": library}

    def ask(self, *argv: str, node: str = NODES[0], hca: str = HCAS[0]) -> str:
        """What a tool prints on a node, both streams, as somebody would paste it."""
        done = subprocess.run(
            argv, cwd=self.folder, env=self._as(f"{node}-{hca}"), text=True, timeout=60,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        return done.stdout

    def console(self, line: str) -> None:
        """A line typed into the simulator: `Unlink "gpu-03-mlx5_0"[1]`."""
        pipe: IO[bytes] | None = self._sim.stdin
        assert pipe is not None
        pipe.write(f"{line}\n".encode())
        pipe.flush()

    def state(self, node: str, hca: str) -> str:
        return self.ask("ibstat", node=node, hca=hca)

    def manage(self) -> None:
        """Starts opensm and waits until every port is Active."""
        self._manager = self._start(
            ["opensm", "-s", "2", "-f", str(self.folder / "osm.log")], subprocess.DEVNULL,
            f"{NODES[0]}-{HCAS[0]}",
        )  # fmt: skip
        wait_for(lambda: all("State: Active" in self.state(n, h) for n in NODES for h in HCAS),
                 60, "opensm brings up no ports")  # fmt: skip

    def unmanage(self) -> None:
        if self._manager is not None:
            self._manager.kill()
            self._manager.wait()
            self._manager = None

    def end(self) -> None:
        self.unmanage()
        self._sim.kill()
        self._sim.communicate()


@contextmanager
def fabric(folder: Path) -> Generator[Fabric]:
    """A fabric without a subnet manager, gone at the end."""
    found = Fabric(folder)
    try:
        yield found
    finally:
        found.end()


def port_of(node: str, hca: str) -> int:
    """The leaf's port on which this HCA hangs."""
    return NODES.index(node) * len(HCAS) + HCAS.index(hca) + 1


def _net() -> str:
    wide = "w=3 s=7 e=7"
    hosts = [(node, hca) for node in NODES for hca in HCAS]
    text = f'Switch 12 "leaf1"\t# "{LEAF}"\n'
    text += "".join(f'[{port_of(n, h)}] "{n}-{h}"[1] {wide}\n' for n, h in hosts)
    for node, hca in hosts:
        text += f'\nHca 1 "{node}-{hca}"\t# "{node} {hca}"\n'
        text += f'[1] "leaf1"[{port_of(node, hca)}] {wide}\n'
    return text
