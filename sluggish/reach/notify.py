"""Telling somebody: a program that is run, an address that is posted to. Neither ever raises."""

import http.client
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from sluggish.text import safe

EXEC_S = 60.0
POST_S = 10.0
TRIES = 3


def execute(
    argv: Sequence[str], document: bytes, env: Mapping[str, str], limit_s: float = EXEC_S
) -> str:
    """Runs a program with the document on stdin, never through a shell; why it failed, or ''.

    It has a session of its own: Ctrl-C at the watch does not end it. Past the limit it is killed
    with what it started; one that has ended and left a child behind has done its work.
    """
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        with subprocess.Popen(
            list(argv), stdin=pipe, stdout=null, stderr=pipe, env={**os.environ, **env},
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                _, told = process.communicate(document, timeout=limit_s)
            except subprocess.TimeoutExpired as late:
                if process.poll() is None:
                    _end(process)
                    return f"{argv[0]}: did not end in {limit_s:.0f} s"
                told = late.stderr or b""
                _close(process)
    except (OSError, ValueError) as problem:
        return f"{argv[0]}: {getattr(problem, 'strerror', None) or problem}"
    if process.returncode:
        words = told.decode("utf-8", "replace").strip().splitlines()
        return f"{argv[0]}: exit code {process.returncode} {safe(words[-1], 200) if words else ''}"
    return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    """A child that was left behind may hold the other ends for ever."""
    for stream in (process.stdin, process.stderr):
        with suppress(OSError):
            if stream:
                stream.close()


def unfit(url: str) -> str:
    """Why nothing can be sent to this address; empty where it can. Never the address itself."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "expected an http or https address"
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return "expected an http or https address"
    if "@" in parts.netloc:
        return "a name and password in the address are not sent: give one without"
    if not url.isascii() or any(c.isspace() or not c.isprintable() for c in url):
        return "an address holds no blanks and no other characters than ASCII: write them as %XX"
    return ""


class _Stays(urllib.request.HTTPRedirectHandler):
    """A POST that follows a redirect becomes a GET and loses its document, and looks delivered."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post(url: str, document: bytes, pause: Callable[[float], None]) -> str:
    """Posts JSON, three times at most; why it failed, or ''. The address may hold a secret."""
    parts = urlsplit(url)
    where = f"{parts.hostname or 'webhook'}{_proxied(parts.scheme, parts.hostname or '')}"
    why = ""
    for attempt in range(TRIES):
        if attempt:
            pause(2.0**attempt)
        request = urllib.request.Request(
            url, data=document, method="POST", headers={"Content-Type": "application/json"}
        )
        try:
            # the status is the answer: a body that never ends is nobody's business
            with urllib.request.build_opener(_Stays).open(request, timeout=POST_S):
                return ""
        except urllib.error.HTTPError as problem:
            why = f"{where}: HTTP {problem.code}"
            problem.close()
            if 300 <= problem.code < 400:
                return f"{why}, it is at another address: give that one"
            if problem.code < 500 and problem.code != 429:
                return why
        except http.client.InvalidURL:
            return f"{where}: no address that can be posted to"
        except (OSError, ValueError, http.client.HTTPException) as problem:
            why = safe(f"{where}: {getattr(problem, 'reason', None) or problem}", 200)
    return why


def _proxied(scheme: str, host: str) -> str:
    """Which variable sends the request elsewhere: a refused proxy is not the webhook's fault."""
    if scheme not in urllib.request.getproxies() or urllib.request.proxy_bypass(host):
        return ""
    return f" (through the proxy of {scheme}_proxy)"
