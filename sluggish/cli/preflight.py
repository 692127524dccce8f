"""`sluggish preflight`: what must hold before a job starts. Reads, and changes nothing."""

import sys
from pathlib import Path

from sluggish.causes import EXIT_UNFIT
from sluggish.cli.screen import look_of, show
from sluggish.preflight import counts_report, script_report
from sluggish.preflight.counts import Counted, Plan, judge
from sluggish.preflight.dataset import count_files
from sluggish.preflight.script import check, fit
from sluggish.preflight.sources import read_counts


def run_counts(
    counts: Path | None, dataset: str | None, plan: Plan, *, as_json: bool = False
) -> int:
    """Steps of every rank; 40 where they are not even, or none."""
    if counts is not None:
        counted = Counted(blocks=read_counts(counts), source=str(counts))
    else:
        counted = count_files(dataset or "")
    answer = judge(counted, plan)
    if as_json:
        show(counts_report.document(answer))
    else:
        show(counts_report.render(answer, look_of(sys.stdout)))
    return 0 if answer.fit else EXIT_UNFIT


def run_script(file: Path, *, as_json: bool = False) -> int:
    """What a launch script will do when something breaks; it is read and never run."""
    script = script_report.load(file)
    if as_json:
        show(script_report.document(script, str(file)))
    else:
        show(script_report.render(script, str(file), look_of(sys.stdout)))
    return 0 if fit(check(script)) else EXIT_UNFIT
