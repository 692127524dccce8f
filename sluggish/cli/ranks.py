"""`sluggish ranks PATH...`: who waits for whom, from dumps, RAS answers and logs alone."""

import gc
from collections.abc import Sequence

from sluggish.causes import EXIT_CODES, EXIT_NOTHING, Cause
from sluggish.cli.diagnose import nothing
from sluggish.cli.reading import mapper
from sluggish.cli.screen import show
from sluggish.diagnose import gather
from sluggish.evidence.open import load
from sluggish.probes import PROBES
from sluggish.ranks import ranks_answer


def run(paths: Sequence[str], *, as_json: bool = False, as_csv: bool = False) -> int:
    """Print the answer; 12 where somebody is to blame, 20 where it hangs and nobody is."""
    from sluggish.report import ranks as report

    gc.disable()  # facts have no cycles, and of thousands of dumps there are many
    try:
        bundle = load(paths, PROBES)
        facts = gather(bundle, PROBES, mapper())
        answer = ranks_answer(facts)
    finally:
        gc.enable()
    if not answer.sources:
        nothing(bundle, "no dump, RAS answer or watchdog line here tells of collectives")
        if not as_json:
            return EXIT_NOTHING
    if as_csv:
        show(report.render_csv(facts))
    else:
        show(report.render_json(answer) if as_json else report.render(answer))
    if not answer.sources:
        return EXIT_NOTHING
    if answer.culprits:
        return EXIT_CODES[Cause.RANK_DESYNC]
    return 0 if answer.state == "none" else EXIT_CODES[Cause.UNKNOWN]
