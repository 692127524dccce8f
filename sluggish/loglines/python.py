"""Python tracebacks: whole, rank by rank, interleaved, chained, boxed by rich."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

from sluggish.facts.log import PythonError
from sluggish.loglines.line import Line

NEEDLES: tuple[bytes, ...] = (
    b"Traceback (most recent call last)",
    b"Error: ",
    b"Exception: ",
    b"CUDA out of memory",
)

START = "Traceback (most recent call last)"
LONGEST = 400
"""Lines after which a traceback without an end is given up."""
MAX_MESSAGE = 600

#   File "/home/u/train.py", line 118, in main
_FRAME = re.compile(
    r'\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,8}), in (?P<fn>\S{1,200})'
)
# rich: /home/u/train.py:118 in main
_RICH_FRAME = re.compile(
    r"(?P<file>/[^\s:]{1,400}\.py):(?P<line>\d{1,8}) in (?P<fn>[\w<>.]{1,200})"
)
# torch.cuda.OutOfMemoryError: CUDA out of memory. ...     KeyError: 'x'     StopIteration
_END = re.compile(
    r"(?P<type>(?:[A-Za-z_][\w]{0,80}\.){0,8}[A-Z_][\w]{0,80})(?:: ?(?P<message>.*))?\Z", re.DOTALL
)
_ERROR_NAME = re.compile(
    r"(?:Error|Exception|Interrupt|Exit|Iteration|Warning|Timeout|Fault|Abort|Failure|OOM|Full"
    r"|Empty|NotMet)\w{0,20}\Z"
)
_CAUSED = "The above exception was the direct cause of the following exception:"
_HANDLING = "During handling of the above exception, another exception occurred:"
_CONTROL_FLOW = (
    "Empty", "Full", "StopIteration", "KeyError", "AttributeError", "ImportError", "LookupError",
    "ModuleNotFoundError", "FileNotFoundError", "IndexError",
)  # fmt: skip
"""Raised and caught on purpose: what was raised while handling one of these is the story."""
_NOT_USER = (
    "site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>", "/torch/",
    "/torchrun", "/deepspeed/", "/bin/accelerate",
)  # fmt: skip

FALLOUT_TYPES = (
    "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError",
    "ProcessRaisedException", "ProcessExitedException", "RendezvousConnectionError",
    "RendezvousClosedError", "ConnectionResetError", "BrokenPipeError", "EOFError",
    "SignalException", "KeyboardInterrupt", "SystemExit", "RayActorError", "ActorDiedError",
    "ActorUnavailableError", "CalledProcessError", "WorkerCrashedError", "TimeoutError",
    "ConnectionRefusedError", "ConnectionAbortedError", "EngineDeadError", "NodeDiedError",
    "OwnerDiedError", "LocalRayletDiedError", "UnavailableError",
)  # fmt: skip
"""Raised because another rank, the store or the launcher went away (torch, Ray, TensorFlow)."""
FALLOUT_WORDS = (
    "NCCL error", "NCCL communicator was aborted", "ncclRemoteError", "ncclSystemError",
    "ncclInternalError", "ncclUnhandledCudaError", "Connection closed by peer",
    "Connection reset by peer", "Broken pipe", "Socket Timeout", "Timed out waiting",
    "wait timeout after", "recvValue failed", "sendBytes failed", "connectFullMesh",
    "store->get(", "Watchdog caught collective", "watchdog thread terminated",
    "Some NCCL operations have failed or timed out", "timed out in blocking wait",
    "failed to pass monitoredBarrier", "in monitoredBarrier", "more than 1EB",
    "remote process exited", "The client socket has timed out", "Application timeout caused pair",
    "Detected mismatch between collectives", "op.preamble.length", "Timeout waiting for key",
    "Timed out initializing process group", "RPC call to ",
    "NCCL operation nccl", "UNAVAILABLE: ", "DEADLINE_EXCEEDED: ",  # XLA's and its coordinator's
)  # fmt: skip
"""In a message: the collective or the store broke off, somebody else began it."""


def is_fallout(error_type: str, message: str) -> bool:
    """Whether this exception follows from a failure elsewhere, and never is a root by itself."""
    if error_type.rsplit(".", 1)[-1] in FALLOUT_TYPES:
        return True
    return any(word in message for word in FALLOUT_WORDS)


def is_cuda_oom(error_type: str, message: str) -> bool:
    """CUDA out of memory; `more than 1EB` is a broken length after a timeout, not memory."""
    if "more than 1EB" in message:
        return False
    if "RESOURCE_EXHAUSTED: Out of memory" in message:  # XLA
        return True
    return "CUDA out of memory" in message or "CUDA error: out of memory" in message or (
        error_type.endswith("cuda.OutOfMemoryError")
    )  # fmt: skip


@dataclass(slots=True)
class _Open:
    """A traceback that has begun and not ended."""

    started: Line
    at: datetime | None
    frame: str | None = None
    user_frame: str | None = None
    lines: int = 0
    root: PythonError | None = None
    """The exception that this one was raised from or while handling."""
    chained: bool = False
    control_flow: bool = False
    """The root is an exception that programs catch on purpose."""
    ended: PythonError | None = None
    message: list[str] = field(default_factory=list[str])


def parse(lines: Iterable[Line]) -> Iterator[PythonError]:
    """One PythonError a traceback: of a chain the first exception, where it all began.

    Tracebacks of several ranks may be mixed line by line if each line carries its rank.
    """
    open_by: dict[object, _Open] = {}
    for line in lines:
        voice = _voice(line)
        now = open_by.get(voice)
        if START in line.text:
            if now is not None and not now.chained:
                yield from _finish(now)
                now = None
            open_by[voice] = _begin(line, now)
            continue
        if now is None:
            yield from _bare(line)
            continue
        if not _continue(now, line):
            del open_by[voice]
            yield from _finish(now)
            yield from _bare(line)
    for now in open_by.values():
        yield from _finish(now)


def _voice(line: Line) -> object:
    """Whose line it is: tracebacks are put together by this."""
    return (line.rank, line.local_rank, line.task, line.node, line.pid)


def _begin(line: Line, before: _Open | None) -> _Open:
    now = _Open(started=line, at=line.at)
    if before is not None and before.chained:
        now.control_flow = before.control_flow
        now.root = before.root or next(_finish(before), None)
    return now


def _continue(now: _Open, line: Line) -> bool:
    """Take one more line in; False where it does not belong to the traceback any more."""
    now.at = now.at or line.at
    now.lines += 1
    text = line.text
    if now.ended is not None:
        return _after_end(now, text)
    if now.lines > LONGEST:
        return False
    if frame := _FRAME.match(text) or _RICH_FRAME.search(text):
        _note_frame(now, frame)
        return True
    if not text.strip() or text[0] in " \t^~":
        return True
    if (end := _END.match(text)) and _looks_raised(end):
        now.ended = _error(now, line, end)
        return True
    # a line of another writer in between: the traceback goes on, for a while
    return True


def _after_end(now: _Open, text: str) -> bool:
    """After the exception's line: more lines of its message, or the word that it is chained."""
    stripped = text.strip()
    if stripped in (_CAUSED, _HANDLING) and now.ended is not None:
        now.chained = True
        name = (now.root or now.ended).type.rsplit(".", 1)[-1]
        # a loader raises from its queue's Empty: what it raised is the story
        now.control_flow = name in ("Empty", "Full") or (
            stripped == _HANDLING and name in _CONTROL_FLOW
        )
        return True
    if now.chained or not stripped:
        return now.lines <= LONGEST
    if len(now.message) < 6 and now.ended is not None and _goes_on(stripped):
        now.message.append(stripped)
        return True
    return False


def _goes_on(text: str) -> bool:
    """Known second lines of messages: NCCL's last error, CUDA's advice."""
    return text.startswith(
        ("nccl", "Last error:", "CUDA kernel errors", "For debugging", "Compile")
    )


def _note_frame(now: _Open, frame: re.Match[str]) -> None:
    now.frame = f"{frame['file']}:{frame['line']} in {frame['fn'].rstrip(',')}"
    if not any(part in frame["file"] for part in _NOT_USER):
        now.user_frame = now.frame


def _looks_raised(end: re.Match[str]) -> bool:
    name = end["type"].rsplit(".", 1)[-1]
    return bool(_ERROR_NAME.search(name)) or ("." in end["type"] and end["message"] is not None)


def _error(now: _Open, line: Line, end: re.Match[str]) -> PythonError:
    return PythonError(
        node=line.node,
        rank=line.rank,
        at=now.at or line.at,
        type=end["type"],
        message=(end["message"] or "")[:MAX_MESSAGE],
        frame=now.user_frame or now.frame,
        pid=line.pid,
        order=now.started.order,
        line=line.raw,
    )


def _finish(now: _Open) -> Iterator[PythonError]:
    """The exception where the chain began; nothing if no exception's line was ever seen."""
    last = now.ended
    if now.root is not None and (
        last is None or not now.control_flow or is_fallout(last.type, last.message)
    ):
        yield now.root
    elif last is not None:
        message = " ".join((last.message, *now.message))[:MAX_MESSAGE]
        yield replace(last, message=message)


# RuntimeError: transform: failed to synchronize: ...   (no traceback: what somebody mailed)
_BARE = re.compile(
    r"(?P<type>(?:[a-z_][\w]{0,80}\.){0,8}[A-Z][A-Za-z]{1,60}(?:Error|Exception|NotMet|Timeout))"
    r": (?P<message>.{3,})\Z",
    re.DOTALL,
)


def _bare(line: Line) -> Iterator[PythonError]:
    """An exception's line that stands alone: its traceback was cut off."""
    if not any(word in line.text for word in ("Error", "Exception", "Timeout: ")):
        return
    if found := _BARE.match(line.text):
        now = _Open(started=line, at=line.at)
        yield _error(now, line, found)
