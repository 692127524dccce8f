"""Stacks of a rank's threads: py-spy, faulthandler, torch's worker server, gdb, the kernel.

`py-spy dump --pid PID` stops the process for a moment and needs ptrace rights; faulthandler and the
worker server's `dump_traceback` print from inside. All are read as text. Traps: the guilty process
is often "idle" in a queue's get while its victims are "active"; a thread name is what the program
gave it; faulthandler prints the dumping thread first, the main thread last.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sluggish.facts.host import Stack, StackFrame
from sluggish.facts.origin import Origin
from sluggish.probes.stacks.native import is_native, threads

ID = "stacks"
COMMAND = "py-spy dump --pid $PID"
FACTS: tuple[type, ...] = (Stack,)
BINARY = False

# Process 912233: python train.py --config a.yaml       (py-spy 0.3, 0.4)
_PROCESS = re.compile(r"^Process (\d{1,10}): ?(.*)$")
# Thread 912233 (idle): "MainThread"    Thread 0x7F32DCE70B80 (active+gil): "MainThread"
# (in a mail the number, and the indent, may be gone)
_PYSPY = re.compile(
    r"^ {0,8}Thread (?:(?P<id>0x[0-9A-Fa-f]{1,16}|\d{1,10}) )?"
    r"\((?P<state>(?:active|idle)[\w+]{0,12})\)"
    r'(?:: "(?P<name>.{0,200})")?'
)
#     all_reduce (torch/distributed/distributed_c10d.py:2501)
_PYSPY_FRAME = re.compile(
    r"^(?: {2,16}|\t)(?P<fn>[^\s(][^()]{0,300}|<[^>]{1,80}>) "
    r"\((?P<file>[^()]{1,500}?)(?::(?P<line>\d{1,9}))?\)$"
)
# Current thread 0x00007f32b77fe6c0 (most recent call first):
# Thread 0x00007f32dce70b80 [name] (most recent call first):          (CPython 3.13 names threads)
# Stack (most recent call first):                 (no thread state; "Traceback" in old versions)
_FAULT = re.compile(
    r"^(?P<current>Current thread|Thread|Stack|Traceback)(?: (?P<id>0x[0-9a-f]{1,16}))?"
    r"(?: \[(?P<name>[^\]]{0,200})\])? \(most recent call first\):"
)
#   File "/opt/train/train.py", line 56 in step
_FAULT_FRAME = re.compile(
    r'^ {1,4}File "(?P<file>[^"]{1,500})", line (?P<line>\d{1,9}|\?{1,3}) in (?P<fn>\S{1,300})'
)
# RANK=3 in the command line that py-spy prints
_RANK = re.compile(r"--(?:node[-_])?rank[ =](\d{1,7})\b")
MAX_FRAMES = 400


@dataclass(slots=True)
class _Thread:
    name: str
    state: str
    form: str
    frames: list[StackFrame] = field(default_factory=list)


def sniff(head: bytes) -> bool:
    """py-spy's or faulthandler's header of a thread, with a frame; or nothing but a backtrace."""
    text = head.decode("utf-8", "replace")
    lines = text.split("\n")[:400]
    if any(_FAULT.match(line) for line in lines):
        return any(_FAULT_FRAME.match(line) for line in lines) or "<no Python frame>" in text
    if any(_PYSPY.match(line) for line in lines):
        return any(_PROCESS.match(line) or _PYSPY_FRAME.match(line) for line in lines)
    return is_native(lines)


def parse(text: str, origin: Origin) -> Iterator[Stack]:
    """One Stack a thread, of one or several processes. ValueError where no thread is found."""
    found = 0
    pid: int | None = None
    found_threads: list[_Thread] = []
    for line in text.split("\n"):
        line = line.rstrip()[:2000]
        process = _PROCESS.match(line)
        if process:
            for stack in _stacks(found_threads, pid, origin):
                found += 1
                yield stack
            pid, found_threads = int(process[1]), []
            continue
        _read(line, found_threads)
    for stack in _stacks(found_threads, pid, origin):
        found += 1
        yield stack
    if not found:
        for stack in _native(text, origin):
            found += 1
            yield stack
    if not found:
        raise ValueError("expected stacks as py-spy dump or faulthandler print them")


def _read(line: str, threads: list[_Thread]) -> None:
    head = _PYSPY.match(line)
    if head:
        threads.append(_Thread(head["name"] or "", head["state"], "py-spy"))
        return
    head = _FAULT.match(line)
    if head:
        state = "current" if head["current"].startswith("Current") else ""
        threads.append(_Thread(head["name"] or "", state, "faulthandler"))
        return
    if not threads or len(threads[-1].frames) >= MAX_FRAMES:
        return
    frame = _FAULT_FRAME.match(line) or _PYSPY_FRAME.match(line)
    if frame:
        number = frame["line"]
        threads[-1].frames.append(
            StackFrame(
                function=frame["fn"].strip(),
                file=frame["file"],
                line=int(number) if number and number.isdecimal() else None,
            )
        )


def _stacks(threads: list[_Thread], pid: int | None, origin: Origin) -> Iterator[Stack]:
    main = _main_thread(threads)
    for number, thread in enumerate(threads):
        yield Stack(
            node=origin.node,
            pid=pid,
            rank=origin.rank,
            thread=thread.name or ("MainThread" if number == main else f"thread {number}"),
            main=number == main,
            active="active" in thread.state if thread.form == "py-spy" else None,
            frames=tuple(thread.frames),
            source=thread.form,
        )


def _native(text: str, origin: Origin) -> Iterator[Stack]:
    """gdb's threads, the kernel's stack; thread 1 of gdb is the one that has the process's pid."""
    lines = [line.rstrip()[:2000] for line in text.split("\n")]
    if not is_native(lines[:400]):
        return
    for thread in threads(lines, MAX_FRAMES):
        yield Stack(
            node=origin.node,
            pid=thread.pid if thread.number == 1 else None,
            rank=origin.rank,
            thread=thread.name or f"thread {thread.number}",
            main=thread.number == 1,
            active=None,
            frames=thread.frames,
            source=thread.source,
        )


def _main_thread(threads: list[_Thread]) -> int:
    """By name; else the one whose outermost frame is the module itself; else the last one."""
    for number, thread in enumerate(threads):
        if thread.name == "MainThread":
            return number
    for number, thread in reversed(list(enumerate(threads))):
        if thread.frames and thread.frames[-1].function == "<module>":
            return number
    return len(threads) - 1
