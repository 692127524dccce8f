"""Hostile and broken input through the whole flow: a clear line or an entry, no traceback."""

import errno
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

import pytest

from sluggish.cli.screen import look_of
from sluggish.diagnose import diagnose, gather
from sluggish.evidence import source
from sluggish.evidence.archive import unpack
from sluggish.evidence.model import Bundle, Unread
from sluggish.evidence.open import load, text_of
from sluggish.evidence.source import EvidenceError, Item, open_regular
from sluggish.facts.fabric import Port
from sluggish.facts.gpu import Xid
from sluggish.facts.host import HungTask, KernelSpan
from sluggish.facts.origin import Origin
from sluggish.probes import PROBES, gpu_samples, kernel_log
from sluggish.report import terminal
from sluggish.report.json import render

IB = b"CA 'mlx5_0'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Active\n"


def unpacked(name: str, into: Path) -> Path:
    """A packaged story as a directory that a test may spoil."""
    with as_file(files("sluggish.demo") / f"{name}.tar.gz") as path, tarfile.open(path) as tar:
        tar.extractall(into, filter="data")
    return next(into.iterdir())


@pytest.fixture
def seed(tmp_path: Path) -> Path:
    return unpacked("seed", tmp_path / "story")


def edit(root: Path, **changes: object) -> None:
    """Change keys of the manifest and of its first node (`node_...`)."""
    path = root / "manifest.json"
    manifest = json.loads(path.read_text())
    for key, value in changes.items():
        if key.startswith("node_"):
            manifest["nodes"][0][key.removeprefix("node_")] = value
        else:
            manifest[key] = value
    path.write_text(json.dumps(manifest))


def read(*paths: Path) -> Bundle:
    return load([str(path) for path in paths], PROBES)


def in_memory(name: str, content: bytes) -> Item:
    return Item(name=name, size=len(content), read=lambda at, n: content[at : at + n])


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_chain_of_name_headers_ends_the_archive(kind: bytes) -> None:
    body = b"13 path=aaaa\n" if kind == tarfile.XHDTYPE else b"a/b/c/d/e/f/\0"
    chain = (header(kind, 13) + body.ljust(512, b"\0")) * 3_000
    (gone,) = unpack(in_memory("a.tar", chain))
    assert isinstance(gone, Unread)
    assert "headers without end" in gone.why


def test_a_member_with_an_endless_name_is_not_read() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("n" * 5_000, "gpu-07/ib.txt"):
            info = tarfile.TarInfo(name)
            info.size = len(IB)
            tar.addfile(info, io.BytesIO(IB))
    gone, kept = unpack(in_memory("a.tar", out.getvalue()))
    assert isinstance(gone, Unread)
    assert gone.why == "its name is too long: not read"
    assert isinstance(kept, Item)
    assert kept.name == "gpu-07/ib.txt"


def test_more_bundles_in_one_place_than_anybody_has_are_refused(tmp_path: Path) -> None:
    for number in range(1_001):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "manifest.json").write_text('{"schema": 1}')
    with pytest.raises(EvidenceError, match="more than 1000 bundles"):
        read(tmp_path)


def test_a_path_without_end_still_says_what_is_wrong() -> None:
    with pytest.raises(EvidenceError, match=r"^…x{199}: no such file or folder$"):
        load(["x" * 5_000], PROBES)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """A folder that the user `nobody` can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield unpacked("seed", Path(folder))


def test_a_folder_without_permission_is_denied_and_not_missing(open_to_all: Path) -> None:
    shut = open_to_all / "nodes/gpu-07"
    shut.chmod(0)
    me = os.geteuid()
    try:
        if me == 0:
            os.seteuid(65534)  # root reads everything
        bundle = read(open_to_all)
    finally:
        os.seteuid(me)
        shut.chmod(0o755)
    told = {(e.error, e.stderr) for e in bundle.evidence if e.node == "gpu-07" and e.error}
    assert told == {("denied", "Permission denied")}


@pytest.mark.parametrize(
    "at",
    ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00", "1969-12-31T00:00:00Z"],
)
def test_a_time_out_of_this_world_is_unknown(seed: Path, at: str) -> None:
    edit(seed, taken_at=at, node_now=at)
    bundle = read(seed)
    assert bundle.taken_at is None
    assert bundle.clocks[0].now is None


@pytest.mark.parametrize("seconds", [1e308, -1e308, 1e12])
def test_a_clock_out_of_this_world_is_unknown(seed: Path, seconds: float) -> None:
    edit(seed, node_uptime_s=seconds, node_clock_offset_s=seconds, node_utc_offset_s=10**9)
    clock = read(seed).clocks[0]
    assert (clock.uptime_s, clock.offset_s, clock.utc_offset_s) == (None, None, 0)


def test_a_world_of_a_billion_ranks_is_none(seed: Path) -> None:
    for file in seed.glob("nodes/*/rank_procs.*.txt"):
        file.write_text(file.read_text().replace("WORLD_SIZE=16", "WORLD_SIZE=999999999"))
    assert diagnose(read(seed)).summary.world_size == 16  # from NCCL's lines


@pytest.mark.parametrize("rank", [10**12, -3])
def test_a_rank_out_of_this_world_is_unknown(seed: Path, rank: int) -> None:
    manifest = json.loads((seed / "manifest.json").read_text())
    changed = [e | {"rank": rank} if e["rank"] == 5 else e for e in manifest["evidence"]]
    edit(seed, evidence=changed)
    bundle = read(seed)
    assert {e.rank for e in bundle.evidence} == {None, *range(16)} - {5}
    assert diagnose(bundle).verdict.cause == "rank_desync"


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="needs /proc")
def test_a_file_without_a_size_is_never_read_as_an_empty_answer() -> None:
    bundle = read(Path("/proc/self/mounts"))
    assert bundle.evidence == ()
    assert "a file without a size" in bundle.unread[0].why


def test_a_kernel_log_too_big_to_be_read_whole_tells_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = "".join(f"[70000.{n:06d}]  rpc_wait_{n}+0x24/0x90 [sunrpc]\n" for n in range(30))
    told = (
        "[70000.000000] NVRM: Xid (PCI:0000:ab:00): 79, pid=7, name=python, GPU has fallen off "
        "the bus.\n[70000.000000] INFO: task python:4711 blocked for more than 120 seconds.\n"
        "[70000.000000] Call Trace:\n" + stack
    )
    quiet = [f"[{n}.000000] usb 1-7: new high-speed USB device number {n}\n" for n in range(90_000)]
    (tmp_path / "k.txt").write_text("".join([*quiet[:70_000], told, *quiet[70_000:]]))
    whole = gather(read(tmp_path), PROBES)
    monkeypatch.setattr(kernel_log, "WHOLE", 1 << 20)
    (evidence,) = read(tmp_path).evidence
    assert 0 < len(text_of(evidence, kernel_log)) < evidence.size / 2
    windowed = gather(read(tmp_path), PROBES)
    for kind in (Xid, HungTask):
        assert windowed.all(kind) == whole.all(kind) != ()
    assert windowed.all(KernelSpan)[0].bytes_left_out > evidence.size / 2
    assert windowed.all(KernelSpan)[0].last_at == whole.all(KernelSpan)[0].last_at


@pytest.mark.parametrize("reads", range(8))
def test_a_file_that_vanishes_at_any_moment_is_an_entry_and_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: int
) -> None:
    (tmp_path / "gpu-07.txt").write_bytes(IB)
    (tmp_path / "gpu-08.gz").write_bytes(gzip.compress(IB))
    left = [reads]

    def failing(root: str, name: str) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return open_regular(root, name)

    monkeypatch.setattr(source, "open_regular", failing)
    bundle = read(tmp_path)
    facts = gather(bundle, PROBES)
    told = [*(one.why for one in bundle.unread), *(gap.why for gap in facts.gaps)]
    seen = len(facts.all(Port))
    assert seen == 2 or any("No such file" in why for why in told)


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs /proc")
def test_a_file_that_only_gives_errors_is_one_line() -> None:
    with pytest.raises(EvidenceError, match="not readable: Input/output error"):
        read(Path("/proc/self/mem"))


def test_what_was_read_of_a_big_log_is_said(tmp_path: Path) -> None:
    filler = "2026-11-24 03:00:01,123 - INFO - nothing to see here\n" * 100_000
    (tmp_path / "job.log").write_text("gpu-07:1:2 [0] NCCL INFO x\n" + filler)
    told = diagnose(read(tmp_path)).verdict.not_checked
    (gap,) = (gap for gap in told if gap.what.startswith("the rest of "))
    assert gap.what.endswith("/job.log")
    assert gap.why == "searched for known words; read around them, head and tail: 1.6 of 5.3 MB"


def test_of_a_long_recording_of_samples_the_end_is_read() -> None:
    head = "timestamp, index, utilization.gpu [%], power.draw [W]\n"
    rows = (f"2026/11/24 03:00:00.000, 0, {n % 100} %, {n}.00 W\n" for n in range(60_000))
    found = list(gpu_samples.parse(head + "".join(rows), Origin(node="a")))
    assert (len(found), found[-1].power_w) == (50_000, 59_999.0)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    line = f"{sys.executable} -m sluggish {command}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("demo >&-", 2, "sluggish: stdout is closed: there is nowhere to print to\n"),
        ("demo >/dev/full", 1, "sluggish: cannot print: No space left on device\n"),
        ("demo 2>&-", 12, ""),
        ("diagnose /does/not/exist 2>&-", 2, ""),
        ("demo <&-", 12, ""),
    ],
)
def test_a_broken_stream_is_one_line_and_no_traceback(command: str, code: int, says: str) -> None:
    done = shell(command)
    assert (done.returncode, done.stderr) == (code, says)


def test_a_reader_that_leaves_early_is_no_error_text() -> None:
    done = shell("demo --json | head -c 20")
    assert done.stderr == ""
    assert len(done.stdout) == 20


class Terminal(io.StringIO):
    """Looks like a terminal; its size comes from COLUMNS."""

    encoding = "utf-8"  # pyright: ignore[reportAssignmentType]

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "width"), [("80", 80), ("20", 72), ("300", 100)])
def test_the_screen_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, columns: str, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert look_of(Terminal()).width == width


HOSTILE_NAMES = (
    "gpu-07;reboot", "$(reboot)", "`reboot`", "-rf", "gpu 07", "gpu-07\nreboot", "\x1b[2Jgpu-07",
    "\u202egpu-07", "<b>gpu-07</b>", "../gpu-07", "{node}", "gpu-07\\", "ｇpu-07", "a" * 300,
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_hostile_node_name_reaches_no_command_and_no_terminal(tmp_path: Path, name: str) -> None:
    root = unpacked("xid79", tmp_path / "story")
    manifest = (root / "manifest.json").read_text()
    (root / "manifest.json").write_text(manifest.replace('"gn-22"', json.dumps(name)))
    diagnosis = diagnose(read(root))
    for remedy in diagnosis.remedies:
        assert not any(name in command for command in remedy.commands)
    assert name not in (diagnosis.verdict.next_probe or "")
    for text in (render(diagnosis), terminal.render(diagnosis, explain=True)):
        assert "\x1b" not in text
        assert "\u202e" not in text
