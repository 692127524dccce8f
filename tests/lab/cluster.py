"""A lab as the tests see it: `up` starts one, its methods run commands, break and mend things."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import files, packages
from .procs import LabError, end, numbers, read, start_time, wait_for

__all__ = ["Lab", "LabError", "down", "end", "find", "sweep", "up", "wait_for"]
MOST_NODES = 100
"""The neighbour table of the kernel is one for all network namespaces; beyond this it overflows."""
_PREFIX = "sluggish-lab-"
_OWNER = "owner"
_SPACES = ["--mount", "--net", "--uts", "--pid", "--ipc"]


_FREE = """
sinfo -h -N {which} -o '%N %T' | sort -u | while read -r node state; do
    case $state in *drain*|*down*) scontrol update nodename="$node" state=resume ;; esac
done
[ "$(sinfo -h -N {which} -o %T | sort -u)" = idle ]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    dir: Path
    """On the machine; the same directory is /run/lab inside."""
    nodes: tuple[str, ...]
    """The compute nodes; `ctl` and `login` are there besides."""

    def path(self, node: str, inside: str) -> Path:
        """Where a node's /tmp, /var/log, /usr/local/bin, /home or /run/node lies on the machine."""
        own = self.dir / "nodes" / node
        shares = {
            "/tmp": own / "tmp", "/var/tmp": own / "vartmp", "/var/log": own / "log",
            "/usr/local/bin": own / "bin", "/run/node": own, "/run/lab": self.dir,
            "/home": self.dir / "home", "/root": self.dir / "root", "/etc": self.dir / "etc",
        }  # fmt: skip
        for prefix, place in shares.items():
            if inside == prefix or inside.startswith(prefix + "/"):
                return place / inside[len(prefix) :].lstrip("/")
        raise ValueError(f"{inside} is not a share of {node}")

    def popen(
        self, node: str, argv: Sequence[str], user: str | None = None, **more: object
    ) -> subprocess.Popen[bytes]:
        """Starts a command on a node as root or as `user`; `end` stops it with its children."""
        return subprocess.Popen(
            [*self._enter(node), *_as_user(user), *argv],
            **{"start_new_session": True, **more},  # pyright: ignore
        )

    def exec(
        self, node: str, argv: Sequence[str], user: str | None = None, *, timeout: float = 60,
        input: str = "", check: bool = False,
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Runs a command to its end; raises `TimeoutExpired` after ending what it could.

        With `check` a status other than 0 raises `LabError`.
        """
        pipe = subprocess.PIPE
        process = self.popen(node, argv, user, stdin=pipe, stdout=pipe, stderr=pipe)
        try:
            out, err = process.communicate(input.encode(), timeout=timeout)
        except BaseException:
            end(process)
            raise
        text = [stream.decode("utf-8", "replace") for stream in (out, err)]
        if check and process.returncode:
            raise LabError(f"{node}: {' '.join(argv)}: status {process.returncode}\n{text[1]}")
        return subprocess.CompletedProcess(argv, process.returncode, *text)

    def sh(self, node: str, script: str, user: str | None = None, **more: object) -> str:
        """The output of a shell script on a node; raises `LabError` where it fails."""
        return self.exec(node, ["sh", "-c", script], user, check=True, **more).stdout  # pyright: ignore

    def crash(self, node: str) -> None:
        """The node is gone at once, its link too."""
        self._init("stop", node)

    def boot(self, node: str, resume: bool = True) -> None:
        """Starts a crashed node; returns when sshd and slurmd answer. A running one is left alone.

        Slurm calls it down, "Node unexpectedly rebooted"; `resume` puts it back into service.
        """
        self._init("start", node)
        wait_for(lambda: self._answers(node), 30, f"{node}: see {self.dir}/nodes/{node}/log")
        if resume and node != "login" and self.state(node).startswith("down"):
            update = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
            self.exec("ctl", update, check=True)
            wait_for(lambda: "*" not in self.state(node), 30, f"{node} does not resume")

    def cut(self, node: str) -> None:
        """Black hole: the node runs on, but nothing reaches it, not even an ARP answer comes."""
        self.exec("ctl", ["ip", "link", "set", f"v-{node}", "down"], check=True)

    def mend(self, node: str) -> None:
        self.exec("ctl", ["ip", "link", "set", f"v-{node}", "up"], check=True)

    def state(self, node: str) -> str:
        """What sinfo calls the node: idle, mixed, down*, ..."""
        return self.exec("ctl", ["sinfo", "-h", "-n", node, "-o", "%T"], check=True).stdout.strip()

    def wait_until_free(self, seconds: float, nodes: str = "") -> None:
        """Until these nodes, or all, are idle; what a test took out of service is put back."""
        which = f"-n {nodes}" if nodes else ""
        free = ["sh", "-c", _FREE.format(which=which)]
        wait_for(lambda: self.exec("ctl", free).returncode == 0, seconds, "nodes are not free")

    def _answers(self, node: str) -> bool:
        if node != "login" and self.state(node).endswith("*"):
            return False
        return self.exec("login", ["ssh", node, "true"]).returncode == 0

    def down(self) -> None:
        """Ends everything in the lab and removes its directory."""
        down(self.dir)

    def is_up(self) -> bool:
        return _first_process(self.dir) is not None

    def host_pid(self, node: str, pid: int = 1) -> int:
        """A process of a node as the machine numbers it; 1 is the node's first."""
        first = self._first_of(node)
        if pid == 1:
            return first
        space = os.readlink(f"/proc/{first}/ns/pid")
        for outside, inside in numbers():
            with contextlib.suppress(OSError):
                if inside[-1] == str(pid) and os.readlink(f"/proc/{outside}/ns/pid") == space:
                    return outside
        raise LabError(f"no process {pid} on {node}")

    def _first_of(self, node: str) -> int:
        for outside, inside in numbers():
            if inside[-2:] == [self._pid(node), "1"] and self._holds(outside):
                return outside
        raise LabError(f"{node} is not up")

    def _holds(self, pid: int) -> bool:
        """Whether a process is a child, at some remove, of this lab's first."""
        first = _first_process(self.dir)
        while pid > 1:
            if pid == first:
                return True
            stat = Path(f"/proc/{pid}/stat").read_text()
            pid = int(stat.rpartition(")")[2].split()[1])
        return False

    def _pid(self, node: str) -> str:
        """The node's first process as numbered on ctl."""
        try:
            return (self.dir / "nodes" / node / "pid").read_text().split()[0]
        except OSError:
            raise LabError(f"no node {node} in {self.dir}") from None

    def _enter(self, node: str) -> list[str]:
        first = _first_process(self.dir)
        if first is None:
            raise LabError(f"no lab is up in {self.dir}")
        enter = ["nsenter", f"--target={first}", *_SPACES, "--"]
        if node != "ctl":
            enter += ["nsenter", f"--target={self._pid(node)}", *_SPACES, "--"]
        return enter

    def _init(self, *argv: str) -> None:
        if argv[1] not in (*self.nodes, "login"):
            raise LabError(f"no node {argv[1]} in {self.dir}")
        null = subprocess.DEVNULL
        # a file, no pipe: a node that this starts would hold the pipe's end for ever
        with (self.dir / "log/verbs.log").open("ab") as log:
            done = self.popen(
                "ctl", ["bash", "/run/lab/init.sh", *argv], stdin=null, stdout=null, stderr=log
            )
        if done.wait(60):
            raise LabError(f"{' '.join(argv)} failed, see {self.dir}/log/verbs.log")


def up(
    nodes: int = 4, accounting: bool = False, *, directory: Path | None = None, **more: object
) -> Lab:
    """Starts a lab and waits until every node is idle; `more`: the other fields of `Settings`.

    Raises `packages.CannotRun` where this machine cannot hold one, `LabError` where it did not come
    up: then its processes are ended and its directory is left for its logs.
    """
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"1 to {MOST_NODES} nodes")
    packages.check()
    own = False
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        own = True
    elif directory.exists() and any(directory.iterdir()):
        raise LabError(f"{directory} is not empty")
    directory.mkdir(parents=True, exist_ok=True)
    directory = directory.resolve()
    before = os.umask(0o022)
    try:
        directory.chmod(0o755)
        settings = files.Settings(nodes=nodes, accounting=accounting, **more)  # pyright: ignore
        lab = Lab(dir=directory, nodes=files.write(directory, settings))
        if own:
            (directory / _OWNER).write_text(f"{os.getpid()} {start_time(os.getpid())}\n")
        _start(directory, accounting)
        _wait_until_idle(lab)
    except BaseException:
        _end(directory)
        raise
    finally:
        os.umask(before)
    return lab


def find(directory: Path) -> Lab:
    """The lab in a directory, whether up or not."""
    if not (directory / files.MARK).exists():
        raise LabError(f"no lab in {directory}")
    return Lab(dir=directory, nodes=tuple((directory / "nodelist").read_text().split()))


def down(directory: Path) -> None:
    """Ends the lab in a directory and removes it; a directory that is not there is fine."""
    if not directory.exists():
        return
    if not (directory / files.MARK).exists():
        raise LabError(f"{directory} is not a lab")
    directory = directory.resolve()
    _end(directory)
    if any(f" {directory}/" in line for line in Path("/proc/mounts").read_text().splitlines()):
        raise LabError(f"something is mounted below {directory}: not removed")
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/memory"):  # of a test that was killed
        groups = [x for x in Path(root, directory.name).rglob("*") if x.is_dir()]
        for group in (*sorted(groups, reverse=True), Path(root, directory.name)):
            with contextlib.suppress(FileNotFoundError):
                group.rmdir()
    shutil.rmtree(directory)


def sweep(parent: Path | None = None) -> None:
    """Ends labs in directories of `up`'s own choosing whose test run is gone, killed perhaps."""
    parent = parent or Path(tempfile.gettempdir())
    for mark in parent.glob(f"{_PREFIX}*/{_OWNER}"):
        words = read(mark).split()
        if len(words) == 2 and start_time(int(words[0])) != words[1]:
            with contextlib.suppress(FileNotFoundError):  # another worker sweeps too
                down(mark.parent)


def _as_user(user: str | None) -> list[str]:
    home = f"/home/{user}" if user else "/root"
    path = "/usr/local/bin:/usr/bin:/bin"
    if not user:
        path = f"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:{path[-4:]}"
    name = user or "root"
    clean = [f"HOME={home}", f"USER={name}", f"LOGNAME={name}", f"PATH={path}", "LANG=C.UTF-8"]
    env = ["env", "-i", "-C", "/", *clean]
    return ["setpriv", "--reuid", user, "--regid", user, "--init-groups", *env] if user else env


def _start(directory: Path, accounting: bool) -> None:
    argv = [
        "unshare",
        *_SPACES,
        "--propagation=private",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
    ]
    inside = ["bash", str(directory / "init.sh"), "ctl", str(directory), str(int(accounting))]
    (directory / "reboot").write_text('#!/bin/sh\nexec bash /run/lab/init.sh reboot "$1"\n')
    (directory / "reboot").chmod(0o755)
    with (directory / "log/unshare.log").open("ab") as log:
        process = subprocess.Popen(
            [*argv, *inside], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True, cwd="/",
        )  # fmt: skip
    process.returncode = 0  # it outlives this program: no warning about it
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: bool(read(children)), 10, f"did not start, see {directory}/log/unshare.log")
    first = int(read(children).split()[0])
    (directory / "ctl.pid").write_text(f"{first} {start_time(first)}\n")


def _wait_until_idle(lab: Lab) -> None:
    def started() -> bool:
        if not lab.is_up():
            raise LabError(f"the lab ended while starting, logs are in {lab.dir}/log")
        return (lab.dir / "started").exists()

    def idle() -> bool:
        found = lab.exec("ctl", ["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"]).stdout.split()
        return len(set(found)) == len(lab.nodes)

    late = f"did not come up in time, logs are in {lab.dir}/log and {lab.dir}/nodes/*/log"
    wait_for(started, 180, late)
    wait_for(idle, 90, late)
    reach = ["ssh", "-o", "ConnectTimeout=1", "login", "true"]
    wait_for(lambda: lab.exec("login", reach).returncode == 0, 20, late)


def _end(directory: Path) -> None:
    first = _first_process(directory)
    if first is None:
        return
    # storage that hangs fails from now on, or its users, and its own daemon, could not die
    fail = ["bash", "/run/lab/init.sh", "fail_storage"]
    inside = ["nsenter", f"--target={first}", "--mount", "--pid", "--"]
    with contextlib.suppress(subprocess.TimeoutExpired):  # what cannot die is said below
        subprocess.run([*inside, *fail], capture_output=True, check=False, timeout=10)
    os.kill(first, signal.SIGKILL)
    wait_for(
        lambda: _first_process(directory) is None, 30, f"{directory}: a process there cannot die"
    )


def _first_process(directory: Path) -> int | None:
    """The first process of a lab, if it is still the very one that was started."""
    try:
        pid, began = (directory / "ctl.pid").read_text().split()
    except (OSError, ValueError):
        return None
    return int(pid) if start_time(int(pid)) == began else None
