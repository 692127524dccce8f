"""`sluggish ranks PATH...`: who waits for whom, from dumps, RAS answers and logs alone."""

import gc
import os
import sys
from collections.abc import Sequence

from sluggish.causes import EXIT_CODES, EXIT_NOTHING, Cause
from sluggish.cli.reading import mapper
from sluggish.cli.screen import look_of, show
from sluggish.evidence.bundle import MANIFEST
from sluggish.evidence.model import Bundle
from sluggish.evidence.open import load
from sluggish.evidence.source import EvidenceError
from sluggish.facts.store import Facts
from sluggish.probes import flight_recorder
from sluggish.ranks import gather, ranks_answer


def run(paths: Sequence[str], *, as_json: bool = False, as_csv: bool = False) -> int:
    """Print the answer; 12 where somebody is to blame, 20 where nobody is and all is not seen."""
    from sluggish.report import ranks as report

    if as_json and as_csv:
        raise EvidenceError("give --json or --csv")
    gc.disable()  # facts have no cycles, and of thousands of dumps there are many
    try:
        bundle, facts = _read(paths)
        answer = ranks_answer(facts, bundle.unread)
    finally:
        gc.enable()
    if not answer.sources:
        from sluggish.cli.diagnose import nothing

        nothing(bundle, "no dump, RAS answer or watchdog line here tells of collectives")
        if not as_json:
            return EXIT_NOTHING
    if as_csv:
        show(report.render_csv(facts))
    else:
        show(
            report.render_json(answer)
            if as_json
            else report.render(answer, look_of(sys.stdout).width)
        )
    if not answer.sources:
        return EXIT_NOTHING
    if answer.culprits:
        return EXIT_CODES[Cause.RANK_DESYNC]
    clear = answer.state == "none" and not answer.unobserved
    return 0 if clear else EXIT_CODES[Cause.UNKNOWN]


def _read(paths: Sequence[str]) -> tuple[Bundle, Facts]:
    """Folders that hold dumps alone need one probe; loading all of them takes longer than this."""
    if all(os.path.isdir(p) and not os.path.exists(os.path.join(p, MANIFEST)) for p in paths):
        dumps = load(paths, (flight_recorder,))
        if dumps.loose and dumps.evidence and not dumps.unread:
            return dumps, gather(dumps, (flight_recorder,), mapper())
    from sluggish.probes import PROBES

    bundle = load(paths, PROBES)
    return bundle, gather(bundle, PROBES, mapper())
