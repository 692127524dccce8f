"""What the lab needs on this machine: apt packages, a Python for plain users, no other Slurm."""

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path("/var/tmp/sluggish-lab")
"""Virtual environments of the lab: readable by everybody, kept between runs."""
SYSTEM_PYTHON = "/usr/bin/python3"
_TORCH = ROOT / "tests/requirements-torch.txt"

PACKAGES = (
    "slurm-wlm", "slurmctld", "slurmd", "slurm-client", "munge", "slurmdbd", "mariadb-server",
    "mariadb-client", "openssh-server", "openssh-client", "libpam-slurm-adopt", "iproute2",
    "procps", "e2fsprogs", "bindfs", "infiniband-diags", "ibsim-utils", "libumad2sim0",
    "opensm", "ibverbs-utils", "libibverbs-dev", "gcc", "libc6-dev", "strace", "busybox", "pdsh",
    "clustershell", "netcat-openbsd", "python3-venv", "sudo", "prometheus",
)  # fmt: skip

_PROGRAMS = (
    "slurmctld", "slurmd", "scontrol", "munged", "slurmdbd", "sacctmgr", "mariadbd", "mariadb",
    "mariadb-install-db", "sshd", "ssh", "ssh-keygen", "ip", "unshare", "nsenter", "setpriv",
    "pgrep", "mkfs.ext4", "bindfs", "ibstat", "ibsim", "opensm", "ibv_devinfo", "gcc",
    "strace", "busybox", "nc", "sudo", "prometheus",
)  # fmt: skip
_POLICY = Path("/usr/sbin/policy-rc.d")


class CannotRun(Exception):
    """This machine cannot hold a lab; the text says why."""


def check() -> None:
    """Raises `CannotRun` unless a lab can be started here."""
    if os.geteuid() != 0:
        raise CannotRun("needs root")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    if missing := [name for name in _PROGRAMS if not shutil.which(name, path=path)]:
        raise CannotRun(f"missing: {' '.join(missing)} (scripts/lab install)")
    refuse_own_slurm()
    spaces = ["unshare", "--mount", "--net", "--uts", "--pid", "--ipc", "--fork", "--mount-proc"]
    if subprocess.run([*spaces, "true"], capture_output=True, check=False).returncode:
        raise CannotRun("not allowed to make namespaces (a container needs --privileged)")


def refuse_own_slurm() -> None:
    """Raises `CannotRun` where the machine is part of a cluster; `SLUGGISH_LAB=1` overrules."""
    if os.environ.get("SLUGGISH_LAB") == "1":
        return
    why = "this machine has a Slurm of its own ({}); SLUGGISH_LAB=1 overrules"
    if Path("/etc/slurm/slurm.conf").exists():
        raise CannotRun(why.format("/etc/slurm/slurm.conf"))
    ours = os.readlink("/proc/self/ns/pid")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            # daemons of another lab live in PID namespaces of their own
            if name in ("slurmd", "munged") and os.readlink(process / "ns/pid") == ours:
                raise CannotRun(why.format(f"{name} runs as {process.name}"))
        except OSError:
            continue


def install(log: Path, torch: bool = False) -> None:
    """Brings packages and the lab's Python; the log is shown by the caller where this raises."""
    if os.geteuid() != 0:
        raise CannotRun("needs root")
    refuse_own_slurm()
    status = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    have = {line.split()[0] for line in status.stdout.splitlines() if line.endswith(" installed")}
    if missing := [name for name in PACKAGES if name not in have]:
        with _no_services():
            _run(log, "apt-get", "update")
            _run(log, "apt-get", "install", "--yes", "--no-install-recommends", *missing)
    make_venv(log, torch=torch)


def venv() -> Path:
    """Where the lab's Python stands or would stand: the name follows the dependencies."""
    text = "\n".join([*_dependencies(), (ROOT / "tests/requirements.txt").read_text()])
    return CACHE / f"venv-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def cache() -> Path:
    """The directory that is kept between labs, made where it is missing."""
    CACHE.mkdir(mode=0o755, exist_ok=True)
    if CACHE.is_symlink() or CACHE.stat().st_uid != os.geteuid():
        raise CannotRun(f"{CACHE} is not ours")
    CACHE.chmod(0o755)
    return CACHE


def has_torch() -> bool:
    """Whether the lab's Python holds what the real ranks need."""
    stamp = venv() / ".torch"
    return stamp.exists() and stamp.read_text() == _TORCH.read_text()


def make_venv(log: Path, torch: bool = False) -> Path:
    """The lab's Python, made where it is missing; with `torch` the ranks' libraries too."""
    cache()
    home = venv()
    pip = [str(home / "bin/python"), "-m", "pip", "install", "-qq"]
    if not (home / ".done").exists():
        shutil.rmtree(home, ignore_errors=True)
        _run(log, SYSTEM_PYTHON, "-m", "venv", str(home))
        lock = str(ROOT / "tests/requirements.txt")
        _run(log, *pip, "--constraint", lock, *_dependencies())
        (home / ".done").touch()
    if torch and not has_torch():
        _run(log, *pip, "--requirement", str(_TORCH))
        (home / ".torch").write_text(_TORCH.read_text())
    return home


def _dependencies() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]["dependencies"]


def _run(log: Path, *argv: str) -> None:
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("a") as file:
        subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environ, umask=0o022,
            check=True,
        )  # fmt: skip


@contextmanager
def _no_services() -> Generator[None]:
    """Packages that are installed meanwhile start no daemon: the lab starts its own."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
