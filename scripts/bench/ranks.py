"""Who waits for whom at scale: `sluggish ranks` beside torchfrtrace, same dumps, same run.

    scripts/run >/dev/null; python3 -m venv /tmp/peer; /tmp/peer/bin/pip install torch==2.13.0
    .venv/bin/python scripts/bench/ranks.py --peer /tmp/peer/bin/python [--ranks 64,512]

Writes dumps of 2,000 entries with 34 frames each, no two equal in content (0.75 MB a rank), runs
both programs on each size and checks our answer. CPU seconds are user + system of a program and
its children; the memory is the peak sum of resident sets of a program and its children. Goals
(less CPU than the peer): 6x at 64 ranks, 10x at 512, 20x at 2,048; ours at most 25 CPU-s and
500 MB at 2,048, 75 CPU-s and 1 GB at 8,192. The peer needs about 500 CPU-s and 9 GB at 2,048 and
does not fit beyond: `--no-peer-above` says up to which size it runs.
"""

import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from evalgen.flight_recorder import PREFIX, Group, Recorder, frame, pickled

ROOT = Path(__file__).parents[2]
ENTRIES = 2_000
FRAMES = 34
SITES = 24
START_NS = 1_795_995_484_952_418_610
STEP_NS, TOOK_NS = 31_000_000, 9_000_000
GOALS = {64: 6.0, 512: 10.0, 2_048: 20.0}
CPU_S = {2_048: 25.0, 8_192: 75.0}
RSS_MB = {2_048: 500.0, 8_192: 1_000.0}
_LONG8 = re.compile(rb"\x8a\x08(.{8})", re.DOTALL)  # pickle's LONG1 of 8 bytes: our times


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a program took."""

    cpu_s: float
    wall_s: float
    rss_mb: float
    exit_code: int
    out: str


def template(world: int, *, odd: bool) -> bytes:
    """The dump of one rank: a wrapped ring of unshards and reduce-scatters, hung at its end."""
    group = Group(name="0", desc="default_pg", ranks=tuple(range(world)))
    rec = Recorder(rank=0, groups=(group,), first_record=81_234, first_seq=40_000)
    pool = [
        frame(f"fn_{i}", f"/usr/lib/python3.12/dist-packages/torch/fsdp/_mod_{i % 40}.py", 100 + i)
        for i in range(220)
    ]
    sites = [[pool[(7 * site + k) % len(pool)] for k in range(FRAMES)] for site in range(SITES)]
    for i in range(ENTRIES):
        op, ins, outs = ("_all_gather_base", [65_536], [65_536 * world])
        if i % 2:
            op, ins, outs = ("_reduce_scatter_base", [65_536 * world], [65_536])
        last = i == ENTRIES - 1
        if last and odd:
            op, ins, outs = "all_reduce", [1], [1]
        at = START_NS + i * STEP_NS
        call = rec.collective(group, op, [ins], [outs], at_ns=at, frames=sites[i % SITES])
        if not last:
            rec.complete(call, at_ns=at + TOOK_NS)
    return pickled(rec.dump())


def varied(content: bytes) -> Iterator[bytes]:
    """Dumps that differ in every time, one a rank, by patching the bytes."""
    places = [
        found.start(1)
        for found in _LONG8.finditer(content)
        if 0 <= struct.unpack("<q", found[1])[0] - START_NS < 10**15
    ]
    told = [struct.unpack_from("<q", content, place)[0] for place in places]
    starts, ends = [0, *[p + 8 for p in places]], [*places, None]
    pieces = [content[a:b] for a, b in zip(starts, ends, strict=True)]
    for rank in range(1 << 30):
        jitter = [t + (rank * 7_919 + i * 104_729) % 900_001 for i, t in enumerate(told)]
        packed = struct.pack(f"<{len(jitter)}q", *jitter)
        parts = [pieces[0]]
        for i, piece in enumerate(pieces[1:]):
            parts += (packed[8 * i : 8 * i + 8], piece)
        yield b"".join(parts)


def write(folder: Path, world: int, culprit: int) -> int:
    """All dumps of a job; bytes written."""
    usual, odd = varied(template(world, odd=False)), varied(template(world, odd=True))
    total = 0
    for rank in range(world):
        content, other = next(usual), next(odd) if rank == culprit else b""
        total += (folder / f"{PREFIX}{rank}").write_bytes(other or content)
    return total


def _family(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        try:
            told = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += [int(child) for child in told.split()]
    return found


def _resident_mb(pid: int) -> float:
    """Proportional sets: pages that a parent and its children share count once."""
    total = 0
    for one in _family(pid):
        try:
            told = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss:\s+(\d+) kB", told, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024


def measured(command: list[str]) -> Cost:
    """Run a program to its end; what it and its children used."""
    before, start = os.times(), time.perf_counter()
    peak = [0.0]
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL, cwd=ROOT)
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                peak[0] = max(peak[0], _resident_mb(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        process.wait()
        done.set()
        watcher.join()
        out.seek(0)
        text = out.read()
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return Cost(cpu, wall, peak[0], process.returncode, text)


def answers(cost: Cost, culprit: int) -> bool:
    """Whether our document names the odd rank and nobody else."""
    try:
        told = json.loads(cost.out)
    except ValueError:
        return False
    return told["state"] == "mismatch" and [c["rank"] for c in told["culprits"]] == [culprit]


def _line(name: str, cost: Cost, verdict: str) -> None:
    print(
        f"  {name:13} {cost.cpu_s:8.1f} CPU-s {cost.wall_s:8.1f} s wall {cost.rss_mb:8.0f} MB  "
        f"exit {cost.exit_code}  {verdict}",
        flush=True,
    )


def _said(good: bool) -> str:
    return "ok" if good else "MISSED"


def compare(world: int, folder: Path, peer: str | None) -> bool:
    """One size: write the dumps, run both, print; True where every goal was met."""
    culprit = world - world // 3
    size = write(folder, world, culprit)
    print(f"{world} ranks, {size / 1e6:.0f} MB of dumps, culprit {culprit}", flush=True)
    ours = measured([sys.executable, "-m", "sluggish", "ranks", "--json", str(folder)])
    good = answers(ours, culprit)
    _line("sluggish", ours, "right answer" if good else "WRONG ANSWER")
    for name, told, limits in (("CPU-s", ours.cpu_s, CPU_S), ("MB", ours.rss_mb, RSS_MB)):
        if world in limits:
            fits = told <= limits[world]
            print(f"  at most {limits[world]:.0f} {name}: {told:.1f} {_said(fits)}")
            good &= fits
    if peer:
        script = "from torch.distributed.flight_recorder.fr_trace import main; main()"
        theirs = measured([peer, "-c", script, "-p", PREFIX, str(folder)])
        _line("torchfrtrace", theirs, "")
        ratio, goal = theirs.cpu_s / ours.cpu_s, GOALS.get(world)
        aim = f" (goal {goal:.0f}) {_said(ratio >= goal)}" if goal else ""
        print(f"  {ratio:.1f} times less CPU{aim}, {theirs.wall_s / ours.wall_s:.1f} times faster")
        good &= goal is None or ratio >= goal
    return good


def main() -> None:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    asked.add_argument("--peer", help="python of an environment with torch 2.13.0")
    asked.add_argument("--ranks", default="64,512", help="sizes, default 64,512")
    asked.add_argument("--no-peer-above", type=int, default=2_048)
    asked.add_argument("--folder", help="where to write, default: the temporary folder")
    told = asked.parse_args()
    good = True
    for world in map(int, told.ranks.split(",")):
        folder = Path(tempfile.mkdtemp(prefix="ranks-bench-", dir=told.folder))
        try:
            peer = told.peer if world <= told.no_peer_above else None
            good &= compare(world, folder, peer)
        finally:
            shutil.rmtree(folder)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
