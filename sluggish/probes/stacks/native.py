"""Stacks below Python: gdb's backtraces and the kernel's own stack of a process."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sluggish.facts.host import StackFrame

# #0  0x00007f8a12345678 in ncclProxySaveOp (comm=0x55, op=0x7f) at proxy.cc:411
# #1  cuStreamSynchronize () from /lib/x86_64-linux-gnu/libcuda.so.1        (gdb, pstack, eu-stack)
_GDB_FRAME = re.compile(
    r"^\s{0,8}#(?P<number>\d{1,4})\s{1,4}(?:0x[0-9a-f]{1,16} (?:in |- )?)?"
    r"(?P<fn>[A-Za-z_~?<][^\n(]{0,300}?)(?: ?\(.{0,1500}|\s*)$"
)
_GDB_FILE = re.compile(r" (?:at|from) (?P<file>[^\s:]{1,400})(?::(?P<line>\d{1,9}))?\s*$")
# Thread 7 (Thread 0x7f8a3c1ff740 (LWP 4411) "python"):      Thread 1 (LWP 4411):
_GDB_THREAD = re.compile(
    r"^Thread (?P<number>\d{1,6}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (?P<lwp>\d{1,10})\)?"
    r'(?: "(?P<name>[^"\n]{0,64})")?'
)
# [<0>] rpc_wait_bit_killable+0x24/0xb0 [sunrpc]              (/proc/PID/stack, kernel 4.15 on)
# [<ffffffffc0b5d3f4>] nfs_wait_bit_killable+0x1e/0x90 [nfs]  (older)
_KERNEL_FRAME = re.compile(
    r"^\[<(?:0|[0-9a-f]{8,16})>\] (?P<fn>[\w.]{1,120})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
    r"(?: \[(?P<module>[\w-]{1,60})\])?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeThread:
    """One thread of a native stack; `number` 1 is gdb's main thread."""

    number: int
    pid: int | None
    name: str
    frames: tuple[StackFrame, ...]
    source: str


def is_native(lines: Sequence[str]) -> bool:
    """Most lines are of a backtrace: a job log may quote one, and stays a job log."""
    told = [line for line in lines if line.strip()]
    mine = [
        line
        for line in told
        if _GDB_THREAD.match(line) or _GDB_FRAME.match(line) or _KERNEL_FRAME.match(line)
    ]
    return len(mine) >= 2 and 2 * len(mine) >= len(told)


def threads(lines: Sequence[str], most: int) -> list[NativeThread]:
    """The threads in the order of the text, with at most `most` frames each."""
    kernel = [_kernel(line) for line in lines]
    frames = tuple(frame for frame in kernel if frame)[:most]
    if frames:
        return [NativeThread(number=1, pid=None, name="", frames=frames, source="kernel")]
    return _gdb(lines, most)


def _kernel(line: str) -> StackFrame | None:
    found = _KERNEL_FRAME.match(line.rstrip())
    return StackFrame(function=found["fn"], file=found["module"] or "") if found else None


def _gdb(lines: Sequence[str], most: int) -> list[NativeThread]:
    found: list[tuple[int, int | None, str, list[StackFrame]]] = []
    for line in lines:
        head = _GDB_THREAD.match(line)
        if head:
            found.append((int(head["number"]), int(head["lwp"]), head["name"] or "", []))
            continue
        frame = _GDB_FRAME.match(line)
        if frame is None:
            continue
        if not found or (frame["number"] == "0" and found[-1][3]):
            found.append((1 if not found else len(found) + 1, None, "", []))
        if len(found[-1][3]) < most:
            found[-1][3].append(_frame(frame, line))
    return [
        NativeThread(number=number, pid=pid, name=name, frames=tuple(frames), source="gdb")
        for number, pid, name, frames in found
        if frames
    ]


def _frame(found: re.Match[str], line: str) -> StackFrame:
    where = _GDB_FILE.search(line)
    return StackFrame(
        function=found["fn"].strip(),
        file=where["file"] if where else "",
        line=int(where["line"]) if where and where["line"] else None,
    )
