"""One line that a node's sampler printed (`reach/watch.sh`) as a typed sample; nothing raises.

    s|UPTIME|GPU ROWS|RANKS|ALIVE|STUCK|CPU|IO|TRAFFIC|PORTS DOWN|LOG SIZE AND TIME|KERNEL LINES
    k|a line of the kernel   e|NAME=NUMBER of a rank's environment   x|nvidia-smi's exit code
    n|what nvidia-smi said instead of a row   h|version|interval|ticks a second

GPU rows are those of `nvidia-smi --query-gpu --format=csv,noheader,nounits`, joined by `;`.
"""

import math

import msgspec

MOST_GPUS = 64
MOST_CHARS = 16_384


class Gpu(msgspec.Struct, frozen=True, array_like=True):
    """One GPU at one moment; None where the driver prints `[N/A]`."""

    index: int
    util: float | None = None
    """Per cent, of time in which a kernel ran."""
    mem_util: float | None = None
    power_w: float | None = None
    limit_w: float | None = None
    memory_mib: float | None = None
    clock: float | None = None
    """SM clock as a part of its maximum."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """What a node showed at one moment. Counters are totals; None: not seen there."""

    node: str
    at: float
    """Seconds since the epoch on the watcher's clock."""
    gpus: tuple[Gpu, ...] = ()
    ranks: int = 0
    """Processes of the job that were found to be ranks; 0: none was found yet."""
    alive: int = 0
    stuck: int = 0
    """Processes of the job that wait in the kernel (state D)."""
    cpu_s: float | None = None
    io_bytes: float | None = None
    """Read and written by the job's processes, whatever the file system."""
    traffic_bytes: float | None = None
    """Over all InfiniBand and RoCE ports of the node, both ways."""
    down: tuple[str, ...] = ()
    """Ports that are not active: `mlx5_0/1`."""
    log_bytes: float | None = None
    log_at: float | None = None
    """Newest modification, seconds since the epoch on the node's clock."""
    kernel_lines: int = 0


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A line that is no sample: `kernel`, `setting`, `gpu ended`, `gpu says`, `begun`."""

    node: str
    at: float
    kind: str
    text: str


_KINDS = {"k": "kernel", "e": "setting", "x": "gpu ended", "n": "gpu says", "h": "begun"}


def parse(line: str, node: str, at: float, ticks: float = 100.0) -> Sample | Note | None:
    """A sample or a note; None for a line that is neither, or was cut in its middle."""
    if len(line) > MOST_CHARS:
        return None
    mark, bar, rest = line.rstrip("\r\n").partition("|")
    if not bar:
        return None
    if mark != "s":
        kind = _KINDS.get(mark)
        return Note(node=node, at=at, kind=kind, text=rest) if kind else None
    cells = rest.split("|")
    if len(cells) != 11:
        return None
    log = cells[9].split(" ")
    cpu = _number(cells[5])
    return Sample(
        node=node,
        at=at,
        gpus=gpus(cells[1]),
        ranks=int(_number(cells[2]) or 0),
        alive=int(_number(cells[3]) or 0),
        stuck=int(_number(cells[4]) or 0),
        cpu_s=None if cpu is None else cpu / ticks,
        io_bytes=_number(cells[6]),
        traffic_bytes=_number(cells[7]),
        down=tuple(cells[8].split()[:64]),
        log_bytes=_number(log[0]) if len(log) == 2 else None,
        log_at=_number(log[1]) if len(log) == 2 else None,
        kernel_lines=int(_number(cells[10]) or 0),
    )


def gpus(text: str) -> tuple[Gpu, ...]:
    """The last row of each index; a row that is none is left out."""
    found: dict[int, Gpu] = {}
    for row in text.split(";"):
        cells = [cell.strip() for cell in row.split(",")]
        index = _number(cells[0])
        if len(cells) != 8 or index is None or not 0 <= index < MOST_GPUS:
            continue
        clock, top = _number(cells[5]), _number(cells[6])
        found[int(index)] = Gpu(
            index=int(index),
            util=_number(cells[1]),
            mem_util=_number(cells[2]),
            power_w=_number(cells[3]),
            limit_w=_number(cells[4]),
            memory_mib=_number(cells[7]),
            clock=clock / top if clock is not None and top else None,
        )
    return tuple(found[index] for index in sorted(found))


def _number(text: str) -> float | None:
    """Digits with at most one point; a negative or endless number is none."""
    if not text or len(text) > 25 or not text.isascii():
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
