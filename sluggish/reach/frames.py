"""The framed answer of a node: pure, bounded, and safe from whatever the node's programs print.

A frame is one head line that begins with the run's own random boundary, then as many bytes as it
announces. What a program prints never stands in the stream unannounced, so it cannot forge a head.
"""

import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from sluggish.evidence.model import Clock, Evidence
from sluggish.evidence.source import window_of
from sluggish.facts.host import NodeIdentity
from sluggish.facts.origin import Origin
from sluggish.facts.store import CLOCK_FLOOR_S
from sluggish.probes import identity
from sluggish.reach.model import Ask, Frame

MOST_HEAD = 600
CAP_BYTES = Ask().cap_bytes
SLACK = 1 << 20
"""What a script may add to the content that was asked for: marks, what it says on stderr."""
MOST_NAME = 8_192
_FIELD = re.compile(rb"[\x20-\x7b\x7d\x7e]{0,80}\Z")
_ERRORS = ("timeout", "denied", "not found", "stuck", "truncated", "alive", "not run")


class Frames:
    """Bytes in, frames out. One of these for each node's answer."""

    def __init__(self, boundary: str, cap_bytes: int = CAP_BYTES) -> None:
        """`cap_bytes`: as in the Ask; a frame that announces or unpacks to more is not believed."""
        self._most = cap_bytes + SLACK
        self._mark = boundary.encode() + b"|"
        self._buffer = bytearray()
        self._head: tuple[list[str], tuple[int, int, int]] | None = None
        self._scale: tuple[datetime, int] | None = None
        self.ended = False
        """The script said that it came to its end."""
        self.noise = b""
        """The first bytes outside of all frames: a banner, a shell's complaint."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete."""
        self._buffer += data
        while True:
            if self._head is None and not self._find_head():
                return
            assert self._head is not None
            fields, lengths = self._head
            if len(self._buffer) < sum(lengths):
                return
            name, content, stderr = self._cut(lengths)
            self._head = None
            if fields[1] == "end":
                self.ended = True
            else:
                yield self._frame(fields, name, content, stderr)

    def close(self) -> tuple[Frame, ...]:
        """The frame that was cut off in its middle, if there is one: kept, and said to be cut."""
        if self._head is None:
            return ()
        fields, lengths = self._head
        self._head = None
        name, content, stderr = self._cut(lengths)
        return (replace(self._frame(fields, name, content, stderr), error="truncated"),)

    def _find_head(self) -> bool:
        while True:
            at = self._buffer.find(self._mark)
            if at < 0:
                self._drop(max(0, len(self._buffer) - len(self._mark) + 1))
                return False
            self._drop(at)
            end = self._buffer.find(b"\n", 0, MOST_HEAD)
            if end < 0 and len(self._buffer) < MOST_HEAD:
                return False
            head = _head(bytes(self._buffer[: max(end, 0)]), self._most)
            if head is None:
                self._drop(len(self._mark))
                continue
            del self._buffer[: end + 1]
            self._head = head
            return True

    def _drop(self, count: int) -> None:
        if len(self.noise) < 2_000:
            self.noise += bytes(self._buffer[: min(count, 2_000)])
        del self._buffer[:count]

    def _cut(self, lengths: tuple[int, int, int]) -> tuple[bytes, bytes, bytes]:
        out: list[bytes] = []
        for length in lengths:
            out.append(bytes(self._buffer[:length]))
            del self._buffer[:length]
        return out[0], out[1], out[2]

    def _frame(self, fields: list[str], name: bytes, content: bytes, stderr: bytes) -> Frame:
        _, probe, sample, rank, rights, start, took, rc, error = fields[:9]
        cut = ""
        if fields[12] == "1":
            content, cut = _unpacked(content, self._most)
        frame = Frame(
            probe=probe,
            sample=sample if sample in ("a", "b") else "",
            rank=int(rank) if rank.isdigit() else None,
            name=name.decode("utf-8", "replace"),
            rights=rights or None,
            duration_s=int(took) / 100 if took.lstrip("-").isdigit() else None,
            exit_code=int(rc) if rc.isdigit() else None,
            error=_error(error) or cut or None,
            stderr=stderr.decode("utf-8", "replace"),
            content=content,
        )
        begun = int(start) if start.isdigit() else None
        if probe == "identity" and self._scale is None and begun is not None:
            told = _now_and_uptime(_identity(frame))
            if told:
                self._scale = (told[0], round(told[1] * 100))
        if self._scale and begun is not None:
            at, uptime = self._scale
            frame = replace(frame, started_at=at + timedelta(seconds=(begun - uptime) / 100))
        return frame


def _error(word: str) -> str:
    if word == "alive":
        return "timeout"
    return word if word in _ERRORS else ""


def _head(line: bytes, most: int) -> tuple[list[str], tuple[int, int, int]] | None:
    parts = line.split(b"|")
    if len(parts) != 13 or not all(_FIELD.match(part) for part in parts):
        return None
    fields = [part.decode("ascii") for part in parts]
    sizes = fields[9:12]
    if not fields[1] or not all(size.isdigit() for size in sizes):
        return None
    name, content, stderr = (int(size) for size in sizes)
    if name > MOST_NAME or content > most or stderr > most:
        return None
    return fields, (name, content, stderr)


def _unpacked(content: bytes, most: int) -> tuple[bytes, str]:
    """Content of a gzip stream and "", or what of it was whole and `truncated`."""
    stream = zlib.decompressobj(wbits=31)
    try:
        out = stream.decompress(content, most)
    except zlib.error:
        return b"", "truncated"
    return out, "" if stream.eof else "truncated"


def _identity(frame: Frame) -> NodeIdentity | None:
    """What the node said of itself, read as its probe reads it."""
    try:
        for fact in identity.parse(frame.content.decode("utf-8", "replace"), Origin()):
            if isinstance(fact, NodeIdentity):
                return fact
    except ValueError:
        pass
    return None


def _now_and_uptime(told: NodeIdentity | None) -> tuple[datetime, float] | None:
    """Wall clock, in the middle of what it may have been, and uptime of one reading."""
    if told is None or told.now is None or told.uptime_s is None:
        return None
    return told.now + timedelta(seconds=told.now_error_s), told.uptime_s


def clock_of(frame: Frame, node: str, sent: datetime, got: datetime) -> Clock:
    """A node's clock by its `identity`, asked between `sent` and `got` of the collector's clock.

    The node read its clock at some moment between the two: the offset is to the middle, known to
    half the round trip.
    """
    told = _identity(frame)
    both = _now_and_uptime(told)
    half = (got - sent) / 2
    known = Clock(
        node=node,
        boot_id=told.boot_id if told else None,
        utc_offset_s=(told.utc_offset_s or 0) if told else 0,
    )
    if told is None or both is None:
        return known
    return replace(
        known,
        offset_s=round((both[0] - (sent + half)).total_seconds(), 3),
        error_s=round(half.total_seconds() + told.now_error_s, 3),
        now=both[0],
        uptime_s=both[1],
    )


UPTIME_S = 0.02
"""Two readings of /proc/uptime, of hundredths of a second, and the moment between it and `date`."""


def clock_again(known: Clock, frame: Frame, got: datetime) -> Clock:
    """The node's clock with its second reading, which lay with us at `got`.

    It narrows the offset where its way was the quicker one, and shows what the clock gained on the
    uptime since: no network and no load is in that.
    """
    told = _identity(frame)
    both = _now_and_uptime(told)
    if told is None or both is None or known.now is None or known.uptime_s is None:
        return known
    drift = (both[0] - known.now).total_seconds() - (both[1] - known.uptime_s)
    drift = round(drift, 3) if abs(drift) > 2 * told.now_error_s + UPTIME_S else 0.0
    if known.offset_s is None or known.error_s is None:
        return replace(known, drift_s=drift)
    if abs(drift) > CLOCK_FLOOR_S:
        return replace(known, drift_s=drift, error_s=round(known.error_s + abs(drift), 3))
    top = known.offset_s + known.error_s
    floor = (both[0] - got).total_seconds() - told.now_error_s - abs(drift)
    floor = max(known.offset_s - known.error_s, min(floor, top))
    return replace(
        known,
        drift_s=drift,
        offset_s=round((top + floor) / 2, 3),
        error_s=round((top - floor) / 2, 3),
    )


def evidence_of(frame: Frame, node: str, *, path: str) -> Evidence:
    """A frame as Evidence, its content in the file `path`; "" where there is none."""
    file = Path(path) if path else None
    return Evidence(
        node=None if frame.probe == "job_log" else node,
        probe=frame.probe,
        path=path,
        sample=frame.sample,
        rank=frame.rank,
        command=frame.command or (f"{node}:{frame.name}" if frame.name else None),
        rights=frame.rights,
        started_at=frame.started_at,
        duration_s=frame.duration_s,
        exit_code=frame.exit_code,
        error=frame.error,
        stderr=frame.stderr,
        size=len(frame.content),
        open=file.read_bytes if file else bytes,
        file=path or None,
        window=window_of(str(file.parent), file.name) if file else None,
    )
