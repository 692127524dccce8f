"""Telling somebody: a program that is run, an address that is posted to. Neither ever raises."""

import http.client
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from sluggish.text import safe

EXEC_S = 60.0
POST_S = 10.0
TRIES = 3


def execute(argv: Sequence[str], document: bytes, env: Mapping[str, str]) -> str:
    """Runs a program with the document on stdin, never through a shell; why it failed, or ''."""
    try:
        done = subprocess.run(
            list(argv),
            input=document,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            timeout=EXEC_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{argv[0]}: did not end in {EXEC_S:.0f} s"
    except (OSError, ValueError) as problem:
        return f"{argv[0]}: {getattr(problem, 'strerror', None) or problem}"
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"{argv[0]}: exit code {done.returncode} {safe(words[-1], 200) if words else ''}"
    return ""


def post(url: str, document: bytes, pause: Callable[[float], None]) -> str:
    """Posts JSON, three times at most; why it failed, or ''. The address may hold a secret."""
    where = urlsplit(url).hostname or "webhook"
    why = ""
    for attempt in range(TRIES):
        if attempt:
            pause(2.0**attempt)
        request = urllib.request.Request(
            url, data=document, method="POST", headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=POST_S) as answer:
                answer.read(1024)
            return ""
        except urllib.error.HTTPError as problem:
            why = f"{where}: HTTP {problem.code}"
            problem.close()
            if problem.code < 500 and problem.code != 429:
                return why
        except (OSError, ValueError, http.client.HTTPException) as problem:
            why = safe(f"{where}: {getattr(problem, 'reason', None) or problem}", 200)
    return why
