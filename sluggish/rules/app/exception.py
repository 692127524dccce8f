"""APP-EXCEPTION and GPU-CUDA: Python exceptions, and what the CUDA runtime says in them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

from sluggish.causes import Family
from sluggish.correlate.logorder import before_timeouts, key, went_on
from sluggish.facts.collective import WatchdogTimeout
from sluggish.facts.derived import Look, Onset, Place
from sluggish.facts.log import LogSign, LogSpan, ProcessExit, Progress, PythonError
from sluggish.findings import Finding, Role, Spot, Strength, View, rule
from sluggish.loglines.python import is_cuda_oom, is_fallout
from sluggish.rules.app.common import (
    history,
    node_of_end,
    not_read_whole,
    proved,
    says,
    spot_of,
    who,
)

SOURCE = "job log"
MOST_LISTED = 8
"""Consequences listed one by one."""
CUDA_HARDWARE = (
    "uncorrectable ECC", "uncorrectable NVLink", "cudaErrorECCUncorrectable", "GPU is lost",
    "hardware stack error", "cudaErrorNvlinkUncorrectable", "fallen off the bus", "gpu is lost",
)  # fmt: skip
"""Errors that the CUDA runtime reserves for hardware (CUDA Runtime API, cudaError_t)."""
CUDA_UNCLEAR = (
    "unknown error", "unspecified launch failure", "system not yet initialized", "busy or unavail",
    "no CUDA-capable device", "initialization error", "launch timed out", "operation not supported",
    "driver shutting down", "cudaErrorUnknown", "or a hardware error", "No CUDA GPUs are available",
    "CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED", "CUBLAS_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_INTERNAL_ERROR", "CUDNN_STATUS_INTERNAL_ERROR", "CUDNN_STATUS_EXECUTION_FAILED",
    "CUDNN_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_MAPPING_ERROR",
)  # fmt: skip
"""Program, driver or device: the kernel log decides (deepspeedai/DeepSpeed #4648)."""
OTHERS_STORY = (
    "DataLoader worker", "DataLoader timed out", "No space left on device",
    "Disk quota exceeded", "out of shared memory", "unable to allocate shared memory",
    "Cannot allocate memory", "DDP expects same model",
    "DeadLock detected", "Driver/library version mismatch", "unsupported display driver",
    "CUDA driver version is insufficient", "driver on your system is too old",
    "Too many open files",
    "forward compatibility was attempted", "no kernel image is available", "Address already in use",
    "[Errno 116]", "[Errno 5]", "[Errno 107]", "[Errno 112]", "[Errno 121]",
)  # fmt: skip
"""Messages that other rules read, or that name a cause falsely (traps T13 and T15)."""
CUDA_PROGRAM = (
    "illegal memory access", "device-side assert", "misaligned address", "illegal instruction",
    "invalid program counter", "invalid device function", "operation not permitted when stream",
)  # fmt: skip
"""What a kernel of the program did (cudaError_t); the watchdog thread often prints it first."""
BURST = timedelta(seconds=30)
"""Ranks that raise the same within this time met the same fault of code or input."""


@rule(
    "APP-EXCEPTION",
    family=Family.PROCESS,
    needs=(PythonError, LogSpan),
    wants=(WatchdogTimeout, Progress, ProcessExit, LogSign, Look, Onset, Place),
)
def app_exception(view: View) -> Iterator[Finding]:
    """A rank's program raises an exception of its own before any collective times out."""
    errors = sorted((*view.all(PythonError), *_by_watchdog(view)), key=key)
    own = [e for e in errors if _is_own(e) and not history(view, e.at)]
    groups = _same(own)
    roots = 0
    for group in groups:
        finding = _judge(view, group, first=roots == 0)
        roots += finding.role is Role.ROOT
        yield finding
    fallout = [e for e in errors if not _is_own(e) and is_fallout(e.type, e.message)]
    for group in _same(fallout)[:MOST_LISTED]:
        waited = all("timed out" in error.message.lower() for error in group)
        why = "it waited in vain for others" if waited else "follows from an end elsewhere"
        yield _finding(group, Role.CONSEQUENCE, Strength.WEAK, why)
    if not errors and view.all(LogSpan):
        yield Finding(
            node=None, subject="job", role=Role.ALL_CLEAR, strength=Strength.WEAK, source=SOURCE,
            says=f"no Python exception in the job's log{not_read_whole(view)}",
        )  # fmt: skip


def _by_watchdog(view: View) -> Iterator[PythonError]:
    """CUDA errors of the program that a watchdog thread printed: no Python traceback tells them."""
    told = {e.rank for e in view.all(PythonError)
            if any(w in e.message for w in CUDA_PROGRAM)}  # fmt: skip
    for sign in view.all(LogSign):
        mine = sign.kind == "cuda_error" and any(word in sign.detail for word in CUDA_PROGRAM)
        if mine and "watchdog thread" in sign.line and sign.rank not in told:
            told.add(sign.rank)
            yield PythonError(
                node=sign.node, rank=sign.rank, at=sign.at, type="CUDA error", line=sign.line,
                message=sign.detail, order=sign.order,
            )  # fmt: skip


def _is_own(error: PythonError) -> bool:
    if is_fallout(error.type, error.message) or is_cuda_oom(error.type, error.message):
        return False
    if any(word in error.message for word in (*OTHERS_STORY, *CUDA_HARDWARE)):
        return False
    return not (_is_cuda(error.message) and any(w in error.message for w in CUDA_UNCLEAR))


def _is_cuda(message: str) -> bool:
    words = ("CUDA error", "cudaError", "Cuda failure", "cuDNN error", "cudaGetDeviceCount",
             "No CUDA GPUs", "nvml error")  # fmt: skip
    return any(word in message for word in words)


def _same(errors: Sequence[PythonError]) -> list[list[PythonError]]:
    """Exceptions of one kind and place in the code together, in the order of their first."""
    groups: dict[tuple[str, str, str | None], list[PythonError]] = defaultdict(list)
    for error in errors:
        groups[error.type, error.message[:60], error.frame].append(error)
    return list(groups.values())


def _judge(view: View, group: list[PythonError], *, first: bool) -> Finding:
    head = group[0]
    spans = view.all(LogSpan)
    in_front = before_timeouts(head, view.all(WatchdogTimeout), spans)
    if in_front is False:
        return _finding(group, Role.CONSEQUENCE, Strength.WEAK, "after the first timeout")
    if went_on(head, view.all(Progress), spans):
        return _finding(group, Role.CONTEXT, Strength.WEAK, "training went on after it")
    if not first:
        return _finding(group, Role.CONSEQUENCE, Strength.WEAK, "after another exception")
    sure = in_front is True and proved(view, head)
    strength = Strength.DECISIVE if sure else Strength.STRONG
    if in_front is None:
        strength = Strength.WEAK
    ranks = {e.rank for e in group}
    if len(ranks) > 1:
        spots = (Spot(source_line=head.frame, doing=spot_of(view, head).doing),)
        return _finding(group, Role.ROOT, strength, spots=spots)
    return _finding(group, Role.ROOT, strength, spots=(spot_of(view, head),))


def _finding(
    group: list[PythonError],
    role: Role,
    strength: Strength,
    why: str = "",
    *,
    spots: tuple[Spot, ...] = (),
) -> Finding:
    head = group[0]
    ranks = {e.rank for e in group}
    text = says(head, max(len(ranks), 1))
    return Finding(
        node=head.node if len({e.node for e in group}) == 1 else None,
        subject=who(head) if len(ranks) == 1 else f"{len(ranks)} ranks",
        role=role,
        strength=strength,
        at=head.at,
        says=f"{text} ({why})" if why else text,
        quote=head.line,
        source=SOURCE,
        spots=spots,
        shared=len(ranks) > 1,
    )


@rule(
    "GPU-CUDA",
    family=Family.KERNEL,
    needs=(LogSign, PythonError),
    wants=(Look, Place, WatchdogTimeout, LogSpan, ProcessExit),
)
def gpu_cuda(view: View) -> Iterator[Finding]:
    """The CUDA runtime reports an error that it keeps for faults of the device."""
    seen: set[tuple[str | None, int | None]] = set()
    told: list[tuple[LogSign | PythonError, str]] = [
        *((s, s.detail) for s in view.all(LogSign) if s.kind == "cuda_error"),
        *((e, e.message) for e in view.all(PythonError) if _is_cuda(e.message)),
    ]
    for event, message in sorted(told, key=lambda item: key(item[0])):
        hard = any(word in message for word in CUDA_HARDWARE)
        unclear = any(word in message for word in CUDA_UNCLEAR)
        if not (hard or unclear) or (event.node, event.rank) in seen or history(view, event.at):
            continue
        seen.add((event.node, event.rank))
        if len(seen) > MOST_LISTED:
            return
        yield _cuda(view, event, message, hard=hard)


def _cuda(view: View, event: LogSign | PythonError, message: str, *, hard: bool) -> Finding:
    place = next((p for p in view.all(Place) if p.rank == event.rank), None)
    node = event.node or (place.node if place else None)
    if node is None and isinstance(event, PythonError):
        node = node_of_end(view, event)
    spot = Spot(
        rank=event.rank, node=node, gpu_index=place.gpu_index if place else None,
        gpu_uuid=place.gpu_uuid if place else None, gpu_pci=place.gpu_pci if place else None,
    )  # fmt: skip
    first = message.strip().split("\n")[0][:100]
    told = first if _is_cuda(first) else f"CUDA error: {first}"
    return Finding(
        node=node,
        subject=f"rank {event.rank}" if event.rank is not None else "gpu",
        role=Role.ROOT if hard else Role.CONTEXT,
        strength=Strength.STRONG if hard else Strength.WEAK,
        at=event.at,
        says=told if hard else f"{told} (program, driver or device: the kernel log decides)",
        quote=event.line,
        source=SOURCE,
        spots=(spot,) if hard else (),
        subtype="ecc" if "ECC" in message else ("nvlink" if "nvlink" in message.lower() else None),
    )
