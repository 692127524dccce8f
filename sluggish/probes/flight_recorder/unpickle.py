"""Unpickle a dump that anybody may have written: plain data or `refused`.

Real dumps hold no GLOBAL, REDUCE or BUILD opcode (seen with torch 2.13), so an unpickler that
refuses every class loses nothing. C unpickling takes 5.6 ms for 2,000 entries with 34 frames,
10 ms while the garbage collector runs, so it is paused.
"""

import gc
import io
import pickle
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

try:
    import resource
except ImportError:  # not on Windows
    resource = None

MAX_BYTES = 64 * 1024 * 1024  # 20,000 entries with 34 frames are 7.5 MB
HEADROOM = 256 << 20
GROWTH = 24  # bytes of objects that one byte of a real dump becomes, with room to spare (seen: 12)

_BROKEN = (
    pickle.UnpicklingError, EOFError, ArithmeticError, LookupError, AttributeError, TypeError,
    ImportError, MemoryError, RecursionError,
)  # fmt: skip


class _Refused(ValueError):
    """The dump asks for more than plain data."""


class _Whole(io.BytesIO):
    """Bytes with a peek: without one each opcode is a read of its own (3 times the time)."""

    def peek(self, size: int = 0, /) -> bytes:
        at = self.tell()
        return self.getvalue()[at:] if at else self.getvalue()  # the very bytes: no copy


class _Plain(pickle.Unpickler):
    """The C unpickler with every door to code shut."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise _Refused(f"refused: the dump wants to run {module_name}.{global_name}")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        raise _Refused("refused: the dump refers to objects outside itself")


def load(data: bytes) -> Any:
    """The plain objects of a pickle. ValueError, beginning with `refused:` where it is hostile."""
    if len(data) > MAX_BYTES:
        raise ValueError(f"refused: dump of {len(data)} bytes, limit {MAX_BYTES}")
    with no_collector(), _bounded_memory(len(data)):
        try:
            return _Plain(_Whole(data)).load()
        except _Refused:
            raise
        except ValueError as problem:
            raise ValueError(f"expected a whole pickle: {problem}") from None
        except MemoryError:
            raise ValueError("refused: the dump wants more memory than its size explains") from None
        except _BROKEN as problem:
            raise ValueError(f"expected a whole pickle: {problem}") from None


@contextmanager
def no_collector() -> Generator[None]:
    """Pause cyclic garbage collection: parsed dumps have no cycles and many objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _bounded_memory(size: int) -> Generator[None]:
    """Let ten hostile bytes (a memo index of 2^31) end in MemoryError, not in the OOM killer."""
    before = _limit()
    if before is None or resource is None:
        yield
        return
    wanted = _virtual_bytes() + HEADROOM + GROWTH * size
    soft, hard = before
    if soft != resource.RLIM_INFINITY:
        wanted = min(wanted, soft)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, before)


def _limit() -> tuple[int, int] | None:
    return resource.getrlimit(resource.RLIMIT_AS) if resource is not None else None


def _virtual_bytes() -> int:
    """Our own address space now; a generous guess where /proc is missing."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * 4096
    except (OSError, ValueError, IndexError):
        return 4 << 30
