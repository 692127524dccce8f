"""How long `sluggish history` and a record take on a large ledger.

    .venv/bin/python scripts/bench/history.py [LOOKS] [NODES_OF_A_JOB] [NODES_OF_THE_CLUSTER]

Makes a ledger in a temporary folder (20,000 looks at 128 of 1,024 nodes each, every node named by
some verdict) and prints wall and CPU seconds of a whole command; a query has 30 s (`keep.READ_S`),
a record 4 s (`keep.WRITE_S`).
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sluggish.history import ledger
from sluggish.history.ledger_file import opened, write
from sluggish.hostlist import fold

SLUGGISH = [sys.executable, "-m", "sluggish", "history", "--db"]
VERDICTS = (("gpu_fault", "ecc"), ("rank_desync", "collective_mismatch"), ("unknown", "hang"),
            ("app_crash", "exception"), ("progressing", "steady"))  # fmt: skip
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def look(number: int, nodes: list[str], dice: random.Random) -> dict[str, Any]:
    """A look every 20 minutes, at a job that is looked at three times."""
    cause, subtype = dice.choice(VERDICTS)
    at = BEGAN + timedelta(minutes=20 * number)
    culprit = dict.fromkeys(ledger.CULPRIT) | {"node": dice.choice(nodes), "gpu_index": 3}
    return dict.fromkeys(ledger.ENTRY) | {
        "job": str(number // 3), "started": f"{BEGAN:%Y-%m-%dT%H:%M:%SZ}",
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}", "name": "llm-70b", "user": "alice", "cause": cause,
        "subtype": subtype, "confidence": "high", "shared": False, "gpu_hours": 2.5,
        "nodes": fold(nodes), "culprits": [] if cause == "progressing" else [culprit],
    }  # fmt: skip


def make(path: Path, looks: int, of_job: int, of_cluster: int) -> None:
    """All in one transaction: as many records one by one take an hour of disk."""
    dice = random.Random(1)
    names = [f"gpu-{number:04}" for number in range(of_cluster)]
    with closing(opened(path, [], create=True)) as db:

        def fill() -> None:
            for number in range(looks):
                first = dice.randrange(of_cluster - of_job + 1)
                nodes = names[first : first + of_job]
                ledger.add_entry(db, look(number, nodes, dice), nodes, [])

        write(db, fill)


def timed(name: str, argv: list[str], stdin: str | None = None) -> None:
    """The seconds of one command, its children's too."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if done.returncode:
        sys.exit(f"{name}: {done.stderr.strip()[:500]}")
    size = len(done.stdout) / 1e6
    print(f"{name:26} {wall:6.2f} s wall  {cpu:6.2f} s CPU  {size:7.1f} MB printed")


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]]
    looks, of_job, of_cluster = (*numbers, *(20_000, 128, 1_024)[len(numbers) :])
    with tempfile.TemporaryDirectory(prefix="sluggish-") as folder:
        path = Path(folder) / "history.db"
        make(path, looks, of_job, of_cluster)
        size = path.stat().st_size / 1e6
        print(f"{looks:,} looks at {of_job} of {of_cluster:,} nodes: {size:.0f} MB")
        db = [*SLUGGISH, str(path)]
        node = f"gpu-{of_cluster // 2:04}"
        timed("history", db)
        timed("history --json", [*db, "--json"])
        timed("history --csv", [*db, "--csv"])
        timed("history --node", [*db, "--node", node])
        last = BEGAN + timedelta(minutes=20 * looks) - timedelta(days=7)
        timed("history --since (7 days)", [*db, "--since", f"{last:%Y-%m-%d}"])
        nodes = [f"gpu-{number:04}" for number in range(of_job)]
        asked = {"do": "entry", "path": str(path), "nodes": nodes, "about": nodes[:8],
                 "entry": look(looks + 1, nodes, random.Random(2))}  # fmt: skip
        child = "from sluggish.history.ledger import main; main()"
        timed("a record", [sys.executable, "-c", child], json.dumps(asked))


if __name__ == "__main__":
    main()
