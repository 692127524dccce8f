"""What the watch makes of made-up jobs: alarms of healthy ones, seconds until a hang is told.

    .venv/bin/python scripts/bench/watch.py [--days 40] [--hangs 40] [--seed 3000] [--write]

The seeds are others than those on which the thresholds were set (0 to 199) or repaired (2000 to
2039, 700000 to 940000). `--write` puts the tables into docs/watch.md. Two processes; 40 job-days
and 1,000 hangs take a minute or two.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.watch import odd, play, traces

PAGE = ROOT / "docs/watch.md"
BEGIN, END = "<!-- measured by scripts/bench/watch.py -->\n", "<!-- end -->\n"
JOB_S = 6 * 3600.0
KINDS = (*traces.KINDS, *odd.KINDS)
HANGS = (*traces.HANGS, *odd.HANGS)


def one(told: tuple[str, str, int]) -> play.Told:
    what, kind, seed = told
    return play.healthy(kind, seed, JOB_S) if what == "healthy" else play.hanging(kind, seed)


def tables(days: float, hangs: int, seed: int) -> str:
    a_kind = max(1, round(days * 86400 / JOB_S / len(KINDS)))
    work = [("healthy", kind, seed + n) for kind in KINDS for n in range(a_kind)]
    work += [("hanging", kind, seed + n) for kind in HANGS for n in range(hangs)]
    with ProcessPoolExecutor(2) as pool:
        done = list(pool.map(one, work, chunksize=4))
    found: dict[tuple[str, str], list[play.Told]] = {}
    for (what, _, _), told in zip(work, done, strict=True):
        found.setdefault((what, told.kind), []).append(told)
    lines = ["| healthy jobs | job-days | notices | alarms |", "|---|---|---|---|"]
    total = alarms = 0.0
    for kind in KINDS:
        runs = found["healthy", kind]
        spent = sum(run.seconds for run in runs) / 86400
        count = sum(len(run.alerts) for run in runs)
        total, alarms = total + spent, alarms + count
        notices = sum(run.notices for run in runs)
        lines.append(f"| {kind} | {spent:.1f} | {notices} | {count} |")
    lines += [f"| **all** | **{total:.1f}** | | **{alarms:.0f}** |", ""]
    lines.append(f"| hang, {hangs} each | notice p50 | p95 | alert p50 | last | too early |")
    lines.append("|---|---|---|---|---|---|")
    for kind in HANGS:
        runs = found["hanging", kind]
        notice = [float("inf") if run.notice_s is None else run.notice_s for run in runs]
        alert = [float("inf") if run.alert_s is None else run.alert_s for run in runs]
        early = sum(len(run.alerts) for run in runs)
        halves = (play.quantile(notice, 0.5), play.quantile(notice, 0.95))
        rest = (play.quantile(alert, 0.5), max(alert))
        cells = " | ".join(f"{value:.0f} s" for value in (*halves, *rest))
        lines.append(f"| {kind} | {cells} | {early} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=float, default=40.0)
    parser.add_argument("--hangs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=3000)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    text = tables(args.days, args.hangs, args.seed)
    print(text)
    if args.write:
        page = PAGE.read_text()
        before, _, rest = page.partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
