"""One program of the collector's own machine, with a deadline and a cap; never through a shell."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

KEPT = ("SLURM_CONF", "SLURM_JWT", "SLURM_SACK_SOCKET", "SLURM_SACK_KEY")
"""Where Slurm is and how to prove who asks; every other SLURM_ variable may change what it does."""
FORMATS = ("SLURM_", "SQUEUE_", "SINFO_", "SACCT_", "SSTAT_", "SCONTROL_", "SPRIO_", "SALLOC_",
           "SBATCH_", "SRUN_")  # fmt: skip
"""Settings of a user's shell that turn columns, times, filters and clusters of the answers."""
DYING_S = 0.5
"""How long a killed child may take to go; one that waits for dead storage never does."""

DROP = """
import errno, glob, itertools, json, os, pwd, stat, sys, warnings
uid = int(sys.argv[1])
if os.getuid() != uid:
    try:
        who = pwd.getpwuid(uid)
        os.initgroups(who.pw_name, who.pw_gid)
        os.setresgid(who.pw_gid, who.pw_gid, who.pw_gid)
    except KeyError:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
    os.setresuid(uid, uid, uid)
"""
"""Becomes a user in the child: a name service that hangs hangs the child alone.

Everything is imported before: the user may not be able to read root's Python.
"""
_EXEC = DROP + "os.execvp(sys.argv[2], sys.argv[2:])\n"

_left: list[subprocess.Popen[bytes]] = []  # killed and not yet gone: never waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What came of a command."""

    argv: tuple[str, ...]
    stdout: bytes = b""
    stderr: str = ""
    exit_code: int | None = None
    """None: it never finished, or never began."""
    error: str | None = None
    """As in Evidence: `timeout`, `stuck`, `not found`, `denied`, `truncated`; None if it ran."""
    duration_s: float = 0.0

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def says(self) -> str:
        """The first line of stderr that says something."""
        return next((line.strip() for line in self.stderr.splitlines() if line.strip()), "")


def clean_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which Slurm prints what its documentation says, with times in UTC.

    Slurm prints local time without a zone; in the zone of the caller an hour a year is ambiguous.
    Programs are looked for in the home last: whoever looks in a home that hangs, hangs.
    """
    whole = os.environ if env is None else env
    kept = {
        name: value for name, value in whole.items() if name in KEPT or not name.startswith(FORMATS)
    }
    home = whole.get("HOME", "").rstrip("/")
    if home and "PATH" in kept:
        places = sorted(
            kept["PATH"].split(":"), key=lambda place: f"{place}/".startswith(f"{home}/")
        )
        kept["PATH"] = ":".join(places)
    return {**kept, "LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}


def run(
    argv: Sequence[str],
    timeout_s: float,
    *,
    env: Mapping[str, str] | None = None,
    cap_bytes: int = 32 << 20,
    as_uid: int | None = None,
    stdin: int = subprocess.DEVNULL,
) -> Ran:
    """Run a command to its end, its deadline or its cap, whichever comes first; never raises.

    `env` is the caller's environment, cleaned by `clean_env`. `as_uid`: as this user; only root can
    become another. `stdin`: a file descriptor to read from. What is still alive at the deadline is
    killed, with what it started.
    """
    began = time.monotonic()
    told = tuple(argv)
    become = as_uid is not None and as_uid != os.getuid()
    if become and os.getuid() != 0:
        return Ran(argv=told, error="denied", stderr=f"only root can run this as uid {as_uid}")
    line = [sys.executable, "-I", "-S", "-c", _EXEC, str(as_uid), *argv] if become else list(argv)
    try:
        child = subprocess.Popen(
            line,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_env(env),
            cwd="/",
            start_new_session=True,
        )
    except FileNotFoundError:
        return Ran(argv=told, error="not found", stderr=f"no program {argv[0]} on this machine")
    except PermissionError as problem:
        return Ran(argv=told, error="denied", stderr=f"{argv[0]}: {problem.strerror}")
    except (OSError, ValueError) as problem:
        return Ran(argv=told, error="not found", stderr=f"{argv[0]}: {problem}")
    out, err, error = _read(child, began + timeout_s, cap_bytes)
    if error is None:
        error = _wait(child, began + timeout_s)
    if error:
        error = _end(child, error)
    for stream in (child.stdout, child.stderr):
        if stream:
            stream.close()
    code = child.returncode if error is None or error == "not found" else None
    if become and code == 1 and b"FileNotFoundError" in err:
        error, err = "not found", f"no program {argv[0]} on this machine".encode()
    return Ran(
        argv=told,
        stdout=out,
        stderr=err.decode("utf-8", "replace"),
        exit_code=code,
        error=error,
        duration_s=time.monotonic() - began,
    )


def _read(
    child: subprocess.Popen[bytes], until: float, cap_bytes: int
) -> tuple[bytes, bytes, str | None]:
    """Both streams up to their ends, the deadline or the cap; stderr beyond 64 KiB is dropped."""
    parts: dict[int, bytearray] = {}
    assert child.stdout is not None
    assert child.stderr is not None
    with selectors.DefaultSelector() as streams:
        for stream in (child.stdout, child.stderr):
            parts[stream.fileno()] = bytearray()
            streams.register(stream, selectors.EVENT_READ)
        out, err = parts.values()
        while streams.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return bytes(out), bytes(err), "timeout"
            for key, _ in streams.select(left):
                got = os.read(key.fd, 1 << 16)
                if not got:
                    streams.unregister(key.fileobj)
                elif key.fd == child.stdout.fileno():
                    out += got
                    if len(out) > cap_bytes:
                        return bytes(out[:cap_bytes]), bytes(err), "truncated"
                elif len(err) < 1 << 16:
                    err += got
    return bytes(out), bytes(err), None


def _wait(child: subprocess.Popen[bytes], until: float) -> str | None:
    """The end of a child that closed its streams."""
    try:
        child.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "timeout"
    return None


def _end(child: subprocess.Popen[bytes], why: str) -> str:
    """Kill what we started; `stuck` where it does not go: it is left behind, never waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    try:
        child.wait(DYING_S)
    except subprocess.TimeoutExpired:
        _left.append(child)
        _left[:] = [one for one in _left if one.poll() is None]
        return "stuck"
    return why
