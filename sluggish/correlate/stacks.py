"""Stacks of many ranks: group equal ones, name the smallest group, say what a frame means."""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from sluggish.facts.host import Stack, StackFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What a thread does, by its frames. `kind` is a word rules may key on."""

    kind: str
    """loader, storage, checkpoint, collective, store, gil, compile, sleep, shutdown, cuda."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StackGroup:
    """Ranks whose main threads stand at the same frames."""

    ranks: tuple[int, ...]
    frames: tuple[StackFrame, ...]
    meaning: Meaning | None


# (kind, words, function pattern, file pattern): the first that fits a frame near the top wins.
# Frames as py-spy and faulthandler print them: torch 2.x, CPython 3.9 to 3.13.
_SIGNS: tuple[tuple[str, str, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (kind, words, re.compile(function), re.compile(file))
    for kind, words, function, file in (
        ("loader", "waits for its data loader", r"_try_get_data|_get_data|_next_data",
         r"torch/utils/data/dataloader"),
        ("checkpoint", "saves a checkpoint",
         r"save_checkpoint|save_state_dict|async_save|_save\b|save_model|save$",
         r"serialization|checkpoint"),
        ("checkpoint", "loads a checkpoint", r"load_checkpoint|load_state_dict|load$",
         r"serialization|checkpoint"),
        ("collective", "waits in a collective",
         r"all_reduce|all_gather|reduce_scatter|broadcast|barrier|all_to_all|_coalescing"
         r"|monitored_barrier|gather|scatter$|\brecv$|\bsend$|batch_isend_irecv",
         r"distributed_c10d|_functional_collectives"),
        ("store", "waits for the rendezvous store", r"\b(wait|get|_get_|next_rendezvous)",
         r"torch/distributed/(elastic/)?rendezvous|store"),
        ("compile", "compiles", r"compile|_inductor|codegen", r"torch/(_dynamo|_inductor)|triton"),
        ("cuda", "waits for its GPU", r"synchronize|_cuda_synchronize|item$", r"torch/cuda"),
        ("shutdown", "shuts down", r"_exit_function|_shutdown|destroy_process_group|join$",
         r"multiprocessing/util|threading|distributed_c10d|atexit"),
    )
)  # fmt: skip
# Native frames need no file: py-spy --native, gdb
_NATIVE: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("storage", "waits for storage",
     re.compile(r"^(?:__)?(?:read|pread64|openat|open|fsync|fdatasync|write|pwrite64|stat|lstat)"
                r"(?:64)?(?:_nocancel)?$")),
    ("gil", "waits for the GIL", re.compile(r"take_gil|PyGILState_Ensure|PyEval_RestoreThread")),
    ("cuda", "waits for its GPU", re.compile(r"cu(?:da)?(?:Stream|Event|Device|Ctx)Synchronize")),
    ("collective", "waits in a collective", re.compile(r"^ncclGroupEnd|ncclAllReduce|gloo::")),
)  # fmt: skip
_PARKED = re.compile(r"^(?:wait|sleep|poll|select|acquire|get|_recv|recv|_wait|epoll_wait)$")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<|/torch/|threading\.py$")
_SHORTENED = re.compile(r"(?:torch/|(?P<top>\w+)(?:/|\.py$))")
"""py-spy leaves the path of a package out: `selectors.py`, `torch/utils/data/dataloader.py`."""
_LOADER_WORDS = re.compile(r"load(?:er|_batch|_data)|dataset|next_batch|get_batch|fetch", re.I)
TOP = 14
"""Frames from the innermost that are looked at: the reason lies near the top."""


def meaning(stack: Stack) -> Meaning | None:
    """What the innermost known frame says; None where no frame is known."""
    for frame in stack.frames[:TOP]:
        for kind, words, function in _NATIVE:
            if function.search(frame.function) and (not frame.file or ".py" not in frame.file):
                return Meaning(kind=kind, words=words)
        for kind, words, function, file in _SIGNS:
            if function.search(frame.function) and file.search(frame.file):
                return Meaning(kind=kind, words=words)
    user = [f for f in stack.frames[:TOP] if f.file and not _of_library(f.file)]
    if user and _LOADER_WORDS.search(user[0].function):
        return Meaning(kind="loader", words=f"is in {user[0].function} of its data loader")
    if user:
        return Meaning(kind="user", words=f"is in {user[0].function}")
    return None


def user_line(stack: Stack) -> str | None:
    """Innermost frame of the user's own code, `file:line in function`."""
    for frame in stack.frames:
        if frame.file and not _of_library(frame.file):
            return f"{frame.file}:{frame.line} in {frame.function}"
    return None


def _of_library(file: str) -> bool:
    if _LIBRARY.search(file) or not file.endswith(".py"):  # a native frame's library or source
        return True
    short = _SHORTENED.match(file)
    return bool(short) and (not short["top"] or short["top"] in sys.stdlib_module_names)


def grouped(stacks: Iterable[Stack]) -> tuple[StackGroup, ...]:
    """Main threads with equal frames together, smallest group first: the odd one is the suspect.

    Line numbers are left out of the comparison: ranks of one loop stand at neighbouring lines.
    """
    found: dict[tuple[tuple[str, str], ...], list[Stack]] = defaultdict(list)
    for stack in stacks:
        if stack.main and stack.rank is not None and stack.frames:
            found[tuple((f.function, f.file) for f in stack.frames)].append(stack)
    groups = [
        StackGroup(
            ranks=tuple(sorted({s.rank for s in rows if s.rank is not None})),
            frames=rows[0].frames,
            meaning=meaning(rows[0]),
        )
        for rows in found.values()
    ]
    return tuple(sorted(groups, key=lambda g: (len(g.ranks), g.ranks)))


def odd_one(stacks: Iterable[Stack]) -> StackGroup | None:
    """The smallest group where it is clearly smaller than the largest, else None."""
    groups = grouped(stacks)
    if len(groups) < 2 or 3 * len(groups[0].ranks) > len(groups[-1].ranks):
        return None
    if len(groups) > 2 and len(groups[1].ranks) == len(groups[0].ranks):
        return None
    return groups[0]
