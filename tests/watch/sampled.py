"""The sampler's script, run in a real shell to its end, and what that cost."""

import os
import subprocess
import sys

MEASURE = """
import ctypes, os, resource, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans are counted too
out = subprocess.run(["sh", "-s"], stdin=sys.stdin, stdout=subprocess.PIPE, check=False).stdout
until = time.monotonic() + 20
left = True
while left and time.monotonic() < until:
    try:
        left = os.waitpid(-1, os.WNOHANG) != (0, 0) or (time.sleep(0.05) or True)
    except ChildProcessError:
        left = False
spent = resource.getrusage(resource.RUSAGE_CHILDREN)
print(spent.ru_utime + spent.ru_stime, left)
sys.stdout.flush()
sys.stdout.buffer.write(out)
"""


def ran(script: bytes, path: str = "") -> tuple[float, bool, list[str]]:
    """CPU seconds of the script and all below it, whether something was left, its lines."""
    env = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    script = script.replace(b"PATH=/usr/local/sbin:", f"PATH={path}:/usr/local/sbin:".encode())
    argv = [sys.executable, "-c", MEASURE]
    done = subprocess.run(argv, input=script, capture_output=True, env=env, timeout=60, check=True)
    first, *lines = done.stdout.decode("utf-8", "replace").splitlines()
    spent, left = first.split()
    return float(spent), left == "True", lines
