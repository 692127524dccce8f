"""Builds the stand-ins of sim/ and puts them into a new lab."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from . import packages

_SIM = Path(__file__).with_name("sim")
_SCRIPTS = ("dmesg", "journalctl", "date", "ibv_devinfo")


def place(directory: Path) -> None:
    """Puts the simulators into a new lab. The compiled ones are kept for the next."""
    built = _build()
    shutil.copytree(built, directory / "lib")
    for home in (directory / "nodes").iterdir():
        (home / "gpus").touch()
        boot_log(home)
        if home.name == "ctl":
            continue
        for name in ("nvidia-smi", *_SCRIPTS):
            shutil.copy(built / name, home / "bin" / name)
        if home.name == "login":  # it has neither GPUs nor HCAs
            for name in ("nvidia-smi", "ibv_devinfo"):
                (home / "bin" / name).unlink()


def boot_log(home: Path) -> None:
    """A kernel log with the few lines of a boot; a plain user cannot read it (dmesg_restrict)."""
    log = home / "kmsg"
    log.write_text(_BOOT)
    log.chmod(0o600)  # dmesg_restrict


def _build() -> Path:
    files = sorted(_SIM.iterdir())
    key = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
    home = packages.cache() / f"sim-{key}"
    if home.exists():
        return home
    aside = packages.cache() / f"sim-{key}.{os.getpid()}"
    aside.mkdir()
    _compile(_SIM / "nvidia-smi.c", "-o", aside / "nvidia-smi")
    _compile(_SIM / "verbs.c", "-shared", "-fPIC", "-o", aside / "verbs.so")
    for name in (*_SCRIPTS, "ras.py"):
        shutil.copyfile(_SIM / name, aside / name)
        (aside / name).chmod(0o755)
    try:
        aside.rename(home)
    except OSError:  # another lab was first
        shutil.rmtree(aside)
    return home


def _compile(source: Path, *options: str | Path) -> None:
    done = subprocess.run(
        ["gcc", "-O1", source, *options], capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode:
        raise packages.CannotRun(f"gcc {source.name}: {done.stderr[-1000:]}")


_BOOT = """\
0.000000 Linux version 6.8.0-58-generic (buildd@lcy02-amd64-051) (gcc 13.3.0) #60-Ubuntu SMP
0.000000 Command line: BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 ro console=ttyS0
4.213377 nvidia: loading out-of-tree module taints kernel.
4.891002 NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build
"""
