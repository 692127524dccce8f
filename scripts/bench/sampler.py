"""What `sluggish watch` costs a node: CPU of the sampler's script, beside what it may cost.

    .venv/bin/python scripts/bench/sampler.py [--ranks 16]

Twelve samples and one search for the job's processes, as a minute at 5 s has; `nvidia-smi` itself
is not counted. Goal: below half a per cent of one core.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "watch"))

from sampled import ran

from sluggish.reach.sampler import build

GOAL = 0.005


def main() -> int:
    """One minute's samples; 1 where they cost too much."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--ranks", type=int, default=16)
    count = asked.parse_args().ranks
    job = str(500_000 + os.getpid())
    env = {**os.environ, "SLURM_JOB_ID": job}
    ranks = [subprocess.Popen(["sleep", "60"], env={**env, "RANK": str(n)}) for n in range(count)]
    try:
        with tempfile.NamedTemporaryFile() as log:
            script = build(job=job, uid=os.getuid(), logs=[log.name], every_s=1, life_s=12)
            spent, _, lines = ran(script)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    share = spent / 60
    word = "ok" if share < GOAL else "TOO MUCH"
    print(f"{count} ranks, {len(lines)} lines: {spent:.3f} CPU-s a minute, {share:.2%} of a core")
    print(f"  below {GOAL:.1%}: {word}")
    return int(share >= GOAL)


if __name__ == "__main__":
    sys.exit(main())
